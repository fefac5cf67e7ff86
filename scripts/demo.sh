#!/usr/bin/env bash
# Shows pg_rowsource on a throwaway server: runs scripts/demo.sql, which loads ten million rows once and keeps them in
# RUN/demo, and stops the server. KEEP=1 leaves it running.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
export ROWSOURCE_SERVER=demo

run() {
    say "building the library"
    scripts/build.sh || die "the build failed"
    scripts/server.sh start "shared_buffers = '1GB'" "autovacuum = off" "jit = off" >/dev/null || exit 1
    scripts/server.sh psql -q -v ON_ERROR_STOP=1 -v rows="${ROWS:-10000000}" -f scripts/demo.sql ||
        die "the demo failed (see above, and $RUN/demo/log)"
}

scripts/setup.sh || exit 1
choose_run
trap 'stop_server "$RUN/demo" immediate' EXIT
together "$TARGET/demo.log" run || exit 1
[ "${KEEP:-}" = 1 ] || exit 0
trap - EXIT
say "the server keeps running: connect with"
printf '%s\n' "    $PGBIN/psql -h $RUN/demo -U postgres" "and stop it with" "    make demo-stop"
