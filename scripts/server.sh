#!/usr/bin/env bash
# A throwaway server to play with, from what is built now, loaded by shared_preload_libraries:
#   scripts/server.sh start [option=value ...] | psql [arguments] | stop | restart | log
#   scripts/server.sh remove     stops all of them and removes their data
# ROWSOURCE_SERVER names its folder (play). NOPRELOAD=1 starts it without the library.
set -euo pipefail
. "$(dirname "$0")/common.sh"
choose_run
dir=$RUN/${ROWSOURCE_SERVER:-play}
case ${1:-} in
start | restart)
    "$ROOT/scripts/tree.sh" >/dev/null
    stop_server "$dir" immediate
    make_template
    # A data folder of another major version goes.
    if ! cmp -s "$dir/data/PG_VERSION" "$RUN/template/PG_VERSION"; then
        rm -rf "$dir" && mkdir "$dir"
        [ "$(id -u)" != 0 ] || chown postgres: "$dir"
        cp -a "$RUN/template" "$dir/data"
    fi
    [ -n "${NOPRELOAD:-}" ] || set -- "$1" "shared_preload_libraries = 'pg_rowsource'" "${@:2}"
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$dir'" "fsync = off" "shared_buffers = '512MB'" \
        "max_wal_size = '8GB'" "${@:2}" >"$dir/data/postgresql.auto.conf"
    (cd "$dir" && as_server "$PGBIN/pg_ctl" -D data -l log -w start >/dev/null 2>&1) ||
        die "the server did not start: $(grep -E 'FATAL|PANIC' "$dir/log" | tail -n 1) (see $dir/log)"
    echo "started; connect with: $PGBIN/psql -h $dir -U postgres"
    ;;
psql) exec "$PGBIN/psql" -X -h "$dir" -U postgres "${@:2}" ;;
stop) stop_server "$dir" ;;
log) cat "$dir/log" ;;
remove)
    for dir in "$RUN"/*/data; do stop_server "${dir%/data}" immediate; done
    rm -rf "$RUN"
    ;;
*) die "usage: server.sh start|restart [option=value ...] | psql ... | stop | log | remove" ;;
esac
