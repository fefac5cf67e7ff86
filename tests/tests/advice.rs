//! `rowsource_advice()`: planted cases that it must find, advice that is followed, and indexes that look
//! right and are not.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};

const SETTINGS: [&str; 5] = [
    "pg_rowsource.snapshot_interval = 0",
    "autovacuum = off",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "log_min_duration_statement = -1",
];

const SET_UP: &str = "
    CREATE EXTENSION pg_rowsource;
    CREATE TABLE orders AS SELECT i AS id, i % 20000 AS customer, (i % 1000)::text::varchar AS status, now() AS at, i / 10 AS a, i / 10 AS b,
                                  repeat('x', 50) AS filler
                             FROM generate_series(1, 100000) i;
    CREATE UNIQUE INDEX orders_id ON orders (id); VACUUM ANALYZE orders; SELECT rowsource_reset()";

/// Runs a statement several times. A table that is written more than it is read needs no index, so what the
/// session has read must be in PostgreSQL's statistics, which it sends once a second.
fn run(client: &mut Client, sql: &str) {
    for _ in 0..5 {
        run_each(client, sql);
    }
    run_each(client, "SELECT pg_stat_force_next_flush()");
}

/// Returns the rules of the findings, with the names of their objects and what to try.
fn advice(client: &mut Client) -> Vec<Vec<String>> {
    let rows = texts(
        client,
        "SELECT rule, coalesce(object_name, ''), try_query FROM rowsource_advice() WHERE query NOT LIKE '%rowsource%'",
    );
    rows.into_iter()
        .map(|row| row.into_iter().map(Option::unwrap_or_default).collect())
        .collect()
}

/// Forgets what ran before, and runs a statement of which this rule must be found. Returns what to try.
fn planted(client: &mut Client, sql: &str, rule: &str) -> String {
    run_each(client, "SELECT rowsource_reset()");
    run(client, sql);
    let found = advice(client);
    let of_rule = found.iter().find(|row| row[0] == rule);
    let plan = texts(
        client,
        "SELECT * FROM rowsource_display(pattern => '%', format => 'ALLSTATS')",
    );
    of_rule.unwrap_or_else(|| panic!("{rule} of {sql}: {found:#?}\n{plan:#?}"))[2].clone()
}

/// Returns the blocks that an execution of the measured statement used on average.
fn blocks(client: &mut Client) -> f64 {
    value(
        client,
        "SELECT max((shared_blks_hit + shared_blks_read)::float8 / calls) FROM pg_stat_rowsource_plans
          WHERE query NOT LIKE '%rowsource%' AND query NOT LIKE 'CREATE%' AND queryid IS NOT NULL",
    )
}

/// Fails if a statement does not use half of the blocks any more after advice was followed, or if it still
/// has the finding.
fn follow(client: &mut Client, sql: &str, rule: &str, steps: &str) {
    let before = blocks(client);
    run_each(client, steps);
    run_each(client, "SELECT rowsource_reset()");
    run(client, sql);
    let after = blocks(client);
    assert!(
        after <= before / 2.0,
        "{rule}: {before} blocks before, {after} after"
    );
    let left = advice(client);
    assert!(left.iter().all(|row| row[0] != rule), "{left:#?}");
}

#[test]
fn indexes_that_are_advised_save_what_they_say() {
    let server = Server::preloaded("advice-indexes", &SETTINGS);
    let mut client = server.connect();
    run_each(&mut client, SET_UP);
    let filter = "SELECT count(*) FROM orders WHERE customer = 7 AND status = '7'";
    let create = planted(&mut client, filter, "index for a filter");
    assert_eq!(
        create,
        "CREATE INDEX CONCURRENTLY ON public.orders (customer, status)"
    );
    let share: f64 = value(
        &mut client,
        "SELECT max_saved_time / (SELECT sum(total_time) FROM pg_stat_rowsource_plans p WHERE p.queryid = a.queryid)
           FROM rowsource_advice() a WHERE rule = 'index for a filter' AND query LIKE '%customer%'",
    );
    assert!((0.5..=1.0).contains(&share), "{share}");
    follow(&mut client, filter, "index for a filter", &create);

    let ordered = "SELECT id FROM orders WHERE at < '2000-01-01' ORDER BY id LIMIT 1";
    run_each(&mut client, "SET enable_seqscan = off; SET enable_sort = off");
    let create = planted(&mut client, ordered, "index for an order with a limit");
    assert!(
        create.starts_with("CREATE INDEX CONCURRENTLY ON public.orders (at);"),
        "{create}"
    );
    let steps = "CREATE INDEX ON orders (at, id); RESET enable_seqscan; RESET enable_sort";
    follow(&mut client, ordered, "index for an order with a limit", steps);
}

/// A role that may not look into the schema of a table sees its advice, and the report. A partitioned table
/// gets no advice that would fail on it.
#[test]
fn a_table_in_a_schema_of_others_and_partitions_do_no_harm() {
    let server = Server::preloaded("advice-schema", &SETTINGS);
    let mut client = server.connect();
    run_each(&mut client, SET_UP);
    run_each(
        &mut client,
        "CREATE SCHEMA app; ALTER TABLE orders SET SCHEMA app; CREATE ROLE dba LOGIN; GRANT pg_monitor TO dba;
         CREATE TABLE parts (id int, v int) PARTITION BY RANGE (id);
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (60000);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (60000) TO (200000);
         INSERT INTO parts SELECT i, i FROM generate_series(1, 100000) i; ANALYZE parts; SELECT rowsource_reset()",
    );
    run(&mut client, "SELECT count(*) FROM app.orders WHERE customer = 7");
    run(&mut client, "SELECT count(*) FROM parts WHERE v = 7");
    run_each(&mut client, "SET ROLE dba");
    let found = advice(&mut client);
    let of_filters: Vec<_> = found
        .iter()
        .filter(|row| row[0] == "index for a filter")
        .map(|row| row[2].as_str())
        .collect();
    assert_eq!(
        of_filters,
        ["CREATE INDEX CONCURRENTLY ON app.orders (customer)"],
        "{found:#?}"
    );
    let report = texts(&mut client, "SELECT * FROM rowsource_report()");
    let shown = report
        .iter()
        .flatten()
        .flatten()
        .any(|line| line.contains("app.orders"));
    assert!(shown, "{report:#?}");
}

#[test]
fn a_vacuum_that_is_advised_ends_the_visits_of_the_table() {
    let server = Server::preloaded("advice-vacuum", &SETTINGS);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 50000) i;
         CREATE INDEX ON t (id); ANALYZE t; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = on",
    );
    let count = "SELECT count(*) FROM t WHERE id BETWEEN 1 AND 30000";
    let vacuum = planted(&mut client, count, "heap fetches");
    assert!(vacuum.starts_with("VACUUM public.t;"), "{vacuum}");
    follow(&mut client, count, "heap fetches", "VACUUM t");
    // A table with partitions takes no storage parameters.
    run_each(
        &mut client,
        "CREATE TABLE parts (id int) PARTITION BY RANGE (id); CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (20000);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (20000) TO (60000);
         INSERT INTO parts SELECT i FROM generate_series(1, 50000) i; CREATE INDEX ON parts (id); ANALYZE parts",
    );
    let count = "SELECT count(*) FROM parts WHERE id BETWEEN 1 AND 45000";
    let vacuum = planted(&mut client, count, "heap fetches");
    assert_eq!(
        vacuum,
        "VACUUM public.parts; -- if that does not last: set autovacuum_vacuum_scale_factor = 0.02 for each of its partitions"
    );
    follow(&mut client, count, "heap fetches", "VACUUM parts");
}

/// Fails if workers are missing that PostgreSQL never launches.
fn no_workers_are_missing_for_a_cursor(client: &mut Client) {
    run_each(client, "SELECT rowsource_reset(); RESET max_parallel_workers");
    run(
        client,
        "BEGIN; DECLARE c CURSOR FOR SELECT max(filler) FROM orders; FETCH c; COMMIT",
    );
    let found = advice(client);
    assert!(
        found.iter().all(|row| row[0] != "workers not launched"),
        "{found:#?}"
    );
}

/// A role that has a setting of its own does not know that of others.
fn another_role_does_not_know_the_setting(server: &Server, set: &str) {
    run_each(
        &mut server.connect(),
        "CREATE ROLE reader LOGIN; GRANT pg_read_all_stats TO reader; ALTER ROLE reader SET work_mem = '1GB'",
    );
    let mut reader = server.try_connect("reader").expect("a connection");
    let found = texts(
        &mut reader,
        "SELECT try_query, figures FROM rowsource_advice() WHERE rule = 'spill to disk'",
    );
    assert_eq!(found[0][0].as_deref(), Some(set));
    let figures = found[0][1].as_deref().unwrap_or_default();
    assert!(!figures.contains("have a work_mem"), "{figures}");
}

#[test]
fn what_other_rules_find() {
    let server = Server::preloaded("advice-rules", &SETTINGS);
    let mut client = server.connect();
    run_each(&mut client, SET_UP);
    run_each(&mut client, "SET work_mem = '64kB'");
    let sort = "SELECT * FROM orders ORDER BY filler, status OFFSET 99999";
    let set = planted(&mut client, sort, "spill to disk");
    // What the session has that asks does not matter, but what the user's sessions have.
    let spill = |client: &mut Client| -> String {
        value(
            client,
            "SELECT try_query FROM rowsource_advice() WHERE rule = 'spill to disk'",
        )
    };
    run_each(&mut client, "SET work_mem = '1GB'");
    assert_eq!(spill(&mut client), set);
    run_each(&mut client, "ALTER ROLE postgres SET work_mem = '500MB'");
    assert_eq!(spill(&mut client), "SET work_mem = '600MB'");
    run_each(&mut client, "ALTER ROLE postgres RESET work_mem");
    another_role_does_not_know_the_setting(&server, &set);
    run_each(&mut client, &format!("{set}; SELECT rowsource_reset()"));
    run(&mut client, sort);
    let found = advice(&mut client);
    assert!(
        found.iter().all(|row| row[0] != "spill to disk"),
        "with {set}: {found:#?}"
    );
    run_each(
        &mut client,
        "SET work_mem = '64kB'; CREATE TABLE other AS SELECT i AS id FROM generate_series(1, 100000) i;
         CREATE INDEX ON other (id); VACUUM ANALYZE other",
    );
    // Rows with one value of a have one value of b and c, which the planner does not know.
    run_each(
        &mut client,
        "CREATE TABLE skewed AS SELECT i AS id, i % 10 AS a, i % 10 AS b, i % 10 AS c FROM generate_series(1, 50000) i; ANALYZE skewed;
         SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off",
    );
    let join =
        "SELECT count(*) FROM skewed s JOIN other o ON o.id = s.id WHERE s.a = 1 AND s.b = 1 AND s.c = 1";
    let analyze = planted(&mut client, join, "nested loop after a low estimate");
    assert_eq!(
        analyze,
        "ANALYZE public.skewed; -- if that does not help: CREATE STATISTICS public.a_b_c_stat ON a, b, c FROM public.skewed; ANALYZE public.skewed"
    );
    // Each value is looked up once, and the planner expects ten different ones.
    run_each(
        &mut client,
        "SET enable_memoize = on; ALTER TABLE skewed ALTER COLUMN id SET (n_distinct = 10); ANALYZE skewed; SET work_mem = '16MB'",
    );
    let memoize = "SELECT count(*) FROM skewed s JOIN other o ON o.id = s.id";
    assert_eq!(
        planted(&mut client, memoize, "cache of a Memoize"),
        "SET enable_memoize = off"
    );
    run_each(
        &mut client,
        "RESET enable_hashjoin; RESET enable_mergejoin; SET max_parallel_workers_per_gather = 2; SET max_parallel_workers = 0;
         SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0",
    );
    let parallel = "SELECT max(filler) FROM orders";
    let set = planted(&mut client, parallel, "workers not launched");
    assert!(set.starts_with("SHOW max_parallel_workers; -- set more"), "{set}");
    no_workers_are_missing_for_a_cursor(&mut client);
}

/// What the catalog says against an index.
#[test]
fn indexes_that_the_catalog_speaks_against_are_not_advised() {
    let server = Server::preloaded("advice-catalog", &SETTINGS);
    let mut client = server.connect();
    run_each(&mut client, SET_UP);
    let find = |client: &mut Client, sql: &str| {
        run_each(client, "SELECT rowsource_reset()");
        run(client, sql);
        let found = advice(client);
        found.iter().any(|row| row[0] == "index for a filter")
    };
    let filter = "SELECT count(*) FROM orders WHERE customer = 7";
    assert!(find(&mut client, filter), "it is found");
    // An integer that is compared as a text looks like a varchar.
    assert!(!find(
        &mut client,
        "SELECT count(*) FROM orders WHERE customer::text = '7'"
    ));
    // An expression is not its column, a column that is only included finds nothing, and neither does a hash
    // index find a range.
    let range = "SELECT count(*) FROM orders WHERE customer < 7";
    let both = "SELECT count(*) FROM orders WHERE customer = 7 AND status = '7'";
    run_each(
        &mut client,
        "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
         CREATE INDEX expression ON orders (lower(filler), customer); CREATE INDEX included ON orders (customer) INCLUDE (status)",
    );
    assert!(find(&mut client, both), "the second column is only included");
    run_each(&mut client, "DROP INDEX included");
    assert!(find(&mut client, filter), "the first column is an expression");
    run_each(
        &mut client,
        "DROP INDEX expression; CREATE INDEX hashed ON orders USING hash (customer)",
    );
    assert!(find(&mut client, range), "a hash index finds no range");
    assert!(!find(&mut client, filter), "a hash index finds it");
    run_each(
        &mut client,
        "DROP INDEX hashed; RESET enable_indexscan; RESET enable_indexonlyscan; RESET enable_bitmapscan;
         CREATE TYPE place AS (zip int); ALTER TABLE orders ADD zip int, ADD addr place; UPDATE orders SET addr = ROW(id); VACUUM ANALYZE orders",
    );
    assert!(
        !find(&mut client, "SELECT count(*) FROM orders WHERE (addr).zip = 7"),
        "a field of a composite is not the column of its name"
    );
    run_each(
        &mut client,
        "CREATE INDEX ON orders (customer, id); SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off",
    );
    assert!(!find(&mut client, filter), "there is such an index");
    run_each(
        &mut client,
        "CREATE TABLE queue (id int, done int, filler text DEFAULT repeat('x', 50));
         INSERT INTO queue SELECT i, i FROM generate_series(1, 300000) i; TRUNCATE queue;
         INSERT INTO queue SELECT i, i FROM generate_series(1, 100000) i; ANALYZE queue; SELECT pg_stat_force_next_flush()",
    );
    let scan = "SELECT id FROM queue WHERE done = 5";
    run_each(&mut client, "SELECT rowsource_reset()");
    run_each(&mut client, scan);
    run_each(&mut client, "SELECT pg_stat_clear_snapshot()");
    let found = advice(&mut client);
    assert!(
        found.iter().all(|row| row[1] != "queue"),
        "it is written more than read: {found:#?}"
    );
}

/// A finding ends when its statement runs with another plan. Those who may not see a statement see no
/// finding.
#[test]
fn findings_end_and_are_not_for_everyone() {
    let server = Server::preloaded("advice-ends", &SETTINGS);
    let mut client = server.connect();
    run_each(&mut client, SET_UP);
    run_each(&mut client, "CREATE ROLE reader LOGIN");
    let group = "SELECT customer, count(*) FROM orders WHERE status = '7' GROUP BY customer";
    let findings = |client: &mut Client| {
        let found = advice(client);
        found.iter().filter(|row| row[0] == "index for a filter").count()
    };
    run_each(&mut client, "SET enable_hashagg = off");
    run(&mut client, group);
    assert_eq!(findings(&mut client), 1);
    run_each(&mut client, "SET ROLE reader");
    assert_eq!(findings(&mut client), 0, "it is another user's");
    run_each(
        &mut client,
        "RESET ROLE; RESET enable_hashagg; SET enable_sort = off",
    );
    run(&mut client, group);
    assert_eq!(findings(&mut client), 2, "after five executions of another plan");
    for _ in 0..3 {
        run(&mut client, group);
    }
    assert_eq!(findings(&mut client), 1, "after 20 executions of another plan");
    run_each(&mut client, "CREATE INDEX ON orders (status)");
    assert_eq!(findings(&mut client), 0, "the index is there");
}

/// Tables like those of TPC-H, with the indexes that it allows.
const ANALYTICAL: &str = "
    CREATE EXTENSION pg_rowsource; SET work_mem = '64MB';
    CREATE TABLE nation AS SELECT i AS n_nationkey, 'nation ' || i AS n_name, i % 5 AS n_regionkey FROM generate_series(0, 24) i;
    CREATE TABLE supplier AS SELECT i AS s_suppkey, i % 25 AS s_nationkey FROM generate_series(1, 500) i;
    CREATE TABLE part AS SELECT i AS p_partkey, 'brand ' || i % 25 AS p_brand, 'type ' || i % 150 AS p_type, i % 50 AS p_size FROM generate_series(1, 10000) i;
    CREATE TABLE customer AS SELECT i AS c_custkey, i % 25 AS c_nationkey, 'segment ' || i % 5 AS c_mktsegment FROM generate_series(1, 7500) i;
    CREATE TABLE orders AS SELECT i AS o_orderkey, 1 + (i * 7919) % 7500 AS o_custkey, date '1992-01-01' + (i * 31) % 2400 AS o_orderdate,
                                  i % 5 || '-priority' AS o_orderpriority FROM generate_series(1, 75000) i;
    CREATE TABLE lineitem AS SELECT o_orderkey AS l_orderkey, l AS l_linenumber, 1 + (o_orderkey * 13 + l * 101) % 10000 AS l_partkey,
                                    1 + (o_orderkey + l) % 500 AS l_suppkey, 1 + (o_orderkey * l) % 50 AS l_quantity, 1000 + o_orderkey % 900 AS l_extendedprice,
                                    (l + o_orderkey) % 11 / 100.0 AS l_discount, o_orderdate + l * 10 AS l_shipdate, o_orderdate + l * 9 AS l_commitdate,
                                    o_orderdate + l * 11 AS l_receiptdate, CASE o_orderkey % 3 WHEN 0 THEN 'R' WHEN 1 THEN 'A' ELSE 'N' END AS l_returnflag,
                                    'mode ' || l % 7 AS l_shipmode
                               FROM orders, generate_series(1, 4) l;
    CREATE UNIQUE INDEX ON nation (n_nationkey); CREATE UNIQUE INDEX ON supplier (s_suppkey); CREATE UNIQUE INDEX ON part (p_partkey);
    CREATE UNIQUE INDEX ON customer (c_custkey); CREATE UNIQUE INDEX ON orders (o_orderkey); CREATE INDEX ON orders (o_custkey);
    CREATE INDEX ON orders (o_orderdate); CREATE UNIQUE INDEX ON lineitem (l_orderkey, l_linenumber); CREATE INDEX ON lineitem (l_partkey);
    CREATE INDEX ON lineitem (l_shipdate); VACUUM ANALYZE; SELECT rowsource_reset()";

/// Queries like 1, 3, 4, 5, 6, 10, 12, 14, 17, 18 and 19.
const QUERIES: [&str; 11] = [
    "SELECT l_returnflag, sum(l_quantity), avg(l_discount), count(*) FROM lineitem WHERE l_shipdate <= '1998-09-02' GROUP BY l_returnflag ORDER BY 1",
    "SELECT l_orderkey, sum(l_extendedprice), o_orderdate FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
      WHERE c_mktsegment = 'segment 1' AND o_orderdate < '1995-03-15' AND l_shipdate > '1995-03-15' GROUP BY 1, 3 ORDER BY 2 DESC LIMIT 10",
    "SELECT o_orderpriority, count(*) FROM orders WHERE o_orderdate >= '1993-07-01' AND o_orderdate < '1993-10-01'
        AND EXISTS (SELECT FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY 1 ORDER BY 1",
    "SELECT n_name, sum(l_extendedprice) FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
       JOIN supplier ON s_suppkey = l_suppkey AND s_nationkey = c_nationkey JOIN nation ON n_nationkey = s_nationkey
      WHERE n_regionkey = 2 AND o_orderdate >= '1994-01-01' AND o_orderdate < '1995-01-01' GROUP BY 1 ORDER BY 2 DESC",
    "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= '1994-01-01' AND l_shipdate < '1995-01-01'
        AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    "SELECT c_custkey, sum(l_extendedprice) FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
      WHERE o_orderdate >= '1993-10-01' AND o_orderdate < '1994-01-01' AND l_returnflag = 'R' GROUP BY 1 ORDER BY 2 DESC LIMIT 20",
    "SELECT l_shipmode, count(*) FROM orders JOIN lineitem ON l_orderkey = o_orderkey WHERE l_shipmode IN ('mode 1', 'mode 2')
        AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate AND l_receiptdate >= '1994-01-01' AND l_receiptdate < '1995-01-01' GROUP BY 1",
    "SELECT sum(CASE WHEN p_type LIKE 'type 1%' THEN l_extendedprice END) FROM lineitem JOIN part ON p_partkey = l_partkey
      WHERE l_shipdate >= '1995-09-01' AND l_shipdate < '1995-10-01'",
    "SELECT sum(l_extendedprice) FROM lineitem JOIN part ON p_partkey = l_partkey WHERE p_brand = 'brand 3' AND p_size = 3
        AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem i WHERE i.l_partkey = p_partkey)",
    "SELECT c_custkey, o_orderkey, sum(l_quantity) FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
      WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY 1 HAVING sum(l_quantity) > 150) GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 100",
    "SELECT sum(l_extendedprice) FROM lineitem JOIN part ON p_partkey = l_partkey
      WHERE (p_brand = 'brand 1' AND l_quantity BETWEEN 1 AND 11) OR (p_brand = 'brand 2' AND l_quantity BETWEEN 10 AND 20)",
];

#[test]
fn analytical_queries_with_right_indexes_get_at_most_two_findings() {
    let server = Server::preloaded("advice-analytical", &SETTINGS);
    let mut client = server.connect();
    run_each(&mut client, ANALYTICAL);
    for query in QUERIES {
        for _ in 0..2 {
            run_each(&mut client, query);
        }
    }
    let found = texts(
        &mut client,
        "SELECT rule, figures, try_query, query FROM rowsource_advice()",
    );
    assert!(found.len() <= 2, "{found:#?}");
    let plans: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE '%lineitem%'",
    );
    assert!(plans >= QUERIES.len() as i64, "{plans}");
}
