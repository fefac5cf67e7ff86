#!/usr/bin/env bash
# Tests the library as it is released, with link-time optimization, for the server of PG_CONFIG: it counts instructions (callgrind) and the
# lines of memory that sessions share, and checks that its hot path has plain frames only.
. "$(dirname "$0")/testing.sh"
unset ROWSOURCE_PROFILE

run() {
    step "cargo-nextest" install_nextest && step "test programs" build_tests || return
    step "library" scripts/build.sh && step "private server tree" scripts/server.sh tree || return
    step "plain frames" cargo test --locked --ignore-rust-version -p rowsource-tests --lib plain_frames
    step "tests of the release" server_tests "$of_release"
}

set_up
judge "$TARGET/release.log" run
