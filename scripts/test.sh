#!/usr/bin/env bash
# Runs every test, from a fresh clone on. The last line sums up.
#   scripts/test.sh            everything
#   scripts/test.sh NAME...    builds, then only these files of tests/tests (without .rs)
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"

# without_server: lints, and the tests that need no server. Among these are the checks of sources and of plain frames.
without_server() {
    local cargo=(--locked --ignore-rust-version)
    step "lints of the library" scripts/build.sh clippy
    step "lints of the other crates" cargo clippy "${cargo[@]}" -p rowsource-core -p rowsource-tests -p rowsource-bench \
        --all-targets -- -D warnings
    step "tests of the pure crate and the bench" cargo test "${cargo[@]}" -p rowsource-core -p rowsource-bench
    step "sources and plain frames" cargo test "${cargo[@]}" -p rowsource-tests --lib
}

run() {
    local nextest beside
    # Where it is missing, it is built beside the library, whose last minute keeps one processor busy.
    scripts/nextest.sh --install >"$TARGET/nextest.log" 2>&1 &
    nextest=$!
    [ $# -gt 0 ] || step "format" cargo fmt --all --check || return
    step "library" scripts/build.sh && step "private server tree" scripts/tree.sh &&
        step "cargo-nextest (see $TARGET/nextest.log)" wait "$nextest" && step "test programs" scripts/server-tests.sh --build || return
    export ROWSOURCE_TESTS_BUILT=1
    if [ $# -eq 0 ]; then
        without_server >"$TARGET/beside.log" 2>&1 &
        beside=$!
    fi
    step "server tests" scripts/server-tests.sh "$@"
    [ $# -gt 0 ] || { wait "$beside"; cat "$TARGET/beside.log"; }
}

# Not in the background: sudo may want to ask.
scripts/setup.sh || exit 1
judge "$TARGET/test.log" run "$@"
