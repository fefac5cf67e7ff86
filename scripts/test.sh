#!/usr/bin/env bash
# Runs every test, from a fresh clone on: set-up, format, lints, the pure crate, the laboratory's own, the library, and the
# server tests (tests/) on throwaway servers under target/. The last line sums up.
#   scripts/test.sh            everything
#   scripts/test.sh NAME...    builds, then only these files of tests/tests (without .rs)
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
phase="set-up"
log=""
beside=""

cleanup() {
    local status=$?
    trap - EXIT INT TERM
    [ -z "$beside" ] || kill -TERM -- "-$beside" 2>/dev/null
    stop_child
    [ -z "${RUN:-}" ] || stop_test_servers
    exit "$status"
}
trap cleanup EXIT
trap 'echo "test.sh: interrupted during $phase" >&2; exit 130' INT
trap 'echo "test.sh: terminated during $phase" >&2; exit 143' TERM

# step NAME COMMAND...: says what it does; where it fails, that is the end.
step() {
    phase=$1
    shift
    say "$phase"
    run_child "$@" || {
        echo "test.sh: failed: $phase ($*)" >&2
        exit 1
    }
}

# without_server: what needs no server.
without_server() {
    local cargo=(--locked --ignore-rust-version)
    say "lints of the library" && scripts/build.sh clippy &&
        say "lints of the other crates" &&
        cargo clippy "${cargo[@]}" -p rowsource-core -p rowsource-tests -p rowsource-bench --all-targets -- -D warnings &&
        say "tests of the pure crate and the laboratory" &&
        cargo test "${cargo[@]}" -p rowsource-core -p rowsource-bench &&
        cargo test "${cargo[@]}" -p rowsource-tests --lib
}

# Not in the background: sudo may want to ask.
say "$phase"
scripts/setup.sh || exit 1
mkdir -p "$TARGET"
log=$TARGET/test.log
: >"$log"
# Where it is missing, it is built beside the library, whose last minute keeps one processor busy.
set -m
scripts/nextest.sh --install >"$log.beside" 2>&1 &
beside=$!
set +m
if [ $# -eq 0 ]; then
    step "fences and file sizes" scripts/check-sources.sh
    step "format" cargo fmt --all --check
fi
step "library" scripts/build.sh
step "plain frames" scripts/check-plain.sh
step "private server tree" scripts/tree.sh
wait "$beside" || { cat "$log.beside" >&2; exit 1; }
beside=""
step "test programs" scripts/server-tests.sh --build
export ROWSOURCE_TESTS_BUILT=1
choose_run
status=0
if [ $# -eq 0 ]; then
    phase="lints, tests of the pure crate and the laboratory, beside the server tests"
    say "$phase"
    set -m
    without_server >"$log.beside" 2>&1 &
    beside=$!
    set +m
    run_child logged scripts/server-tests.sh || status=1
    if ! wait "$beside"; then
        echo "test.sh: failed: lints, or tests of the pure crate or the laboratory" >&2
        status=1
    fi
    beside=""
    logged cat "$log.beside"
else
    phase="server tests"
    run_child logged scripts/server-tests.sh "$@" || status=1
fi
# A run that did not get as far as its summary would not be counted.
if [ $status -ne 0 ] && sum_up "$log" | grep -q ' 0 failed'; then
    echo "test.sh: failed: $phase (see $log)" >&2
fi
sum_up "$log"
exit $status
