#!/usr/bin/env bash
# Shows pg_rowsource on a throwaway server: loads ten million rows (once, then keeps them in RUN/demo), runs
# scripts/demo.sql, and stops the server. KEEP=1 leaves it running.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
export ROWSOURCE_SERVER=demo ROWS=${ROWS:-10000000}
psql() { scripts/server.sh psql -q -v ON_ERROR_STOP=1 "$@"; }
quiet=(-c "SET client_min_messages = warning")

run() {
    say "building the library"
    scripts/build.sh || die "the build failed"
    scripts/server.sh start "shared_buffers = '1GB'" "autovacuum = off" "jit = off" >/dev/null || exit 1
    if [ "$(psql -Atc "SELECT obj_description(to_regclass('test'), 'pg_class')")" != "$ROWS rows" ]; then
        say "loading $ROWS rows"
        psql "${quiet[@]}" -c "DROP TABLE IF EXISTS test" \
            -c "CREATE TABLE test AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, $ROWS) i" \
            -c "CREATE INDEX test_id ON test (id)" -c "VACUUM ANALYZE test" -c "CHECKPOINT" \
            -c "COMMENT ON TABLE test IS '$ROWS rows'" || die "loading failed (see $RUN/demo/log)"
    fi
    psql "${quiet[@]}" -c "DROP EXTENSION IF EXISTS pg_rowsource CASCADE" || die "the old extension could not be dropped"
    psql -f scripts/demo.sql || die "the demo failed (see above, and $RUN/demo/log)"
}

scripts/setup.sh || exit 1
choose_run
trap 'stop_server "$RUN/demo" immediate' EXIT
together "$TARGET/demo.log" run || exit 1
[ "${KEEP:-}" = 1 ] || exit 0
trap - EXIT
say "the server keeps running: connect with"
printf '%s\n' "    $PGBIN/psql -h $RUN/demo -U postgres" "and stop it with" "    make demo-stop"
