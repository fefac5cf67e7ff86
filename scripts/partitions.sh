#!/usr/bin/env bash
# What partitions cost, for docs/cost.md: describing plans that read or change 10 to 5,000 partitions beside planning, start and core's
# EXPLAIN, the room of such plans in the store, and that of 5,000 plans of a table with 200 partitions. It uses the library that is built
# (ROWSOURCE_PROFILE), and a throwaway server of its own. Each time is the least
# of ROUNDS (9), each in a new session.
set -euo pipefail
. "$(dirname "$0")/common.sh"
export ROWSOURCE_SERVER=partitions
ROUNDS=${ROUNDS:-9} SIZES=${SIZES:-10 100 1000 5000} PLANS=${PLANS:-5000}
server=$ROOT/scripts/server.sh
trap '"$server" stop >/dev/null' EXIT
"$server" start "max_locks_per_transaction = 2048" "jit = off" "autovacuum = off" "pg_rowsource.max_plans = 10000" >&2
psql() { "$server" psql -qAt -v ON_ERROR_STOP=1 "$@"; }

# make N: a table pN with N partitions. A transaction locks each that it makes, so it makes 500.
make() {
    echo "SET client_min_messages = warning; DROP TABLE IF EXISTS p$1; CREATE TABLE p$1 (id int, v int, note text) PARTITION BY RANGE (id);"
    for ((from = 0; from < $1; from += 500)); do
        echo "DO \$\$BEGIN FOR i IN $from..$(($1 - from < 500 ? $1 - 1 : from + 499)) LOOP EXECUTE format(
            'CREATE TABLE p$1_%s PARTITION OF p$1 FOR VALUES FROM (%s) TO (%s)', i, i, i + 1); END LOOP; END\$\$;"
    done
}

# statement read|change TABLE: a statement with a WHERE that is never needed. LIMIT 0 keeps the executor from running what it has started,
# and so does a key that is known only then and that no partition has.
statement() {
    case $1 in
        read) echo "SELECT count(*) FROM $2 WHERE v > 10 AND note <> 'none' LIMIT 0;" ;;
        change) echo "UPDATE $2 SET v = v + 1 WHERE v > 10 AND note <> 'none' AND id = (SELECT -1);" ;;
    esac
}

# session N read|change: prints the processor time in ms that a new session's process takes for such a statement over pN. Processor time depends little on what else runs. The
# first statements fill the caches of the session; then come the statement alone, EXPLAIN of it, the new plan, and the known one.
session() {
    local select pid before after warm
    select=$(statement "$2" "p$1")
    warm="SET pg_rowsource.statistics_level = typical; $(statement "$2" warm)
        SELECT rowsource_reset(); SET pg_rowsource.statistics_level = basic; $select EXPLAIN $select"
    coproc client { "$server" psql -qAt; }
    # run SQL: prints the last line of its output.
    run() { # The mark comes when the server has answered.
        local line last=
        printf '%s\n\\echo =\n' "$1" >&"${client[1]}"
        while read -r line <&"${client[0]}" && [ "$line" != "=" ]; do last=$line; done
        echo "$last"
    }
    used() { sleep 0.02 && cut -d' ' -f1 "/proc/$pid/schedstat"; }
    pid=$(run "SELECT pg_backend_pid();")
    run "$warm" >/dev/null
    for sql in "$select" "EXPLAIN $select" "SET pg_rowsource.statistics_level = typical;" "$select" "$select"; do
        before=$(used)
        run "$sql" >/dev/null
        after=$(used)
        echo $(((after - before) / 1000))
    done
    printf '\\q\n' >&"${client[1]}"
    # shellcheck disable=SC2154
    wait "$client_PID"
}

# least COLUMN: the least number of a column.
least() { cut -d' ' -f"$1" | sort -n | head -n 1; }

psql -c "SET client_min_messages = warning" -c "CREATE EXTENSION IF NOT EXISTS pg_rowsource" -c "DROP TABLE IF EXISTS warm" \
    -c "CREATE TABLE warm (id int, v int, note text)"
# row N read|change: a row of the table.
row() {
    local size=$1 what=$2 rounds whole explain new known empty bytes lines
    rounds=$(for ((round = 0; round < ROUNDS; round++)); do
        session "$size" "$what" | tr '\n' ' '
        echo
    done)
    read -r whole explain new known < <(for column in 1 2 4 5; do least $column <<<"$rounds"; done | tr '\n' ' '; echo)
    psql -c "SELECT rowsource_reset()" >/dev/null
    empty=$(psql -c "SELECT bytes FROM rowsource_info()")
    psql -c "$(statement "$what" "p$size")"
    bytes=$(psql -c "SELECT bytes FROM rowsource_info()")
    lines=$(psql -c "SELECT count(*) FROM pg_stat_rowsource_plans p, rowsource_display(p.queryid, p.planid) WHERE query LIKE '%p$size %'")
    awk -v what="$what" -v n="$size" -v whole="$whole" -v explain="$explain" -v new="$new" -v known="$known" \
        -v bytes="$((bytes - empty))" -v lines="$lines" 'BEGIN {
        printf "| %s | %d | %.2f | %.2f | %.2f | %.0f %% | %.1f | %d |\n", what, n, whole / 1000, (explain - whole) / 1000,
            (new - known) / 1000, 100 * (new - known) / whole, bytes / 1000, lines }'
}

echo "| statement | partitions | planning and start ms | EXPLAIN ms | describing ms | share | plan in store kB | lines of display |"
echo "|---|---|---|---|---|---|---|---|"
for size in $SIZES; do
    make "$size" | psql
    for what in read change; do row "$size" "$what"; done
done

# Each statement has another queryid: its conditions are the bits of its number.
echo
make 200 | psql
psql -c "SELECT rowsource_reset()" >/dev/null
empty=$(psql -c "SELECT bytes FROM rowsource_info()")
for ((plan = 0; plan < PLANS; plan++)); do
    condition=true
    for ((bit = 1; bit <= PLANS; bit *= 2)); do
        ((plan & bit)) && condition+=" OR id = v" || condition+=" OR id > v"
    done
    echo "SELECT count(*) FROM p200 WHERE note IS NULL AND (${condition#true OR }) LIMIT 0;"
done | psql
psql -F' ' -c "SELECT plans, bytes, refused, evictions FROM rowsource_info()" | awk -v empty="$empty" '{
    printf "%d plans of 200 partitions: %.1f MB, %.1f kB each; %d refused, %d evicted\n", $1, ($2 - empty) / 1e6,
        ($2 - empty) / $1 / 1000, $3, $4 }'
