#!/usr/bin/env bash
# Runs the tests on real servers (tests/) with the library as built for the server of PG_CONFIG:
#   scripts/server-tests.sh [NAME...]     all, or only these files of tests/tests (without .rs)
#   scripts/server-tests.sh EXPRESSION    those of a filter expression of cargo-nextest, such as 'group(timing)'
#   scripts/server-tests.sh --build       only compiles them
# If PG_ROOT names the chroot of that server, the tests run in it. ARGUMENTS are passed to `cargo nextest run`.
#
# A test that does not fit every server says so in its name (..._pg18_plus, ..._before_pg17, ..._needs_mount). Tests that do
# not fit are skipped and listed, and so are those of the filter expression UNFIT.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
kept=$TARGET/server-tests
nextest=scripts/nextest.sh
# Runs the built programs without cargo, because cargo would wait for builds for another server.
built=(--cargo-metadata "$kept.cargo.json" --binaries-metadata "$kept.binaries.json" --color never)

# compile: builds the test programs, and the metadata that cargo-nextest needs.
compile() {
    local cargo=(--locked --ignore-rust-version -p rowsource-tests)
    $nextest list "${cargo[@]}" --list-type binaries-only --message-format json >"$kept.binaries.json" 2>"$kept.log" &&
        cargo metadata --locked --format-version 1 >"$kept.cargo.json" 2>>"$kept.log" ||
        { cat "$kept.log" >&2; die "the tests could not be built"; }
}

# selection [NAME... or EXPRESSION]: prints a filter expression for these tests.
selection() {
    local expression=""
    for name in "$@"; do
        case $name in
        *'('*) ;;
        *) [ -f "tests/tests/$name.rs" ] || die "there is no tests/tests/$name.rs"; name="binary(=$name)" ;;
        esac
        expression+="${expression:+ | }($name)"
    done
    echo "kind(test)${expression:+ & ($expression)}"
}

# unfit: prints a filter expression of the tests that do not fit this server.
unfit() {
    local major later earlier name
    major=$(major)
    later=$(seq -s '|' $((major + 1)) $((major + 20)))
    earlier=$(seq -s '|' 15 "$major")
    echo "test(/_pg($later)_plus$/) | test(/_before_pg($earlier)$/)"
    # A whole file may be for newer servers only.
    for name in tests/tests/pg*_plus.rs; do
        name=$(basename "$name" .rs)
        [ "${name//[^0-9]/}" -le "$major" ] || echo "| binary(=$name)"
    done
    { [ "$(id -u)" = 0 ] && [ -x "${PG_ROOT:-}/bin/mount" ]; } || echo "| test(/_needs_mount$/)"
    [ -z "${UNFIT:-}" ] || echo "| $UNFIT"
}

[ -n "${ROWSOURCE_TESTS_BUILT:-}" ] || compile
[ "${1:-}" != --build ] || exit 0
choose_run
stop_test_servers
rm -rf "$RUN/crashes"
if [ -n "${PG_ROOT:-}" ]; then
    export ROWSOURCE_INSIDE=$PG_ROOT
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    export "CARGO_TARGET_${host}_RUNNER=$ROOT/scripts/in-chroot.sh"
fi
selected=$(selection "$@") || exit 1
unfit=$(unfit)
skipped=$($nextest list "${built[@]}" -T oneline -E "($selected) & ($unfit)" 2>/dev/null)
if [ -n "$skipped" ]; then
    echo "Skipped: $(echo "$skipped" | wc -l) tests that do not fit PostgreSQL $(major) here"
    echo "$skipped" | sed 's/^/        SKIP /'
fi
status=0
# shellcheck disable=SC2086
$nextest run "${built[@]}" ${ARGUMENTS:-} -E "($selected) - ($unfit)" 2>&1 || status=$?
# A crash is a failure, even if a later try passed.
if compgen -G "$RUN/crashes/*" >/dev/null; then
    sed "s|^|server crash: |" "$RUN"/crashes/*
    status=1
fi
exit $status
