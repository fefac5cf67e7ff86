#!/usr/bin/env bash
# Runs every test, from a fresh clone on: set-up, format, lints, the pure crate, the laboratory's own, the library, and the
# server tests (tests/) on throwaway servers under target/. The last line sums up.
#   scripts/test.sh            everything
#   scripts/test.sh NAME...    builds, then only these files of tests/tests (without .rs)
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"

# step NAME COMMAND...: says what it does; where it fails, that is the end.
step() {
    say "$1"
    "${@:2}" && return
    echo "test.sh: failed: $1"
    exit 1
}

# without_server: what needs no server.
without_server() {
    local cargo=(--locked --ignore-rust-version)
    say "lints of the library" && scripts/build.sh clippy &&
        say "lints of the other crates" &&
        cargo clippy "${cargo[@]}" -p rowsource-core -p rowsource-tests -p rowsource-bench --all-targets -- -D warnings &&
        say "tests of the pure crate and the laboratory, sources, plain frames" &&
        cargo test "${cargo[@]}" -p rowsource-core -p rowsource-bench &&
        cargo test "${cargo[@]}" -p rowsource-tests --lib
}

run() {
    local nextest beside status=0
    # Where it is missing, it is built beside the library, whose last minute keeps one processor busy.
    scripts/nextest.sh --install &
    nextest=$!
    [ $# -gt 0 ] || step "format" cargo fmt --all --check
    step "library" scripts/build.sh
    step "private server tree" scripts/tree.sh
    step "cargo-nextest" wait "$nextest"
    step "test programs" scripts/server-tests.sh --build
    export ROWSOURCE_TESTS_BUILT=1
    [ $# -eq 0 ] || step "server tests" scripts/server-tests.sh "$@"
    [ $# -eq 0 ] || return 0
    without_server >"$TARGET/beside.log" 2>&1 &
    beside=$!
    (step "server tests, and beside them what needs no server" scripts/server-tests.sh) || status=1
    wait "$beside" || { status=1 && echo "test.sh: failed: what needs no server (see below)"; }
    cat "$TARGET/beside.log"
    return $status
}

# Not in the background: sudo may want to ask.
say "set-up"
scripts/setup.sh || exit 1
status=0
together "$TARGET/test.log" run "$@" || status=1
sum_up "$TARGET/test.log"
exit $status
