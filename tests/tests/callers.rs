//! CALL, DO and other utility statements that run statements have rows of their own. So each nested statement
//! has a caller that is stored, and the times of the statements that clients sent add up to all time.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::basic_server;
use std::time::Instant;

const OBJECTS: &str = "
    CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i;
    CREATE FUNCTION f(int) RETURNS bigint LANGUAGE plpgsql AS
        'DECLARE r bigint; BEGIN SELECT count(*) INTO r FROM t WHERE id <= $1; RETURN r; END';
    CREATE FUNCTION slow() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); END';
    CREATE PROCEDURE steps(int) LANGUAGE plpgsql AS
        'BEGIN PERFORM f($1); COMMIT; PERFORM slow(); PERFORM count(*) FROM t; END';
    CREATE PROCEDURE outer_steps() LANGUAGE plpgsql AS 'BEGIN CALL steps(3); PERFORM f(4); END';
    CREATE PROCEDURE boom() LANGUAGE plpgsql AS 'BEGIN PERFORM slow(); RAISE EXCEPTION ''boom''; END';
    CREATE TABLE fired (id int);
    CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM f(5); RETURN NEW; END';
    CREATE TRIGGER fire BEFORE INSERT ON fired FOR EACH ROW EXECUTE FUNCTION fire();
    CREATE FUNCTION commits() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) AS committed FROM t; RETURN NULL; END';
    CREATE TABLE child (id int);
    CREATE CONSTRAINT TRIGGER commits AFTER INSERT ON child DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION commits()";

fn server(name: &str, track: &str) -> Server {
    let track = format!("pg_rowsource.track = '{track}'");
    let server = basic_server(name, &[&track, "pg_rowsource.keep_constants = off"]);
    run(&mut server.connect(), OBJECTS);
    server
}

/// Runs a message, which may contain semicolons.
fn run(client: &mut Client, message: &str) {
    client
        .batch_execute(message)
        .unwrap_or_else(|error| panic!("{message}\n{error}"));
}

/// Runs the statements of one client that call others, and returns how many milliseconds they took.
fn load(client: &mut Client) -> f64 {
    let begin = Instant::now();
    run_each(
        client,
        "SET pg_rowsource.statistics_level = typical; CALL steps(1); CALL outer_steps(); SELECT f(7), f(8)",
    );
    run(
        client,
        "DO 'BEGIN PERFORM f(1); PERFORM slow(); CALL steps(2); END'",
    );
    must_fail(client, "CALL boom()");
    must_fail(client, "SELECT slow(), 1 / (f(6) - 6)");
    run(
        client,
        "DO 'BEGIN PERFORM 1 / (f(6) - 6); EXCEPTION WHEN division_by_zero THEN PERFORM slow(); END'",
    );
    run(client, "COPY fired FROM PROGRAM 'echo 1; echo 2'");
    run_each(client, "BEGIN; INSERT INTO child VALUES (1); COMMIT");
    run_each(
        client,
        "ALTER TABLE child ADD CHECK (f(id) > 0); SET pg_rowsource.statistics_level = basic",
    );
    begin.elapsed().as_secs_f64() * 1e3
}

fn row(client: &mut Client, sql: &str) -> Vec<String> {
    let mut rows = texts(client, sql);
    assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
    rows.remove(0)
        .into_iter()
        .map(|value| value.unwrap_or_default())
        .collect()
}

#[test]
fn the_statements_of_clients_have_all_time_once() {
    let server = server("callers-all", "all");
    let mut client = server.connect();
    let elapsed = load(&mut client);
    let top: f64 = value(
        &mut client,
        "SELECT sum(total_time) FROM pg_stat_rowsource_plans WHERE toplevel",
    );
    // CALL steps, CALL outer_steps, both DO (one of them twice), and two that failed sleep for 50 ms each.
    assert!(top > 7.0 * 50.0 && top <= elapsed, "{top} of {elapsed} ms");
    let shown = texts(
        &mut client,
        "SELECT toplevel, calls, caller_queryid IS NULL, query FROM pg_stat_rowsource_plans ORDER BY toplevel, query",
    );
    let without = texts(
        &mut client,
        "SELECT query FROM pg_stat_rowsource_plans n WHERE NOT toplevel AND NOT EXISTS
             (SELECT FROM pg_stat_rowsource_plans c WHERE c.queryid = n.caller_queryid)",
    );
    assert!(
        without.is_empty(),
        "no row for the callers of {without:?}: {shown:#?}"
    );
    // The statements that a statement called did not take longer than it did.
    let too_long = texts(
        &mut client,
        "SELECT c.query, c.total_time, sum(n.total_time) FROM pg_stat_rowsource_plans c
             JOIN pg_stat_rowsource_plans n ON n.caller_queryid = c.queryid AND n.calls = 1
         GROUP BY c.userid, c.queryid, c.planid, c.query, c.total_time HAVING sum(n.total_time) > c.total_time",
    );
    assert!(too_long.is_empty(), "{too_long:?}");
    let percents = row(
        &mut client,
        "SELECT abs(sum(percent) - 100) <= count(percent) * 0.05,
                count(percent) = (SELECT count(DISTINCT (queryid)) FROM pg_stat_rowsource_plans WHERE toplevel)
           FROM rowsource_top_statements",
    );
    assert_eq!(percents, ["t", "t"]);
    for view in ["rowsource_top_nodes", "rowsource_top_reads"] {
        let sum =
            format!("SELECT coalesce(abs(sum(percent) - 100) <= count(percent) * 0.05, true) FROM {view}");
        assert!(value::<bool>(&mut client, &sum), "{view}");
    }
    // The trigger at COMMIT runs in no statement.
    let at_commit = row(
        &mut client,
        "SELECT toplevel, caller_queryid IS NULL FROM pg_stat_rowsource_plans WHERE query LIKE '%AS committed%'",
    );
    assert_eq!(at_commit, ["t", "t"]);
    let copied = row(
        &mut client,
        "SELECT p.rows, n.operation, n.rows FROM pg_stat_rowsource_plans p JOIN pg_stat_rowsource n USING (queryid, planid)
          WHERE query LIKE 'COPY%'",
    );
    assert_eq!(copied, ["2", "COPY", "0"]);
    assert!(
        texts(
            &mut client,
            "SELECT * FROM rowsource_misestimates WHERE operation IN ('CALL', 'DO', 'COPY')"
        )
        .is_empty()
    );
}

#[test]
fn with_track_top_only_call_do_and_commit_have_rows() {
    let server = server("callers-top", "top");
    let mut client = server.connect();
    load(&mut client);
    let rows = texts(
        &mut client,
        "SELECT n.operation, p.calls, p.failed_calls, p.toplevel, p.total_time > 50
           FROM pg_stat_rowsource_plans p JOIN pg_stat_rowsource n USING (queryid, planid)
          WHERE n.operation NOT IN ('Result', 'Insert') ORDER BY 1, 3, p.query",
    );
    let rows: Vec<String> = rows
        .into_iter()
        .map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "CALL 1 0 t t",
        "CALL 1 0 t t",
        "CALL 1 1 t t",
        "COMMIT 1 0 t f",
        "DO 1 0 t t",
        "DO 1 0 t t",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn evicted_callers_and_evicted_callees_are_summed_up_apart() {
    let server = basic_server("callers-evicted", &["pg_rowsource.max_plans = 100"]);
    let mut client = server.connect();
    let begin = Instant::now();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.track = 'all'",
    );
    for n in 0..5 {
        run(
            &mut client,
            &format!(
                "DO 'BEGIN FOR n IN 1 .. 60 LOOP EXECUTE ''SELECT {n}'' || repeat('', n'', n + 60 * {n}) || '' FROM (SELECT 1 AS n) s'';
                 END LOOP; END'"
            ),
        );
    }
    let columns = |n: usize| "n, ".repeat(n);
    for n in 1..=200 {
        run_each(
            &mut client,
            &format!("SELECT {}n AS top FROM (SELECT 1 AS n) s", columns(n)),
        );
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let elapsed = begin.elapsed().as_secs_f64() * 1e3;
    let others = texts(
        &mut client,
        "SELECT toplevel, calls > 100, datname FROM pg_stat_rowsource_plans WHERE query = 'others' ORDER BY 1",
    );
    let expected = ["f", "t"].map(|toplevel| {
        [toplevel, "t", "postgres"]
            .map(|text| Some(text.to_owned()))
            .to_vec()
    });
    assert_eq!(others, expected);
    let top = row(
        &mut client,
        &format!(
            "SELECT sum(calls), sum(total_time) < {elapsed} FROM pg_stat_rowsource_plans WHERE toplevel"
        ),
    );
    assert_eq!(top, ["205", "t"]);
    let percents = row(
        &mut client,
        "SELECT sum(percent) BETWEEN 90 AND 110, count(*) FILTER (WHERE query = 'others')
           FROM rowsource_top_statements",
    );
    assert_eq!(percents, ["t", "1"]);
}

#[test]
fn their_literals_are_not_stored() {
    let server = server("callers-literals", "all");
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; CALL steps(424242)",
    );
    run(
        &mut client,
        "DO $$BEGIN PERFORM f(424242), 'sesame', $a$sesame$a$; FOR i IN 1..424242 LOOP EXIT; END LOOP; END$$",
    );
    run(
        &mut client,
        "DO LANGUAGE plpgsql 'BEGIN PERFORM f(424242), ''sesame''; END'",
    );
    run(&mut client, "DO E'BEGIN PERFORM f(424242), \\'sesame\\'; END'");
    run(&mut client, "COPY fired FROM PROGRAM 'echo 424242'");
    let stored = texts(
        &mut client,
        "SELECT query FROM pg_stat_rowsource_plans WHERE query ~* '^(DO|CALL|COPY)' AND toplevel ORDER BY query COLLATE \"C\"",
    );
    let stored: Vec<String> = stored.into_iter().flatten().flatten().collect();
    assert_eq!(
        stored,
        [
            "CALL steps($1)",
            "COPY fired FROM PROGRAM $1",
            "DO $$BEGIN PERFORM f($1), $2, $3; FOR i IN $4..$5 LOOP EXIT; END LOOP; END$$",
            "DO $1",
            "DO LANGUAGE plpgsql 'BEGIN PERFORM f($1), $2; END'",
        ]
    );
    run(
        &mut client,
        "SET pg_rowsource.keep_constants = on; SELECT rowsource_reset()",
    );
    run(&mut client, "DO 'BEGIN PERFORM f(424242), ''sesame''; END'");
    let kept: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query = 'DO ''BEGIN PERFORM f(424242), ''''sesame''''; END'''",
    );
    assert_eq!(kept, 1);
}

#[test]
fn settings_apply_to_them() {
    let server = server("callers-settings", "all");
    let mut client = server.connect();
    let known = "SELECT n.starts, n.total_time IS NOT NULL, n.shared_blks_hit > 0, p.sampfreq
                   FROM pg_stat_rowsource_plans p JOIN pg_stat_rowsource n USING (queryid, planid) WHERE n.operation = 'CALL'";
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = basic; CALL steps(1)",
    );
    assert!(texts(&mut client, known).is_empty());
    for (settings, expected) in [
        ("SET pg_rowsource.sampfreq = 128", ["1", "t", "t", "128"]),
        ("SET pg_rowsource.sampfreq = 0", ["1", "f", "t", "0"]),
        ("SET pg_rowsource.sampfreq = 3", ["", "f", "", "3"]),
    ] {
        run_each(&mut client, &format!("SELECT rowsource_reset(); {settings}"));
        // The hint is for the CALL alone.
        run_each(&mut client, "CALL /*+ gather_plan_statistics */ steps(1)");
        assert_eq!(row(&mut client, known), expected, "{settings}");
    }
    run_each(
        &mut client,
        "SELECT rowsource_reset(); RESET pg_rowsource.sampfreq; SET compute_query_id = off;
         SET pg_rowsource.statistics_level = typical; CALL steps(1); SET pg_rowsource.statistics_level = basic",
    );
    let callers = row(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans c JOIN pg_stat_rowsource_plans n ON n.caller_queryid = c.queryid
          WHERE c.query LIKE 'CALL%'",
    );
    assert_eq!(callers, ["3"]);
}

/// Everything that shows plans works for a plan that is only a statement's name.
#[test]
fn they_can_be_shown_exported_and_kept() {
    let mut server = server("callers-shown", "top");
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; CALL steps(1); SELECT rowsource_snapshot(); CALL steps(1);
         SELECT rowsource_snapshot()",
    );
    let ids = "(SELECT queryid, planid FROM pg_stat_rowsource_plans WHERE query LIKE 'CALL%') p";
    for shown in ["display", "folded", "speedscope", "html"] {
        let lines = texts(
            &mut client,
            &format!("SELECT line FROM {ids}, rowsource_{shown}(queryid, planid) line"),
        );
        assert!(
            lines.iter().flatten().flatten().any(|line| line.contains("CALL")),
            "{shown}: {lines:?}"
        );
    }
    let history: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_interval_plans WHERE query LIKE 'CALL%' AND calls = 1",
    );
    assert_eq!(history, 1, "between the snapshots");
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    let calls: i64 = value(
        &mut client,
        "SELECT calls FROM pg_stat_rowsource_plans WHERE query = 'CALL steps($1)'",
    );
    assert_eq!(calls, 2);
    server.assert_no_crash();
}
