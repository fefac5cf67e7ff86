//! The ring of executions that took long, failed or were cancelled.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, must_time_out, run_each, texts, value};
use rowsource_tests::store::{basic_server, measuring};

/// Starts a server with a table.
fn server(name: &str, settings: &[&str]) -> Server {
    let server = basic_server(name, settings);
    run_each(
        &mut server.connect(),
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 1000) i; ANALYZE n; GRANT SELECT ON n TO PUBLIC",
    );
    server
}

/// Returns how many executions of a role are in the ring, of those that a condition selects.
fn count(client: &mut Client, usename: &str, condition: &str) -> i64 {
    value(
        client,
        &format!("SELECT count(*) FROM rowsource_executions WHERE usename = '{usename}' AND {condition}"),
    )
}

#[test]
fn long_failed_and_cancelled_executions_are_in_the_ring() {
    let server = server("executions", &[]);
    let mut client = measuring(&server);
    run_each(
        &mut client,
        "SET pg_rowsource.keep_parameters = on; SET application_name = 'shop'; SET plan_cache_mode = force_generic_plan;
         PREPARE q (int, float8, int) AS SELECT count(1 / $3) FROM pg_sleep($2), n WHERE id <= $1;
         EXECUTE q(100, 0.3, 1)",
    );
    let ids: String = value(
        &mut client,
        "SELECT format('%s %s', queryid, planid) FROM rowsource_last()",
    );
    run_each(&mut client, "EXECUTE q(200, 0.4, 1)");
    let (code, _) = must_fail(&mut client, "EXECUTE q(300, 0, 0)");
    assert_eq!(code, SqlState::DIVISION_BY_ZERO);
    must_time_out(&mut client, 200, "EXECUTE q(400, 60, 1)");
    let rows = texts(
        &mut client,
        &format!(
            "SELECT outcome, parameters::text, application_name, pid = pg_backend_pid(), datname, toplevel,
                    ended_at BETWEEN now() - interval '1 hour' AND clock_timestamp(), response_time >= total_time,
                    (SELECT sum((value->>'rows')::int) FROM jsonb_each(nodes) WHERE value->>'starts' = '1')
               FROM rowsource_executions WHERE format('%s %s', queryid, planid) = '{ids}' ORDER BY ended_at"
        ),
    );
    let expected = |outcome: &str, parameters: &str| {
        [outcome, parameters, "shop", "t", "postgres", "t", "t", "t"].map(|text| Some(text.to_owned()))
    };
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!(rows[0][..8], expected("completed", "{100,'0.3',1}"));
    assert_eq!(rows[1][..8], expected("completed", "{200,'0.4',1}"));
    assert_eq!(rows[2][..8], expected("failed", "{300,'0',0}"));
    assert_eq!(rows[3][..8], expected("cancelled", "{400,'60',1}"));
    // The aggregate, the join, the function and the table.
    assert_eq!(rows[0][8].as_deref(), Some("202"), "{rows:?}");
    let time = "SELECT min(total_time) >= 300 FROM rowsource_executions WHERE outcome = 'completed' AND parameters IS NOT NULL";
    assert!(value::<bool>(&mut client, time));

    // Others see that there are some, and what they took.
    run_each(&mut client, "CREATE ROLE other LOGIN");
    let mut other = server.try_connect("other").expect("a session");
    let seen = "SELECT count(*) >= 4 AND bool_and(total_time > 0) AND num_nulls(max(queryid), max(planid), max(pid),
                       max(application_name), max(nodes::text), max(parameters)) = 6 FROM rowsource_executions";
    assert!(value::<bool>(&mut other, seen));
    run_each(&mut client, "SELECT rowsource_reset()");
    assert_eq!(
        value::<i64>(&mut client, "SELECT count(*) FROM rowsource_executions"),
        0
    );
}

#[test]
fn a_role_does_not_push_out_another_one_and_few_enter() {
    // Eight executions.
    let server = server("executions_fair", &["pg_rowsource.executions_size = 32kB"]);
    let mut admin = server.connect();
    run_each(
        &mut admin,
        "CREATE ROLE quiet LOGIN; CREATE ROLE busy LOGIN; ALTER ROLE quiet SET pg_rowsource.statistics_level = typical;
         ALTER ROLE busy SET pg_rowsource.statistics_level = typical",
    );
    let mut quiet = server.try_connect("quiet").expect("a session");
    run_each(
        &mut quiet,
        "SELECT count(*) FROM n, pg_sleep(0.01); SELECT 1 FROM n, pg_sleep(0.02)",
    );
    assert_eq!(count(&mut admin, "quiet", "true"), 2);
    let mut busy = server.try_connect("busy").expect("a session");
    for i in 0..200 {
        must_fail(&mut busy, "SELECT 1 / (id - 1000) FROM n");
        run_each(&mut busy, &format!("SELECT id + {i} FROM n, pg_sleep(0.002)"));
    }
    assert_eq!(count(&mut admin, "quiet", "true"), 2);
    assert_eq!(count(&mut admin, "busy", "true"), 6);
    // One that is slower than all of them enters, unless too many did in this minute.
    run_each(&mut quiet, "SELECT id FROM n, pg_sleep(0.5)");
    assert_eq!(count(&mut admin, "quiet", "total_time > 500"), 1);
}

/// One that fails in a loop asks for the ring's lock no more often than it may keep an execution.
#[test]
fn a_session_that_fails_in_a_loop_asks_the_ring_seldom() {
    let server = server("executions_loop", &["pg_rowsource.track = all"]);
    let mut client = measuring(&server);
    let in_a_loop = "DO $$ BEGIN FOR i IN 1 .. 60 LOOP
             BEGIN PERFORM 1 / (id - 1000) FROM n; EXCEPTION WHEN division_by_zero THEN NULL; END;
         END LOOP; END $$";
    client.batch_execute(in_a_loop).expect("it catches the errors");
    let failed = "SELECT count(*) FROM rowsource_executions WHERE outcome = 'failed'";
    let seconds = "SELECT ceil(extract(epoch FROM max(last_seen_at) - min(first_seen_at)))::bigint
                     FROM pg_stat_rowsource_plans WHERE query LIKE '%1 / (id%'";
    let (failed, seconds): (i64, i64) = (value(&mut client, failed), value(&mut client, seconds));
    assert!(
        (1..=10 * (seconds + 1)).contains(&failed),
        "{failed} in {seconds} s"
    );
}

#[test]
fn without_memory_there_is_no_ring() {
    let server = server("executions_off", &["pg_rowsource.executions_size = 0"]);
    let mut client = measuring(&server);
    run_each(&mut client, "SELECT count(*) FROM n, pg_sleep(0.05)");
    assert_eq!(
        value::<i64>(&mut client, "SELECT count(*) FROM rowsource_executions"),
        0
    );
    let slowest =
        "SELECT count(*) FROM rowsource_explain((SELECT queryid FROM rowsource_last()), which => 'slowest')";
    assert!(value::<i64>(&mut client, slowest) > 0);
}

#[test]
fn the_commit_is_added_to_the_execution() {
    let server = server("executions_commit", &[]);
    let mut client = measuring(&server);
    run_each(
        &mut client,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON n INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait();
         SET pg_rowsource.keep_parameters = on; PREPARE q (int) AS INSERT INTO n SELECT $1 FROM pg_sleep(0.1);
         SELECT rowsource_reset(); EXECUTE q(5000); SELECT 1",
    );
    let rows = texts(
        &mut client,
        "SELECT parameters::text, commit_time >= 50, response_time >= total_time + commit_time FROM rowsource_executions
          WHERE parameters = '{5000}'",
    );
    let expected = ["{5000}", "t", "t"].map(|text| Some(text.to_owned()));
    assert_eq!(rows, [expected]);
}
