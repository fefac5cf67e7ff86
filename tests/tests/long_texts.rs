//! Long texts: the cost of an execution does not grow with its text. `attack_texts.rs` counts what a new text
//! costs.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::callgrind::{Cost, of_library};
use rowsource_tests::session::{run_each, value};

#[test]
fn hints_count_only_in_comments() {
    let server = Server::preloaded("hints-found", &[]);
    let mut client = server.session();
    let measured = |client: &mut Client, message: &str| {
        run_each(client, "SELECT rowsource_reset()");
        client.batch_execute(message).expect("a message");
        let plans: i64 = value(client, "SELECT count(*) FROM pg_stat_rowsource_plans");
        plans
    };
    const HINT: &str = "/*+ gather_plan_statistics */";
    for (message, plans) in [
        (format!("{HINT} SELECT 1"), 1),
        (format!("SELECT 'it''s /*+', {HINT} 1"), 1),
        (format!("SELECT 1; {HINT} SELECT 2, 3; SELECT 4, 5, 6"), 1),
        (format!("SELECT 1; {HINT} SELECT 2, 3; SELECT {HINT} 4, 5, 6;"), 2),
        (format!("SELECT '{HINT}'"), 0),
        (
            format!("SELECT $${HINT}$$, \"{HINT}\".x FROM (SELECT 1 AS x) \"{HINT}\""),
            0,
        ),
        (format!("SELECT 1 -- {HINT}"), 0),
        (format!("/* {} */ {HINT} SELECT 1", "x".repeat(4_000)), 1),
        (format!("SELECT '{}', {HINT} 1", "x".repeat(100_000)), 0),
    ] {
        assert_eq!(measured(&mut client, &message), plans, "{message:.100}");
    }
}

#[test]
fn executions_do_not_read_the_whole_text_release() {
    const EXECUTIONS: f64 = 100.0;
    /// The library may add this many instructions more to an execution if the text is long. Whoever reads the
    /// text adds 40,000, even if the processor looks at 32 bytes at once.
    const MOST: f64 = 1_000.0;
    let mut server = Server::start("executions", &[]);
    let mut client = server.connect();
    // A statement in a function, because EXECUTE itself copies the text. The planner folds its literal.
    for (name, bytes) in [("short", 1_000), ("long", 1_300_000)] {
        let literal = "x".repeat(bytes);
        client
            .batch_execute(&format!(
                "CREATE FUNCTION {name}() RETURNS int LANGUAGE plpgsql AS $$
                 DECLARE n int; BEGIN FOR i IN 1..{EXECUTIONS} LOOP
                    SELECT length('{literal}') + g INTO n FROM generate_series(1, 1) g;
                 END LOOP; RETURN n; END $$"
            ))
            .expect(name);
    }
    drop(client);
    server.stop();
    let call = |name: &str| format!("SELECT {name}();\n\n");
    // The first calls compile and plan.
    let of_level = |level: &str| {
        let first = format!("SET pg_rowsource.statistics_level = {level};\n\n");
        [
            [first, call("short"), call("long")].concat(),
            call("short"),
            call("long"),
        ]
    };
    let parts = ["basic", "typical"].map(of_level).concat();
    let costs = of_library(&server.data(), &["pg_rowsource.track=all"], &parts);
    for (level, costs) in ["basic", "typical"].iter().zip(costs.chunks(3)) {
        let each = |cost: Cost| [cost.without, cost.added].map(|count| count / EXECUTIONS);
        let [short, long] = [1, 2].map(|part| each(costs[part]));
        println!(
            "level {level}: an execution of a text of 1 kB: {:.0} + {:.0} instructions, of 1.3 MB: {:.0} + {:.0}",
            short[0], short[1], long[0], long[1]
        );
        assert!(
            long[1] <= short[1] + MOST,
            "level {level}: {short:.0?}, {long:.0?}"
        );
    }
}
