#!/usr/bin/env bash
# Every other PostgreSQL major: builds and lints here, and tests in a chroot of the Debian suite that has its server.
#   scripts/matrix.sh                      all of them; with BRIEF=1 only the newest, built like `make test` does, and the package of 15
#   scripts/matrix.sh 16                   the one that comes from a Python wheel
#   scripts/matrix.sh MAJOR [NAME...]      builds, then only these files of tests/tests on this major
#   WHAT=NAME scripts/matrix.sh MAJOR      builds, then only an experiment of the bench on this major
. "$(dirname "$0")/testing.sh"
MAJORS=(17 18 19)

# Files of tests of what majors do differently; so are the tests that name a major. The others run on 15 only, and so do the tests that compare times.
DIFFERENT='clocks|counts|cursors|explain_function|explain_option|facts|failed|failed_parallel|foreign|foreign_failed|foreign_modify|foreign_types|loading|node_gets|node_waits'
DIFFERENT+='|own_figures|own_text|pg18_plus|pg_upgrade|planning|regress|terminal|terminal_commands|terminal_connections|terminal_keys|terminal_options|terminal_says|terminal_signals|terminal_silence|terminal_texts|tempfile_servers|tempfile_usage|tkprof_store|trace|trace_texts|upgrade|wait_events|waits|waits_of_aio'
DIFFERENT+='|waits_traced|worker_channel'
# The newest major also runs these. In them, 16 to 18 behave like 15 or like the newest. But for BRIEF=1, it is tested as it is released.
NEWEST='callgrind|causes|identity_partitions|identity_pruned|interrupted|live|partition_aliases|partitions|slowest_partitions|store_callgrind|trace_between|trace_cost|trace_objects|trace_sums|trace_targets'

# use MAJOR [NAME...]: what the rest is to work on. The server of 16 runs on this machine, from its wheel: without tests that
# need contrib modules or TLS, or whose helper patches position-independent programs only (tempfile_slots). What 17 counts in each
# node is what 15 counts. The examples of the documents say what differs from 18 on.
use() {
    export PG_CONFIG=$MATRIX/pg_config-$1 PG_ROOT=$MATRIX/$1 ROWSOURCE_RUN=$RUN$1
    local different=$DIFFERENT as_released=
    [ "$1" != "${MAJORS[-1]}" ] || [ -n "${BRIEF:-}" ] || as_released=1
    [ -n "$as_released" ] || export ROWSOURCE_PROFILE=lab
    # Only on 16, PostgreSQL replaces no constants in the text of a CALL.
    [ "$1" != 16 ] || different+='|callers'
    [ "$1" -lt 18 ] || different+='|docs|equality|identity_servers'
    [ "$1" != "${MAJORS[-1]}" ] || different+="|$NEWEST"
    [ $# -gt 1 ] || export UNFIT="not (test(/^($different)::/) | test(/_(pg[0-9]+_plus|before_pg[0-9]+)$/)) | $of_long | group(timing)"
    [ $# -gt 1 ] || [ -n "$as_released" ] || UNFIT+=" | $of_release"
    [ "$1" = 16 ] || return 0
    export PG_ROOT="" INSTALLED=1 UNFIT="${UNFIT:-none()} | test(/^tempfile_slots::/) | test(/::asynchronous_scans_add_up$/) |
        test(/^(coexistence|equality|explain_function|explain_option|quick_start|readers|robust|store_overhead|sums|terminal_options|texts)::/)"
}

# one MAJOR [NAME...]: everything on that major that can run beside other work, or just these files of tests.
one() {
    local major=$1 name="PostgreSQL $1"
    use "$@" && shift
    [ -x "$PG_CONFIG" ] || return 0
    step "$name: library" scripts/build.sh || return
    step "$name: plain frames" cargo test --locked --ignore-rust-version -p rowsource-tests --lib plain_frames
    step "$name: private server tree" scripts/server.sh tree || return
    step "$name: terminal program" make -s program || return
    step "$name: server tests" server_tests "${@:-all()}"
    [ $# -eq 0 ] && [ -z "${BRIEF:-}" ] || return 0
    [ "$major" != 18 ] || step "pg_upgrade from 15 to $major" upgrade
    [ "$major" != "${MAJORS[-1]}" ] || step "$name: package" package "$major"
    [ "$major" != "${MAJORS[-1]}" ] || step "$name: lints of the library" scripts/build.sh clippy
}

# experiment MAJOR NAME: an experiment of the bench on this major, with a quarter of the runs. Its record is in bench/results/pgMAJOR.
experiment() {
    local -x ROWSOURCE_PROFILE=lab
    use "$@" && choose_run && choose_servers
    local -x ROWSOURCE_SERVERS=$SERVERS
    step "PostgreSQL $1: library" scripts/build.sh && scripts/server.sh tree >/dev/null || return
    step "bench" cargo build --locked --ignore-rust-version --profile lab -p rowsource-bench || return
    step "PostgreSQL $1: $2" in_chroot "$PG_ROOT" "$TARGET/lab/rowsource-bench" run --repeat 0.25 --output "$ROOT/bench/results/pg$1" -- "$2"
}

# program_files PACKAGE: whether the program's package has its man page and its completions, none of them empty.
program_files() {
    local file files
    files=$(dpkg-deb --contents "$1") || return
    for file in bin/rowsource share/man/man1/rowsource.1.gz share/bash-completion/completions/rowsource \
        share/zsh/vendor-completions/_rowsource share/fish/vendor_completions.d/rowsource.fish; do
        awk -v "file=./usr/$file" '$6 == file && $3 > 0 { found = 1 } END { exit !found }' <<<"$files" ||
            { echo "$1 has no $file" && return 1; }
    done
}

# package MAJOR: also for 15. Installs the package with apt into a chroot that has nothing but apt, as a DBA would, and runs
# there the package's own test (debian/tests), and what updates and loads the extension. Its library is the one that was built
# before: cargo would build it again if it has built that of another major since.
package() {
    local -x ROWSOURCE_RUN=${RUN}p$1
    local clean=$MATRIX/clean-$1 package program
    rm -rf "$ROWSOURCE_RUN"
    # apt takes no path with spaces.
    package=$(ROWSOURCE_BUILT=1 scripts/package.sh) && program=$(ls "${package%/*}"/pg-rowsource-cli_*.deb) &&
        cp "$package" "$program" "$MATRIX/" &&
        scripts/chroot.sh "$1" "$clean" "$MATRIX/${package##*/}" "$MATRIX/${program##*/}" make procps &&
        in_chroot "$clean" rowsource --version && program_files "$program" || return
    # Majors are tested side by side: each has its port.
    in_chroot "$clean" env AUTOPKGTEST_TMP=/tmp PGPORT=$((54300 + $1)) LC_ALL=C.UTF-8 debian/tests/installcheck &&
        INSTALLED=1 PG_ROOT=$clean server_tests upgrade loading || return
    # 15 is what `upgrade` starts from.
    [ "$1" = 15 ] || rm -rf "$clean"
}

# upgrade: from 15 as the test of its package left it. Its programs run in the chroot of the new server.
upgrade() {
    local old=$ROWSOURCE_RUN/old
    rm -rf "$old" && mkdir -p "$old" &&
        (cd "$MATRIX/clean-15" && cp -a --parents usr/lib/postgresql usr/share/postgresql usr/lib/*-linux-gnu "$old") || return
    ROWSOURCE_OLD=$old server_tests pg_upgrade
}

# lane COMMAND...: one after the other, each in a shell of its own. Two lanes write whole lines to one log.
lane() {
    local command
    # shellcheck disable=SC2086
    for command; do ($command; true) 2>&1 || echo "matrix.sh: failed: $command"; done | grep -a --line-buffered ''
}

# run [MAJOR [NAME...]]: the majors go two ways at once, for most of the work keeps one processor busy.
run() {
    local majors="16 ${MAJORS[*]}"
    [ -z "${BRIEF:-}" ] || majors=${MAJORS[-1]}
    step "servers of the other majors" xargs -P 0 -n 1 scripts/chroot.sh <<<"${1:-$majors}" || return
    [ -z "${WHAT:-}" ] || { experiment "$1" "$WHAT"; return; }
    step "cargo-nextest" install_nextest || return
    step "test programs" build_tests || return
    [ $# -eq 0 ] || { one "$@"; return; }
    step "PostgreSQL 15: library" scripts/build.sh || return
    # Both take nearly the same time. 18 needs the package of 15.
    if [ -n "${BRIEF:-}" ]; then
        lane "step package-of-15 package 15" &
        lane "one ${MAJORS[-1]}"
    else
        lane "step package-of-15 package 15" "one 17" "one 18" &
        lane "one 19" "one 16"
    fi
    wait
}

[ "$(id -u)" = 0 ] || die "needs root, for chroots"
# shellcheck disable=SC2046
scripts/setup.sh mmdebstrap debhelper postgresql-server-dev-all \
    $(python3 -m pip --version >/dev/null 2>&1 || echo python3-pip) || exit 1
choose_run
judge "$TARGET/matrix.log" run "$@"
