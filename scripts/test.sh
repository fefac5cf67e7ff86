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

cleanup() {
    local status=$?
    trap - EXIT INT TERM
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

# Not in the background: sudo may want to ask.
say "$phase"
scripts/setup.sh || exit 1
mkdir -p "$TARGET"
log=$TARGET/test.log
: >"$log"
if [ $# -eq 0 ]; then
    step "fences and file sizes" scripts/check-sources.sh
    step "format" cargo fmt --all --check
    step "lints of the library" scripts/build.sh clippy
    step "lints of the other crates" cargo clippy --locked --ignore-rust-version -p rowsource-core -p rowsource-tests -p rowsource-bench --all-targets -- -D warnings
    phase="tests of the pure crate and the laboratory"
    say "$phase"
    if ! run_child logged cargo test --locked --ignore-rust-version -p rowsource-core -p rowsource-bench ||
        ! run_child logged cargo test --locked --ignore-rust-version -p rowsource-tests --lib; then
        echo "test.sh: failed: $phase" >&2
        sum_up "$log"
        exit 1
    fi
fi
step "library" scripts/build.sh
step "private server tree" scripts/tree.sh
choose_run
phase="server tests"
say "$phase"
status=0
run_child logged scripts/server-tests.sh "$@" || status=1
# A test program that did not get as far as its result line would not be counted.
if [ $status -ne 0 ] && ! grep -q '^test result: FAILED' "$log"; then
    echo "test.sh: failed: $phase did not run to their end (see $log)" >&2
fi
sum_up "$log"
exit $status
