//! `rowsource_display()`: what its lines say about the statement and its tables, how wide they are, and what
//! it says if the last statement was not measured.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::session::{must_fail, must_time_out, run_each, texts};
use rowsource_tests::{Server, display};

/// Triggers run outside of the nodes: what they took is below the table, as EXPLAIN has it.
#[test]
fn it_shows_the_triggers_that_were_called() {
    let server = Server::preloaded("display_triggers", &[]);
    let mut client = measuring(&server);
    client
        .batch_execute(
            "CREATE TABLE parents (id int PRIMARY KEY); INSERT INTO parents SELECT generate_series(1, 100);
             CREATE TABLE children (id int CONSTRAINT of_parent REFERENCES parents);
             CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.001); RETURN new; END';
             CREATE TRIGGER checks BEFORE INSERT ON children FOR EACH ROW EXECUTE FUNCTION slow()",
        )
        .expect("the tables");
    run_each(&mut client, "INSERT INTO children SELECT generate_series(1, 20)");
    for arguments in ["", "pattern => 'INSERT INTO children', format => 'ALLSTATS'"] {
        let lines = texts(&mut client, &format!("SELECT rowsource_display({arguments})"));
        let lines: Vec<String> = lines.into_iter().flatten().flatten().collect();
        for trigger in [
            "Trigger checks on children: time=",
            "Trigger for constraint of_parent on children: time=",
        ] {
            let line = lines.iter().find(|line| line.contains(trigger));
            assert!(
                line.is_some_and(|line| line.ends_with(" calls=20")),
                "{trigger}: {lines:#?}"
            );
        }
    }
}

/// A queryid alone may mean several plans.
#[test]
fn it_says_which_plan_it_shows() {
    let server = Server::preloaded("display_choice", &["autovacuum = off"]);
    let mut client = measuring(&server);
    run_each(&mut client, TABLES);
    // The second plan took less time, and ran last.
    let statement = "SELECT count(*) + 7 FROM shop.orders WHERE id = 7";
    for _ in 0..20 {
        run_each(
            &mut client,
            &format!("SET enable_indexscan = off; SET enable_bitmapscan = off; {statement}"),
        );
    }
    run_each(
        &mut client,
        &format!("RESET enable_indexscan; RESET enable_bitmapscan; {statement}"),
    );
    let ids = "FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(*) + %'";
    let plans = texts(
        &mut client,
        &format!("SELECT queryid, planid, calls {ids} ORDER BY total_time DESC"),
    );
    let [[queryid, slower, calls], [_, faster, _]] =
        [0, 1].map(|at| [0, 1, 2].map(|column: usize| plans[at][column].clone().expect("an id")));
    assert_eq!(calls, "20", "{plans:?}");
    let display = |client: &mut Client, arguments: &str| -> Vec<String> {
        let lines = texts(client, &format!("SELECT rowsource_display({arguments})"));
        lines.into_iter().flatten().flatten().collect()
    };
    let lines = display(&mut client, &queryid);
    let choice = format!(
        "plan 1 of 2, by total time. The next one is rowsource_display({queryid}, {faster}). pg_stat_rowsource_plans lists all."
    );
    assert!(lines.join(" ").starts_with(&choice), "{lines:#?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains(&format!("planid {slower}"))),
        "{lines:#?}"
    );
    // A plan that was asked for is no choice.
    for planid in [&slower, &faster] {
        let lines = display(&mut client, &format!("{queryid}, {planid}"));
        assert!(
            lines[0].starts_with("queryid ") && lines[0].contains(&**planid),
            "{lines:#?}"
        );
    }
    // So it is with snapshots.
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let of_snapshot = |ids: &str| format!("SELECT rowsource_display_snapshot({ids})");
    let lines = lines_of(&mut client, &of_snapshot(&queryid));
    assert!(
        lines.starts_with("plan 1 of 2, by total time. rowsource_snapshot_plans lists all.snapshot "),
        "{lines}"
    );
    let lines = lines_of(&mut client, &of_snapshot(&format!("{queryid}, {faster}")));
    assert!(lines.starts_with("snapshot "), "{lines}");
}

/// Opens a session that measures all of its statements.
fn measuring(server: &Server) -> Client {
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    client
}

fn shown(client: &mut Client, format: &str) -> Vec<String> {
    display(client, format).lines().map(str::to_owned).collect()
}

/// Runs one statement, which may contain semicolons.
fn run(client: &mut Client, statement: &str) {
    client
        .batch_execute(statement)
        .unwrap_or_else(|error| panic!("{statement}\n{error}"));
}

fn lines_of(client: &mut Client, statement: &str) -> String {
    texts(client, statement).into_iter().flatten().flatten().collect()
}

const TABLES: &str = "CREATE SCHEMA shop;
    CREATE TABLE shop.orders (id int PRIMARY KEY, customer int, pad text);
    CREATE TABLE customers (id int PRIMARY KEY, name text);
    INSERT INTO shop.orders SELECT i, i % 100, 'x' FROM generate_series(1, 1000) i;
    INSERT INTO customers SELECT i, 'name ' || i FROM generate_series(0, 99) i;
    ANALYZE shop.orders, customers";

#[test]
fn tables_are_named_with_schema_and_alias() {
    let server = Server::preloaded("display_names", &[]);
    let mut client = measuring(&server);
    run_each(&mut client, TABLES);
    run_each(
        &mut client,
        "SET enable_hashjoin = off; SET enable_mergejoin = off;
         SELECT name FROM shop.orders o JOIN customers ON customers.id = o.customer WHERE o.id = 7",
    );
    let text = shown(&mut client, "ALL ALLSTATS LAST").join("\n");
    assert!(text.contains("orders_pkey on shop.orders"), "{text}");
    assert!(
        text.contains("|customers") || text.contains("| customers"),
        "{text}"
    );
    assert!(text.contains(" - o (shop.orders)"), "{text}");
    assert!(text.contains(" - customers (public.customers)"), "{text}");
    run_each(&mut client, "SET search_path = shop");
    let text = lines_of(&mut client, "SELECT public.rowsource_display()");
    assert!(text.contains("orders_pkey on orders"), "{text}");
    assert!(text.contains("public.customers"), "{text}");
    assert!(!text.contains("Alias"), "{text}");
}

#[test]
fn temporary_tables_have_no_schema() {
    let server = Server::preloaded("display_temporary", &[]);
    let mut client = measuring(&server);
    run_each(
        &mut client,
        "CREATE TEMP TABLE mine (id int); SELECT count(*) FROM mine",
    );
    let text = shown(&mut client, "ALL ALLSTATS LAST").join("\n");
    assert!(!text.contains("pg_temp"), "{text}");
    run_each(&mut client, "SELECT count(*) FROM pg_class");
    let text = shown(&mut client, "ALL ALLSTATS LAST").join("\n");
    assert!(!text.contains("pg_catalog"), "{text}");
}

#[test]
fn a_join_of_eight_tables_fits_into_the_width() {
    let server = Server::preloaded("display_width", &[]);
    let mut client = measuring(&server);
    run_each(
        &mut client,
        "SET work_mem = '64kB'; SET max_parallel_workers_per_gather = 0; SET join_collapse_limit = 1;
         SET enable_nestloop = off; SET enable_mergejoin = off",
    );
    let names = [
        "lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region",
    ];
    for name in names {
        run_each(
            &mut client,
            &format!(
                "CREATE TABLE {name} ({name}_key int PRIMARY KEY, pad text);
                 INSERT INTO {name} SELECT i, repeat('x', 50) FROM generate_series(1, 5000) i; ANALYZE {name}"
            ),
        );
    }
    let joins: String = names[1..]
        .iter()
        .map(|name| format!(" JOIN {name} ON lineitem_key = {name}_key"))
        .collect();
    run_each(
        &mut client,
        &format!(
            "SELECT lineitem.pad, count(*) FROM lineitem{joins} WHERE orders.pad <> 'y' GROUP BY 1 ORDER BY 2"
        ),
    );
    let lines = shown(&mut client, "ALLSTATS LAST");
    assert!(lines.iter().all(|line| line.len() <= 120), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("Temp-W")), "{lines:#?}");
    for format in ["ALLSTATS LAST COMPACT", "ALLSTATS ALL LAST COMPACT"] {
        let lines = shown(&mut client, format);
        assert!(lines.iter().all(|line| line.len() <= 80), "{lines:#?}");
    }
}

#[test]
fn it_says_if_the_last_statement_was_not_measured() {
    let server = Server::preloaded("display_unmeasured", &[]);
    let mut client = server.session();
    run_each(&mut client, "SELECT 1");
    let (_, message) = must_fail(&mut client, "SELECT rowsource_display()");
    assert!(
        message.contains("(SELECT 1) was not measured: pg_rowsource.statistics_level was basic"),
        "{message}"
    );
    assert!(message.contains("gather_plan_statistics"), "{message}");
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SELECT 2; SET pg_rowsource.statistics_level = basic",
    );
    assert_eq!(warning(&mut client), "");
    let long = format!("SELECT 3,\n   '{}'", "x".repeat(200));
    run_each(&mut client, &long);
    for _ in 0..2 {
        // The display itself does not count.
        let line = warning(&mut client);
        let expected = format!(
            "The last statement of this session (SELECT 3, '{}...) was not measured: pg_rowsource.statistics_level was basic; this is the statement before it",
            "x".repeat(106)
        );
        assert_eq!(line, expected);
    }
    run_each(&mut client, "SELECT 4");
    assert!(warning(&mut client).contains("2 statements earlier"));
    run_each(&mut client, "SELECT /*+ gather_plan_statistics */ 5");
    assert_eq!(warning(&mut client), "");
    let _ = client.batch_execute("SELECT 1 / (relnatts - relnatts) FROM pg_class");
    assert!(warning(&mut client).contains("statistics_level was basic"));
}

/// Returns the lines above those of the statement that is shown, as one line.
fn warning(client: &mut Client) -> String {
    let lines = shown(client, "");
    let above = lines.iter().take_while(|line| !line.starts_with("queryid "));
    above.map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// No executor runs a statement that fails in its text, its names, its plan or its start.
#[test]
fn it_says_if_the_last_statement_failed_before_it_ran() {
    let server = Server::preloaded("display_failed", &[]);
    let mut client = measuring(&server);
    let (_, message) = must_fail(&mut client, "SELECT 1 / 0");
    assert_eq!(message, "division by zero");
    let (_, message) = must_fail(&mut client, "SELECT rowsource_display()");
    assert!(
        message.contains("(SELECT 1 / 0) failed without being measured: division by zero. Run one first."),
        "{message}"
    );
    assert!(!message.contains("gather_plan_statistics"), "{message}");
    run_each(&mut client, "CREATE ROLE nobody; CREATE TABLE held (id int)");
    let before = "; this is the statement before it";
    for (failing, error) in [
        ("SELECT 1 / 0", "division by zero"),
        ("SELEC 1;  ", "syntax error at or near \"SELEC\""),
        ("SELECT\n  * FROM nowhere", "relation \"nowhere\" does not exist"),
        (
            "SELECT set_config('no such', '', false) FROM pg_class LIMIT 'x'",
            "invalid input syntax for type bigint: \"x\"",
        ),
        ("CREATE TABLE held (id int)", "relation \"held\" already exists"),
        ("CALL nothing()", "procedure nothing() does not exist"),
        ("DO 'BEGIN RAISE EXCEPTION ''own error''; END'", "own error"),
    ] {
        run_each(&mut client, "SELECT count(*) FROM held");
        let _ = client.batch_execute(failing);
        let text = failing.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = text.trim_end_matches(';');
        assert_eq!(
            warning(&mut client),
            format!(
                "The last statement of this session ({text}) failed without being measured: {error}{before}"
            )
        );
    }
    // Text and parameters come in messages of their own.
    run_each(&mut client, "SELECT count(*) FROM held");
    assert!(client.query("SELECT $1::int / 0", &[&5]).is_err());
    assert!(
        warning(&mut client).contains("(SELECT $1::int / 0) failed without being measured: division by zero")
    );
    // A statement that ran shows what it did, and no warning.
    must_fail(&mut client, "SELECT 1 / (relnatts - relnatts) FROM pg_class");
    assert_eq!(warning(&mut client), "");
    assert!(shown(&mut client, "").join(" ").contains("outcome failed"));
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    let failing = "DO 'BEGIN PERFORM 1 / (relnatts - relnatts) FROM pg_class; END'";
    let _ = client.batch_execute(failing);
    assert_eq!(
        warning(&mut client),
        format!(
            "The last statement of this session ({failing}) failed: division by zero; this is the last statement that it ran"
        )
    );
    run_each(&mut client, "RESET pg_rowsource.track");
    // An error in a failed transaction, and one that a display raises itself.
    run_each(&mut client, "SELECT 7; BEGIN");
    must_fail(&mut client, "SELECT rowsource_display(4711)");
    must_fail(&mut client, "SELECT 8");
    run_each(&mut client, "ROLLBACK");
    assert!(
        warning(&mut client)
            .contains("(SELECT 8) failed without being measured: current transaction is aborted")
    );
    // The message fails, not its first statement.
    must_fail(&mut client, "SELECT 9; SELECT 1 / 0");
    assert_eq!(
        warning(&mut client),
        "An error followed this statement in its message: division by zero"
    );
    assert!(shown(&mut client, "").contains(&"SELECT 9".to_owned()));
    // Another user of the session does not see its text.
    must_fail(&mut client, "SELECT 1 / 0");
    run_each(
        &mut client,
        "SET ROLE nobody; SET pg_rowsource.statistics_level = typical",
    );
    run_each(&mut client, "RESET ROLE");
    assert!(warning(&mut client).contains("division by zero"));
    server.assert_no_crash();
}

#[test]
fn it_says_if_a_cursor_is_still_open() {
    let server = Server::preloaded("display_cursor", &[]);
    let mut client = measuring(&server);
    run_each(
        &mut client,
        "CREATE TABLE many AS SELECT i AS id FROM generate_series(1, 1000) i; ANALYZE many; SELECT 1;
         BEGIN; DECLARE c CURSOR FOR SELECT id FROM many WHERE id IN (1, 2, 500)",
    );
    for fetch in ["FETCH 1 FROM c", "FETCH ALL FROM c", "MOVE BACKWARD 1 FROM c"] {
        run_each(&mut client, fetch);
        let line = warning(&mut client);
        assert!(line.contains("id IN (1, 2, 500)"), "{fetch}: {line}");
        assert!(
            line.contains(") reads a cursor that is still open: its statistics are shown when it is closed"),
            "{fetch}: {line}"
        );
    }
    run_each(&mut client, "CLOSE c; COMMIT");
    let lines = shown(&mut client, "");
    assert!(lines[0].starts_with("queryid"), "{lines:#?}");
    assert!(
        lines[1].ends_with("SELECT id FROM many WHERE id IN (1, 2, 500)"),
        "{lines:#?}"
    );
    // A part of a client's own query is read, as drivers do that fetch in pieces.
    let mut transaction = client.transaction().expect("a transaction");
    let portal = transaction.bind("SELECT id FROM many", &[]).expect("a portal");
    transaction.query_portal(&portal, 10).expect("rows");
    let rows = transaction
        .query("SELECT rowsource_display()", &[])
        .expect("a display");
    let line: String = rows[0].get(0);
    assert!(
        line.contains("(SELECT id FROM many) reads a cursor that is still open"),
        "{line}"
    );
    drop(portal);
    transaction.commit().expect("a commit");
    let lines = shown(&mut client, "").join(" ");
    assert!(
        lines.contains("outcome completed (unfinished: not read to its end)"),
        "{lines}"
    );
    let totals = shown(&mut client, "ALLSTATS");
    assert!(
        totals.contains(&"totals over 1 execution, 1 unfinished".to_owned()),
        "{totals:#?}"
    );
    // A cursor that was read to its end is just completed.
    run_each(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT id FROM many WHERE id > 7; FETCH ALL FROM c; CLOSE c; COMMIT",
    );
    let lines = shown(&mut client, "").join(" ");
    assert!(
        lines.contains("outcome completed ") && !lines.contains("unfinished"),
        "{lines}"
    );
}

/// The query of a cursor WITH HOLD runs at the end of the transaction, when its DO has ended.
#[test]
fn a_cursor_of_a_do_is_no_statement_of_its_own() {
    let server = Server::preloaded("display_held", &[]);
    let mut client = measuring(&server);
    run_each(&mut client, "SELECT 1");
    run(
        &mut client,
        "DO 'BEGIN EXECUTE ''DECLARE held CURSOR WITH HOLD FOR SELECT 5''; END'",
    );
    let line = warning(&mut client);
    assert!(line.contains("(DO 'BEGIN EXECUTE"), "{line}");
    assert!(
        line.contains("has no plan: statements in it are measured with pg_rowsource.track = 'all'"),
        "{line}"
    );
    // The level changes while a cursor is open.
    run_each(
        &mut client,
        "CLOSE held; SELECT 2; BEGIN; SET pg_rowsource.statistics_level = basic; DECLARE c CURSOR FOR SELECT 6;
         FETCH c; SET pg_rowsource.statistics_level = typical; CLOSE c; COMMIT",
    );
    let line = warning(&mut client);
    assert!(
        line.contains("was not measured: when it began, pg_rowsource.statistics_level was basic"),
        "{line}"
    );
}

#[test]
fn it_says_if_the_last_statement_was_a_utility() {
    let server = Server::preloaded("display_utility", &[]);
    let mut client = measuring(&server);
    run_each(&mut client, "SELECT 1; BEGIN; COMMIT; SHOW work_mem");
    assert_eq!(warning(&mut client), "");
    // A statement that uses the extension does not count. Its query starts and ends with different messages.
    client
        .query("SELECT count(*) FROM pg_stat_rowsource", &[])
        .expect("a count");
    assert_eq!(warning(&mut client), "");
    run_each(&mut client, "CREATE TABLE made (id int)");
    let line = warning(&mut client);
    assert!(
        line.contains("(CREATE TABLE made (id int)) was not measured: it has no plan"),
        "{line}"
    );
    run_each(&mut client, "CREATE TABLE copied AS SELECT * FROM made");
    assert_eq!(warning(&mut client), "");
    run(&mut client, "DO $$BEGIN PERFORM count(*) FROM made; END$$");
    let line = warning(&mut client);
    assert!(
        line.contains(") has no plan: statements in it are measured with pg_rowsource.track = 'all'"),
        "{line}"
    );
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    // None of what these run is shown as if the client had sent it.
    run_each(
        &mut client,
        "CREATE FUNCTION n(id int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN (SELECT count(*) FROM public.made); END';
         CREATE PROCEDURE p() LANGUAGE plpgsql AS 'BEGIN PERFORM n(1); COMMIT; PERFORM count(*) FROM copied; END';
         CREATE TABLE filled (id int, k bigint DEFAULT n(1)); INSERT INTO made VALUES (1)",
    );
    for statement in [
        "DO $$BEGIN PERFORM count(*) FROM copied; END$$",
        "CALL p()",
        "COPY filled (id) FROM PROGRAM 'echo 1'",
        "CREATE INDEX ON made (n(id))",
        "ANALYZE made",
        "ALTER TABLE made ADD CONSTRAINT c CHECK (n(id) >= 0)",
    ] {
        run_each(&mut client, "SELECT 1");
        run(&mut client, statement);
        assert_eq!(
            warning(&mut client),
            format!(
                "The last statement of this session ({statement}) has no plan; this is the last statement that it ran"
            )
        );
    }
    run_each(&mut client, "CREATE TABLE after_these (id int)");
    assert!(
        warning(&mut client).contains("(CREATE TABLE after_these (id int)) was not measured: it has no plan")
    );
    run_each(&mut client, "EXPLAIN (ANALYZE) SELECT count(*) FROM made");
    assert_eq!(warning(&mut client), "");
    run(&mut client, "DO $$BEGIN PERFORM rowsource_display(); END$$");
    assert_eq!(warning(&mut client), "");
}

#[test]
fn sampled_explain_says_so() {
    let server = Server::preloaded("display_explain", &[]);
    let mut client = measuring(&server);
    let explain = "EXPLAIN (ANALYZE, SETTINGS) SELECT count(*) FROM pg_class";
    let text = lines_of(&mut client, explain);
    assert!(!text.contains("pg_rowsource"), "{text}");
    run_each(
        &mut client,
        "SET pg_rowsource.explain = on; SET pg_rowsource.sampfreq = 64",
    );
    let text = lines_of(&mut client, explain);
    assert!(text.contains("pg_rowsource.explain = 'on'"), "{text}");
    assert!(text.contains("pg_rowsource.sampfreq = '64'"), "{text}");
}

#[test]
fn a_cancelled_statement_has_its_text_outcome_and_time() {
    let server = Server::preloaded("display_cancelled", &[]);
    let mut client = measuring(&server);
    must_time_out(
        &mut client,
        500,
        "SELECT count(*) FROM generate_series(1, 1000000000)",
    );
    let lines = shown(&mut client, "");
    assert_eq!(lines[1], "SELECT count(*) FROM generate_series(1, 1000000000)");
    let words = ["user postgres", "database ", "outcome cancelled", "elapsed "];
    assert!(words.iter().all(|word| lines[2].contains(word)), "{lines:#?}");
    let totals = shown(&mut client, "ALLSTATS");
    assert!(
        totals.contains(&"totals over 1 execution, 1 cancelled".to_owned()),
        "{totals:#?}"
    );
}

/// Oracle's display has no such formats either. The message says where EXPLAIN's are.
#[test]
fn formats_of_explain_are_elsewhere() {
    let server = Server::preloaded("display-json", &[]);
    let mut client = measuring(&server);
    run(&mut client, "SELECT count(*) FROM pg_am");
    for format in ["JSON", "json", "ALLSTATS LAST Yaml", "xml", "text"] {
        let (code, message) = must_fail(
            &mut client,
            &format!("SELECT rowsource_display(format => '{format}')"),
        );
        let word = format.rsplit(' ').next().unwrap_or_default();
        assert_eq!(code, SqlState::INVALID_PARAMETER_VALUE);
        assert!(message.contains(&format!("unknown word \"{word}\"")), "{message}");
        let elsewhere = format!(
            "rowsource_explain(format => '{}') prints a plan in this format",
            word.to_lowercase()
        );
        assert!(
            message.contains(&elsewhere) && message.contains("Known words"),
            "{message}"
        );
        let printed = lines_of(
            &mut client,
            &format!("SELECT rowsource_explain(format => '{word}')"),
        );
        assert!(printed.contains("Seq Scan"), "{printed}");
    }
}
