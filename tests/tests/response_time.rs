//! How long clients wait for statements: before the executor runs, in it, and for the commit. The parts do
//! not overlap, so they are never more than what the client measures, and each is at least as long as what
//! was waited for in it.

use postgres::Client;
use postgres::types::ToSql;
use rowsource_tests::Server;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each, value};
use rowsource_tests::store::{basic_server, measuring};
use rowsource_tests::waiting::{pid, until, until_waiting};
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const HELD: Duration = Duration::from_millis(400);
const OBJECTS: &str = "
    CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 100) i; ANALYZE t;
    CREATE TABLE written (id int); CREATE TABLE late (id int);
    CREATE FUNCTION nap() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM pg_sleep(0.4); RETURN 7; END';
    CREATE FUNCTION count_t() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM t WHERE id > 3); END';
    CREATE FUNCTION nap_late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap_late()";

fn server(name: &str, settings: &[&str]) -> Server {
    let server = basic_server(name, settings);
    run_each(&mut server.connect(), OBJECTS);
    server
}

/// Milliseconds of all executions of statements.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    calls: i64,
    response: f64,
    max_response: f64,
    before: f64,
    execution: f64,
    commit: f64,
}

impl Times {
    /// Returns those of the statements that clients sent with texts like this.
    fn of(observer: &mut Client, like: &str) -> Times {
        let sql = "SELECT coalesce(sum(calls), 0)::bigint, coalesce(sum(response_time), 0), coalesce(max(max_response_time), 0),
                          coalesce(sum(before_time), 0), coalesce(sum(total_time), 0), coalesce(sum(commit_time), 0)
                     FROM pg_stat_rowsource_plans WHERE query LIKE $1 AND toplevel";
        let row = observer.query_one(sql, &[&like]).expect("times");
        let times = Times {
            calls: row.get(0),
            response: row.get(1),
            max_response: row.get(2),
            before: row.get(3),
            execution: row.get(4),
            commit: row.get(5),
        };
        println!("{like}: {times:?}");
        let parts = times.before + times.execution + times.commit;
        assert!((parts - times.response).abs() < 1e-6, "{times:?}");
        assert!(times.max_response <= times.response + 1e-6, "{times:?}");
        times
    }
}

/// Runs something in a session that must wait for the table t, which another one keeps that long. Returns the
/// session, and how long it ran.
fn while_locked(
    observer: &mut Client,
    mut client: Client,
    run: impl FnOnce(&mut Client) + Send + 'static,
) -> (Client, f64) {
    let id = pid(&mut client);
    run_each(observer, "BEGIN; LOCK TABLE t");
    let session = spawn(move || {
        let start = Instant::now();
        run(&mut client);
        let ran = start.elapsed();
        (client, ran)
    });
    until_waiting(observer, id, "relation");
    sleep(HELD);
    run_each(observer, "COMMIT");
    let (client, ran) = session.join().expect("the session");
    (client, ms(ran))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Fails unless a time is at least as long as what was waited for, and at most as long as the client waited.
/// Clocks may differ a little.
fn assert_between(time: f64, at_most: f64) {
    assert!(
        (0.99 * ms(HELD)..1.01 * at_most + 1.0).contains(&time),
        "{time} is not between {HELD:?} and {at_most}"
    );
}

#[test]
fn a_wait_for_the_table_is_a_part_of_the_response_time() {
    let server = server("response-lock", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan; PREPARE p AS SELECT sum(id) FROM t; EXECUTE p; EXECUTE p",
    );
    let prepared = client
        .prepare("SELECT max(id) FROM t WHERE id < $1")
        .expect("it is prepared");
    let changes = client
        .prepare("DELETE FROM t WHERE id = $1")
        .expect("it is prepared");
    for _ in 0..2 {
        client.query(&prepared, &[&7]).expect("rows");
        client.query(&changes, &[&1007]).expect("rows");
    }
    type Run = Box<dyn FnOnce(&mut Client) + Send>;
    let cases: [(&str, Run); 8] = [
        (
            "SELECT count(*) FROM t%",
            Box::new(|client| run_each(client, "SELECT count(*) FROM t")),
        ),
        ("%sum(id)%", Box::new(|client| run_each(client, "EXECUTE p"))),
        (
            "%max(id)%",
            Box::new(move |client| drop(client.query(&prepared, &[&7]).expect("rows"))),
        ),
        (
            "DELETE%",
            Box::new(move |client| drop(client.query(&changes, &[&1007]).expect("rows"))),
        ),
        (
            "SELECT min(id)%",
            Box::new(|client| drop(client.query("SELECT min(id) FROM t WHERE id < $1", &[&7]))),
        ),
        (
            "%SELECT id * %",
            Box::new(|client| {
                run_each(client, "BEGIN; DECLARE c CURSOR FOR SELECT id * 5 FROM t");
                run_each(client, "FETCH 3 FROM c; FETCH 3 FROM c; CLOSE c; COMMIT");
            }),
        ),
        (
            "%SELECT id - %",
            Box::new(|client| run_each(client, "CREATE TABLE made AS SELECT id - 6 FROM t")),
        ),
        (
            "INSERT INTO written%",
            Box::new(|client| drop(client.execute("INSERT INTO written SELECT id FROM t", &[]))),
        ),
    ];
    for (like, run) in cases {
        let earlier = Times::of(&mut observer, like);
        let ran;
        (client, ran) = while_locked(&mut observer, client, run);
        let times = Times::of(&mut observer, like);
        assert_eq!(times.calls, earlier.calls + 1);
        assert_between(times.before - earlier.before, ran);
        assert!(times.response - earlier.response <= 1.01 * ran + 1.0, "{ran}");
        assert!(times.max_response >= 0.99 * ms(HELD));
        assert!(times.execution < times.response - 0.99 * ms(HELD));
    }
}

/// Returns the line of a display that has the response time.
fn response_line(client: &mut Client, arguments: &str) -> String {
    let lines = first_column(client, &format!("SELECT rowsource_display({arguments})"));
    let found = lines.iter().find(|line| line.starts_with("response "));
    found.unwrap_or_else(|| panic!("{lines:#?}")).clone()
}

/// Returns the number in front of the unit that follows a word.
fn number(line: &str, word: &str) -> f64 {
    let rest = line.split(word).nth(1).unwrap_or_else(|| panic!("{line}"));
    let number = rest.trim_start().split(' ').next().expect("a number");
    number.parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn the_slowest_execution_is_the_one_that_the_client_waited_for_longest() {
    let server = server("response-slowest", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    let statement = "SELECT count(*) FROM t, pg_sleep(0.1) WHERE id < 50";
    run_each(&mut client, statement);
    let ran;
    (client, ran) = while_locked(&mut observer, client, move |client| run_each(client, statement));
    run_each(&mut client, statement);
    let ids: String = value(
        &mut client,
        "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()",
    );
    let line = response_line(&mut client, &format!("{ids}, format => 'SLOWEST'"));
    println!("{line}");
    assert_between(number(&line, "before"), ran);
    assert_between(number(&line, "response"), ran);
    assert!(number(&line, "execution") >= 99.0, "{line}");
    // The commit counts too, when it is known.
    run_each(
        &mut client,
        "INSERT INTO late VALUES (1); INSERT INTO written VALUES (1)",
    );
    let ids: String = value(
        &mut observer,
        "SELECT format('%s, %s', queryid, planid) FROM pg_stat_rowsource_plans WHERE query LIKE 'INSERT INTO late%'",
    );
    let line = response_line(&mut client, &format!("{ids}, format => 'SLOWEST'"));
    println!("{line}");
    assert!(number(&line, "commit") >= 0.99 * ms(HELD), "{line}");
    assert!(number(&line, "execution") < number(&line, "response") - 0.99 * ms(HELD));
}

#[test]
fn planning_is_a_part_of_the_response_time() {
    let server = server("response-planning", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    let start = Instant::now();
    run_each(&mut client, "SELECT count(*) FROM t WHERE id < nap()");
    let ran = ms(start.elapsed());
    let times = Times::of(&mut observer, "SELECT count(*) FROM t WHERE id < nap()");
    assert_between(times.before, ran);
    assert_between(times.response, ran);
}

#[test]
fn a_slow_commit_belongs_to_its_statement_or_to_commit() {
    let server = server("response-commit", &["max_prepared_transactions = 2"]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    let started = Instant::now();
    run_each(&mut client, "INSERT INTO late VALUES (1)");
    let ran = ms(started.elapsed());
    // It is recorded by the next statement, whatever that is.
    run_each(&mut client, "SET work_mem = '4MB'");
    let times = Times::of(&mut observer, "INSERT INTO late VALUES%");
    assert_between(times.commit, ran);
    assert_between(times.max_response, ran);
    assert!(times.response <= ran + 1.0, "{ran}");
    // In a block, it belongs to COMMIT.
    let start = Instant::now();
    run_each(
        &mut client,
        "BEGIN; INSERT INTO late SELECT 2; DECLARE c CURSOR FOR SELECT 3 AS open; FETCH c; COMMIT; SELECT 1 AS next",
    );
    let ran = ms(start.elapsed());
    let inserted = Times::of(&mut observer, "INSERT INTO late SELECT%");
    assert_eq!((inserted.calls, inserted.commit), (1, 0.0));
    assert_eq!(Times::of(&mut observer, "%AS open%").commit, 0.0);
    let commit = Times::of(&mut observer, "COMMIT");
    assert_eq!(commit.calls, 1);
    assert_between(commit.commit, ran);
    assert_eq!(Times::of(&mut observer, "SELECT 1 AS next").commit, 0.0);
    // A procedure whose transaction ends with it.
    run_each(
        &mut observer,
        "CREATE PROCEDURE writes() LANGUAGE plpgsql AS 'BEGIN COMMIT; INSERT INTO late VALUES (3); END'",
    );
    run_each(&mut client, "CALL writes(); SELECT 1 AS next");
    assert!(Times::of(&mut observer, "CALL writes()").commit >= 0.99 * ms(HELD));
    // Nothing is committed.
    run_each(
        &mut client,
        "BEGIN; INSERT INTO late SELECT 4; ROLLBACK; SELECT 1 AS next",
    );
    assert_eq!(Times::of(&mut observer, "INSERT INTO late SELECT%").commit, 0.0);
    assert_eq!(Times::of(&mut observer, "ROLLBACK").calls, 0);
    // COMMIT after an error is a ROLLBACK.
    run_each(&mut client, "BEGIN");
    must_fail(&mut client, "SELECT 1 / 0");
    run_each(&mut client, "COMMIT; SELECT 1 AS next");
    assert_eq!(Times::of(&mut observer, "COMMIT").calls, 1);
    // Prepared transactions.
    run_each(
        &mut client,
        "BEGIN; INSERT INTO late SELECT 5; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'; SELECT 1 AS next",
    );
    assert!(Times::of(&mut observer, "PREPARE TRANSACTION%").commit >= 0.99 * ms(HELD));
    assert_eq!(Times::of(&mut observer, "COMMIT PREPARED%").calls, 1);
    // In the extended protocol.
    let start = Instant::now();
    let insert = client
        .prepare("INSERT INTO late VALUES ($1)")
        .expect("it is prepared");
    let earlier = Times::of(&mut observer, "INSERT INTO late VALUES%");
    client.execute(&insert, &[&5]).expect("it is inserted");
    let ran = ms(start.elapsed());
    run_each(&mut client, "SELECT 1 AS next");
    let times = Times::of(&mut observer, "INSERT INTO late VALUES%");
    assert_eq!(times.calls, earlier.calls + 1);
    assert_between(times.commit - earlier.commit, ran);
    let id = queryid(&mut observer, "COMMIT");
    let line = response_line(&mut observer, &format!("{id}, format => 'SLOWEST'"));
    assert!(number(&line, "commit") >= 0.99 * ms(HELD), "{line}");
}

/// The commit of a statement is recorded with the next execution of its plan, or when a statement of another
/// plan starts.
#[test]
fn commits_of_a_repeated_statement_add_up() {
    const INSERTS: &str = "%INSERT INTO plain%";
    let server = server("response-repeated", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    run_each(&mut observer, "CREATE TABLE plain (id int)");
    run_each(&mut client, "PREPARE i AS INSERT INTO plain VALUES (1)");
    for _ in 0..20 {
        run_each(&mut client, "EXECUTE i");
    }
    let first = Times::of(&mut observer, INSERTS);
    run_each(&mut client, "EXECUTE i");
    let repeated = Times::of(&mut observer, INSERTS);
    assert_eq!((first.calls, repeated.calls), (20, 21));
    assert!(repeated.commit > first.commit, "{first:?}, {repeated:?}");
    run_each(&mut client, "SELECT 1 AS next");
    let ended = Times::of(&mut observer, INSERTS);
    assert_eq!(ended.calls, 21);
    assert!(ended.commit > repeated.commit, "{repeated:?}, {ended:?}");
    // The session itself sees the commit of its last statement.
    run_each(&mut client, "EXECUTE i");
    let own = Times::of(&mut client, INSERTS);
    assert_eq!(own, Times::of(&mut observer, INSERTS));
    assert!(own.commit > ended.commit, "{ended:?}, {own:?}");
}

/// A folded plan may have other nodes than the plan: a partition that is left alone gets an Append. The
/// session knows short executions by their counts, which are of the plan's nodes.
#[test]
fn commits_of_lookups_in_a_partition_are_not_lost() {
    const LOOKUP: &str = "SELECT id FROM p WHERE id = 1";
    const CALLS: i64 = 20;
    let server = server("response-partitions", &[]);
    let (mut observer, mut client) = (server.connect(), server.connect());
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    run_each(
        &mut observer,
        "CREATE TABLE p (id int) PARTITION BY LIST (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
         INSERT INTO p VALUES (1), (2); ANALYZE p; CREATE TABLE shortly (id int);
         CREATE FUNCTION nap_shortly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER shortly AFTER INSERT ON shortly DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
             EXECUTE FUNCTION nap_shortly()",
    );

    for _ in 0..CALLS {
        // Both are one transaction, and the lookup is its last statement.
        let sql = format!("INSERT INTO shortly VALUES (1); {LOOKUP}");
        client.batch_execute(&sql).expect("it is committed");
        run_each(&mut client, "SET work_mem = '4MB'");
    }
    let times = Times::of(&mut observer, LOOKUP);
    assert_eq!(times.calls, CALLS);
    assert!(times.commit >= 9.9 * CALLS as f64, "{times:?}");
}

fn queryid(observer: &mut Client, text: &str) -> i64 {
    value(
        observer,
        &format!("SELECT queryid FROM pg_stat_rowsource_plans WHERE query = '{text}' LIMIT 1"),
    )
}

#[test]
fn a_wait_for_a_standby_is_a_part_of_the_commit() {
    let server = server(
        "response-standby",
        &[
            "synchronous_standby_names = 'nobody'",
            "synchronous_commit = 'local'",
        ],
    );
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    run_each(&mut client, "SET synchronous_commit = on");
    let id = pid(&mut client);
    let session = spawn(move || {
        let start = Instant::now();
        run_each(&mut client, "INSERT INTO written VALUES (1)");
        (client, ms(start.elapsed()))
    });
    until_waiting(&mut observer, id, "SyncRep");
    sleep(HELD);
    run_each(
        &mut observer,
        "ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf()",
    );
    let (client, ran) = session.join().expect("the session");
    // The session sends nothing more. Its end records it.
    drop(client);
    until(
        &mut observer,
        &format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {id})"),
    );
    let times = Times::of(&mut observer, "INSERT INTO written%");
    assert_between(times.commit, ran);
    assert!(times.response <= 1.01 * ran + 1.0);
}

#[test]
fn statements_of_one_message_do_not_overlap() {
    let server = server("response-message", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    let start = Instant::now();
    client
        .batch_execute(
            "SELECT 'a', pg_sleep(0.4); SET work_mem = '4MB'; SELECT 'b', pg_sleep(0.4);
             BEGIN; LOCK TABLE t; SELECT 'c', count(*) FROM t, pg_sleep(0.4); INSERT INTO late VALUES (1); COMMIT",
        )
        .expect("it runs");
    let ran = ms(start.elapsed());
    run_each(&mut client, "SET work_mem = '5MB'");
    let all = Times::of(&mut observer, "%");
    assert!(all.calls >= 5, "{all:?}");
    assert!(
        (0.99 * 4.0 * ms(HELD)..1.01 * ran + 1.0).contains(&all.response),
        "{ran}"
    );
}

#[test]
fn unmeasured_statements_of_the_same_message_are_in_no_other() {
    let server = server("response-unmeasured", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    let own = "SELECT count(*), pg_sleep(0.4) FROM rowsource_trace_files()";
    for (message, like) in [
        (format!("{own}; SELECT 'after'"), "SELECT 'after'"),
        (format!("INSERT INTO written VALUES (1); {own}"), "INSERT INTO written%"),
        (
            "SET pg_rowsource.statistics_level = basic; SELECT pg_sleep(0.4); SELECT /*+ gather_plan_statistics */ 1 AS hinted".into(),
            "%hinted%",
        ),
    ] {
        client.batch_execute(&message).expect("it runs");
        run_each(&mut client, "SET work_mem = '4MB'");
        let times = Times::of(&mut observer, like);
        assert!(times.calls == 1 && times.response < ms(HELD), "{times:?}");
    }
}

/// Executes prepared statements that sleep, each with a parameter, without waiting for the results of those
/// before.
async fn pipeline(server: &Server, seconds: &[f64]) -> Duration {
    let mut config = tokio_postgres::Config::new();
    config
        .host_path(server.folder())
        .user("postgres")
        .dbname("postgres");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.expect("a session");
    tokio::spawn(connection);
    client
        .batch_execute("SET pg_rowsource.statistics_level = 'typical'")
        .await
        .expect("it is set");
    let statement = client
        .prepare("SELECT 'piped', pg_sleep($1)")
        .await
        .expect("it is prepared");
    let start = Instant::now();
    let parameters: Vec<[&(dyn ToSql + Sync); 1]> = seconds
        .iter()
        .map(|second| [second as &(dyn ToSql + Sync)])
        .collect();
    let mut sent: Vec<_> = parameters
        .iter()
        .map(|parameter| Box::pin(client.query(&statement, parameter)))
        .collect();
    // The first poll of each sends it.
    poll_fn(|context| {
        sent.retain_mut(|query| query.as_mut().poll(context).is_pending());
        if sent.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    start.elapsed()
}

#[test]
fn statements_in_a_pipeline_do_not_overlap() {
    let server = server("response-pipeline", &[]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let ran = ms(runtime.block_on(pipeline(&server, &[0.2; 4])));
    let times = Times::of(&mut server.connect(), "%piped%");
    assert_eq!(times.calls, 4);
    assert!(
        (0.99 * 800.0..1.01 * ran + 1.0).contains(&times.response),
        "{ran}"
    );
}

#[test]
fn the_time_between_the_fetches_of_a_cursor_is_the_clients() {
    let server = server("response-cursor", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    let start = Instant::now();
    let mut transaction = client.transaction().expect("a transaction");
    let portal = transaction
        .bind("SELECT id, 'portal' FROM t", &[])
        .expect("a portal");
    let mut slept = Duration::ZERO;
    for _ in 0..3 {
        let before = Instant::now();
        sleep(HELD);
        slept += before.elapsed();
        assert_eq!(transaction.query_portal(&portal, 7).expect("rows").len(), 7);
    }
    drop(portal);
    transaction.commit().expect("it commits");
    let ran = ms(start.elapsed() - slept);
    run_each(&mut client, "SELECT 1 AS next");
    let all = Times::of(&mut observer, "%");
    assert!(all.response <= 1.01 * ran + 1.0, "{ran}");
    assert_eq!(Times::of(&mut observer, "%portal%").calls, 1);
}

#[test]
fn statements_in_functions_and_those_that_fail() {
    let server = server("response-nested", &["pg_rowsource.track = 'all'"]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    run_each(&mut client, "SELECT count_t()");
    let nested: bool = value(
        &mut observer,
        "SELECT bool_and(response_time IS NULL AND max_response_time IS NULL AND before_time IS NULL AND commit_time IS NULL)
           FROM pg_stat_rowsource_plans WHERE NOT toplevel",
    );
    assert!(nested);
    let sent: bool = value(
        &mut observer,
        "SELECT bool_and(response_time > total_time) FROM pg_stat_rowsource_plans WHERE query = 'SELECT count_t()'",
    );
    assert!(sent);
    let ran;
    (client, ran) = while_locked(&mut observer, client, |client| {
        let (_, message) = must_fail(client, "SELECT 1 / (id - 7) FROM t");
        assert!(message.contains("zero"), "{message}");
    });
    let times = Times::of(&mut observer, "SELECT 1 / (id%");
    assert_between(times.before, ran);
    assert_eq!(times.commit, 0.0);
    let id: i64 = value(&mut client, "SELECT queryid FROM rowsource_last()");
    let line = response_line(&mut client, &format!("{id}, format => 'FAILED'"));
    assert_between(number(&line, "before"), ran);
}

#[test]
fn a_restart_keeps_the_response_times() {
    let mut server = server("response-restart", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    run_each(&mut client, "INSERT INTO late VALUES (1); SELECT 1 AS next");
    let before = Times::of(&mut observer, "INSERT INTO late%");
    assert!(before.commit >= 0.99 * ms(HELD));
    drop((observer, client));
    server.stop();
    server.launch();
    let mut observer = server.connect();
    let after = Times::of(&mut observer, "INSERT INTO late%");
    assert_eq!(after.response, before.response);
    assert_eq!((after.before, after.commit), (before.before, before.commit));
    run_each(&mut observer, "SELECT rowsource_reset()");
    assert_eq!(Times::of(&mut observer, "INSERT INTO late%").calls, 0);
}
