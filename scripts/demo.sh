#!/usr/bin/env bash
# Builds the library as `make test` does, and shows it on a throwaway server: runs scripts/demo.sql, which loads ten million rows once and
# keeps them in RUN/demo, opens the terminal program if there is a terminal, and stops the server. KEEP=1 leaves it running.
. "$(dirname "$0")/common.sh"
cd "$ROOT" || exit
export ROWSOURCE_PROFILE=lab ROWSOURCE_SERVER=demo
scripts/build.sh || exit

run() {
    scripts/server.sh start "shared_buffers = '1GB'" "autovacuum = off" "jit = off" >/dev/null || exit 1
    scripts/server.sh psql -q -v ON_ERROR_STOP=1 -v rows="${ROWS:-10000000}" -f scripts/demo.sql ||
        die "the demo failed (see above, and $RUN/demo/log)"
}

# show: the server in the terminal program, with a statement that runs again and again.
show() {
    [ -t 0 ] && [ -t 1 ] || return 0
    read -rp "Enter shows the server at work in the terminal program (q leaves it) " && make -s program || return
    while scripts/server.sh psql -q -c "select pad, count(*) from test where id % 7 = 0 group by pad"; do :; done >/dev/null 2>&1 &
    "$TARGET/lab/rowsource" -h "$RUN/demo" -U postgres -d postgres top
    kill $!
    wait $! 2>/dev/null
}

choose_run
trap 'stop_server "$RUN/demo" immediate' EXIT
together "$TARGET/demo.log" run || exit 1
echo
show
say "what to try next"
if [ "${KEEP:-}" != 1 ]; then
    printf '%s\n' "The server is stopped. To type statements of your own into it, in a few seconds:" "    make demo KEEP=1" \
        "On a server of yours: docs/getting-started.md. Questions and answers: docs/cookbook.md."
    exit 0
fi
trap - EXIT
cat <<END
The server keeps running, in $RUN/demo. Connect with
    $PGBIN/psql -h $RUN/demo -U postgres
and type, for instance,
    select pad, count(*) from test where id % 7 = 0 group by pad;
    select rowsource_display();                        -- what each node of its plan did
    select * from rowsource_top_nodes limit 5;         -- the nodes that took most of the server's time
    select * from pg_stat_rowsource_system_waits limit 5;      -- what all sessions waited for
or look at it as it works with
    $TARGET/lab/rowsource -h $RUN/demo -U postgres top
Stop it with
    make demo-stop
On a server of yours: docs/getting-started.md. Questions and answers: docs/cookbook.md.
END
