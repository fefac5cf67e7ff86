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

cleanup() {
    local status=$?
    trap - EXIT INT TERM
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
failed=()

# try NAME COMMAND...: says what it does, and remembers where it fails.
try() {
    phase=$1
    shift
    say "$phase"
    run_child logged "$@" && return
    echo "matrix.sh: failed: $phase" >&2
    failed+=("$phase")
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

# Estimates and costs in time hardly depend on the version: these run on the oldest and on the newest one,
# and with ALL=1 on each. What callgrind counts is compared on each anyway.
STATISTICAL="accuracy overhead store_overhead"

# tests_but NAME...: all files of tests/tests but these.
tests_but() {
    local file name
    for file in tests/tests/*.rs; do
        name=$(basename "$file" .rs)
        [[ " $* " == *" $name "* ]] || echo "$name"
    done
}

# one MAJOR [NAME...]: everything on that major.
one() {
    local major=$1 names
    shift
    names=("$@")
    if [ $# -eq 0 ] && [ "$major" != 19 ] && [ -z "${ALL:-}" ]; then
        mapfile -t names < <(tests_but $STATISTICAL)
    fi
    export PG_CONFIG=$MATRIX/pg_config-$major PG_ROOT=$MATRIX/$major ROWSOURCE_RUN=$host_run$major
    choose_run
    try "PostgreSQL $major: library" scripts/build.sh || return
    try "PostgreSQL $major: private server tree" scripts/tree.sh || return
    try "PostgreSQL $major: server tests" scripts/server-tests.sh "${names[@]}"
    [ $# -eq 0 ] || return
    [ "$major" != 18 ] || try "pg_upgrade from 15 to $major" upgrade
    ROWSOURCE_RUN=${ROWSOURCE_RUN}p try "PostgreSQL $major: package" scripts/package-test.sh "$major"
    try "PostgreSQL $major: lints of the library" scripts/build.sh clippy
}

# sixteen: everything that needs no contrib modules, which its wheel lacks, on PostgreSQL 16. Nor
# tempfile_slots, whose helper patches position-independent programs only, and the wheel's is none.
sixteen() {
    local needs_contrib="equality neighbours explain_option store_callgrind robust tempfile_slots" names
    PG_CONFIG=$(scripts/wheel.sh) || { say "PostgreSQL 16 is left out"; return 0; }
    export PG_CONFIG INSTALLED=1 PG_ROOT="" ROWSOURCE_RUN=${host_run}16
    mapfile -t names < <(tests_but $STATISTICAL $needs_contrib)
    scripts/build.sh && scripts/build.sh clippy && make -s --no-print-directory install &&
        scripts/server-tests.sh "${names[@]}"
}

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
        ARGUMENTS=--ignored scripts/server-tests.sh pg_upgrade
}

: >"$log"
wanted=("${MAJORS[@]}")
[ $# -eq 0 ] || wanted=("$1")
try "chroots of the other suites" prepare "${wanted[@]}" || exit 1
# 15 itself is `make test`'s; here it is packaged, and what pg_upgrade starts from.
if [ $# -eq 0 ]; then
    ROWSOURCE_RUN=${host_run}p try "PostgreSQL 15: package" scripts/package-test.sh 15
fi
[ $# -gt 0 ] || try "PostgreSQL 16, from a wheel" sixteen
for major in "${wanted[@]}"; do
    one "$major" "${@:2}"
done
[ ${#failed[@]} -eq 0 ] || printf 'matrix.sh: failed: %s\n' "${failed[@]}" >&2
sum_up "$log"
[ ${#failed[@]} -eq 0 ]
