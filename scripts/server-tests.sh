#!/usr/bin/env bash
# The tests on real servers (tests/), against the library as built for the server of PG_CONFIG:
#   scripts/server-tests.sh [NAME...]     all, or only these files of tests/tests (without .rs)
# With PG_ROOT, the chroot of that server, the test programs run in it. ARGUMENTS go to the test programs.
#
# Some tests look at times, on a machine that may have other work: what fails is run once more, alone, and has failed
# where it fails again. Where more than a few files fail, it is not the machine.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
choose_run
stop_test_servers
only=()
for name in "$@"; do only+=(--test "$name"); done
runner=()
if [ -n "${PG_ROOT:-}" ]; then
    export ROWSOURCE_INSIDE=$PG_ROOT
    runner=(--config "target.'cfg(unix)'.runner = '$ROOT/scripts/in-chroot.sh'")
fi
MOST_AGAIN=3

# tests [--test NAME...]: cargo's own output and status.
tests() {
    # shellcheck disable=SC2086
    cargo test --locked --ignore-rust-version --no-fail-fast "${runner[@]}" -p rowsource-tests "$@" -- \
        --show-output ${ARGUMENTS:-} 2>&1
}

first=$(mktemp) || exit 1
trap 'rm -f "$first"' EXIT
tests "${only[@]}" | sed -u 's/^test result: FAILED/first try: &/' | tee "$first"
status=${PIPESTATUS[0]}
[ "$status" -ne 0 ] || exit 0
again=()
for name in $(sed -nE 's/.*to rerun pass .*--test ([a-z0-9_]+).*/\1/p' "$first"); do again+=(--test "$name"); done
if [ ${#again[@]} -eq 0 ] || [ ${#again[@]} -gt $((2 * MOST_AGAIN)) ]; then
    sed -n 's/^first try: //p' "$first"
    exit "$status"
fi
say "once more: ${again[*]}"
tests "${again[@]}"
