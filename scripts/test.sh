#!/usr/bin/env bash
# Runs every test, also from a fresh clone: set-up, format, lints, the tests of the pure crate and of the bench, the library,
# and the server tests (tests/) on throwaway servers under target/. The last line is the summary.
#   scripts/test.sh            everything
#   scripts/test.sh NAME...    builds, then only these files of tests/tests (without .rs)
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
phase="set-up"
log=""
parallel=""

cleanup() {
    local status=$?
    trap - EXIT INT TERM
    [ -z "$parallel" ] || kill -TERM -- "-$parallel" 2>/dev/null
    stop_child
    [ -z "${RUN:-}" ] || stop_test_servers
    exit "$status"
}
trap cleanup EXIT
trap 'echo "test.sh: interrupted during $phase" >&2; exit 130' INT
trap 'echo "test.sh: terminated during $phase" >&2; exit 143' TERM

# step NAME COMMAND...: prints the name and runs the command. Exits if it fails.
step() {
    phase=$1
    shift
    say "$phase"
    run_child "$@" || {
        echo "test.sh: failed: $phase ($*)" >&2
        exit 1
    }
}

# without_server: runs the lints and tests that need no server.
without_server() {
    local cargo=(--locked --ignore-rust-version)
    say "lints of the library" && scripts/build.sh clippy &&
        say "lints of the other crates" &&
        cargo clippy "${cargo[@]}" -p rowsource-core -p rowsource-tests -p rowsource-bench --all-targets -- -D warnings &&
        say "tests of the pure crate and the bench" &&
        cargo test "${cargo[@]}" -p rowsource-core -p rowsource-bench &&
        cargo test "${cargo[@]}" -p rowsource-tests --lib
}

# Not in the background, because sudo may ask for a password.
say "$phase"
scripts/setup.sh || exit 1
mkdir -p "$TARGET"
log=$TARGET/test.log
: >"$log"
# If it is missing, it is built at the same time as the library, whose last minute uses only one processor.
set -m
scripts/nextest.sh --install >"$log.parallel" 2>&1 &
parallel=$!
set +m
if [ $# -eq 0 ]; then
    step "place of unsafe code, and file sizes" scripts/check-sources.sh
    step "format" cargo fmt --all --check
fi
step "library" scripts/build.sh
step "plain frames" scripts/check-plain.sh
step "private server tree" scripts/tree.sh
wait "$parallel" || { cat "$log.parallel" >&2; exit 1; }
parallel=""
step "test programs" scripts/server-tests.sh --build
export ROWSOURCE_TESTS_BUILT=1
choose_run
status=0
if [ $# -eq 0 ]; then
    phase="lints, tests of the pure crate and the bench, at the same time as the server tests"
    say "$phase"
    set -m
    without_server >"$log.parallel" 2>&1 &
    parallel=$!
    set +m
    run_child logged scripts/server-tests.sh || status=1
    if ! wait "$parallel"; then
        echo "test.sh: failed: lints, or tests of the pure crate or the bench" >&2
        status=1
    fi
    parallel=""
    logged cat "$log.parallel"
else
    phase="server tests"
    run_child logged scripts/server-tests.sh "$@" || status=1
fi
# A run that failed before its summary is not in the counts.
if [ $status -ne 0 ] && sum_up "$log" | grep -q ' 0 failed'; then
    echo "test.sh: failed: $phase (see $log)" >&2
fi
sum_up "$log"
exit $status
