#!/usr/bin/env bash
# Makes the pictures of README and docs/ from real runs on a new throwaway server. Builds what is not built, and needs Chromium and
# Python; for the terminal tmux and aha.
#   scripts/picture.sh [page] [live] [terminal]    docs/page.png: rowsource_html(); docs/live.png: a statement while it runs;
#                                                  docs/terminal-*.png: views of the terminal program under pgbench's load; all by default
. "$(dirname "$0")/common.sh"
cd "$ROOT" && choose_run || exit
export ROWSOURCE_SERVER=picture
folder=$(mktemp -d) && trap 'tmux -L picture kill-server 2>/dev/null; stop_server "$RUN/picture" immediate; rm -rf "$folder" "$RUN/picture" "$link"' EXIT
link=/tmp/rowsource-picture
STATEMENT="SELECT name, sum(amount), row_number() OVER (ORDER BY sum(amount) DESC) FROM orders JOIN customers c ON c.id = customer
    WHERE state = 1 AND copy = 1 AND region < 8 GROUP BY name, orders.id % 50 ORDER BY 2 DESC"

sql() { scripts/server.sh psql -AtqX -v ON_ERROR_STOP=1 "$@"; }

# screenshot NAME WIDTH HEIGHT: of the page in the folder. Chromium's window has a frame, though nobody sees it: the picture is cut to
# the height that it is to have.
screenshot() {
    mkdir -p docs && chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
        --user-data-dir="$folder/profile" --hide-scrollbars --window-size="$2,$(($3 + 200))" --screenshot="$folder/$1.png" \
        "file://$folder/$1.html" 2>/dev/null && python3 - "$folder/$1.png" "$3" >"docs/$1.png" <<'END' || die "Chromium failed"
import struct, sys, zlib
picture, height = open(sys.argv[1], "rb").read(), int(sys.argv[2])
at, header, data = 8, None, b""
while at < len(picture):
    length, kind = struct.unpack(">I4s", picture[at : at + 8])
    body = picture[at + 8 : at + 8 + length]
    header = body if kind == b"IHDR" else header
    data += body if kind == b"IDAT" else b""
    at += length + 12
width, _, depth, colour = struct.unpack(">IIBB", header[:10])
# The lines of pixels follow one another, each after the byte of its filter.
line = 1 + width * depth * {0: 1, 2: 3, 6: 4}[colour] // 8
chunks = [(b"IHDR", struct.pack(">II", width, height) + header[8:])]
chunks += [(b"IDAT", zlib.compress(zlib.decompress(data)[: line * height], 9)), (b"IEND", b"")]
sys.stdout.buffer.write(picture[:8])
for kind, body in chunks:
    sys.stdout.buffer.write(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)))
END
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
    screenshot page 1200 1300
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
    screenshot live 930 665
}

# shown TEXT: waits until the terminal shows it.
shown() {
    for _ in {1..300}; do
        ! tmux -L picture capture-pane -p | grep -qF -- "$1" || return 0
        sleep 0.1
    done
    tmux -L picture capture-pane -p
    die "the terminal never shows: $1"
}

# shot NAME: a picture of what the terminal shows. Aha makes black text on a bright ground bright, too.
shot() {
    tmux -L picture capture-pane -e -p | aha --black --no-header | sed -E 's/filter:[^;]*;([^"]*background-color)/\1/g; s/color:dimgray;background/color:black;background/g' | {
        printf '<meta charset="utf-8"><style>body { margin: 0; padding: 8px 14px; background: #000; color: #d7dce5 }
            pre { margin: 0; font: 15px/20px monospace } span { padding-bottom: 2px }</style><pre>'
        cat
    } >"$folder/terminal-$1.html"
    screenshot "terminal-$1" 1205 $((LINES_SHOWN * 20 + 16))
}

# often N STATEMENT: runs it that often.
often() {
    sql -f <(for ((i = 0; i < $1; i++)); do echo "$2;"; done) >/dev/null
}

LINES_SHOWN=13
terminal() {
    local load="$folder/load.sql" bench stock="SELECT count(*) FROM stock WHERE item = 42"
    create 300000
    sql -c "SET client_min_messages = error" -c "CREATE INDEX orders_customer_idx ON orders (customer)" -c "DROP TABLE IF EXISTS stock" \
        -c "CREATE TABLE stock AS SELECT i AS id, i % 500 AS item FROM generate_series(1, 50000) i" \
        -c "CREATE INDEX stock_item_idx ON stock (item)" -c "VACUUM (FREEZE, ANALYZE)" >/dev/null
    # A statement becomes slower, and the worker looks at it as if a minute had passed.
    often 50 "$stock"
    sql -c "SELECT rowsource_judge(now())" -c "DROP INDEX stock_item_idx" >/dev/null
    often 50 "$stock"
    sql -c "SELECT rowsource_judge(now() + interval '1 min')" >/dev/null
    [ -n "$(sql -c "SELECT 1 FROM rowsource_regressions() WHERE cause LIKE '%stock_item_idx%'")" ] || die "the regression was not found"
    printf '%s\n' '\set c random(1, 1999)' 'SELECT sum(amount) FROM orders WHERE customer = :c;' "$stock;" '\if :c < 100' \
        'SELECT name, sum(amount) FROM orders JOIN customers c ON c.id = customer GROUP BY name ORDER BY 2 DESC LIMIT 10;' '\endif' >"$load"
    "$PGBIN/pgbench" -h "$RUN/picture" -U postgres -n -c 3 -T 600 -f "$load" postgres >/dev/null 2>&1 &
    bench=$!
    # The first line of the screen names the folder.
    ln -sfn "$RUN/picture" "$link"
    tmux -L picture -f /dev/null new-session -d -x 130 -y "$LINES_SHOWN" -c "$folder" \
        "NO_COLOR= TERM=screen-256color '$TARGET/lab/rowsource' -h '$link' -U postgres -d postgres top"
    shown "in the last 2."
    shown "customers c"
    # One more refresh, so that the interval is a whole one.
    sleep 3
    shot statements
    tmux -L picture send-keys Enter
    shown "Seq Scan | orders"
    sleep 3
    shot plan
    tmux -L picture send-keys 5
    shown stock_item_idx
    shot findings
    tmux -L picture send-keys q
    kill "$bench"
    wait "$bench"
    true
}

# What earlier runs left would be in the pictures, too.
scripts/build.sh || exit
make -s program || exit
stop_server "$RUN/picture" immediate
rm -rf "$RUN/picture"
scripts/server.sh start max_parallel_workers_per_gather=0 >/dev/null || die "the server did not start"
for picture in "${@:-page live terminal}"; do
    for one in $picture; do "$one" || die "the picture $one failed"; done
done
