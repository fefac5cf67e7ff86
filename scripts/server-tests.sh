#!/usr/bin/env bash
# The tests on real servers (tests/), against the library as built for the server of PG_CONFIG:
#   scripts/server-tests.sh [NAME...]     all, or only these files of tests/tests (without .rs)
#   scripts/server-tests.sh EXPRESSION    those of a filter expression of cargo-nextest, such as 'group(timing)'
#   scripts/server-tests.sh --build       only compiles them
# With PG_ROOT, the chroot of that server, the tests run in it. ARGUMENTS go to `cargo nextest run`.
# A test that does not fit the server says so in its name (..._pg18_plus, ..._before_pg17, ..._needs_mount); such tests
# are skipped and listed. So are those of UNFIT, a filter expression too.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
kept=$TARGET/server-tests
# What was built is run without cargo, which would wait while it builds for another server.
built=(--cargo-metadata "$kept.cargo.json" --binaries-metadata "$kept.binaries.json" --color never)
if [ -z "${ROWSOURCE_TESTS_BUILT:-}" ]; then
    scripts/nextest.sh list --locked --ignore-rust-version -p rowsource-tests --list-type binaries-only --message-format json \
        >"$kept.binaries.json" 2>"$kept.log" && cargo metadata --locked --format-version 1 >"$kept.cargo.json" 2>>"$kept.log" ||
        die "the tests could not be built: $(cat "$kept.log")"
fi
[ "${1:-}" != --build ] || exit 0

selected="none()"
for name in "${@:-all()}"; do
    [[ $name == *'('* ]] || { [ -f "tests/tests/$name.rs" ] && name="binary(=$name)"; } || die "there is no tests/tests/$name.rs"
    selected+=" | ($name)"
done
major=$(major)
later=$(seq -s '|' $((major + 1)) $((major + 20))) earlier=$(seq -s '|' 15 "$major")
unfit="test(/_pg($later)_plus$/) | test(/_before_pg($earlier)$/)${UNFIT:+ | $UNFIT}"
# Whole files may be for newer servers too.
for name in $(basename -s .rs tests/tests/pg*_plus.rs); do
    [ "${name//[^0-9]/}" -le "$major" ] || unfit+=" | binary(=$name)"
done
{ [ "$(id -u)" = 0 ] && [ -x "${PG_ROOT:-}/bin/mount" ]; } || unfit+=" | test(/_needs_mount$/)"
skipped=$(scripts/nextest.sh list "${built[@]}" -T oneline -E "kind(test) & ($selected) & ($unfit)" 2>/dev/null)
[ -z "$skipped" ] || echo "Skipped: $(wc -l <<<"$skipped") tests that do not fit PostgreSQL $major here"
[ -z "$skipped" ] || sed 's/^/        SKIP /' <<<"$skipped"

choose_run
# What interrupted tests left goes; their servers died with them. A folder's name ends in the id of its process.
for dir in "$RUN"/servers/*; do [ -d "/proc/${dir##*-}" ] || rm -rf "$dir"; done
rm -rf "$RUN/crashes"
if [ -n "${PG_ROOT:-}" ]; then
    export ROWSOURCE_INSIDE=$PG_ROOT
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    export "CARGO_TARGET_${host}_RUNNER=$ROOT/scripts/in-chroot.sh"
fi
status=0
# shellcheck disable=SC2086
scripts/nextest.sh run "${built[@]}" ${ARGUMENTS:-} -E "kind(test) & ($selected) - ($unfit)" 2>&1 || status=$?
# A crash is a failure, whatever came after it.
! compgen -G "$RUN/crashes/*" >/dev/null || { sed "s|^|server crash: |" "$RUN"/crashes/* && status=1; }
exit $status
