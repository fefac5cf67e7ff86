//! Sessions share what others see of them in pages of the size that the system has.

use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::waiting::until_waiting;

/// With pages of 64 kB, a session shares the page that has its hot state, with all else in it, and that of
/// PostgreSQL's counters.
#[test]
fn with_pages_of_64_kb_the_running_node_is_seen() {
    let object = object("large_pages/large_pages.c");
    let mut server = Server::overridden("large-pages", &["jit = off"], &object);
    let mut observer = server.session();
    run_each(
        &mut observer,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 2000) i; ANALYZE t",
    );
    let seen = ["Seq Scan", "999", "t", "now"].map(|text| Some(text.to_owned()));
    // The sessions of later rounds take over the areas of earlier ones.
    for round in 0..4 {
        let sessions: Vec<Busy> = (0..8)
            .map(|_| {
                let sql = "SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 60 ELSE 0 END) IS NOT NULL";
                Busy::run(server.connect(), sql)
            })
            .collect();
        for busy in &sessions {
            until_waiting(&mut observer, busy.pid, "PgSleep");
            let running = texts(
                &mut observer,
                &format!(
                    "SELECT operation, rows::text, shared_blks_hit > 0, blocks_until FROM pg_stat_rowsource_live
                      WHERE pid = {} AND running",
                    busy.pid
                ),
            );
            assert_eq!(running, [seen.to_vec()], "round {round}");
        }
        for busy in sessions {
            busy.cancel(&mut observer);
        }
    }
    // The worker sees the hot state of all.
    let without_beats = "SELECT sessions_without_beats FROM rowsource_info()";
    assert_eq!(value::<i64>(&mut observer, without_beats), 0);
    server.stop();
    server.assert_no_crash();
}
