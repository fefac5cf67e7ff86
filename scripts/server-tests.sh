#!/usr/bin/env bash
# The tests on real servers (tests/), against the library as built for the server of PG_CONFIG:
#   scripts/server-tests.sh [NAME...]     all, or only these files of tests/tests (without .rs)
#   scripts/server-tests.sh --build       only compiles them
# With PG_ROOT, the chroot of that server, the test programs run in it. ARGUMENTS go to the test programs.
#
# The programs are run here and not by cargo, which would make them wait while it builds for another server.
#
# Some tests look at times, on a machine that may have other work: what fails is run once more, alone, and has failed
# where it fails again. Where more than a few files fail, it is not the machine. With AGAIN_LATER, a file, their names
# are left there for the caller to do that.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
programs=$TARGET/server-tests
MOST_AGAIN=3

# compile: the programs, and a list of them: file of tests/tests and program.
compile() {
    local log=$programs.log
    cargo test --locked --ignore-rust-version -p rowsource-tests --no-run 2>"$log" ||
        { cat "$log" >&2; die "the tests could not be built"; }
    sed -nE 's|^ *Executable tests/([a-z0-9_]+)\.rs \((.*)\)$|\1 \2|p' "$log" >"$programs.part" &&
        [ -s "$programs.part" ] && mv "$programs.part" "$programs" || die "cargo named no test programs (see $log)"
}

# run_test NAME: its output and status.
run_test() {
    local program runner=()
    program=$(awk -v name="$1" '$1 == name { print $2 }' "$programs")
    [ -n "$program" ] || die "there is no tests/tests/$1.rs"
    case $program in /*) ;; *) program=$ROOT/$program ;; esac
    [ -z "${PG_ROOT:-}" ] || runner=("$ROOT/scripts/in-chroot.sh")
    echo "     Running tests/$1.rs"
    # shellcheck disable=SC2086
    (cd tests && ROWSOURCE_INSIDE=${PG_ROOT:-} "${runner[@]}" "$program" --show-output ${ARGUMENTS:-} 2>&1)
}

[ -n "${ROWSOURCE_TESTS_BUILT:-}" ] || compile
[ "${1:-}" != --build ] || exit 0
choose_run
stop_test_servers
names=("$@")
# What compares times comes last, when work beside it may have ended.
timed='accuracy|attack_plans|attack_texts|long_plans|overhead|plan_history|store_overhead|tempfile_time'
[ $# -gt 0 ] || mapfile -t names < <(cut -d' ' -f1 "$programs" | grep -vxE "$timed"; cut -d' ' -f1 "$programs" | grep -xE "$timed")
again=()
first=$(mktemp) || exit 1
trap 'rm -f "$first"' EXIT
for name in "${names[@]}"; do
    run_test "$name" | sed -u 's/^test result: FAILED/first try: &/' | tee -a "$first"
    [ "${PIPESTATUS[0]}" -eq 0 ] || again+=("$name")
done
[ ${#again[@]} -gt 0 ] || exit 0
if [ ${#again[@]} -gt $MOST_AGAIN ]; then
    sed -n 's/^first try: //p' "$first"
    exit 1
fi
if [ -n "${AGAIN_LATER:-}" ]; then
    echo "${again[@]}" >"$AGAIN_LATER"
    exit 0
fi
status=0
say "once more: ${again[*]}"
for name in "${again[@]}"; do run_test "$name" || status=1; done
exit $status
