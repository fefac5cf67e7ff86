//! Long conditions: a description costs few instructions, and stores little. `attack_plans.rs` counts what
//! plans of many nodes cost.

use postgres::Client;
use rowsource_tests::callgrind::{Cost, of_a_unit, of_measuring};
use rowsource_tests::process::private_bytes;
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::store::info;
use rowsource_tests::waiting::pid;
use rowsource_tests::{SHIPPED, Server};

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
        // A session describes a plan that is new to it, whatever that costs. It describes other literals of a
        // plan that it knows only if its budget allows that, so a slow machine would decide.
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

/// A kind of long condition.
struct Condition {
    what: &'static str,
    /// Returns a statement with a condition of this size.
    statement: fn(usize) -> String,
    /// The sizes whose instructions are counted, and a size whose memory is judged.
    counted: [usize; 2],
    kept: usize,
    /// The most instructions that a description may add to each unit of the size, beyond the smaller size:
    /// twice the usual ones. Constants are not read. Whoever makes a text of one needs ten instructions a
    /// byte.
    most: f64,
}

/// Returns more columns for a larger size. So each size is another plan, whatever its constants are.
fn columns(size: usize) -> String {
    vec!["id"; size.ilog10() as usize].join(",")
}

fn numbers(count: usize, text: fn(usize) -> String, separator: &str) -> String {
    (1..=count).map(text).collect::<Vec<_>>().join(separator)
}

const CONDITIONS: [Condition; 6] = [
    Condition {
        what: "a constant of bytes",
        statement: |size| {
            format!(
                "SELECT {} FROM t WHERE b = repeat('{}', {})",
                columns(size),
                "x".repeat(100),
                size / 100
            )
        },
        counted: [20_000, 2_000_000],
        kept: 20_000_000,
        most: 1.0,
    },
    Condition {
        what: "an IN list of constants",
        statement: |size| {
            format!(
                "SELECT count(*) FROM t WHERE b IN ({})",
                numbers(size, |i| format!("'{i:0100}'"), ",")
            )
        },
        counted: [1_000, 6_000],
        kept: 100_000,
        most: 100.0,
    },
    Condition {
        what: "an IN list of expressions",
        statement: |size| {
            format!(
                "SELECT count(*) FROM t WHERE 0 IN ({})",
                numbers(size, |i| format!("id + {i}"), ",")
            )
        },
        counted: [100, 500],
        kept: 4_000,
        most: 20_000.0,
    },
    Condition {
        what: "ORs",
        statement: |size| {
            format!(
                "SELECT count(*) FROM t WHERE {}",
                numbers(size, |i| format!("id + {i} = 0"), " OR ")
            )
        },
        counted: [100, 500],
        kept: 10_000,
        most: 20_000.0,
    },
    Condition {
        what: "a text of bytes",
        statement: |size| {
            format!(
                "SELECT {} FROM t WHERE id = length('{}')",
                columns(size),
                "x".repeat(size)
            )
        },
        counted: [1_000, 100_000],
        kept: 40_000_000,
        most: 1.0,
    },
    Condition {
        what: "grouping sets",
        statement: |size| {
            format!(
                "SELECT count(*) FROM t GROUP BY GROUPING SETS ({})",
                vec!["(id + 1)"; size].join(",")
            )
        },
        counted: [10, 60],
        kept: 1_000,
        most: 40_000.0,
    },
];

#[test]
fn descriptions_of_conditions_cost_few_instructions_release() {
    let mut server = Server::preloaded("conditions", &[SHIPPED]);
    run_each(&mut server.connect(), TABLES);
    server.stop();
    let ended = |condition: &Condition, size| format!("{};\n\n", (condition.statement)(size));
    let parts: Vec<String> = CONDITIONS
        .iter()
        .flat_map(|condition| condition.counted.map(|size| ended(condition, size)))
        .collect();
    let costs = of_measuring(&server.data(), &[], &parts);
    let mut failures = Vec::new();
    for (condition, costs) in CONDITIONS.iter().zip(costs.chunks(2)) {
        let Condition {
            what, counted, most, ..
        } = condition;
        let Cost { without, added } = of_a_unit(*counted, [costs[0], costs[1]]);
        let found = format!(
            "{what}: {added:.1} instructions more than {without:.0} for each, {:.0} in all",
            costs[1].added
        );
        println!("{found}");
        if added > *most {
            failures.push(found);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn long_conditions_keep_little() {
    let server = Server::preloaded("long-conditions", &[]);
    let mut client = server.session();
    run_each(&mut client, TABLES);
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    for Condition {
        what,
        statement,
        kept: size,
        ..
    } in &CONDITIONS
    {
        run(&mut client, &statement(*size));
        run(&mut client, "SELECT rowsource_reset()");
        // What is kept of each grows each time. The C library sometimes keeps what was freed, because
        // something small lies behind it.
        let grows = (0..3).map(|_| {
            let before = resident_kb(&mut client);
            run(&mut client, &statement(*size));
            resident_kb(&mut client) - before
        });
        let grown = grows.min().unwrap_or(0);
        let kept = info(&mut client, "bytes");
        println!("{what} {size}: store {kept} bytes, session {grown} kB more");
        assert!(kept <= 60_000, "{what} {size}: {kept} bytes are kept");
        assert!(grown < 10_000, "{what} {size}: {grown} kB in the session");
    }
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
