//! The ring of samples keeps fewer moments for longer, and they stand for all. It survives a clean restart.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::history::worker;
use rowsource_tests::process::prefer;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::waiting::{pid, until};
use std::fs;

const FILE: &str = "pg_stat/pg_rowsource_ash.stat";

fn report(client: &mut Client) -> String {
    let lines = texts(client, "SELECT rowsource_ash_report()");
    let lines: Vec<String> = lines.into_iter().flatten().flatten().collect();
    lines.join("\n")
}

/// Averages and shares of an interval whose samples are of three tiers.
#[test]
fn shares_agree_with_exact_waits_across_tiers() {
    let server = Server::preloaded(
        "tiers-shares",
        &[
            "jit = off",
            "autovacuum = off",
            "max_parallel_workers_per_gather = 0",
            // The first tier has a second of one active session, the next one ten seconds.
            "pg_rowsource.history_size = 160kB",
        ],
    );
    let (mut session, mut observer) = (server.session(), server.connect());
    let id = pid(&mut session);
    let waited = format!(
        "SELECT coalesce(sum(wait_time), 0)::float8 FROM pg_stat_rowsource_session_waits WHERE pid = {id} AND wait_event = 'PgSleep'"
    );
    prefer(worker(&mut observer));
    let before: f64 = value(&mut session, &waited);
    // It sleeps for 11 ms and computes in turn, for a quarter of a minute. Later it sleeps longer.
    let times = session
        .query_one(
            "SELECT extract(epoch FROM min(began))::float8, extract(epoch FROM max(ended))::float8, count(slept), sum(computed)
             FROM (SELECT clock_timestamp() AS began, pg_sleep(0.001 * (i % 23) * (1 + i / 400)) AS slept,
                          (SELECT sum(sqrt(j)) FROM generate_series(1, 30000 + i) j) AS computed, clock_timestamp() AS ended
                   FROM generate_series(1, 800) i OFFSET 0) x",
            &[],
        )
        .expect("the work");
    let [from, to] = [0, 1].map(|column| times.get::<_, f64>(column));
    let after: f64 = value(&mut session, &waited);
    let row = observer
        .query_one(
            &format!(
                "SELECT count(*), sum(moments), coalesce(sum(moments) FILTER (WHERE wait_event = 'PgSleep'), 0),
                        count(DISTINCT moments > 1) + count(DISTINCT moments > 20), sum(moments * moments)
                 FROM rowsource_ash(to_timestamp({from})::text, to_timestamp({to})::text) WHERE pid = {id}"
            ),
            &[],
        )
        .expect("samples");
    let [samples, moments, asleep, kinds, squares] =
        [0, 1, 2, 3, 4].map(|column| row.get::<_, i64>(column) as f64);
    let exact = (after - before) / 1e3 / (to - from);
    let (share, sigma) = (
        asleep / moments,
        (exact * (1.0 - exact) * squares).sqrt() / moments,
    );
    let said = report(&mut observer);
    println!(
        "PgSleep: exact {exact:.4}, sampled {share:.4} of {samples} samples of {moments} moments in {:.1} s, one sigma {sigma:.4}\n{said}",
        to - from
    );
    assert!(kinds >= 3.0, "{kinds} kinds of samples");
    assert!(samples < moments / 3.0, "{samples} samples of {moments} moments");
    // Where the worker is not preferred, the session may have the processor at that moment.
    assert!(
        (share - exact).abs() < 5.0 * sigma + 0.1,
        "{share} is not {exact}"
    );
    // The worker samples a hundred times a second, or less often if it is late.
    let all = 100.0 * (to - from);
    assert!(
        moments < 1.02 * all + 200.0 && moments > 0.5 * all,
        "{moments} of {all}"
    );
    assert!(
        said.contains(" of them are kept: one in ") && said.contains("one in 0.1 s until "),
        "{said}"
    );
}

#[test]
fn samples_survive_a_clean_restart_and_no_crash() {
    let mut server = Server::preloaded("tiers-restart", &["autovacuum = off"]);
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET application_name = 'first'; SELECT pg_sleep(0.5)",
    );
    let first = "SELECT count(*) > 5 FROM rowsource_ash
                  WHERE application_name = 'first' AND (operation, wait_event) = ('Result', 'PgSleep')";
    until(&mut client, first);
    let last: String = value(&mut client, "SELECT clock_timestamp()::text");
    let known = format!(
        "SELECT count(*), sum(moments), min(sample_time)::text, count(DISTINCT application_name), count(operation)
           FROM rowsource_ash(NULL::text, '{last}')"
    );
    let before = texts(&mut client, &known);
    drop(client);
    for _ in 0..2 {
        server.stop();
        assert!(server.data().join(FILE).exists());
        server.clear_log();
        server.launch();
        let mut client = server.connect();
        until(&mut client, first);
        assert!(!server.data().join(FILE).exists(), "read once");
        assert_eq!(texts(&mut client, &known), before);
        assert_eq!(server.log_of_library(), Vec::<String>::new());
        run_each(&mut client, "SELECT pg_sleep(0.3)");
        let of_now = format!("SELECT count(*) > 5 FROM rowsource_ash('{last}') WHERE wait_event = 'PgSleep'");
        until(&mut client, &of_now);
        let said = report(&mut client);
        assert!(said.contains("first, before a restart"), "{said}");
        assert!(
            !said.contains("postgres rowsource-tests, before") || said.contains("postgres rowsource-tests "),
            "{said}"
        );
    }

    // A damaged file costs a line in the log.
    server.stop();
    let bytes = fs::read(server.data().join(FILE)).expect("the file");
    fs::write(server.data().join(FILE), &bytes[..bytes.len() - 7]).expect("a shorter file");
    server.clear_log();
    server.launch();
    let mut client = server.connect();
    worker(&mut client);
    let sampled = "SELECT count(*) > 5 FROM rowsource_ash WHERE wait_event = 'PgSleep'";
    let again = Busy::run(server.connect(), "SELECT pg_sleep(300)");
    until(&mut client, sampled);
    assert_eq!(texts(&mut client, &known)[0][0].as_deref(), Some("0"));
    let log = server.log_of_library();
    assert!(
        log.len() == 1 && log[0].contains(FILE) && log[0].contains("ignores"),
        "{log:?}"
    );
    again.cancel(&mut client);

    // A crash empties the ring, and the report says when.
    let started: String = value(&mut client, "SELECT clock_timestamp()::text");
    drop(client);
    server.stopped_by("QUIT");
    assert!(!server.data().join(FILE).exists());
    server.launch();
    let mut client = server.connect();
    let again = Busy::run(server.connect(), "SELECT pg_sleep(300)");
    until(&mut client, sampled);
    let old = format!("SELECT count(*) FROM rowsource_ash(NULL::text, '{started}')");
    assert_eq!(value::<i64>(&mut client, &old), 0);
    let said = report(&mut client);
    assert!(
        said.contains("; the server crashed, or began to sample, at "),
        "{said}"
    );
    again.cancel(&mut client);
}
