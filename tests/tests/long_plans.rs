//! Large plans with long conditions: a description costs little compared with its statement, and stores little.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::measured::display;
use rowsource_tests::process::{private_bytes, processor_time_when_idle};
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::statistics::{median, median_ratio};
use rowsource_tests::store::info;
use rowsource_tests::waiting::pid;

/// Returns the session's private memory in kB.
fn resident_kb(client: &mut Client) -> i64 {
    (private_bytes(pid(client).unsigned_abs()) / 1024) as i64
}

fn run(client: &mut Client, statement: &str) {
    client
        .batch_execute(statement)
        .unwrap_or_else(|error| panic!("{error:?}: {statement:.100}"));
}

/// Returns the display of the last statement.
fn shown(client: &mut Client) -> String {
    let lines = texts(client, "SELECT rowsource_display()");
    lines
        .into_iter()
        .flatten()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the milliseconds of first executions at level basic, and how many times as long they take at level typical, by
/// pairs. Each statement is new, so each is described.
fn ratio(client: &mut Client, rounds: usize, statement: impl Fn(usize) -> String) -> (f64, f64) {
    let pid = pid(client).unsigned_abs();
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (level, times) in ["basic", "typical"].iter().zip(&mut times) {
            run(client, &format!("SET pg_rowsource.statistics_level = {level}"));
            run(client, "SELECT rowsource_reset()");
            let statement = statement(round);
            let before = processor_time_when_idle(pid);
            run(client, &statement);
            times.push((processor_time_when_idle(pid) - before) * 1e3);
        }
    }
    let [basic, typical] = times;
    (median(&basic), median_ratio(&typical, &basic))
}

const TABLES: &str =
    "CREATE TABLE t AS SELECT i AS id, i::text AS b, i::numeric AS n FROM generate_series(1, 100) i;
    CREATE INDEX ON t (id); CREATE INDEX ON t (b); ANALYZE t";

#[test]
fn long_constants_are_shortened_and_restored() {
    let server = Server::preloaded("constants", &[]);
    let mut client = server.session();
    run_each(&mut client, TABLES);
    let list = |count: usize| (1..=count).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let long = "repeat('x', 20000000)";
    for (statement, condition) in [
        (
            "SELECT * FROM t WHERE b = repeat('x', 20000000)".to_string(),
            format!("b = '{}...'", "x".repeat(100)),
        ),
        (
            "SELECT * FROM t WHERE b = repeat('x', 1024)".to_string(),
            format!("b = '{}", "x".repeat(900)),
        ),
        (
            format!("SELECT * FROM t WHERE id IN ({})", list(100_000)),
            "'{1,2,3,4,5,".to_string(),
        ),
        (
            format!("SELECT * FROM t WHERE id IN ({})", list(100_000)),
            ",...}'".to_string(),
        ),
        (
            format!("SELECT * FROM t WHERE id IN ({})", list(100)),
            "99,100}'::integer[])".to_string(),
        ),
        (
            "SELECT * FROM t WHERE n = '1e100000'".to_string(),
            "n = '1000".to_string(),
        ),
        (
            "SELECT * FROM t WHERE n = '1e10'".to_string(),
            "n = '10000000000'::numeric".to_string(),
        ),
        (
            format!("SELECT * FROM t WHERE b = ANY(ARRAY['a', {long}, 'b'])"),
            "'{a,xxx".to_string(),
        ),
        (
            format!("SELECT * FROM t WHERE b::bytea = {long}::bytea"),
            "= '...'".to_string(),
        ),
        (format!("SELECT * FROM t ORDER BY b || {long}"), String::new()),
    ] {
        // A session describes a plan that is new to it, whatever that costs. It describes other literals of a plan that it knows
        // only if its budget allows that, so a slow machine would decide.
        let mut client = server.session();
        run(&mut client, "SET pg_rowsource.statistics_level = typical");
        run(&mut client, &statement);
        let shown = shown(&mut client);
        // A long condition takes several lines.
        let without_breaks = |text: &str| text.split_whitespace().collect::<String>();
        assert!(
            without_breaks(&shown).contains(&without_breaks(&condition)),
            "{statement:.100}: {condition}: {shown:.2000}"
        );
        assert!(shown.len() < 8_000, "{statement:.100}: {} bytes", shown.len());
    }
    // A plan that runs repeatedly has its full constants.
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan; SET pg_rowsource.statistics_level = typical;
         PREPARE p AS SELECT count(*), max(length(b || repeat('x', 5000))) FROM t
            WHERE b || repeat('y', 5000) = b || repeat('y', 5000) AND id IN (1, 2, 3)",
    );
    for _ in 0..3 {
        let row = client.simple_query("EXECUTE p").expect("EXECUTE");
        let postgres::SimpleQueryMessage::Row(row) = &row[1] else {
            panic!("{row:?}")
        };
        assert_eq!((row.get(0), row.get(1)), (Some("3"), Some("5001")));
        let explained = texts(&mut client, "EXPLAIN EXECUTE p").concat();
        let explained: String = explained.into_iter().flatten().collect();
        assert!(explained.contains(&"y".repeat(5000)), "{explained:.300}");
    }
}

#[test]
fn conditions_take_little_memory_and_time_timing() {
    let server = Server::preloaded("conditions", &[]);
    let mut client = server.session();
    run_each(&mut client, TABLES);
    let list = |count: usize, round: usize| {
        let values = (1..=count).map(|i| (i + round).to_string());
        format!(
            "SELECT count(*) FROM t WHERE id IN ({})",
            values.collect::<Vec<_>>().join(",")
        )
    };
    let ors = |count: usize, round: usize| {
        let values = (1..=count).map(|i| format!("id + {i} = {round}"));
        format!(
            "SELECT count(*) FROM t WHERE {}",
            values.collect::<Vec<_>>().join(" OR ")
        )
    };
    let members = |count: usize, round: usize| {
        let values = (1..=count).map(|i| format!("id + {i}"));
        format!(
            "SELECT count(*) FROM t WHERE {round} IN ({})",
            values.collect::<Vec<_>>().join(",")
        )
    };
    let constant =
        |bytes: usize, round: usize| format!("SELECT {round} FROM t WHERE b = repeat('x', {bytes})");
    let text = |bytes: usize, round: usize| {
        format!("SELECT {round} FROM t WHERE id = length('{}')", "x".repeat(bytes))
    };
    let groups = |count: usize, round: usize| {
        format!(
            "SELECT count(*) FROM t GROUP BY GROUPING SETS ({})",
            vec![format!("(id + {round})"); count].join(",")
        )
    };
    type Case<'a> = (&'a str, &'a dyn Fn(usize, usize) -> String, &'a [usize], f64);
    let cases: [Case; 6] = [
        ("a constant of bytes", &constant, &[20_000, 20_000_000], 2.0),
        ("an IN list of constants", &list, &[1_000, 500_000], 1.3),
        ("an IN list of expressions", &members, &[1_000, 4_000], 1.5),
        ("ORs", &ors, &[1_000, 10_000], 1.5),
        ("a text of bytes", &text, &[1_000, 100_000_000], 2.0),
        ("grouping sets", &groups, &[10, 1_000], 1.5),
    ];
    let mut failures = Vec::new();
    for (what, statement, sizes, most) in cases {
        for &size in sizes {
            run(&mut client, &statement(size, 0));
            let resident = resident_kb(&mut client);
            let rounds = if size > 100_000 { 3 } else { 5 };
            let (basic, ratio) = ratio(&mut client, rounds, |round| statement(size, round));
            let (kept, grown) = (info(&mut client, "bytes"), resident_kb(&mut client) - resident);
            println!(
                "{what} {size}: {basic:.1} ms at basic, ratio {ratio:.2}, store {kept} bytes, session {grown} kB more"
            );
            // Short times are not reliable.
            if basic > 20.0 && ratio > most {
                failures.push(format!("{what} {size}: ratio {ratio:.2}"));
            }
            assert!(kept <= 60_000, "{what} {size}: {kept} bytes are kept");
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn many_long_constants_keep_little() {
    const STATEMENTS: usize = 40;
    let server = Server::preloaded("many", &[]);
    let mut client = server.session();
    run_each(&mut client, TABLES);
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    run(&mut client, "SELECT id FROM t WHERE b = repeat('x', 20000000)");
    let before = resident_kb(&mut client);
    let columns = ["id"; STATEMENTS + 1];
    for i in 1..=STATEMENTS {
        let columns = columns[..=i].join(", ");
        run(
            &mut client,
            &format!("SELECT {columns} FROM t WHERE b = repeat('x', 20000000)"),
        );
    }
    let (kept, grown) = (info(&mut client, "bytes"), resident_kb(&mut client) - before);
    println!("{STATEMENTS} statements: store {kept} bytes, session {grown} kB more");
    assert!(kept < 40 * 10_000, "{kept} bytes in the store");
    assert!(grown < 10_000, "{grown} kB in the session");
}

#[test]
fn partitions_cost_in_proportion_timing() {
    let server = Server::preloaded("partitions", &["max_locks_per_transaction = 2000"]);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE other AS SELECT 1 AS id; ANALYZE other; SET client_min_messages = error; SET jit = off",
    );
    let mut made = 0;
    let mut failures = Vec::new();
    for (partitions, most) in [(10, 3.0), (100, 3.0), (300, 3.0), (1_000, 1.5), (4_000, 1.5)] {
        let table = format!("p{partitions}");
        run(
            &mut client,
            &format!("CREATE TABLE {table} (id int, v int) PARTITION BY LIST (id)"),
        );
        for first in (0..partitions).step_by(500) {
            let create = (first..partitions.min(first + 500))
                .map(|i| format!("CREATE TABLE {table}_{i} PARTITION OF {table} FOR VALUES IN ({i});"));
            run(&mut client, &create.collect::<String>());
        }
        made += partitions;
        let select = |round: usize| {
            format!(
                "SELECT count(*) + {round} FROM {table} WHERE v > (SELECT count(*) FROM other WHERE other.id = {table}.v)"
            )
        };
        // The first run fills the caches.
        run(&mut client, &select(0));
        let (basic, ratio) = ratio(&mut client, 3, select);
        let nodes = display(&mut client, "ALLSTATS LAST");
        let wanted = format!("{table}_{}", partitions - 1);
        assert!(nodes.contains(&wanted), "{partitions}: {wanted} is not shown",);
        let kept = info(&mut client, "bytes");
        println!("{partitions} partitions: {basic:.1} ms at basic, ratio {ratio:.2}, store {kept} bytes");
        // Differences of a few milliseconds are noise.
        const NOISE_MS: f64 = 5.0;
        if ratio * basic > most * basic + NOISE_MS {
            failures.push(format!("{partitions} partitions: ratio {ratio:.2}"));
        }
    }
    println!("{made} partitions");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
