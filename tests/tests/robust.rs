//! With all features on and every call timed: no crash, no leak, and the same results as without measuring.

use postgres::{Client, SimpleQueryMessage};
use rowsource_tests::measured::assert_consistent_times;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::{Server, measure, schema};
use rowsource_tests::{cases, process};

const EVERYTHING: &str =
    "SET pg_rowsource.statistics_level = 'all'; SET pg_rowsource.sampfreq = 1; SET pg_rowsource.track = 'all';
    SET pg_rowsource.explain = on";

fn rows(client: &mut Client, statement: &str) -> Vec<Vec<Option<String>>> {
    let messages = client
        .simple_query(statement)
        .unwrap_or_else(|error| panic!("{statement}\n{error:?}"));
    let mut rows: Vec<Vec<Option<String>>> = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|i| row.get(i).map(String::from)).collect())
            }
            _ => None,
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn results_are_those_of_an_unmeasured_session() {
    let server = Server::preloaded("robust", &[]);
    schema::create(&server);
    // The rows of these statements depend on the order or timing of the processes.
    let by_chance = [
        "CTE read in part",
        "limit and offset",
        "lock rows that are skipped",
    ];
    for case in cases::all().filter(|case| !by_chance.contains(&case.name)) {
        let run = |settings: &str| {
            let mut client = server.session();
            run_each(&mut client, settings);
            run_each(&mut client, case.settings);
            run_each(&mut client, case.reset);
            let result = rows(&mut client, case.statement);
            if settings == EVERYTHING {
                run_each(
                    &mut client,
                    "SELECT rowsource_display(); SELECT count(*) FROM pg_stat_rowsource",
                );
            }
            result
        };
        assert_eq!(
            run("SET pg_rowsource.statistics_level = basic"),
            run(EVERYTHING),
            "{}",
            case.name
        );
    }
    server.assert_no_crash();
}

#[test]
fn every_sampling_rate_gives_consistent_times() {
    let server = Server::preloaded("rates", &[]);
    schema::create(&server);
    for case in cases::all().filter(|case| !case.parallel && case.reset.is_empty()) {
        let mut client = server.session();
        run_each(&mut client, case.settings);
        for sampfreq in [1, 2, 128] {
            run_each(&mut client, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
            let nodes = measure(&mut client, case.statement);
            assert_consistent_times(&nodes, &format!("{} at {sampfreq}", case.name));
            assert!(
                nodes.iter().all(|node| node.backsteps == 0),
                "{} at {sampfreq}: this clock does not step back: {nodes:#?}",
                case.name
            );
        }
        for (sampfreq, counted) in [(0, true), (3, false)] {
            run_each(
                &mut client,
                &format!("SET client_min_messages = error; SET pg_rowsource.sampfreq = {sampfreq}"),
            );
            let nodes = measure(&mut client, case.statement);
            assert!(
                nodes.iter().all(|node| node.total_ms.is_none()),
                "{} at {sampfreq} has times",
                case.name
            );
            let starts = nodes.iter().all(|node| node.starts.is_some());
            assert_eq!(starts, counted, "{} at {sampfreq}: starts", case.name);
        }
    }
}

const MIXED: &str = "
    CREATE TABLE n AS SELECT i AS id, i::text AS pad FROM generate_series(1, 50) i; CREATE INDEX ON n (id); ANALYZE n;
    CREATE FUNCTION inner_statements(k int) RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE r record; s bigint = 0; BEGIN
        FOR r IN SELECT id FROM n WHERE id <= k LOOP s = s + r.id; END LOOP;
        BEGIN PERFORM 1 / (id - 30) FROM n; EXCEPTION WHEN division_by_zero THEN s = s + 1; END;
        RETURN s + (SELECT count(*) FROM n);
    END$$;
    PREPARE p(int) AS SELECT count(*) FROM n WHERE id > $1";

/// The statements of one round, and whether each must fail.
const ROUND: [(&str, bool); 19] = [
    (
        "SELECT count(*) FROM n a JOIN n b USING (id) WHERE a.id < 40",
        false,
    ),
    ("SELECT 1 / (id - 30) FROM n", true),
    (
        "SELECT id % 7, count(*), max(pad) FROM n GROUP BY 1 ORDER BY 2",
        false,
    ),
    ("EXECUTE p(10)", false),
    ("SELECT inner_statements(20)", false),
    // The timeout ends with the transaction: on a slow machine it would end the statement that resets it,
    // too.
    (
        "BEGIN; SET LOCAL statement_timeout = '1ms'; SELECT count(*) FROM n WHERE pg_sleep(1) IS NULL",
        true,
    ),
    ("ROLLBACK", false),
    ("BEGIN", false),
    ("DECLARE c CURSOR FOR SELECT * FROM n ORDER BY pad", false),
    ("FETCH 5 FROM c", false),
    ("DECLARE left_open CURSOR FOR SELECT a.id FROM n a, n b", false),
    ("FETCH 5 FROM left_open", false),
    ("CLOSE c", false),
    ("UPDATE n SET pad = pad WHERE id = 7 RETURNING id", false),
    ("ROLLBACK", false),
    ("EXPLAIN (ANALYZE) SELECT * FROM n WHERE id = 3", false),
    ("SELECT no_such_column FROM n", true),
    ("INSERT INTO n SELECT 1 / (id - 50), pad FROM n", true),
    (
        "SELECT * FROM n a WHERE EXISTS (SELECT FROM n b WHERE b.id = a.id + 1)",
        false,
    ),
];

/// Returns the growth of a session's private memory in bytes while it runs this many statements. This
/// includes Rust's heap, which PostgreSQL's memory contexts do not show.
fn growth(server: &Server, settings: &str, statements: usize) -> i64 {
    let mut client = server.connect();
    client
        .batch_execute(MIXED)
        .unwrap_or_else(|error| panic!("{error:?}"));
    run_each(&mut client, settings);
    let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
    let mut run = |statements: usize| {
        for _ in 0..statements / ROUND.len() {
            for (statement, fails) in ROUND {
                let failed = client.simple_query(statement).is_err();
                assert_eq!(failed, fails, "{statement}");
            }
        }
        process::private_bytes(pid as u32) as i64
    };
    // These runs allocate everything that the session keeps.
    let before = run(statements / 10);
    run(statements) - before
}

#[test]
fn memory_does_not_grow_with_executions() {
    const STATEMENTS: usize = 8_000;
    const MAX_GROWTH: i64 = 100_000;
    let settings = ["jit = off", "max_parallel_workers_per_gather = 0"];
    let server = Server::preloaded("leak", &settings);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let with = growth(&server, EVERYTHING, STATEMENTS);
    let without = growth(&Server::start("leak-without", &settings), "SELECT 1", STATEMENTS);
    println!("in {STATEMENTS} statements a session grew by {with} bytes, without the library by {without}");
    assert!(
        with - without <= MAX_GROWTH,
        "a session grew by {with} bytes in {STATEMENTS} statements, without the library by {without}"
    );
}
