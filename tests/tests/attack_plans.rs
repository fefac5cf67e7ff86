//! Plans of any size and number: the library adds few instructions, stays within its memory limits, and can
//! be cancelled.

use rowsource_tests::attack::{Pair, send};
use rowsource_tests::callgrind::{Cost, of_a_unit, of_measuring, of_new_plans};
use rowsource_tests::session::run_each;
use rowsource_tests::verdict::{Limit, Trial, Verdicts};
use rowsource_tests::{SHIPPED, Server};
use std::ops::Range;

/// Returns statements that make a table with this many partitions. They are in parts, because a transaction
/// holds a lock on each partition.
fn partitions(table: &str, partitions: usize) -> Vec<String> {
    let parts = (0..partitions).step_by(500).map(|from| {
        let to = partitions.min(from + 500) - 1;
        format!(
            "DO $$BEGIN FOR i IN {from}..{to} LOOP EXECUTE format('CREATE TABLE {table}_%s PARTITION OF {table}
                 FOR VALUES FROM (%s) TO (%s)', i, i, i + 1); END LOOP; END$$"
        )
    });
    let table = format!("CREATE TABLE {table} (id int, v int) PARTITION BY RANGE (id)");
    [table].into_iter().chain(parts).collect()
}

/// Returns a statement whose plan scans each partition, and another table for each row.
fn select(table: &str) -> String {
    format!("SELECT count(*) FROM {table} WHERE v > (SELECT count(*) FROM other WHERE other.id = {table}.v)")
}

#[test]
fn partitions_cost_few_instructions_release() {
    const SIZES: [usize; 3] = [100, 300, 900];
    /// How many more instructions the library may add to a partition among many if the plan is new (it sorts
    /// the nodes), and the most that it may add if the plan is known: 2,000 to 5,500 are usual. Whoever looks
    /// for each node among all nodes adds 1,200 for each instruction of that loop.
    const MAX_GROWTH_OF_NEW: f64 = 2_000.0;
    const MAX_OF_KNOWN: f64 = 7_000.0;
    /// Describing a plan may take this share of planning and starting it, among many partitions that are read
    /// in the same way.
    const MAX_OF_DESCRIBING: f64 = 0.1;
    let mut server = Server::preloaded("partitions", &[SHIPPED]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE TABLE other AS SELECT 1 AS id");
    for size in SIZES {
        let make = partitions(&format!("p{size}"), size);
        make.iter().for_each(|sql| send(&mut client, sql));
    }
    run_each(&mut client, "VACUUM (FREEZE, ANALYZE)");
    drop(client);
    server.stop();
    let statements = SIZES.map(|size| format!("{};\n\n", select(&format!("p{size}"))));
    // The executor starts these, and does not run them.
    let started = SIZES.map(|size| format!("SELECT count(*) FROM p{size} WHERE v > 10 LIMIT 0;\n\n"));
    // No partition is scanned: which ones are is known when the first row is asked for.
    let changes =
        SIZES.map(|size| format!("UPDATE p{size} SET v = v + 1 WHERE v > 10 AND id = (SELECT -1);\n\n"));
    let twice = [&statements, &started, &changes].map(|list| [&list[..], &list[..]].concat());
    let all = twice.concat();
    let costs = of_measuring(&server.data(), &[], &all);
    let among =
        |costs: &[Cost]| [0, 1].map(|i| of_a_unit([SIZES[i], SIZES[i + 1]], [costs[i], costs[i + 1]]));
    let each = [0, 3, 6, 9, 12, 15].map(|at| among(&costs[at..at + 3]));
    let [new, known, new_started, known_started, new_changes, known_changes] = each;
    for (plan, [few, many]) in [("new", new), ("known", known)] {
        println!(
            "a partition of a {plan} plan, between {SIZES:?}: {:.0} and {:.0} instructions more than {:.0}",
            few.added, many.added, many.without
        );
    }
    assert!(
        new[1].added <= new[0].added + MAX_GROWTH_OF_NEW,
        "a new plan: {new:?}"
    );
    assert!(known[1].added <= MAX_OF_KNOWN, "a known plan: {known:?}");
    for (what, new, known) in [
        ("read", new_started, known_started),
        ("change", new_changes, known_changes),
    ] {
        let described = [0, 1].map(|at| new[at].added - known[at].added);
        println!(
            "describing a partition to {what}: {:.0} and {:.0} instructions; planning and starting it: {:.0}",
            described[0], described[1], known[1].without
        );
        assert!(
            described[1] <= MAX_OF_DESCRIBING * known[1].without,
            "{what}: {new:?}, {known:?}"
        );
    }
}

#[test]
fn partitions_take_little_memory() {
    const PARTITIONS: usize = 400;
    let mut pair = Pair::start("attack-partitions", &[], "CREATE TABLE other AS SELECT 1 AS id");
    partitions("p", PARTITIONS).iter().for_each(|sql| pair.send(sql));
    pair.reconnect();
    pair.watch_memory();
    (0..3).for_each(|_| pair.send(&select("p")));
    pair.assert_memory("partitions");
    pair.assert_store("partitions");
    pair.assert_kept("SELECT count(*) FROM p WHERE%", 3);
}

/// A prepared statement is folded for each set of partitions that its parameters leave.
#[test]
fn sets_of_partitions_take_little_memory() {
    const PARTITIONS: usize = 400;
    let mut pair = Pair::start("attack-sets", &[], "SELECT");
    partitions("p", PARTITIONS).iter().for_each(|sql| pair.send(sql));
    pair.reconnect();
    pair.send("SET plan_cache_mode = force_generic_plan; PREPARE q(int, int) AS SELECT * FROM p WHERE id >= $1 AND id < $2");
    pair.send("EXECUTE q(0, 1)");
    pair.watch_memory();
    let mut executions = 1;
    for width in [1, 2, 3] {
        for from in 0..PARTITIONS {
            pair.send(&format!("EXECUTE q({from}, {})", from + width));
            executions += 1;
        }
    }
    pair.assert_memory("sets of partitions");
    pair.assert_store("sets of partitions");
    pair.assert_kept("%SELECT * FROM p WHERE id%", executions);
}

/// The server takes minutes to create them.
#[test]
fn ten_thousand_partitions_cost_little_timing_long() {
    /// A known plan may take this many times as long. Whoever looks for each node among all nodes takes
    /// seconds.
    const MAX_SLOWDOWN: f64 = 1.5;
    let settings = ["max_locks_per_transaction = 1000"];
    let mut pair = Pair::start("attack-10000", &settings, "CREATE TABLE other AS SELECT 1 AS id");
    partitions("p", 10_000).iter().for_each(|sql| pair.send(sql));
    pair.reconnect();
    pair.watch_memory();
    pair.send(&select("p"));
    let mut verdicts = Verdicts::default();
    let trial = Trial::of_ratios("10,000 partitions", Limit::AtMost(MAX_SLOWDOWN));
    verdicts.add(&pair.compare(trial, 8..=12, &select("p")));
    pair.assert_memory("10,000 partitions");
    verdicts.add(&pair.lateness("10,000 partitions", &select("p")));
    pair.assert_store("10,000 partitions");
    verdicts.finish();
}

/// The planner folds `repeat` into a constant of 20 MB, which the statement's text does not show. What such
/// constants cost is counted in `long_plans.rs`.
#[test]
fn predicates_of_20_mb_take_little_memory() {
    const PREDICATE: &str = "b = repeat('x', 20000000)";
    let mut pair = Pair::start("attack-predicates", &[], "CREATE TABLE t (id int, b text)");
    pair.watch_memory();
    for columns in 1..=8 {
        pair.send(&format!(
            "SELECT {} b FROM t WHERE {PREDICATE}",
            "id, ".repeat(columns)
        ));
    }
    pair.assert_memory("predicates of 20 MB");
    pair.assert_store("predicates of 20 MB");
}

#[test]
fn lists_of_constants_take_little_memory() {
    let mut pair = Pair::start("attack-lists", &[], "CREATE TABLE t AS SELECT 1 AS id");
    pair.watch_memory();
    for constants in [1_000, 500_000] {
        let list: Vec<String> = (0..constants).map(|i| i.to_string()).collect();
        pair.send(&format!("SELECT id FROM t WHERE id IN ({})", list.join(",")));
    }
    pair.assert_memory("IN list");
    pair.assert_store("IN list");
}

/// Returns a loop over statements with different plans and queryids: they differ in which of 16 columns are
/// plain, as the bits of the numbers say. Each statement is a UNION ALL of `joins` joins.
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
fn distinct_plans_take_little_memory() {
    const TABLE: &str = "CREATE TABLE t AS SELECT 1 AS id";
    let mut pair = Pair::start("attack-distinct", &["pg_rowsource.track = 'all'"], TABLE);
    pair.watch_memory();
    pair.send(&distinct(0..12_000, 1));
    // Plans of 33 nodes.
    pair.send(&distinct(0..1_500, 8));
    pair.assert_memory("distinct plans");
    pair.assert_store("distinct plans");
}

#[test]
fn plans_cost_few_instructions_in_any_store_release() {
    const FULL: usize = 600;
    /// New plans may take this many times the instructions that they take in an empty store, planning
    /// included. Whoever looks at each plan of the store takes 1.2 times as many.
    const MAX_GROWTH: f64 = 1.05;
    /// To show one plan, each other plan of the store may take this many instructions. Its key is looked at,
    /// which takes 530. To read it takes 18,000.
    const MAX_OF_OTHER: f64 = 2_000.0;
    let mut server = Server::preloaded("any-store", &[SHIPPED]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT 1 AS id; VACUUM (FREEZE, ANALYZE); CREATE EXTENSION pg_rowsource",
    );
    drop(client);
    server.stop();
    let run = |numbers: Range<usize>| format!("{};\n\n", distinct(numbers, 1));
    const LEVEL: &str = "SET pg_rowsource.statistics_level";
    // Shows a plan whose ids are kept.
    const SHOW: &str = "SELECT rowsource_display(current_setting('my.query')::bigint, current_setting('my.plan')::bigint);\n\n";
    const KEEP: &str =
        "SELECT set_config('my.query', queryid::text, false), set_config('my.plan', planid::text, false)
        FROM pg_stat_rowsource_plans LIMIT 1;\n\n";
    let first = format!(
        "{LEVEL} = basic;\n\n{}{LEVEL} = typical;\n\n{}{KEEP}{SHOW}",
        run(0..20),
        run(20..40)
    );
    let parts = [
        first,
        run(128..192),
        // The first one also adds to the store what this session has counted.
        SHOW.repeat(2),
        SHOW.to_owned(),
        run(1_024..1_024 + FULL - 200),
        run(256..320),
        SHOW.repeat(2),
        SHOW.to_owned(),
        // From here on, plans are evicted.
        run(4_096..4_096 + 150),
        run(512..576),
    ];
    let settings = [
        "shared_preload_libraries=pg_rowsource",
        "pg_rowsource.track=all",
        &format!("pg_rowsource.max_plans={FULL}"),
    ];
    let counts = of_new_plans(&server.data(), &settings, &parts);
    let [_, empty, _, one_of_few, _, filled, _, one_of_many, _, full] = counts[..] else {
        panic!("{counts:?}")
    };
    println!(
        "64 new plans: {empty} instructions in an empty store, {filled} in a filled one, {full} in a full one"
    );
    let most = MAX_GROWTH * empty as f64;
    assert!(
        filled as f64 <= most && full as f64 <= most,
        "{empty}, {filled}, {full}"
    );
    // The plans of `filled` came between the two.
    let of_other = (one_of_many as f64 - one_of_few as f64) / (FULL - 200 + 64) as f64;
    println!("to show one plan: {one_of_few} instructions among few, {of_other:.0} more for each other plan");
    assert!(of_other <= MAX_OF_OTHER, "{of_other:.0} for each other plan");
}

/// The view is cancelled while it is read.
#[test]
fn views_can_be_cancelled_timing() {
    const TABLE: &str = "CREATE TABLE t AS SELECT 1 AS id; CREATE TABLE nothing ()";
    let mut pair = Pair::start("attack-views", &["pg_rowsource.track = 'all'"], TABLE);
    let [_, client] = &mut pair.clients;
    send(client, &distinct(0..4_900, 1));
    pair.reconnect();
    pair.run_with("SET pg_rowsource.statistics_level = basic");
    pair.watch_memory();
    let mut verdicts = Verdicts::default();
    for view in [
        "pg_stat_rowsource",
        "pg_stat_rowsource_plans",
        "pg_stat_rowsource_histogram",
    ] {
        verdicts.add(&pair.lateness(view, &format!("SELECT count(*) FROM {view}")));
    }
    verdicts.finish();
    pair.assert_memory("reading all views");
    pair.assert_store("all views");
}

#[test]
fn nested_functions_take_little_memory() {
    const NESTED: &str = "
        CREATE FUNCTION nested(n int) RETURNS int LANGUAGE plpgsql AS
            'BEGIN IF n = 0 THEN RETURN 0; END IF; RETURN (SELECT nested(n - 1) + count(*) FROM generate_series(1, 3)); END'";
    let settings = ["max_stack_depth = '7MB'", "pg_rowsource.track = 'all'"];
    let mut pair = Pair::start("attack-nesting", &settings, NESTED);
    pair.watch_memory();
    (0..3).for_each(|_| pair.send("SELECT nested(1000)"));
    pair.assert_memory("nested functions");
    pair.assert_store("nested functions");
}

/// Each cursor is a suspended statement, and all of them continue in turn. `store_callgrind.rs` counts what
/// that costs.
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
