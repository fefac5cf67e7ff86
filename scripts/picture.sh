#!/usr/bin/env bash
# Makes the pictures of README and docs/ from real runs on a throwaway server. Needs Chromium.
#   scripts/picture.sh [page] [live]    docs/page.png: rowsource_html(); docs/live.png: a statement while it runs
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

scripts/server.sh start max_parallel_workers_per_gather=0 >/dev/null || die "the server did not start"
for picture in "${@:-page live}"; do
    for one in $picture; do "$one" || die "the picture $one failed"; done
done
