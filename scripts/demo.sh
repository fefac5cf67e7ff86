#!/usr/bin/env bash
# Shows pg_rowsource at work on a throwaway server: loads ten million rows (once; they are kept in
# RUN/demo for the next time), runs scripts/demo.sql, stops the server. KEEP=1 leaves it running.
#   scripts/demo.sh stop     stops it then
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
ROWS=${ROWS:-10000000}
if [ "${1:-}" = stop ]; then
    choose_run
    stop_server "$RUN/demo"
    exit
fi

finish() {
    if [ "${KEEP:-}" = 1 ] && [ "$1" -eq 0 ]; then
        say "the server keeps running: connect with"
        echo "    $PGBIN/psql -h $dir -U postgres"
        echo "and stop it with"
        echo "    make demo-stop"
    elif [ -n "${dir:-}" ]; then
        stop_server "$dir" immediate
    fi
}
scripts/setup.sh || exit 1
at_end finish
say "building the library"
run_child scripts/build.sh || die "the build failed"
choose_run
dir=$RUN/demo
stop_server "$dir" immediate
run_child scripts/tree.sh >/dev/null || die "the private server tree could not be made"
ensure_data "$dir"
start_server "$dir" "shared_preload_libraries = 'pg_rowsource'" "fsync = off" "shared_buffers = '1GB'" \
    "max_wal_size = '8GB'" "autovacuum = off" "jit = off" "max_parallel_workers_per_gather = 2"
psql() { "$PGBIN/psql" -X -q -v ON_ERROR_STOP=1 -h "$dir" -U postgres "$@"; }

if [ "$(psql -Atc "SELECT obj_description(to_regclass('test'), 'pg_class')")" != "$ROWS rows" ]; then
    say "loading $ROWS rows"
    run_child psql -c "SET client_min_messages = warning" -c "DROP TABLE IF EXISTS test" \
        -c "CREATE TABLE test AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, $ROWS) i" \
        -c "CREATE INDEX test_id ON test (id)" -c "VACUUM ANALYZE test" -c "CHECKPOINT" \
        -c "COMMENT ON TABLE test IS '$ROWS rows'" || die "loading failed (see $dir/log)"
fi
psql -c "SET client_min_messages = warning" -c "DROP EXTENSION IF EXISTS pg_rowsource CASCADE" || die "the old extension could not be dropped"
run_child psql -f scripts/demo.sql || die "the demo failed (see above, and $dir/log)"
