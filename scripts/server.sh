#!/usr/bin/env bash
# A throwaway server to play with, from what is built now, loaded by shared_preload_libraries:
#   scripts/server.sh start [option=value ...] | psql [arguments] | stop | restart | log
#   scripts/server.sh remove     stops all of them and removes their data
#   scripts/server.sh tree       only makes the private tree, with the extension, and prints its folder of programs
# ROWSOURCE_SERVER names its folder (play). NOPRELOAD=1 starts it without the library.
set -euo pipefail
. "$(dirname "$0")/common.sh"
choose_run
dir=$RUN/${ROWSOURCE_SERVER:-play}

# make_tree: the installed server's folders as hard links, at the same paths under TREE (PostgreSQL finds its folders
# relative to its program), with the extension, if that is built.
make_tree() (
    exec 9>"$RUN/tree.lock"
    flock 9
    folders=("$("$PG_CONFIG" --bindir)/." "$("$PG_CONFIG" --pkglibdir)/." "$("$PG_CONFIG" --sharedir)/.")
    # Installing or removing an extension changes the time of the folder.
    stamp="${folders[0]} $(stat -L -c '%i %Y' "${PG_ROOT:-}${folders[0]}/postgres" "${PG_ROOT:-}${folders[1]}")"
    if [ -n "$TREE" ] && [ "$(cat "$TREE.stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$TREE" "$TREE.stamp"
        mkdir -p "$TREE"
        copy=(env -C "${PG_ROOT:-/}" cp -a --parents "${folders[@]#/}" "$TREE/")
        # Links cost nothing. Where they cannot be made (another file system, another owner), it copies.
        "${copy[@]}" --link 2>/dev/null || "${copy[@]}" --remove-destination || die "cannot copy ${folders[*]} into $TREE"
        echo "$stamp" >"$TREE.stamp"
    fi
    [ ! -f "$(library)" ] || make -s --no-print-directory -C "$ROOT" install-library DESTDIR="$TREE" >&2
)

case ${1:-} in
tree)
    make_tree
    echo "$PGBIN"
    ;;
start | restart)
    make_tree
    stop_server "$dir" immediate
    # A data folder of another major version goes.
    if [ "$(cat "$dir/data/PG_VERSION" 2>/dev/null)" != "$(major)" ]; then
        rm -rf "$dir"
        (cd "$RUN" && as_server mkdir "$dir" &&
            as_server "$PGBIN/initdb" -D "$dir/new" -U postgres -A trust -E UTF8 --locale=C -N) >"$TARGET/initdb.log" 2>&1 ||
            die "initdb failed: $(tail -n 1 "$TARGET/initdb.log") (see $TARGET/initdb.log)"
        mv "$dir/new" "$dir/data"
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
    choose_servers
    rm -rf "${SERVERS%/servers}" "$RUN"
    [ "$BASE" = "$TARGET" ] || rm -rf --one-file-system "$BASE"
    ;;
*) die "usage: server.sh start|restart [option=value ...] | psql ... | stop | log | remove | tree" ;;
esac
