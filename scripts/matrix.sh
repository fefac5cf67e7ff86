#!/usr/bin/env bash
# Tests every other PostgreSQL major with its own server: builds and lints on this machine, and tests in a chroot of the
# Debian suite that has it. The last line is the summary.
#   scripts/matrix.sh                      all majors
#   scripts/matrix.sh MAJOR [NAME...]      builds, then only these files of tests/tests on this major
set -uo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/matrix-common.sh"
cd "$ROOT"
phase="set-up"
log=$TARGET/matrix.log
failures=$TARGET/matrix.failed
lanes=()

cleanup() {
    local status=$?
    trap - EXIT INT TERM
    for lane in "${lanes[@]}"; do kill -TERM -- "-$lane" 2>/dev/null; done
    stop_child
    exit "$status"
}
trap cleanup EXIT
trap 'echo "matrix.sh: interrupted during $phase" >&2; exit 130' INT
trap 'echo "matrix.sh: terminated during $phase" >&2; exit 143' TERM

[ "$(id -u)" = 0 ] || die "needs root, for chroots"
scripts/setup.sh --matrix || exit 1
choose_run
host_run=$RUN

# try NAME COMMAND...: prints the name, runs the command, and records a failure. Its callers return 0 after a failure: any
# other status is an unexpected end.
try() {
    phase=$1
    shift
    say "$phase"
    "$@" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" -ne 0 ] || return 0
    echo "matrix.sh: failed: $phase" >&2
    echo "$phase" >>"$failures"
    return 1
}

prepare() {
    local major pids=() status=0
    for major in "$@"; do
        scripts/chroot.sh "$major" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || status=1; done
    return $status
}

# use MAJOR: makes the other scripts work on this major.
use() {
    export PG_CONFIG=$MATRIX/pg_config-$1 PG_ROOT=$MATRIX/$1 ROWSOURCE_RUN=$host_run$1
    choose_run
}

# These tests do not depend on the major: they run only on 15 and on the newest one.
ATTACKS='binary(/^(attack|long)_/)'

# one MAJOR [NAME...]: runs everything on this major that can run at the same time as other work, or only these test files.
one() {
    local major=$1 names
    shift
    names=("$@")
    [ $# -gt 0 ] || names=('not group(timing)')
    use "$major"
    try "PostgreSQL $major: library" scripts/build.sh || return 0
    try "PostgreSQL $major: private server tree" scripts/tree.sh || return 0
    try "PostgreSQL $major: server tests" scripts/server-tests.sh "${names[@]}"
    [ $# -eq 0 ] || return 0
    [ "$major" != 18 ] || try "pg_upgrade from 15 to $major" upgrade
    ROWSOURCE_RUN=${ROWSOURCE_RUN}p try "PostgreSQL $major: package" scripts/package-test.sh "$major"
    try "PostgreSQL $major: lints of the library" scripts/build.sh clippy
    return 0
}

# alone MAJOR: runs the tests that compare times.
alone() {
    local unfit=""
    [ "$1" = "${MAJORS[-1]}" ] || unfit=$ATTACKS
    use "$1"
    UNFIT=$unfit try "PostgreSQL $1: tests that compare times" scripts/server-tests.sh 'group(timing)'
    return 0
}

# fifteen: tests the package of 15, which the pg_upgrade test needs too. `make test` runs the other tests of 15.
fifteen() { ROWSOURCE_RUN=${host_run}p try "PostgreSQL 15: package" scripts/package-test.sh 15 || return 0; }

# of_a_wheel: runs the tests of PostgreSQL 16, except those that compare times, those that need contrib modules, which the
# wheel lacks, and tempfile_slots, whose helper patches only position-independent programs, and the wheel's server is not one.
of_a_wheel() {
    local needs_contrib='binary(/^(coexistence|equality|explain_option|robust|store_callgrind|store_overhead|tempfile_slots)$/)'
    PG_CONFIG=$(scripts/wheel.sh) || { say "PostgreSQL 16 is skipped"; return 0; }
    export PG_CONFIG INSTALLED=1 PG_ROOT="" ROWSOURCE_RUN=${host_run}16
    scripts/build.sh && scripts/build.sh clippy && make -s --no-print-directory install &&
        UNFIT="group(timing) | $needs_contrib" scripts/server-tests.sh
}

sixteen() { try "PostgreSQL 16, from a wheel" of_a_wheel || return 0; }

# upgrade: runs the pg_upgrade test from the 15 of the package test. Its programs run in the chroot of the new server, which
# lacks some of their libraries.
upgrade() {
    local old=$MATRIX/clean-15 copy=$ROWSOURCE_RUN/old folder name path program
    local libraries=$copy/libraries programs=/usr/lib/postgresql/15/bin
    [ -d "$old" ] || { echo "upgrade: the package of 15 was not tested before" >&2; return 1; }
    rm -rf "$copy"
    for folder in usr/lib/postgresql/15 usr/share/postgresql/15; do
        mkdir -p "$copy/$folder" && cp -al "$old/$folder/." "$copy/$folder/" || return
    done
    mkdir -p "$libraries"
    for program in postgres initdb pg_ctl; do
        in_chroot "$old" ldd "$programs/$program"
    done | sed -nE 's/^\s*(\S+) => (\S+) .*/\1 \2/p' | sort -u | while read -r name path; do
        compgen -G "$PG_ROOT/usr/lib/*/$name" >/dev/null || cp -L "$old$path" "$libraries/"
    done
    ROWSOURCE_OLD_LIBRARIES=$libraries ROWSOURCE_OLD_PGBIN=$copy$programs \
        ARGUMENTS='--run-ignored only' scripts/server-tests.sh pg_upgrade
}

# lane NUMBER COMMAND...: runs the commands one after the other, each in its own shell. Each lane has its own log.
lane() {
    local command status=0
    log=$log.$1
    : >"$log"
    shift
    # shellcheck disable=SC2086
    for command in "$@"; do ($command) || status=1; done
    return $status
}

# in_lanes: runs the majors in two lanes at once, because most of the work uses only one processor.
in_lanes() {
    local lane status=0
    set -m
    lane 1 fifteen sixteen "one 18" &
    lanes+=($!)
    lane 2 "one 17" "one 19" &
    lanes+=($!)
    set +m
    for lane in "${lanes[@]}"; do wait "$lane" || status=1; done
    lanes=()
    cat "$log.1" "$log.2" >>"$log"
    return $status
}

rm -f "$failures"
: >"$log"
wanted=("${MAJORS[@]}")
[ $# -eq 0 ] || wanted=("$1")
run_child try "chroots of the other suites" prepare "${wanted[@]}" || exit 1
run_child try "cargo-nextest" scripts/nextest.sh --install || exit 1
run_child try "test programs" scripts/server-tests.sh --build || exit 1
export ROWSOURCE_TESTS_BUILT=1
if [ $# -gt 0 ]; then
    run_child one "$@" || echo "PostgreSQL $1" >>"$failures"
else
    phase="the majors in two lanes"
    in_lanes || echo "$phase" >>"$failures"
    for major in "${wanted[@]}"; do run_child alone "$major" || echo "$phase: PostgreSQL $major" >>"$failures"; done
fi
[ ! -s "$failures" ] || sort -u "$failures" | sed 's/^/matrix.sh: failed: /' >&2
sum_up "$log"
[ ! -s "$failures" ]
