#!/usr/bin/env bash
# Runs every test, from a fresh clone on. The last line sums up.
#   scripts/test.sh                everything
#   scripts/test.sh NAME...        builds, then only these files of tests/tests (without .rs)
#   scripts/test.sh EXPRESSION     the same for a filter expression of cargo-nextest, such as 'test(cursor)'
. "$(dirname "$0")/testing.sh"

# without_server: lints, and the tests that need no server. Among these are the checks of sources and of plain frames.
without_server() {
    step "lints" make -s lint
    # Optimized, its hundreds of small tests take minutes to build. The simulations take minutes to run if they are not.
    step "tests of the pure crate" cargo test --locked --ignore-rust-version -p rowsource-core --lib \
        --config 'profile.dev.package.rowsource-core.opt-level = 0'
    step "simulations and model checks of the pure crate" cargo test --locked --ignore-rust-version -p rowsource-core --test '*'
    step "examples of the pure crate" cargo test --locked --ignore-rust-version -p rowsource-core --doc
    step "tests of the bench" cargo test --locked --ignore-rust-version -p rowsource-bench
    step "sources, documents and plain frames" cargo test --locked --ignore-rust-version -p rowsource-tests --lib
    step "book" scripts/book.sh
}

# programs: builds what runs the tests, and the tests.
programs() { step "cargo-nextest" install_nextest && step "test programs" build_tests; }

run() {
    # Beside the library, whose last minutes keep one processor busy.
    programs >"$TARGET/programs.log" 2>&1 &
    [ $# -gt 0 ] || step "format" cargo fmt --all --check || return
    step "library" scripts/build.sh && step "private server tree" scripts/server.sh tree || return
    step "test programs" wait $! || { cat "$TARGET/programs.log" && return 1; }
    [ $# -eq 0 ] || { step "server tests" server_tests "$@"; return; }
    without_server >"$TARGET/beside.log" 2>&1 &
    # Many tests wait more than they work, so there is one more than there are processors.
    NEXTEST_TEST_THREADS=$(($(nproc) + 1)) step "server tests" server_tests
    wait
    cat "$TARGET/beside.log"
}

# Not in the background: sudo may want to ask.
scripts/setup.sh || exit 1
# With these, install_readers fetches programs. Any version will do.
fetchers=()
command -v npm >/dev/null || fetchers+=(npm)
python3 -c 'import ensurepip, venv' 2>/dev/null || fetchers+=(python3-venv)
[ ${#fetchers[@]} -eq 0 ] || scripts/setup.sh "${fetchers[@]}" || say "going on without ${fetchers[*]}"
# One test needs this extension of others.
[ "$(major)" != 15 ] || scripts/setup.sh postgresql-15-pgaudit || say "going on without pgaudit"
judge "$TARGET/test.log" run "$@"
