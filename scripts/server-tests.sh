#!/usr/bin/env bash
# The tests on real servers (tests/), against the library as built for the server of PG_CONFIG:
#   scripts/server-tests.sh [NAME...]     all, or only these files of tests/tests (without .rs)
# With PG_ROOT, the chroot of that server, the test programs run in it. ARGUMENTS go to the test programs.
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
# shellcheck disable=SC2086
exec cargo test --locked --ignore-rust-version --no-fail-fast "${runner[@]}" -p rowsource-tests "${only[@]}" -- \
    --show-output ${ARGUMENTS:-}
