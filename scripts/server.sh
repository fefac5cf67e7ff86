#!/usr/bin/env bash
# Runs a throwaway server for experiments, with the current build loaded by shared_preload_libraries:
#   scripts/server.sh start [option=value ...]   (NOPRELOAD=1: without the library)
#   scripts/server.sh psql [psql arguments]
#   scripts/server.sh stop | restart | log
# ROWSOURCE_SERVER is the name of its folder (default: play).
set -euo pipefail
. "$(dirname "$0")/common.sh"
PGBIN=$("$ROOT/scripts/tree.sh")
choose_run
dir=$RUN/${ROWSOURCE_SERVER:-play}
command=${1:-}
shift || true
case $command in
start | restart)
    stop_server "$dir" immediate
    make_template
    # Replaces a data folder of another major version.
    if ! cmp -s "$dir/data/PG_VERSION" "$RUN/template/PG_VERSION"; then
        rm -rf "$dir"
        mkdir "$dir"
        cp -a "$RUN/template" "$dir/data"
        [ "$(id -u)" != 0 ] || chown postgres: "$dir"
    fi
    [ -n "${NOPRELOAD:-}" ] || set -- "shared_preload_libraries = 'pg_rowsource'" "$@"
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$dir'" "fsync = off" "shared_buffers = '512MB'" \
        "max_wal_size = '8GB'" "$@" >"$dir/data/postgresql.auto.conf"
    (cd "$dir" && as_server "$PGBIN/pg_ctl" -D data -l log -w start >/dev/null 2>&1) ||
        die "the server did not start: $(grep -E 'FATAL|PANIC' "$dir/log" | tail -n 1) (see $dir/log)"
    echo "started; connect with: $PGBIN/psql -h $dir -U postgres"
    ;;
psql) exec "$PGBIN/psql" -X -h "$dir" -U postgres "$@" ;;
stop) stop_server "$dir" ;;
log) cat "$dir/log" ;;
*) die "usage: server.sh start|restart [option=value ...] | psql ... | stop | log" ;;
esac
