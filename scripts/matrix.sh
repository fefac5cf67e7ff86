#!/usr/bin/env bash
# Every other PostgreSQL major against its own server: builds and lints here, tests in a chroot of the
# Debian suite that has it. The last line sums up.
#   scripts/matrix.sh                      all of them
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

# try NAME COMMAND...: says what it does, and remembers where it fails. Who calls it returns 0 then: anything else is an
# end that nobody foresaw.
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

# use MAJOR: what the other scripts are to work on.
use() {
    export PG_CONFIG=$MATRIX/pg_config-$1 PG_ROOT=$MATRIX/$1 ROWSOURCE_RUN=$host_run$1
    choose_run
}

# These look at what no major does differently: they run on 15 and on the newest.
ATTACKS='binary(/^(attack|long)_/)'

# one MAJOR [NAME...]: everything on that major that can run beside other work, or just these files of tests.
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

# alone MAJOR: the tests that compare times.
alone() {
    local unfit=""
    [ "$1" = "${MAJORS[-1]}" ] || unfit=$ATTACKS
    use "$1"
    UNFIT=$unfit try "PostgreSQL $1: tests that compare times" scripts/server-tests.sh 'group(timing)'
    return 0
}

# fifteen: 15 itself is `make test`'s; here it is packaged, and what pg_upgrade starts from.
fifteen() { ROWSOURCE_RUN=${host_run}p try "PostgreSQL 15: package" scripts/package-test.sh 15 || return 0; }

# of_a_wheel: everything that needs no contrib modules, which its wheel lacks, on PostgreSQL 16. Nor
# tempfile_slots, whose helper patches position-independent programs only, and the wheel's is none; nor what
# compares times.
of_a_wheel() {
    local needs_contrib='binary(/^(coexistence|equality|explain_option|robust|store_callgrind|store_overhead|tempfile_slots)$/)'
    PG_CONFIG=$(scripts/wheel.sh) || { say "PostgreSQL 16 is left out"; return 0; }
    export PG_CONFIG INSTALLED=1 PG_ROOT="" ROWSOURCE_RUN=${host_run}16
    scripts/build.sh && scripts/build.sh clippy && make -s --no-print-directory install &&
        UNFIT="group(timing) | $needs_contrib" scripts/server-tests.sh
}

sixteen() { try "PostgreSQL 16, from a wheel" of_a_wheel || return 0; }

# upgrade: from 15 as the test of its package left it. Its programs run in the chroot of the new server,
# which lacks some of their libraries.
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

# lane NUMBER COMMAND...: one after the other, each in a shell of its own, with a log of its own.
lane() {
    local command status=0
    log=$log.$1
    : >"$log"
    shift
    # shellcheck disable=SC2086
    for command in "$@"; do ($command) || status=1; done
    return $status
}

# in_lanes: the majors go two ways at once, for most of the work keeps one processor busy.
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
    phase="the majors side by side"
    in_lanes || echo "$phase" >>"$failures"
    for major in "${wanted[@]}"; do run_child alone "$major" || echo "$phase: PostgreSQL $major" >>"$failures"; done
fi
[ ! -s "$failures" ] || sort -u "$failures" | sed 's/^/matrix.sh: failed: /' >&2
sum_up "$log"
[ ! -s "$failures" ]
