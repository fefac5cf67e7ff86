#!/usr/bin/env bash
# Plays the seven incidents of docs/on-call.md on the throwaway server of scripts/server.sh, and prints what the page's commands say:
#   scripts/server.sh restart; tests/incidents.sh; scripts/server.sh stop
# The commands are read from the page. The samples of a run before would be in the outputs, so restart the server for each.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
db() { "$root/scripts/server.sh" psql -q "$@"; }
as() { PGAPPNAME=$1 "$root/scripts/server.sh" psql -q "${@:2}" >/dev/null; }
# told N TEXT...: runs the N-th SQL block of the page, whose output must have these texts.
told() {
    local sql output text
    sql=$(awk -v n="$1" '/^```sql/ { i++; inside = 1; next } /^```/ { inside = 0 } inside && i == n' "$root/docs/on-call.md")
    echo "-- $sql"
    output=$(db -c "$sql")
    echo "$output"
    for text in "${@:2}"; do
        grep -qF -- "$text" <<<"$output" || { echo "the page's command does not show: $text" >&2; exit 1; }
    done
}
# until_true CONDITION: waits for it, a minute at most.
until_true() {
    local i
    for ((i = 0; i < 600; i++)); do
        [ "$(db -Atc "SELECT $1")" != t ] || return 0
        sleep 0.1
    done
    echo "not true: $1" >&2
    exit 1
}

db >/dev/null 2>&1 <<'SQL'
DROP TABLE IF EXISTS orders, fresh; DROP PROCEDURE IF EXISTS batch;
CREATE EXTENSION IF NOT EXISTS pg_rowsource;
CREATE TABLE orders AS SELECT i AS id, i % 5000 AS customer, (i % 100)::numeric AS amount, repeat(md5(i::text), 4) AS pad
  FROM generate_series(1, 500000) i;
CREATE INDEX orders_customer ON orders (customer);
CREATE TABLE fresh (id int, customer int) WITH (autovacuum_enabled = off);
INSERT INTO fresh VALUES (0, 0);
VACUUM (ANALYZE) orders;
ANALYZE fresh;
CREATE PROCEDURE batch() LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..30 LOOP
    PERFORM count(*) FROM orders WHERE pad LIKE '%' || i || 'abc%';
    UPDATE orders SET amount = amount + 1 WHERE customer = i;
    COMMIT;
  END LOOP;
END $$;
SELECT rowsource_reset();
SQL
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

echo "== A pile-up of locks behind an idle transaction"
coproc report { PGAPPNAME=report exec "$root/scripts/server.sh" psql -q; }
echo "BEGIN; SELECT count(*) FROM orders;" >&"${report[1]}"
until_true "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'report' AND state = 'idle in transaction')"
as migration -c "ALTER TABLE orders ADD COLUMN extra int" &
until_true "(SELECT count(*) = 1 FROM rowsource_blockers WHERE depth = 1)"
for _ in 1 2; do as shop -c "SELECT sum(amount) FROM orders WHERE customer = 7" & done
until_true "(SELECT count(*) = 2 FROM rowsource_blockers WHERE depth = 2)"
told 1 "idle in transaction" "ALTER TABLE orders" "FROM orders WHERE customer"
until_true "(SELECT count(*) = 3 FROM rowsource_blockers('10 min') WHERE depth > 0 AND wait_time > 3000)"
echo "COMMIT;" >&"${report[1]}"
until_true "NOT EXISTS (SELECT FROM rowsource_blockers)"
told 2 report migration shop

echo "== A slow client, and two hogs"
(PGAPPNAME=export "$root/scripts/server.sh" psql -q -c "COPY (SELECT * FROM orders) TO STDOUT" | (sleep 5; cat >/dev/null)) &
slow=$!
as hog -c "SELECT max(md5(id::text || pad)) FROM orders, generate_series(1, 4)" & first=$!
as hog -c "SELECT count(md5(i::text)) FROM (SELECT generate_series(1, 3000000) AS i) s" & second=$!
wait $slow $first $second
told 3 "SELECT max(md5(id" "SELECT count(md5(i" "COPY (SELECT"
told 4 export

echo "== A dropped index"
lookups() { for ((i = 0; i < $1; i++)); do echo "SELECT sum(amount) FROM orders WHERE customer = $i;"; done | as shop; }
lookups 40
db -c "DROP INDEX orders_customer"
lookups 40
told 5 slower "FROM orders WHERE customer"

echo "== Stale statistics, and a spill"
as load -c "INSERT INTO fresh SELECT i, i % 5000 FROM generate_series(1, 100000) i"
as shop -c "SELECT count(*) FROM fresh f JOIN orders o USING (id) WHERE f.customer >= 0"
as shop -c "SET work_mem = '1MB'" -c "SET max_parallel_workers_per_gather = 0" -c "SELECT count(*) FROM (SELECT * FROM orders ORDER BY pad, id OFFSET 0) s"
told 6 "FROM orders WHERE customer"
told 7 "Hash Join" fresh underestimated
told 8 Sort

echo "== A batch in a procedure"
as batch -c "SET pg_rowsource.track = nested" -c "CALL batch()"
told 9 "pad LIKE" "UPDATE orders"
told 10 "pad LIKE" "executions 30"
