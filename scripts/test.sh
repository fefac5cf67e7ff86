#!/usr/bin/env bash
# Runs the tests of PostgreSQL 15, from a fresh clone on, with a library that takes less time to build than the one that is released. The
# last lines sum up.
#   scripts/test.sh                everything, but for what only `make test-release` and `make test-all` run
#   scripts/test.sh NAME...        builds, then only these files of tests/tests (without .rs)
#   scripts/test.sh EXPRESSION     the same for a filter expression of cargo-nextest, such as 'test(cursor)'
. "$(dirname "$0")/testing.sh"
export ROWSOURCE_PROFILE=${ROWSOURCE_PROFILE:-lab}

# without_server: the tests that need no server. Among these are the checks of sources and of plain frames.
without_server() {
    # Optimized, its hundreds of small tests take minutes to build. The simulations take minutes to run if they are not.
    step "tests of the pure crate" cargo test --locked --ignore-rust-version -p rowsource-core --lib \
        --config 'profile.dev.package.rowsource-core.opt-level = 0'
    step "simulations and model checks of the pure crate" cargo test --locked --ignore-rust-version -p rowsource-core --test '*'
    step "examples of the pure crate" cargo test --locked --ignore-rust-version -p rowsource-core --doc
    step "terminal program" cargo test --locked --ignore-rust-version --profile lab -p rowsource-cli
    step "sources, documents and plain frames" cargo test --locked --ignore-rust-version -p rowsource-tests --lib
}

# programs: builds what runs the tests, and the tests.
programs() {
    step "cargo-nextest" install_nextest && step "test programs" build_tests
}

run() {
    # Beside the library, whose last minute keeps one processor busy.
    programs >"$TARGET/programs.log" 2>&1 &
    [ $# -gt 0 ] || step "format" cargo fmt --all --check || return
    step "library" scripts/build.sh && step "private server tree" scripts/server.sh tree || return
    # With the same profile, so it shares what both need.
    step "terminal program" make -s program || return
    step "test programs" wait $! || { cat "$TARGET/programs.log" && return 1; }
    [ $# -eq 0 ] || { step "server tests" server_tests "$@"; return; }
    without_server >"$TARGET/beside.log" 2>&1 &
    # Many tests wait more than they work, so there is one more than there are processors.
    NEXTEST_TEST_THREADS=$(($(nproc) + 1)) step "server tests" server_tests "$everyday - group(timing)"
    wait
    cat "$TARGET/beside.log"
    step "tests that compare times" server_tests "$everyday & group(timing)"
}

set_up
judge "$TARGET/test.log" run "$@"
