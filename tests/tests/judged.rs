//! What the process that looks for regressions needs: time, the snapshots of a week ago, and thousands of plans.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::store::{keeping, measuring};
use rowsource_tests::waiting::until;

/// An hour after midnight, the same hour of a week ago began on the day before. The snapshots around it are
/// not merged yet.
#[test]
fn the_hour_of_a_week_ago_is_there_after_midnight() {
    let server = Server::preloaded("judged-midnight", &["pg_rowsource.snapshot_interval = 0"]);
    let mut client = server.session();
    for _ in 0..4 {
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    // The last one is of 00:40 (UTC) of tomorrow, and the others of a week before.
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET is_thinned = snap_id < 4, taken_at = date_trunc('day', now() + interval '1 day', 'UTC')
           + (ARRAY['-7 days -65 min', '-7 days -5 min', '-7 days +45 min', '40 min'])[snap_id]::interval;
         SELECT rowsource_snapshot()",
    );
    let left = texts(
        &mut client,
        "SELECT string_agg(snap_id::text, ' ' ORDER BY snap_id) FROM rowsource_snapshots",
    );
    assert_eq!(left[0][0].as_deref(), Some("1 2 3 4 5"));
    server.assert_no_crash();
}

/// A statement that was 20 times as fast, and another plan of it.
fn change_plan(client: &mut Client) {
    run_each(
        client,
        "CREATE TABLE u AS SELECT i AS n FROM generate_series(1, 60000) i; CREATE INDEX u_n ON u (n); VACUUM ANALYZE u",
    );
    let run = |client: &mut Client| (0..20).for_each(|_| run_each(client, "SELECT n FROM u WHERE n = 7"));
    run(client);
    run_each(client, "SELECT rowsource_judge(); DROP INDEX u_n");
    run(client);
}

/// Without a moment, the worker looks at once, and goes on to look each minute.
#[test]
fn the_worker_goes_on_after_it_was_asked_to_look_long() {
    let server = keeping("judged-on", &[]);
    let mut client = measuring(&server);
    change_plan(&mut client);
    let mut reader = server.connect();
    until(&mut reader, "SELECT EXISTS (SELECT FROM rowsource_regressions())");
    server.assert_no_crash();
}
