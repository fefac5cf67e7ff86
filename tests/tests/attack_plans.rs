//! Plans of any size and number: the library adds little time, stays within its memory limits, and can be cancelled.

use postgres::Client;
use rowsource_tests::attack::{Growth, Pair, send};
use std::ops::Range;

/// Returns the sizes for CI, and with ROWSOURCE_LONG one more: the server takes minutes to create 10,000 partitions.
fn sizes(short: &[usize], long: usize) -> Vec<usize> {
    let more = std::env::var_os("ROWSOURCE_LONG").map(|_| long);
    short.iter().copied().chain(more).collect()
}

#[test]
fn partitions_cost_little_timing() {
    let settings = [
        "max_locks_per_transaction = 1000",
        "plan_cache_mode = force_generic_plan",
    ];
    let mut pair = Pair::start("attack-partitions", &settings, "");
    let mut growth = Growth::of("partitions");
    let mut largest = String::new();
    for partitions in sizes(&[10, 400, 2_000], 10_000) {
        let table = format!("p{partitions}");
        // Created in parts, because a transaction holds a lock on each partition.
        pair.both(&format!("CREATE TABLE {table} (id int) PARTITION BY RANGE (id)"));
        for from in (0..partitions).step_by(500) {
            let to = partitions.min(from + 500) - 1;
            let make = format!(
                "DO $$BEGIN FOR i IN {from}..{to} LOOP EXECUTE format('CREATE TABLE {table}_%s PARTITION OF {table}
                     FOR VALUES FROM (%s) TO (%s)', i, i, i + 1); END LOOP; END$$"
            );
            pair.clients.iter_mut().for_each(|client| send(client, &make));
        }
        largest = format!("SELECT count(*), max(id) FROM {table} WHERE id >= 0");
        growth.add(partitions, pair.elapsed_of(4, &largest));
    }
    pair.reconnect();
    pair.watch_memory();
    let elapsed = pair.elapsed_of(2, &largest);
    pair.assert_memory("partitions");
    pair.assert_cancelled_in_time("partitions", elapsed, &largest);
    pair.assert_store("partitions");
}

/// The planner folds `repeat` into a constant of 20 MB, which the statement's text does not show.
#[test]
fn predicates_of_20_mb_cost_little_timing() {
    const PREDICATE: &str = "b = repeat('x', 20000000)";
    let mut pair = Pair::start("attack-predicates", &[], "CREATE TABLE t (id int, b text)");
    pair.watch_memory();
    for columns in 1..=8 {
        let sql = format!("SELECT {} b FROM t WHERE {PREDICATE}", "id, ".repeat(columns));
        let elapsed = pair.elapsed_of(2, &sql);
        println!("{columns}: {elapsed:?}");
        assert!(
            elapsed.with <= 1.25 * elapsed.without + 0.020,
            "a predicate of 20 MB: {elapsed:?}"
        );
    }
    pair.assert_memory("predicates of 20 MB");
    pair.assert_store("predicates of 20 MB");
}

#[test]
fn lists_of_constants_cost_little_timing() {
    let mut pair = Pair::start("attack-lists", &[], "CREATE TABLE t AS SELECT 1 AS id");
    pair.watch_memory();
    let mut growth = Growth::of("IN list");
    let mut largest = String::new();
    for constants in [1_000, 100_000, 1_000_000] {
        let list: Vec<String> = (0..constants).map(|i| i.to_string()).collect();
        largest = format!("SELECT id FROM t WHERE id IN ({})", list.join(","));
        let rounds = if constants > 500_000 { 1 } else { 3 };
        growth.add(constants, pair.elapsed_of(rounds, &largest));
    }
    pair.assert_memory("IN list");
    pair.assert_store("IN list");
    let smaller = format!(
        "{})",
        &largest[..largest[..2_000_000].rfind(',').expect("a comma")]
    );
    let elapsed = pair.elapsed_of(1, &smaller);
    pair.assert_cancelled_in_time("IN list", elapsed, &smaller);
}

/// Returns a loop over statements with different plans and queryids: they differ in which of 16 columns are plain, as the bits
/// of the numbers say. Each statement is a UNION ALL of `joins` joins.
fn distinct(numbers: Range<usize>, joins: usize) -> String {
    let Range { start, end } = numbers;
    format!(
        "DO $$DECLARE q text; BEGIN FOR i IN {start}..{end} - 1 LOOP
             SELECT 'SELECT ' || string_agg(CASE WHEN (i >> b) & 1 = 1 THEN 'x.id' ELSE 'x.id + y.id' END, ',')
                 || ' FROM t x, t y WHERE x.id = y.id' INTO q FROM generate_series(0, 15) b;
             EXECUTE q || repeat(' UNION ALL ' || q, {joins} - 1); END LOOP; END$$"
    )
}

#[test]
fn distinct_plans_cost_little_timing() {
    const TABLE: &str = "CREATE TABLE t AS SELECT 1 AS id";
    let mut pair = Pair::start("attack-distinct", &["pg_rowsource.track = 'all'"], TABLE);
    pair.watch_memory();
    let mut growth = Growth::of_new_plans("distinct plans");
    // Each round has plans that no round before it had.
    let mut used = 0;
    for plans in [1_500, 3_000, 6_000] {
        let elapsed = pair.processor_time(3, |round, client| {
            let first = used + round * plans;
            send(client, &distinct(first..first + plans, 1));
        });
        used += 4 * plans;
        growth.add(plans, elapsed);
    }
    pair.assert_memory("distinct plans");
    pair.assert_store("distinct plans");
}

/// The view is cancelled while it is read.
#[test]
fn views_can_be_cancelled_timing() {
    const TABLE: &str = "CREATE TABLE t AS SELECT 1 AS id; CREATE TABLE nothing ()";
    let mut pair = Pair::start("attack-views", &["pg_rowsource.track = 'all'"], TABLE);
    let [_, client] = &mut pair.clients;
    send(client, &distinct(0..4_900, 8));
    pair.reconnect();
    pair.run_with("SET pg_rowsource.statistics_level = basic");
    pair.watch_memory();
    for view in [
        "pg_stat_rowsource",
        "pg_stat_rowsource_plans",
        "pg_stat_rowsource_histogram",
    ] {
        let sql = format!("SELECT count(*) FROM {view}");
        // The server without the library has no such view: it runs another statement that can be cancelled.
        let names = |client: &mut Client| {
            send(
                client,
                &format!(
                    "DO $$BEGIN IF to_regclass('{view}') IS NULL THEN CREATE TEMP VIEW {view} AS SELECT FROM nothing; END IF; END$$"
                ),
            );
        };
        pair.clients.iter_mut().for_each(names);
        let elapsed = pair.elapsed_of(3, &sql);
        println!("{view}: {:.3} s", elapsed.with);
        pair.assert_cancelled_in_time(view, elapsed, &sql);
    }
    pair.assert_memory("reading all views");
    pair.assert_store("plans of 33 nodes");
}

const NESTED: &str = "
    CREATE FUNCTION nested(n int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN IF n = 0 THEN RETURN 0; END IF; RETURN (SELECT nested(n - 1) + count(*) FROM generate_series(1, 3)); END$$";

#[test]
fn nested_functions_cost_little_timing() {
    let settings = ["max_stack_depth = '7MB'", "pg_rowsource.track = 'all'"];
    let mut pair = Pair::start("attack-nesting", &settings, "");
    for client in &mut pair.clients {
        send(client, NESTED);
    }
    pair.watch_memory();
    let mut growth = Growth::of("nested functions");
    for depth in [10, 100, 1_000] {
        growth.add(depth, pair.elapsed_of(5, &format!("SELECT nested({depth})")));
    }
    pair.assert_memory("nested functions");
    pair.assert_store("nested functions");
}

/// Each cursor is a suspended statement, and all of them continue in turn. `store_callgrind.rs` counts what that costs.
#[test]
fn open_cursors_take_little_memory() {
    const CURSORS: usize = 5_000;
    const TABLE: &str = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i; ANALYZE t";
    let mut pair = Pair::start("attack-cursors", &[], TABLE);
    pair.watch_memory();
    for client in &mut pair.clients {
        send(client, "BEGIN");
        for i in 0..CURSORS {
            send(
                client,
                &format!("DECLARE c{i} CURSOR FOR SELECT x.id FROM t x JOIN t y ON x.id < y.id"),
            );
        }
        for _ in 0..3 {
            (0..CURSORS).for_each(|i| send(client, &format!("FETCH 2 FROM c{i}")));
        }
        send(client, "COMMIT");
    }
    pair.assert_memory("open cursors");
    pair.assert_store("open cursors");
}
