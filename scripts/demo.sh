#!/usr/bin/env bash
# Builds the library, and shows it on a throwaway server: runs scripts/demo.sql, which loads ten million rows once and keeps them
# in RUN/demo, and stops the server. KEEP=1 leaves it running.
. "$(dirname "$0")/common.sh"
cd "$ROOT" || exit
# If none was built yet, it builds one that `make install` does not see, with a profile that takes less time to build.
if [ ! -f "$TARGET/pg$(major)/pg_rowsource.so" ]; then
    TARGET=$TARGET/demo
    export CARGO_TARGET_DIR=$TARGET ROWSOURCE_PROFILE=lab
fi
scripts/build.sh || exit
export ROWSOURCE_SERVER=demo

run() {
    scripts/server.sh start "shared_buffers = '1GB'" "autovacuum = off" "jit = off" >/dev/null || exit 1
    scripts/server.sh psql -q -v ON_ERROR_STOP=1 -v rows="${ROWS:-10000000}" -f scripts/demo.sql ||
        die "the demo failed (see above, and $RUN/demo/log)"
}

choose_run
trap 'stop_server "$RUN/demo" immediate' EXIT
together "$TARGET/demo.log" run || exit 1
[ "${KEEP:-}" = 1 ] || exit 0
trap - EXIT
printf '%s\n' "== the server keeps running: connect with" "    $PGBIN/psql -h $RUN/demo -U postgres" "and stop it with" \
    "    make demo-stop"
