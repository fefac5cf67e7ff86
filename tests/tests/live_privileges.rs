//! What a role sees of the statements that others run.

use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::waiting::{until, until_waiting};

fn server(name: &str) -> Server {
    let settings = [
        "jit = off",
        "autovacuum = off",
        "max_parallel_workers_per_gather = 0",
        "pg_rowsource.track = all",
    ];
    let server = Server::preloaded(name, &settings);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource;
         CREATE TABLE t AS SELECT i AS id, repeat('x', 50) AS pad FROM generate_series(1, 20000) i;
         VACUUM (FREEZE, ANALYZE)",
    );
    server
}

#[test]
fn other_users_see_no_names() {
    let server = server("live-privileges");
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE ROLE other LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_read_all_stats",
    );
    let busy = Busy::run(
        server.connect(),
        "SELECT count(*) FROM t WHERE pg_sleep(60) IS NOT NULL",
    );
    until_waiting(&mut observer, busy.pid, "PgSleep");
    let shown = |user: &str| -> Vec<Vec<Option<String>>> {
        let mut client = server.try_connect(user).expect("a session");
        let sql = format!(
            "SELECT DISTINCT queryid IS NULL AND planid IS NULL, operation LIKE '<insufficient%', object_name IS NULL,
                    wait_event IS NULL
             FROM pg_stat_rowsource_live WHERE pid = {} AND (running OR wait_event IS NOT NULL)", busy.pid);
        texts(&mut client, &sql)
    };
    let truth = |values: [&str; 4]| values.map(|value| Some(value.to_owned())).to_vec();
    assert_eq!(shown("other"), [truth(["t", "t", "t", "t"])]);
    assert!(shown("monitor").contains(&truth(["f", "f", "f", "f"])));
    busy.cancel(&mut observer);

    // A superuser's session that acts as this user is not his.
    run_each(&mut observer, "GRANT SELECT ON t TO other");
    let sql = "SET ROLE other; SELECT count(*) FROM t WHERE pg_sleep(60) IS NOT NULL";
    for (user, is_hidden) in [("postgres", true), ("other", false)] {
        let busy = Busy::run(server.try_connect(user).expect("a session"), sql);
        until_waiting(&mut observer, busy.pid, "PgSleep");
        let mut other = server.try_connect("other").expect("a session");
        let hidden = format!(
            "SELECT bool_and(queryid IS NULL AND object_name IS NULL AND operation LIKE '<insufficient%')
             FROM pg_stat_rowsource_live WHERE pid = {}",
            busy.pid
        );
        assert_eq!(value::<bool>(&mut other, &hidden), is_hidden, "{user}");
        let displayed = other.query(
            &format!("SELECT * FROM rowsource_display(pid => {})", busy.pid),
            &[],
        );
        match displayed {
            Ok(_) => assert!(!is_hidden, "{user}"),
            Err(error) => {
                let error = error.as_db_error().expect("an error of the server");
                assert!(
                    is_hidden && error.message().contains("permission denied"),
                    "{error}"
                );
            }
        }
        busy.cancel(&mut observer);
    }
}

/// A worker may have a block in which a session of another role described its plan.
#[test]
fn a_worker_does_not_show_the_plan_of_another_role() {
    let server = server("live-worker-block");
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE ROLE other LOGIN; GRANT SELECT ON t TO other",
    );
    // More sessions end than have areas for workers.
    let sessions: Vec<_> = (0..8)
        .map(|_| {
            let mut client = server.connect();
            run_each(
                &mut client,
                "SET pg_rowsource.statistics_level = typical; SELECT count(*) FROM t WHERE pad = 'a secret'",
            );
            client
        })
        .collect();
    drop(sessions);
    until(
        &mut observer,
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'",
    );
    let sql = "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
               SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off;
               SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id IN (1000, 19000) THEN 60 ELSE 0 END) IS NOT NULL";
    let busy = Busy::run(server.try_connect("other").expect("a session"), sql);
    let workers = format!(
        "SELECT pid FROM pg_stat_activity WHERE leader_pid = {} AND wait_event = 'PgSleep'",
        busy.pid
    );
    until(&mut observer, &format!("SELECT EXISTS ({workers})"));
    let mut other = server.try_connect("other").expect("a session");
    for row in observer.query(&workers, &[]).expect("the workers") {
        let pid: i32 = row.get(0);
        let (_, message) = must_fail(
            &mut other,
            &format!("SELECT * FROM rowsource_display(pid => {pid})"),
        );
        assert!(message.contains("runs no measured statement"), "{message}");
    }
    busy.cancel(&mut observer);
}
