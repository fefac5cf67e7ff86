//! The session's last statement shows its own text and literals, though another one with the same queryid ran
//! just before it, and PostgreSQL has copied its text to the same place.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};

/// Starts a server that keeps no constants, and measures all statements.
fn server(name: &str) -> Server {
    let server = Server::preloaded(
        name,
        &[
            "pg_rowsource.track = 'all'",
            "pg_rowsource.keep_constants = off",
            "jit = off",
        ],
    );
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource;
         CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at timestamp DEFAULT '2024-01-01', ok bool DEFAULT true);
         INSERT INTO t SELECT g, 'name ' || g FROM generate_series(1, 1000) g; VACUUM ANALYZE t",
    );
    server
}

fn display(client: &mut Client) -> String {
    let lines = texts(client, "SELECT rowsource_display()");
    lines
        .concat()
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Each EXECUTE copies its text, often to where the text of the statement before was. Nothing is parsed
/// between the two.
#[test]
fn an_executed_statement_shows_its_own_text() {
    let server = server("own-text-execute");
    let mut client = server.connect();
    run_each(
        &mut client,
        "PREPARE one AS SELECT name FROM t WHERE id = 2001; PREPARE two AS SELECT name FROM t WHERE id = 2002;
         PREPARE six AS SELECT id FROM t WHERE name = 'name 2003'",
    );
    let literals = [("one", "2001"), ("two", "2002"), ("six", "name 2003")];
    for (before, other) in literals {
        for (statement, literal) in literals.into_iter().filter(|(name, _)| *name != before) {
            run_each(
                &mut client,
                &format!("EXECUTE {before}; EXECUTE {before}; EXECUTE {statement}"),
            );
            let shown = display(&mut client);
            assert!(
                shown.contains(literal) && !shown.contains(other),
                "{statement} after {before}\n{shown}"
            );
        }
    }
}

/// The same holds for cursors of a procedure, and for named statements of the protocol, whether their plans
/// are generic or made for each execution.
#[test]
fn a_cursor_and_a_named_statement_show_their_own_text() {
    let server = server("own-text-copies");
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE PROCEDURE cursors(first int) LANGUAGE plpgsql AS $$
             DECLARE a CURSOR FOR SELECT ok FROM t WHERE id = 3001; b CURSOR FOR SELECT ok FROM t WHERE id = 3002; r record;
             BEGIN
                 OPEN a; FETCH a INTO r; CLOSE a;
                 OPEN b; FETCH b INTO r; CLOSE b;
                 IF first = 1 THEN OPEN a; FETCH a INTO r; CLOSE a; END IF;
             END$$",
        )
        .expect("a procedure");
    for (argument, literal, other) in [(2, "3002", "3001"), (1, "3001", "3002"), (2, "3002", "3001")] {
        run_each(&mut client, &format!("CALL cursors({argument})"));
        let shown = display(&mut client);
        assert!(shown.contains(literal) && !shown.contains(other), "{shown}");
    }
    for mode in ["force_generic_plan", "force_custom_plan"] {
        run_each(&mut client, &format!("SET plan_cache_mode = {mode}"));
        let [one, two] = ["4001", "4002"].map(|id| {
            let sql = format!("SELECT at FROM t WHERE id = {id} AND name <> $1");
            (client.prepare(&sql).expect("it is parsed"), id)
        });
        let declared = ["5001", "5002"].map(|id| {
            let sql = format!("DECLARE c CURSOR FOR SELECT at, id FROM t WHERE id = {id}");
            (client.prepare(&sql).expect("it is parsed"), id)
        });
        let fetch = client.prepare("FETCH ALL FROM c").expect("it is parsed");
        let close = client.prepare("CLOSE c").expect("it is parsed");
        let show = client
            .prepare("SELECT string_agg(line, ' ') FROM rowsource_display() line")
            .expect("it is parsed");
        // A time of day may have these digits, too.
        let has = |shown: &str, id: &str| shown.contains(&format!("id = {id}"));
        // No message is parsed from here on.
        for _ in 0..3 {
            for ((statement, id), (_, other)) in [(&one, &two), (&two, &one)] {
                client.query(statement, &[&"x"]).expect("it runs");
                let shown: String = client.query_one(&show, &[]).expect("it runs").get(0);
                assert!(has(&shown, id) && !has(&shown, other), "{mode}: {shown}");
            }
        }
        run_each(&mut client, "BEGIN");
        for _ in 0..3 {
            for at in 0..2 {
                let ((statement, id), (_, other)) = (&declared[at], &declared[1 - at]);
                client.query(statement, &[]).expect("it runs");
                client.query(&fetch, &[]).expect("it runs");
                client.query(&close, &[]).expect("it runs");
                let shown: String = client.query_one(&show, &[]).expect("it runs").get(0);
                assert!(has(&shown, id) && !has(&shown, other), "{mode}: {shown}");
            }
        }
        run_each(&mut client, "COMMIT");
    }
}

/// At level basic each statement has its own hint, and rowsource_display() names the statement that ran last.
#[test]
fn a_statement_at_level_basic_has_its_own_hint_and_text() {
    const TIMES: i64 = 5;
    let server = server("own-text-hint");
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE '%FROM t WHERE%' AND query ";
    let show = "SELECT string_agg(line, ' ') FROM rowsource_display() line";
    for mode in ["force_generic_plan", "force_custom_plan"] {
        run_each(
            &mut client,
            &format!("SELECT rowsource_reset(); SET plan_cache_mode = {mode}"),
        );
        // These texts have the same length.
        let [hinted, other] = [
            "/*+ gather_plan_statistics */ name",
            "/*- gather_plan_statistics */   at",
        ]
        .map(|list| {
            let sql = format!("SELECT {list} FROM t WHERE id = $1");
            client.prepare(&sql).expect("it is parsed")
        });
        for _ in 0..TIMES {
            client.query(&hinted, &[&1]).expect("it runs");
            client.query(&other, &[&1]).expect("it runs");
        }
        let (name, at): (i64, i64) = (
            value(&mut client, &format!("{calls} LIKE '%name FROM%'")),
            value(&mut client, &format!("{calls} LIKE '%at FROM%'")),
        );
        assert_eq!((name, at), (TIMES, 0), "{mode}");
        client.query(&other, &[&1]).expect("it runs");
        client.query(&other, &[&1]).expect("it runs");
        let shown: String = value(&mut client, show);
        assert!(
            shown.contains("at FROM t") && shown.contains("was basic"),
            "{mode}: {shown}"
        );
        client.query(&hinted, &[&1]).expect("it runs");
        let shown: String = value(&mut client, show);
        assert!(
            shown.contains("name FROM t") && !shown.contains("was basic"),
            "{mode}: {shown}"
        );
    }
    // Nothing but EXECUTE is parsed, and each copies its text.
    run_each(
        &mut client,
        "SELECT rowsource_reset(); PREPARE a AS SELECT /*+ gather_plan_statistics */ name FROM t WHERE id = 1;
         PREPARE b AS SELECT /*- gather_plan_statistics */ ok   FROM t WHERE id = 1",
    );
    for _ in 0..TIMES {
        run_each(&mut client, "EXECUTE a; EXECUTE b");
    }
    let measured: (i64, i64) = (
        value(&mut client, &format!("{calls} LIKE '%name FROM%'")),
        value(&mut client, &format!("{calls} LIKE '%ok   FROM%'")),
    );
    assert_eq!(measured, (TIMES, 0));
}
