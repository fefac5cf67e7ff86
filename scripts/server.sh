#!/usr/bin/env bash
# A throwaway server to play with, from what is built now, loaded by shared_preload_libraries:
#   scripts/server.sh start [option=value ...]   (NOPRELOAD=1: without the library)
#   scripts/server.sh psql [psql arguments]
#   scripts/server.sh stop | restart | log
set -euo pipefail
. "$(dirname "$0")/common.sh"
PGBIN=$("$ROOT/scripts/tree.sh")
choose_run
dir=$RUN/play
case ${1:-} in
start | restart)
    shift
    stop_server "$dir" immediate
    ensure_data "$dir"
    preload="shared_preload_libraries = 'pg_rowsource'"
    [ -z "${NOPRELOAD:-}" ] || preload="shared_preload_libraries = ''"
    start_server "$dir" "$preload" "fsync = off" "shared_buffers = '512MB'" "max_wal_size = '8GB'" "$@"
    echo "started; connect with: scripts/server.sh psql, or $PGBIN/psql -h $dir -U postgres"
    ;;
psql)
    shift
    exec "$PGBIN/psql" -X -h "$dir" -U postgres "$@"
    ;;
stop) stop_server "$dir" ;;
log) cat "$dir/log" ;;
*) die "usage: server.sh start|restart [option=value ...] | psql ... | stop | log" ;;
esac
