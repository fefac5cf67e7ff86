//! Only statements that clients sent are stored at top level. All places where another statement can start are here, and
//! pg_stat_statements says the same of each. A statement that another one started has that one's queryid as its caller.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{major, must_fail, run_each, texts, value};
use rowsource_tests::waiting::until;

const OBJECTS: &str = "
    CREATE EXTENSION pg_rowsource; CREATE EXTENSION pg_stat_statements;
    CREATE TABLE src AS SELECT g AS i FROM generate_series(1, 100) g; ANALYZE src;
    CREATE TABLE ddl_log (tag text);
    CREATE FUNCTION fold(k int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN RETURN (SELECT count(*) AS folded FROM public.src WHERE i < k); END';
    CREATE FUNCTION look(k int) RETURNS bigint LANGUAGE plpgsql VOLATILE AS
        'BEGIN RETURN (SELECT count(*) AS looked FROM public.src WHERE i <= k); END';
    CREATE FUNCTION loop(k int) RETURNS int LANGUAGE plpgsql VOLATILE AS
        'DECLARE r record; s int := 0; BEGIN FOR r IN SELECT i AS looped FROM public.src WHERE i < k LOOP s := s + 1; END LOOP; RETURN s; END';
    CREATE FUNCTION fails(k int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN RETURN (SELECT 1 / (count(*) - count(*)) AS failed FROM public.src WHERE i < k); END';
    CREATE FUNCTION catches(k int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN BEGIN PERFORM fails(k); EXCEPTION WHEN division_by_zero THEN NULL; END;
         RETURN (SELECT count(*) AS caught FROM public.src WHERE i < k); END';
    CREATE FUNCTION log_begin() RETURNS event_trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO public.ddl_log SELECT tg_tag AS begun; END';
    CREATE FUNCTION log_end() RETURNS event_trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO public.ddl_log SELECT lower(tg_tag) AS ended; END';
    CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM count(*) AS fired FROM public.src; RETURN NULL; END';
    CREATE TABLE fired (i int);
    CREATE TRIGGER fire AFTER INSERT ON fired FOR EACH ROW EXECUTE FUNCTION fire();
    CREATE TABLE late (i int);
    CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION fire();
    CREATE DOMAIN small AS int CHECK (look(VALUE) >= 0);
    CREATE TABLE filled (i int, at_default bigint DEFAULT look(7));
    CREATE TABLE replaced (i int);
    CREATE RULE replaced AS ON INSERT TO replaced DO ALSO INSERT INTO ddl_log SELECT 'rule' AS ruled;
    CREATE PROCEDURE steps() LANGUAGE plpgsql AS 'BEGIN PERFORM look(3); COMMIT; PERFORM look(4); END';
    CREATE FUNCTION opens(c refcursor) RETURNS refcursor LANGUAGE plpgsql AS
        'BEGIN OPEN c FOR SELECT i AS opened FROM public.src; RETURN c; END';
    CREATE FUNCTION reads(c refcursor) RETURNS int LANGUAGE plpgsql AS
        'DECLARE k int; BEGIN FETCH c INTO k; RETURN k; END';
    CREATE FUNCTION closes(c refcursor) RETURNS void LANGUAGE plpgsql AS 'BEGIN CLOSE c; END';
    CREATE PROCEDURE opens_and_commits(INOUT c refcursor) LANGUAGE plpgsql AS
        'BEGIN OPEN c FOR SELECT i + i AS kept FROM public.src; COMMIT; END';
    CREATE MATERIALIZED VIEW mv AS SELECT i FROM src; CREATE UNIQUE INDEX ON mv (i);
    CREATE MATERIALIZED VIEW indexed AS SELECT i FROM src; CREATE INDEX ON indexed (fold(i))";

/// A server for the tests of this file. It measures all statements, and so does pg_stat_statements.
fn server() -> Server {
    let server = Server::start(
        "toplevel",
        &[
            "shared_preload_libraries = 'pg_stat_statements, pg_rowsource'",
            "pg_stat_statements.track = 'all'",
            "pg_stat_statements.track_planning = 'on'",
            "pg_rowsource.track = 'all'",
            "pg_rowsource.keep_constants = off",
            "max_parallel_workers_per_gather = 0",
            "wal_level = 'logical'",
            "jit = off",
        ],
    );
    run_each(&mut server.connect(), OBJECTS);
    server
}

fn session() -> (Server, Client) {
    let server = server();
    let client = server.connect();
    (server, client)
}

/// The statements of one of our views. COMMIT starts nothing.
const NOT_OURS: &str = "query !~ 'rowsource|pg_stat_statements|^COMMIT$'";

/// A stored statement.
#[derive(Debug)]
struct Stored {
    toplevel: bool,
    calls: i64,
    query: String,
    /// The text of its caller, if that is stored too.
    caller: Option<String>,
    has_caller: bool,
}

fn stored(client: &mut Client) -> Vec<Stored> {
    client
        .query(
            &format!(
                "SELECT toplevel, calls, query, caller_queryid IS NOT NULL,
                        (SELECT min(query) FROM pg_stat_rowsource_plans c WHERE c.queryid = p.caller_queryid)
                   FROM pg_stat_rowsource_plans p WHERE {NOT_OURS} ORDER BY toplevel, query"
            ),
            &[],
        )
        .expect("the stored plans")
        .iter()
        .map(|row| Stored {
            toplevel: row.get(0),
            calls: row.get(1),
            query: row.get(2),
            has_caller: row.get(3),
            caller: row.get(4),
        })
        .collect()
}

/// Runs statements in an empty store, and returns what is stored then.
fn after(client: &mut Client, statements: &str) -> Vec<Stored> {
    run_each(
        client,
        "RESET pg_rowsource.statistics_level; SELECT rowsource_reset(); SELECT pg_stat_statements_reset()",
    );
    run_each(client, statements);
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    stored(client)
}

fn display(client: &mut Client) -> String {
    let lines = texts(client, "SELECT rowsource_display()");
    lines
        .into_iter()
        .flatten()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the stored statements of pg_stat_statements whose text is LIKE this, and whether they are at top level.
fn of_others(client: &mut Client, like: &str) -> Vec<bool> {
    client
        .query(
            "SELECT DISTINCT toplevel FROM pg_stat_statements WHERE query LIKE $1",
            &[&like],
        )
        .expect("pg_stat_statements")
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// How a statement that another one started is stored.
struct Started<'a> {
    /// What the client sends.
    statements: &'a str,
    /// A part of the text of the statement that starts in it.
    inner: &'a str,
    /// The text of its caller, as a pattern. `None` if it has no row: it was never executed.
    caller: Option<&'a str>,
    /// How many plans are stored at top level.
    toplevel: usize,
    /// Before 17, pg_stat_statements takes what the planner runs for a part of what runs around the planner.
    is_planned: bool,
}

const fn started<'a>(
    statements: &'a str,
    inner: &'a str,
    caller: Option<&'a str>,
    toplevel: usize,
) -> Started<'a> {
    Started {
        statements,
        inner,
        caller,
        toplevel,
        is_planned: false,
    }
}

const fn planned<'a>(
    statements: &'a str,
    inner: &'a str,
    caller: Option<&'a str>,
    toplevel: usize,
) -> Started<'a> {
    Started {
        is_planned: true,
        ..started(statements, inner, caller, toplevel)
    }
}

fn check(client: &mut Client, expected: &Started) -> Vec<String> {
    let Started {
        statements,
        inner,
        caller,
        toplevel,
        is_planned,
    } = expected;
    let rows = after(client, statements);
    let others = of_others(client, &format!("%{inner}%"));
    let mut wrong = Vec::new();
    let mut fault = |what: String| wrong.push(format!("{statements}\n  {what}\n  {rows:#?}"));
    let of_inner: Vec<&Stored> = rows.iter().filter(|row| row.query.contains(inner)).collect();
    if of_inner.is_empty() {
        fault(format!("{inner} is not stored"));
    }
    for row in of_inner {
        if row.toplevel {
            fault(format!("{inner} is at top level"));
        }
        if !row.has_caller {
            fault(format!("{inner} has no caller"));
        }
        let is_caller = |text: &Option<String>| match (text, caller) {
            (Some(text), Some(caller)) => text.contains(caller),
            (None, None) => true,
            _ => false,
        };
        if !is_caller(&row.caller) {
            fault(format!("{inner} has the caller {:?}, not {caller:?}", row.caller));
        }
    }
    if others != [false] && !(*is_planned && major(client) < 17) {
        fault(format!("pg_stat_statements: {others:?}"));
    }
    let at_top = rows.iter().filter(|row| row.toplevel).count();
    if at_top != *toplevel {
        fault(format!("{at_top} plans at top level, not {toplevel}"));
    }
    wrong
}

fn check_all(all: &[Started]) {
    let (_server, mut client) = session();
    let wrong: Vec<String> = all.iter().flat_map(|one| check(&mut client, one)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn functions_that_the_planner_folds() {
    check_all(&[
        planned(
            "SELECT 'plain', count(*) FROM src WHERE i < fold(5)",
            "folded",
            Some("SELECT $1, count(*)"),
            1,
        ),
        planned(
            "PREPARE p AS SELECT 'execute', count(*) FROM src WHERE i < fold(5); EXECUTE p; DEALLOCATE p",
            "folded",
            Some("SELECT $1, count(*)"),
            1,
        ),
        started(
            "EXPLAIN SELECT 'explain', count(*) FROM src WHERE i < fold(5)",
            "folded",
            None,
            0,
        ),
        started(
            "EXPLAIN ANALYZE SELECT 'analyze', count(*) FROM src WHERE i < fold(5)",
            "folded",
            Some("SELECT $1, count(*)"),
            1,
        ),
        started(
            "CREATE TEMP TABLE ct AS SELECT 'ctas', count(*) FROM src WHERE i < fold(5); DROP TABLE ct",
            "folded",
            Some("SELECT $1, count(*)"),
            1,
        ),
        started(
            "SELECT 'into', count(*) INTO TEMP ct FROM src WHERE i < fold(5); DROP TABLE ct",
            "folded",
            Some("count(*)"),
            1,
        ),
        started(
            "PREPARE p AS SELECT 'ctas', count(*) FROM src WHERE i < fold(5); CREATE TEMP TABLE ct AS EXECUTE p; DROP TABLE ct; DEALLOCATE p",
            "folded",
            Some("SELECT $1, count(*)"),
            1,
        ),
        started(
            "BEGIN; DECLARE c CURSOR FOR SELECT 'declare', count(*) FROM src WHERE i < fold(5); FETCH c; COMMIT",
            "folded",
            Some("count(*)"),
            1,
        ),
        started(
            "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 'hold', count(*) FROM src WHERE i < fold(5); COMMIT; FETCH c; CLOSE c",
            "folded",
            Some("count(*)"),
            1,
        ),
        started("CALL steps()", "SELECT look(", Some("CALL steps()"), 1),
    ]);
}

#[test]
fn a_refresh_is_one_plan() {
    let (_server, mut client) = session();
    let refresh = "REFRESH MATERIALIZED VIEW CONCURRENTLY mv";
    let rows = after(&mut client, &format!("{refresh}; {refresh}"));
    let top: Vec<_> = rows.iter().filter(|row| row.toplevel).collect();
    assert_eq!(top.len(), 1, "{rows:#?}");
    assert_eq!((top[0].query.as_str(), top[0].calls), (refresh, 2), "{rows:#?}");
    assert!(
        rows.iter()
            .filter(|row| !row.toplevel)
            .all(|row| row.caller.as_deref() == Some(refresh)),
        "{rows:#?}"
    );
    // Each refresh makes temporary tables, one with a column of the row type of the other.
    let nested: Vec<_> = rows.iter().filter(|row| !row.toplevel).collect();
    assert!(
        nested.len() == 4 && nested.iter().all(|row| row.calls == 2),
        "{rows:#?}"
    );
    let display = display(&mut client);
    assert!(display.contains(refresh), "{display}");
    let nested: bool = value(
        &mut client,
        "SELECT bool_and(NOT toplevel) FROM pg_stat_statements WHERE query LIKE '%pg_temp%'",
    );
    assert!(nested, "pg_stat_statements");
}

#[test]
fn event_triggers_and_indexes() {
    let (_server, mut client) = session();
    run_each(
        &mut client,
        "CREATE EVENT TRIGGER log_begin ON ddl_command_start EXECUTE FUNCTION log_begin();
         CREATE EVENT TRIGGER log_end ON ddl_command_end EXECUTE FUNCTION log_end()",
    );
    let refresh = "REFRESH MATERIALIZED VIEW mv";
    let mut wrong = Vec::new();
    // From 18 on, the query of a CREATE TABLE AS has its queryid only when it is planned.
    let made = |inner: &str, major: i32| (major < 18 || inner == "ended").then_some("made");
    let major = major(&mut client);
    for inner in ["begun", "ended"] {
        let made = made(inner, major);
        for (statements, caller, toplevel) in [
            (refresh, Some(refresh), 1),
            ("CREATE TABLE made AS SELECT i AS made FROM src", made, 1),
            ("SELECT i AS made INTO made FROM src", made, 1),
            ("CREATE TABLE made (i int)", Some("CREATE TABLE"), 1),
        ] {
            let check_one = started(statements, inner, caller, toplevel);
            wrong.extend(check(&mut client, &check_one));
            let display = display(&mut client);
            let is_shown = statements == "CREATE TABLE made (i int)" || display.contains(statements);
            if !is_shown {
                wrong.push(format!("{statements}\n{display}"));
            }
            run_each(&mut client, "DROP TABLE IF EXISTS made");
        }
    }
    run_each(
        &mut client,
        "DROP EVENT TRIGGER log_begin; DROP EVENT TRIGGER log_end",
    );
    let refresh = "REFRESH MATERIALIZED VIEW indexed";
    wrong.extend(check(&mut client, &started(refresh, "folded", Some(refresh), 1)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn triggers_domains_and_defaults() {
    check_all(&[
        started(
            "INSERT INTO fired VALUES (1)",
            "AS fired",
            Some("INSERT INTO fired"),
            1,
        ),
        started(
            "COPY fired FROM PROGRAM 'echo 1'",
            "AS fired",
            Some("COPY fired"),
            1,
        ),
        started("SELECT 5::small", "looked", Some("SELECT $1::small"), 1),
        started(
            "INSERT INTO filled (i) SELECT 1",
            "looked",
            Some("INSERT INTO filled"),
            1,
        ),
        started(
            "ALTER TABLE filled ADD COLUMN other bigint DEFAULT look(8)",
            "looked",
            Some("ALTER TABLE"),
            1,
        ),
        started(
            "BEGIN; INSERT INTO late VALUES (1); SET CONSTRAINTS ALL IMMEDIATE; COMMIT",
            "AS fired",
            Some("SET CONSTRAINTS"),
            2,
        ),
        started(
            "COPY (SELECT loop(i) FROM src LIMIT 2) TO PROGRAM 'cat >/dev/null'",
            "looped",
            Some("SELECT loop(i)"),
            1,
        ),
    ]);
}

/// pg_stat_statements has these at top level.
#[test]
fn arguments_of_execute() {
    let (_server, mut client) = session();
    for (statements, inner) in [
        ("EXECUTE arguments(look(9))", "looked"),
        ("EXECUTE arguments(loop(9))", "looped"),
        (
            "CREATE TABLE made AS EXECUTE arguments(look(9)); DROP TABLE made",
            "looked",
        ),
        ("EXPLAIN ANALYZE EXECUTE arguments(look(9))", "looked"),
    ] {
        run_each(
            &mut client,
            "DEALLOCATE ALL; PREPARE arguments(int) AS SELECT i AS argued FROM src WHERE i = $1",
        );
        // From the sixth execution on, no planner runs.
        let eight = format!("{statements};").repeat(8);
        let rows = after(&mut client, &eight);
        let is_inner = |row: &&Stored| row.query.contains(inner);
        let (inside, sent): (Vec<_>, Vec<_>) = rows
            .iter()
            .filter(|row| row.query.contains("argued") || row.query.contains(inner))
            .partition(is_inner);
        assert!(!inside.is_empty() && !sent.is_empty(), "{rows:#?}");
        for row in &inside {
            assert!(!row.toplevel, "{statements}: {rows:#?}");
            assert!(
                row.caller.as_deref().is_some_and(|text| text.contains("argued")),
                "{rows:#?}"
            );
        }
        for row in &sent {
            assert!(row.toplevel && !row.has_caller, "{statements}: {rows:#?}");
        }
        // Executions by EXPLAIN are not added up.
        let calls = if statements.starts_with("EXPLAIN") { 0 } else { 8 };
        assert_eq!(sent.iter().map(|row| row.calls).sum::<i64>(), calls, "{rows:#?}");
        let display = display(&mut client);
        assert!(display.contains("argued"), "{display}");
    }
}

/// No statement runs these, so that the time of all statements at top level is all time.
#[test]
fn what_no_statement_starts() {
    let (_server, mut client) = session();
    let rows = after(&mut client, "BEGIN; INSERT INTO late VALUES (1); COMMIT");
    let fired: Vec<_> = rows.iter().filter(|row| row.query.contains("AS fired")).collect();
    assert_eq!(fired.len(), 1, "{rows:#?}");
    assert!(fired[0].toplevel && !fired[0].has_caller, "{rows:#?}");
    assert_eq!(of_others(&mut client, "%AS fired%"), [true]);
    let display = display(&mut client);
    assert!(display.contains("INSERT INTO late"), "{display}");

    // The rule's statement is a part of what the client sent.
    let rows = after(&mut client, "INSERT INTO replaced VALUES (1)");
    assert!(
        rows.len() == 2 && rows.iter().all(|row| row.toplevel),
        "{rows:#?}"
    );
}

#[test]
fn statements_after_an_error_in_the_planner() {
    let (_server, mut client) = session();
    after_an_error_in_the_planner(&mut client);
    // Then no hook sees the error.
    run_each(&mut client, "SET log_min_messages = panic");
    after_an_error_in_the_planner(&mut client);
}

fn after_an_error_in_the_planner(client: &mut Client) {
    run_each(client, "RESET pg_rowsource.statistics_level");
    for statement in [
        "SELECT fails(5)",
        "EXPLAIN SELECT fails(5)",
        "CREATE TABLE made AS SELECT fails(5)",
        "CREATE TABLE made AS SELECT 1 / (i - 50) AS failed FROM src",
    ] {
        must_fail(client, statement);
        let rows = after(client, "SELECT count(*) AS next FROM src");
        assert!(rows.len() == 1 && rows[0].toplevel, "{statement}: {rows:#?}");
    }
    // The error ends a subtransaction: that of a savepoint, or that of a function which the planner runs.
    run_each(client, "BEGIN; SAVEPOINT s");
    must_fail(client, "SELECT fails(5)");
    run_each(client, "ROLLBACK TO s");
    let rows = after(client, "SELECT count(*) AS next FROM src");
    assert!(rows.len() == 1 && rows[0].toplevel, "{rows:#?}");
    run_each(client, "COMMIT");
    let rows = after(client, "SELECT catches(5); SELECT count(*) AS next FROM src");
    for row in rows {
        let is_sent = row.query.contains("catches") || row.query.contains("AS next");
        assert_eq!(row.toplevel, is_sent, "{row:?}");
    }
    let caught = "DO 'BEGIN BEGIN PERFORM fails(5); EXCEPTION WHEN division_by_zero THEN NULL; END; PERFORM look(3); END'";
    let rows = after(client, &format!("{caught}; SELECT count(*) AS next FROM src"));
    for row in rows {
        let is_sent = row.query.starts_with("DO ") || row.query.contains("AS next");
        assert_eq!(row.toplevel, is_sent, "{row:?}");
    }
}

/// The worker that applies changes runs triggers, and no statement.
#[test]
fn logical_replication() {
    let (server, mut client) = session();
    run_each(
        &mut client,
        "CREATE TABLE published (i int PRIMARY KEY); CREATE PUBLICATION sent FOR TABLE published; CREATE DATABASE subscriber",
    );
    let subscriber = server.try_connect_to("postgres", "subscriber");
    let mut subscriber = subscriber.expect("a session in the other database");
    run_each(
        &mut subscriber,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE published (i int PRIMARY KEY);
         CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM count(*) AS applied FROM public.published; RETURN NULL; END';
         CREATE TRIGGER fire AFTER INSERT ON published FOR EACH ROW EXECUTE FUNCTION fire();
         ALTER TABLE published ENABLE ALWAYS TRIGGER fire",
    );
    run_each(
        &mut client,
        "SELECT pg_create_logical_replication_slot('sent', 'pgoutput')",
    );
    let socket: String = value(
        &mut client,
        "SELECT split_part(current_setting('unix_socket_directories'), ',', 1)",
    );
    let port: String = value(&mut client, "SELECT current_setting('port')");
    run_each(
        &mut subscriber,
        &format!(
            "CREATE SUBSCRIPTION received CONNECTION 'host={socket} port={port} dbname=postgres user=postgres' PUBLICATION sent
                 WITH (create_slot = false, slot_name = 'sent', copy_data = false)"
        ),
    );
    run_each(&mut client, "INSERT INTO published VALUES (1)");
    let applied =
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE '%AS applied FROM public.published'";
    until(&mut subscriber, &format!("SELECT ({applied}) > 0"));
    let rows = stored(&mut subscriber);
    let row = rows
        .iter()
        .find(|row| row.query.contains("AS applied"))
        .expect("the trigger's statement");
    assert!(row.toplevel && !row.has_caller, "{rows:#?}");
    run_each(
        &mut subscriber,
        "ALTER SUBSCRIPTION received DISABLE; ALTER SUBSCRIPTION received SET (slot_name = NONE); DROP SUBSCRIPTION received",
    );
    run_each(&mut client, "DROP PUBLICATION sent");
    assert_eq!(
        of_others(&mut client, "%AS applied FROM public.published"),
        [true]
    );
}

/// pg_stat_statements decides when a statement ends, so a cursor that a function opens for its client is at top level.
#[test]
fn cursors_that_functions_and_clients_share() {
    let (_server, mut client) = session();
    let wrong: Vec<String> = [
        // What the client sends, a part of the cursor's text, and whether it counts as sent by the client.
        ("BEGIN; SELECT opens('c'); FETCH 3 FROM c; COMMIT", "opened", true),
        ("BEGIN; SELECT opens('c'); COMMIT", "opened", true),
        ("BEGIN; SELECT opens('c'); SELECT reads('c'); COMMIT", "opened", true),
        ("BEGIN; SELECT opens('c'); SELECT reads('c'), closes('c'); COMMIT", "opened", false),
        ("SELECT loop(5)", "looped", false),
        ("BEGIN; DECLARE c CURSOR FOR SELECT i, i AS declared FROM src; SELECT reads('c'); COMMIT", "declared", true),
        ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT i, i, i AS held FROM src; COMMIT; FETCH 2 FROM c; CLOSE c", "held", true),
        ("CALL opens_and_commits('c')", "kept", false),
        // How the client ends what it has read changes nothing here. There, what a CLOSE ends is nested in it.
        ("BEGIN; SELECT opens('c'); FETCH 3 FROM c; CLOSE c; COMMIT", "opened", true),
        ("BEGIN; DECLARE c CURSOR FOR SELECT i, i, i, i AS closed FROM src; FETCH 3 FROM c; CLOSE c; COMMIT", "closed", true),
    ]
    .into_iter()
    .filter_map(|(statements, text, toplevel)| {
        let rows = after(&mut client, statements);
        let of_cursor = rows.iter().filter(|row| row.query.contains(&format!("AS {text}")));
        let ours: Vec<bool> = of_cursor.clone().map(|row| row.toplevel).collect();
        let has_caller = of_cursor.clone().any(|row| row.has_caller);
        let others = of_others(&mut client, &format!("%AS {text}%"));
        let is_closed = statements.contains("opens('c'); FETCH 3 FROM c; CLOSE c");
        let is_right = ours == [toplevel] && has_caller != toplevel && others.contains(&(toplevel != is_closed));
        (!is_right).then(|| format!("{statements}\n  pg_stat_statements: {others:?}\n  {rows:#?}"))
    })
    .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
