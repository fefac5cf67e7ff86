#!/usr/bin/env bash
# Makes the pictures of README and docs/ from real runs on a throwaway server. Needs Chromium; for the terminal tmux and aha.
#   scripts/picture.sh [page] [live] [terminal]    docs/page.png: rowsource_html(); docs/live.png: a statement while it runs;
#                                                  docs/terminal-*.png: views of the terminal program under pgbench's load
. "$(dirname "$0")/common.sh"
cd "$ROOT" && choose_run || exit
export ROWSOURCE_SERVER=picture
folder=$(mktemp -d) && trap 'scripts/server.sh stop >/dev/null; rm -rf "$folder"' EXIT
STATEMENT="SELECT name, sum(amount), row_number() OVER (ORDER BY sum(amount) DESC) FROM orders JOIN customers c ON c.id = customer
    WHERE state = 1 AND copy = 1 AND region < 8 GROUP BY name, orders.id % 50 ORDER BY 2 DESC"

sql() { scripts/server.sh psql -AtqX -v ON_ERROR_STOP=1 "$@"; }

# screenshot NAME WIDTH HEIGHT: of the page in the folder.
screenshot() {
    mkdir -p docs && chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
        --user-data-dir="$folder/profile" --hide-scrollbars --window-size="$2,$3" --screenshot="docs/$1.png" \
        "file://$folder/$1.html" 2>/dev/null || die "Chromium failed"
}

# create ROWS: the tables, and that many orders.
create() {
    sql -c "SET client_min_messages = error" -c "CREATE EXTENSION IF NOT EXISTS pg_rowsource" \
        -c "DROP TABLE IF EXISTS orders, customers" \
        -c "CREATE TABLE customers AS SELECT i AS id, 'c' || i AS name, i % 10 AS region FROM generate_series(1, 2000) i" \
        -c "CREATE TABLE orders AS SELECT i AS id, 1 + (i * i % 1999)::int AS customer, i % 97 AS amount, i % 3 AS state,
                i % 3 AS copy FROM generate_series(1, $1::bigint) i" \
        -c "VACUUM ANALYZE customers" -c "VACUUM ANALYZE orders" >/dev/null
}

page() {
    create 1000000
    sql -c "SET track_io_timing = on" -c "SET work_mem = '1MB'" -c "SET pg_rowsource.statistics_level = typical" \
        -c "$STATEMENT" -c "\\o $folder/page.html" -c "SELECT rowsource_html()" >/dev/null
    screenshot page 1200 1260
}

# look: what another session sees now of the statement.
look() {
    sql -c "SELECT format('%s %% done (at least %s, at most %s; from %s), %s s elapsed, %s s left', round(percent_done), round(percent_low),
                round(percent_high), basis, round(elapsed_time::numeric / 1000, 1), round(time_left::numeric / 1000, 1)) FROM rowsource_progress" \
        -c "SELECT rowsource_display(pid => pid, format => 'allstats last -predicate') FROM rowsource_progress" | grep -E '^(\||-|[0-9]+ %)'
}

live() {
    create 12000000
    PGAPPNAME=picture sql -c "SET work_mem = '1MB'" -c "SET pg_rowsource.statistics_level = typical" -c "$STATEMENT" >/dev/null &
    local statement=$!
    printf '<meta charset="utf-8"><style>body { margin: 0; padding: 1px 18px; background: #1b1f27; color: #d7dce5 }
        pre { font: 13.5px/1.3 monospace } b { color: #ffd166 }</style>' >"$folder/live.html"
    for percent in 10 40 70; do
        until [ -z "$(sql -c "SELECT 1 FROM rowsource_progress WHERE percent_done < $percent
                              UNION ALL SELECT 1 WHERE NOT EXISTS (SELECT FROM rowsource_progress)")" ]; do
            kill -0 "$statement" 2>/dev/null || die "the statement has ended"
            sleep 0.1
        done
        { echo "<pre>"; look | sed -E 's/&/\&amp;/g; s/</\&lt;/g; 1s/.*/<b>&<\/b>/; s/^(\| ?\*.*)$/<b>\1<\/b>/' && echo "</pre>"; } >>"$folder/live.html"
    done
    wait "$statement"
    screenshot live 860 665
}

# shot NAME HEIGHT: a picture of what the terminal shows.
shot() {
    tmux -L picture capture-pane -e -p | aha --black --no-header | {
        printf '<meta charset="utf-8"><style>body { margin: 0; padding: 8px 14px; background: #000; color: #d7dce5 }
            pre { font: 14px/1.25 monospace }</style><pre>'
        cat
    } >"$folder/terminal-$1.html"
    screenshot "terminal-$1" 1060 "$2"
}

terminal() {
    create 300000
    sql -c "CREATE INDEX orders_customer_idx ON orders (customer)" -c "SET client_min_messages = error" -c "DROP TABLE IF EXISTS stock" -c "CREATE TABLE stock AS SELECT i AS id, i % 500 AS item FROM generate_series(1, 50000) i" \
        -c "CREATE INDEX stock_item_idx ON stock (item)" -c "VACUUM ANALYZE" >/dev/null
    local load="$folder/load.sql" bench tmux
    printf '%s\n' '\set c random(1, 1999)' 'SELECT sum(amount) FROM orders WHERE customer = :c;' \
        'SELECT count(*) FROM stock WHERE item = :c % 500;' '\if :c < 100' 'SELECT name, sum(amount) FROM orders JOIN customers c ON c.id = customer GROUP BY name ORDER BY 2 DESC LIMIT 10;' '\endif' >"$load"
    "$PGBIN/pgbench" -h "$RUN/picture" -U postgres -n -c 3 -T 40 -f "$load" postgres >/dev/null 2>&1 &
    bench=$!
    sleep 12
    sql -c "SELECT rowsource_judge(now())" -c "DROP INDEX stock_item_idx" >/dev/null
    sleep 8
    sql -c "SELECT rowsource_judge(now() + interval '1 min')" >/dev/null
    # The first line of the screen names the folder.
    ln -sfn "$RUN/picture" /tmp/rowsource-picture
    tmux="tmux -L picture"
    $tmux new-session -d -x 130 -y 12 "NO_COLOR= TERM=screen-256color $TARGET/lab/rowsource -h /tmp/rowsource-picture -U postgres -d postgres top"
    sleep 7
    shot statements 165
    $tmux send-keys Enter && sleep 3
    shot plan 240
    $tmux send-keys 5 && sleep 3
    shot findings 140
    $tmux send-keys q
    rm /tmp/rowsource-picture
    wait "$bench"
}

scripts/server.sh start max_parallel_workers_per_gather=0 >/dev/null || die "the server did not start"
for picture in "${@:-page live}"; do
    for one in $picture; do "$one" || die "the picture $one failed"; done
done
