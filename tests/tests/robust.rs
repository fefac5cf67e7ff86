//! With everything on and every call timed: no crash, no leak, and the results of an unmeasured server.

use postgres::{Client, SimpleQueryMessage};
use rowsource_tests::cases;
use rowsource_tests::measured::assert_consistent_times;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::{Server, measure, schema};

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
    // These choose their rows by order or chance of the processes.
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
        for sampfreq in [1, 2, 16, 128, 1_000_000] {
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

/// The session's memory in bytes, of all its contexts.
fn memory(client: &mut Client) -> i64 {
    value(
        client,
        "SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts",
    )
}

#[test]
fn memory_does_not_grow_with_executions() {
    const EXECUTIONS: usize = 3000;
    let server = Server::preloaded("leak", &[]);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 50) i; ANALYZE n",
    );
    run_each(&mut client, EVERYTHING);
    let run = |client: &mut Client, times: usize| {
        for round in 0..times {
            client
                .simple_query("SELECT count(*) FROM n a JOIN n b USING (id) WHERE a.id < 40")
                .expect("a statement");
            if round % 5 == 0 {
                let _ = client.simple_query("SELECT 1 / (id - 30) FROM n");
            }
            if round % 100 == 0 {
                run_each(client, "SELECT rowsource_display()");
            }
        }
    };
    run(&mut client, EXECUTIONS / 3);
    let before = memory(&mut client);
    run(&mut client, EXECUTIONS);
    let grown = memory(&mut client) - before;
    println!("memory grew by {grown} bytes in {EXECUTIONS} executions");
    assert!(
        grown < 256 * 1024,
        "memory grew by {grown} bytes in {EXECUTIONS} executions"
    );
}
