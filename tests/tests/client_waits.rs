//! A session waits once for each message of its client, whatever it waits for in between.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::{pid, until_waiting};
use std::time::Duration;

const ROUNDS: i64 = 4;

fn waits(observer: &mut Client, pid: i32) -> i64 {
    value(
        observer,
        &format!(
            "SELECT coalesce(sum(waits), 0)::bigint FROM pg_stat_rowsource_session_waits WHERE pid = {pid} AND wait_event = 'ClientRead'"
        ),
    )
}

/// At deadlock_timeout, the process wakes up while it waits for a lock.
#[test]
fn a_wait_for_a_lock_does_not_join_two_waits_for_the_client() {
    let server = Server::preloaded("client-waits", &["jit = off"]);
    let (mut observer, mut holder, mut client) = (server.connect(), server.connect(), server.connect());
    run_each(
        &mut observer,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i",
    );
    let id = pid(&mut client);
    run_each(&mut client, "SET deadlock_timeout = '50ms'");
    until_waiting(&mut observer, id, "ClientRead");
    let before = waits(&mut observer, id);
    for _ in 0..ROUNDS {
        run_each(&mut holder, "BEGIN; LOCK TABLE t");
        // The client thinks before each message, so the session waits for it.
        until_waiting(&mut observer, id, "ClientRead");
        let locked = std::thread::spawn(move || {
            client.batch_execute("SELECT count(*) FROM t").expect("it waits");
            client
        });
        until_waiting(&mut observer, id, "relation");
        std::thread::sleep(Duration::from_millis(200));
        run_each(&mut holder, "COMMIT");
        client = locked.join().expect("the session");
        until_waiting(&mut observer, id, "ClientRead");
        run_each(&mut client, "SELECT 1");
    }
    until_waiting(&mut observer, id, "ClientRead");
    let counted = waits(&mut observer, id) - before;
    // A message ends the wait that began after the one before it.
    assert_eq!(counted, 2 * ROUNDS);
    let locks: i64 = value(
        &mut observer,
        &format!(
            "SELECT waits FROM pg_stat_rowsource_session_waits WHERE pid = {id} AND wait_event_type = 'Lock' AND wait_event = 'relation'"
        ),
    );
    assert_eq!(locks, ROUNDS);
    server.assert_no_crash();
}
