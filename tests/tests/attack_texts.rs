//! Texts of any length and kind: the library adds few instructions and little memory.

use rowsource_tests::Server;
use rowsource_tests::attack::{Pair, send};
use rowsource_tests::callgrind::{Cost, of_a_unit, of_library};
use rowsource_tests::session::run_each;

const LEVELS: [&str; 2] = ["basic", "typical"];

/// Where a text is in its statement.
#[derive(Clone, Copy)]
enum Place {
    InLiteral,
    BeforeLiteral,
    /// As one of many literals. Each of them is a part of the queryid and of the plan.
    InList,
}
use Place::{BeforeLiteral, InList, InLiteral};

/// What long texts consist of: nothing special, and beginnings of hints, comments and quotes.
const KINDS: [(Place, &str); 13] = [
    (InLiteral, "x"),
    (InLiteral, "/*+"),
    (InLiteral, "/*+ $a$ \""),
    (InLiteral, "--/*+\n"),
    (InLiteral, "--+ gather_plan_statistics\n"),
    (InLiteral, "/* /*+ */ "),
    (InLiteral, "/"),
    (BeforeLiteral, "/*+ x */"),
    (BeforeLiteral, "/* */"),
    (BeforeLiteral, "--+\n"),
    (BeforeLiteral, "/*/*+ gather */*/"),
    (InList, "'/*+',"),
    (InList, "$a$/*+$a$,"),
];

/// Returns a statement with this many bytes of such a text.
fn statement((place, what): (Place, &str), bytes: usize) -> String {
    let text = what.repeat(bytes.div_ceil(what.len()));
    let statement = match place {
        InLiteral => format!("length('{text}')"),
        BeforeLiteral => format!("length({text}'x')"),
        InList => format!("'x' IN ({text}'x')"),
    };
    format!("SELECT {statement};\n\n")
}

/// Starts a server without a library, runs statements, and stops it.
fn stopped(name: &str, sql: &str) -> Server {
    let mut server = Server::start(name, &[]);
    run_each(&mut server.connect(), sql);
    server.stop();
    server
}

#[test]
fn texts_of_any_kind_cost_few_instructions_release() {
    const BYTES: usize = 60_000;
    /// A text of four times the bytes may cost this many times as much. Whoever reads a text again from each
    /// of its hints needs 16 times.
    const MAX_GROWTH: f64 = 4.4;
    /// The most instructions that the library may add to a byte. A slash may begin a comment, so it costs 34;
    /// a literal of a list costs 500.
    const MAX_OF_A_BYTE: f64 = 200.0;
    let server = stopped("text-kinds", "");
    // First come short texts, so that the plans are known.
    let of_level = |level: &str| -> Vec<String> {
        let first: String = KINDS.iter().map(|&kind| statement(kind, 20)).collect();
        let long = KINDS
            .iter()
            .flat_map(|&kind| [BYTES / 4, BYTES].map(|bytes| statement(kind, bytes)));
        let first = format!("SET pg_rowsource.statistics_level = {level};\n\n{first}");
        [first].into_iter().chain(long).collect()
    };
    let parts = LEVELS.map(of_level).concat();
    let costs = of_library(&server.data(), &[], &parts);
    let mut failures = Vec::new();
    for (level, costs) in LEVELS.iter().zip(costs.chunks(1 + 2 * KINDS.len())) {
        for ((_, what), costs) in KINDS.iter().zip(costs[1..].chunks(2)) {
            let Cost { without, added } = costs[1];
            let (each, growth) = (added / BYTES as f64, added / costs[0].added);
            let found = format!(
                "{what:?}, level {level}: {each:.2} instructions a byte, {growth:.2} times those of a quarter, {without:.0} + {added:.0} in all"
            );
            println!("{found}");
            if each > MAX_OF_A_BYTE || growth > MAX_GROWTH {
                failures.push(found);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// One message holds many statements, each with its own position.
#[test]
fn statements_cost_the_same_in_a_long_message_release() {
    const SIZES: [usize; 3] = [50, 200, 1_200];
    /// What the library adds to a statement may be this many times as much in a long message. Whoever looks
    /// for a statement from the beginning of the message reads another 10 kB for each.
    const MAX_GROWTH: f64 = 1.05;
    const CASES: [(&str, &str); 3] = [
        ("basic", "INSERT INTO t VALUES (1);"),
        ("typical", "INSERT INTO t VALUES (1);"),
        ("basic", "/* a */ SELECT 1 ;"),
    ];
    let server = stopped("messages", "CREATE UNLOGGED TABLE t (id int)");
    let parts: Vec<String> = CASES
        .iter()
        .flat_map(|(level, statement)| {
            let [smallest, ..] = SIZES;
            let message = |size: usize| format!("{}\n\n", statement.repeat(size));
            let first = format!(
                "TRUNCATE t;\n\nSET pg_rowsource.statistics_level = {level};\n\n{}",
                message(smallest)
            );
            [first].into_iter().chain(SIZES.map(message))
        })
        .collect();
    let costs = of_library(&server.data(), &[], &parts);
    let mut failures = Vec::new();
    for ((level, statement), costs) in CASES.iter().zip(costs.chunks(1 + SIZES.len())) {
        let [few, many] = [0, 1].map(|i| of_a_unit([SIZES[i], SIZES[i + 1]], [costs[i + 1], costs[i + 2]]));
        let found = format!(
            "{statement} in messages of {SIZES:?}, level {level}: {:.0} and {:.0} instructions more than {:.0}",
            few.added, many.added, few.without
        );
        println!("{found}");
        if many.added > MAX_GROWTH * few.added {
            failures.push(found);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn long_literals_take_little_memory() {
    let mut pair = Pair::start("attack-length", &[], "");
    for level in LEVELS {
        pair.reconnect();
        pair.run_with(&format!("SET pg_rowsource.statistics_level = {level}"));
        pair.watch_memory();
        for bytes in [1_000, 1_000_000, 40_000_000] {
            let sql = format!("SELECT length('{}')", "x".repeat(bytes));
            pair.clients.iter_mut().for_each(|client| send(client, &sql));
        }
        pair.assert_memory(&format!("long literals, level {level}"));
    }
    pair.assert_store("long texts");
}
