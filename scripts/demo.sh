#!/usr/bin/env bash
# Shows pg_rowsource at work on a throwaway server: loads ten million rows (once; they are kept in
# RUN/demo for the next time), runs scripts/demo.sql, stops the server. KEEP=1 leaves it running.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
ROWS=${ROWS:-10000000}
BATCHES=10

"$ROOT/scripts/setup.sh" || exit 1
CHILD=""
cleanup() {
    local status=$?
    trap - EXIT INT TERM
    stop_child
    if [ -n "${dir:-}" ]; then
        if [ "${KEEP:-}" = 1 ] && [ $status -eq 0 ]; then
            say "the server keeps running: connect with"
            echo "    $PGBIN/psql -h $dir -U postgres"
            echo "and stop it with"
            echo "    make demo-stop"
        else
            stop_server "$dir" immediate
        fi
    fi
    exit "$status"
}
trap cleanup EXIT
trap 'echo "demo.sh: interrupted" >&2; exit 130' INT
trap 'echo "demo.sh: terminated" >&2; exit 143' TERM

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

if [ "$(psql -Atc "SELECT count(*) FROM pg_class WHERE relname = 'loaded_$ROWS'")" != 1 ]; then
    say "loading $ROWS rows"
    psql -c "DROP TABLE IF EXISTS test; CREATE TABLE test (id int, pad text)" 2>/dev/null || die "the table could not be made"
    for ((batch = 0; batch < BATCHES; batch++)); do
        printf '\r   %3d %%' $((batch * 100 / BATCHES))
        run_child psql -c "INSERT INTO test SELECT i, '*' FROM generate_series($batch::bigint * $ROWS / $BATCHES + 1, ($batch::bigint + 1) * $ROWS / $BATCHES) i" ||
            die "loading failed (see $dir/log)"
    done
    printf '\r   100 %%, now its index\n'
    run_child psql -c "CREATE INDEX test_id ON test (id)" -c "VACUUM ANALYZE test" -c "CHECKPOINT" \
        -c "CREATE TABLE loaded_$ROWS ()" || die "loading failed (see $dir/log)"
fi
psql -c "SET client_min_messages = warning; DROP EXTENSION IF EXISTS pg_rowsource CASCADE" || die "the old extension could not be dropped"
run_child psql -f scripts/demo.sql || die "the demo failed (see above, and $dir/log)"
