//! The history of plans: plans with the same queryid or planid stay separate, and the history is read in
//! linear time.

use postgres::Client;
use rowsource_tests::busy::Busy;
use rowsource_tests::compiled;
use rowsource_tests::explain::rows_handled;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, measured};

/// Fills the history with snapshots of plans. Each plan ran in each snapshot.
fn fill_plans(client: &mut Client, plans: usize, snapshots: usize) {
    run_each(client, "DELETE FROM rowsource_snapshots");
    run_each(
        client,
        &format!(
            "INSERT INTO rowsource_snapshots SELECT s, now() - (1000 - s) * interval '1 minute' FROM generate_series(1, {snapshots}) s;
             INSERT INTO rowsource_snapshot_plans (snap_id, userid, datid, queryid, planid, toplevel, query,
                 first_seen_at, calls, failed_calls, cancelled_calls, total_time, temp_blks_read)
             SELECT s, 10, 5, p / 4, p, true, 'SELECT ' || p, '2020-01-01', s * 10, 0, 0, s * 10.5, s
               FROM generate_series(1, {snapshots}) s, generate_series(1, {plans}) p;
             VACUUM rowsource_snapshots; VACUUM rowsource_snapshot_plans"
        ),
    );
}

const WHOLE: &str = "SELECT count(*), sum(calls), sum(total_time) FROM rowsource_interval_plans";

/// A linear reading may take this many times as much work per unit of size at the larger size, because its
/// plan may change.
const LINEAR: f64 = 1.5;

/// The work of one statement at two sizes.
struct Growth {
    /// The ratio of the second size to the first.
    larger: f64,
    work: [f64; 2],
}

impl Growth {
    /// Returns how many times as much work per unit of size the larger size takes: 1 if it is linear.
    fn factor(&self) -> f64 {
        self.work[1] / self.work[0] / self.larger
    }

    fn is_linear(&self) -> bool {
        self.factor() <= LINEAR
    }

    fn assert_linear(&self, what: &str) {
        println!(
            "{what}: {:?} rows handled, {:.2} per unit",
            self.work,
            self.factor()
        );
        assert!(self.is_linear(), "{what}: {:?} rows handled", self.work);
    }

    /// Fails unless the check finds that this quadratic query is not linear.
    fn assert_quadratic(&self, what: &str) {
        println!(
            "{what}: {:?} rows handled, {:.2} per unit",
            self.work,
            self.factor()
        );
        assert!(!self.is_linear(), "{what}: {:?} rows handled", self.work);
    }
}

/// A query that searches all of a snapshot's plans for each plan.
const PLAN_BY_PLAN: &str = "
    SELECT count(b.calls) FROM rowsource_snapshot_plans p CROSS JOIN LATERAL
           (SELECT b.calls FROM rowsource_snapshot_plans b
             WHERE b.snap_id = p.snap_id AND b.queryid + 0 = p.queryid + 0 OFFSET 0) b
     WHERE p.snap_id = 50";

#[test]
fn the_history_of_plans_is_read_in_linear_time() {
    const SNAPSHOTS: usize = 96;
    let server = basic_server("history-growth", &[]);
    let mut client = server.connect();
    let statements = [
        WHOLE,
        &format!("{WHOLE} WHERE snap_id = 50"),
        &format!("{WHOLE} WHERE queryid = 50"),
        PLAN_BY_PLAN,
    ];
    let mut work = |plans: usize| {
        fill_plans(&mut client, plans, SNAPSHOTS);
        statements.map(|statement| rows_handled(&mut client, statement))
    };
    let (few, many) = (work(250), work(1_000));
    let [whole, snapshot, _, plan_by_plan] = [0, 1, 2, 3].map(|at| Growth {
        larger: 4.0,
        work: [few[at], many[at]],
    });
    whole.assert_linear("the history of plans");
    snapshot.assert_linear("one snapshot");
    plan_by_plan.assert_quadratic("plan by plan");
    let [whole, snapshot, query, _] = many;
    println!("1,000 plans: {whole} rows handled, one snapshot {snapshot}, one query {query}");
    // 1 of 95 snapshots, 1 of 250 queries: much less than all.
    assert!(
        snapshot < whole / 8.0 && query < whole / 8.0,
        "one snapshot {snapshot} rows handled, one query {query}, all {whole}"
    );
    let rows: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_interval_plans WHERE calls = 10",
    );
    assert_eq!(rows, 1_000 * (SNAPSHOTS as i64 - 1));
}

/// A query that searches all of a snapshot's counters for each of them.
const COUNTER_BY_COUNTER: &str = "
    SELECT count(b.source) FROM rowsource_snapshot_tempfile_io p CROSS JOIN LATERAL
           (SELECT b.source FROM rowsource_snapshot_tempfile_io b
             WHERE b.snap_id = p.snap_id AND b.datname || '' = p.datname OFFSET 0) b
     WHERE p.snap_id = 50";

/// The same for the counters of databases.
#[test]
fn the_history_of_temporary_files_is_read_in_linear_time() {
    let server = basic_server("tempfile-growth", &[]);
    let mut client = server.connect();
    let statements = [
        "SELECT sum(small_reads) FROM rowsource_interval_tempfile_io",
        COUNTER_BY_COUNTER,
    ];
    let mut work = |databases: usize| {
        run_each(&mut client, "DELETE FROM rowsource_snapshots");
        run_each(
            &mut client,
            &format!(
                "INSERT INTO rowsource_snapshots SELECT s, now() + s * interval '1 minute' FROM generate_series(1, 96) s;
                 INSERT INTO rowsource_snapshot_tempfile_io (snap_id, datid, datname, filetype, small_reads,
                     small_read_bytes, small_read_time, source, stats_reset)
                 SELECT s, d, 'd' || d, f, s, s, s, 'request', '2020-01-01' FROM generate_series(1, 96) s,
                     generate_series(1, {databases}) d, unnest(ARRAY['work file', 'temp table']) f;
                 VACUUM rowsource_snapshots; VACUUM rowsource_snapshot_tempfile_io"
            ),
        );
        let rows: i64 = value(
            &mut client,
            "SELECT count(*) FROM rowsource_interval_tempfile_io WHERE small_reads = 1",
        );
        assert_eq!(rows, 95 * 2 * databases as i64);
        statements.map(|statement| rows_handled(&mut client, statement))
    };
    let (few, many) = (work(64), work(512));
    let [history, counter_by_counter] = [0, 1].map(|at| Growth {
        larger: 8.0,
        work: [few[at], many[at]],
    });
    history.assert_linear("the history of temporary files");
    counter_by_counter.assert_quadratic("counter by counter");
}

/// The expected rows of the view, computed with a window function over the previous row.
const BY_WINDOW: &str = "
    SELECT snap_id, queryid, planid, toplevel,
           CASE WHEN goes_on THEN calls - previous_calls WHEN is_known THEN calls END AS calls,
           CASE WHEN goes_on THEN temp_blks_read - previous_read WHEN is_known THEN temp_blks_read END AS temp_blks_read
      FROM (SELECT *, lag(first_seen_at) OVER w = first_seen_at AND lag(calls) OVER w <= calls AS goes_on,
                   lag(snap_id) OVER w IS NOT NULL OR first_seen_at >= (SELECT min(taken_at) FROM rowsource_snapshots) AS is_known,
                   lag(calls) OVER w AS previous_calls, lag(temp_blks_read) OVER w AS previous_read
              FROM rowsource_snapshot_plans
            WINDOW w AS (PARTITION BY userid, datid, queryid, planid, toplevel ORDER BY snap_id)) p
     WHERE snap_id > (SELECT min(snap_id) FROM rowsource_snapshots) ORDER BY 1, 2, 3, 4";

#[test]
fn each_interval_shows_what_ran_in_it() {
    let server = basic_server("history-intervals", &[]);
    let mut client = server.connect();
    fill_plans(&mut client, 40, 12);
    // Plans that did not run, that were evicted and stored again, and whose counters were reset.
    run_each(
        &mut client,
        "DELETE FROM rowsource_snapshot_plans WHERE (queryid * 7 + snap_id) % 3 = 0;
         UPDATE rowsource_snapshot_plans SET first_seen_at = '2021-01-01', calls = calls - 35 WHERE planid % 3 = 0 AND snap_id > 6;
         UPDATE rowsource_snapshot_plans SET calls = snap_id WHERE planid % 5 = 0 AND snap_id > 8",
    );
    // And plans of this server.
    run_each(&mut client, "CREATE TABLE t AS SELECT 1 AS id");
    for runs in [2, 0, 3] {
        for _ in 0..runs {
            measured(&mut client, "SELECT count(*) FROM t");
        }
        run_each(
            &mut client,
            "SELECT setval('rowsource_snapshots_snap_id_seq', (SELECT max(snap_id) FROM rowsource_snapshots)); SELECT rowsource_snapshot()",
        );
    }
    let shown = texts(
        &mut client,
        "SELECT snap_id, queryid, planid, toplevel, calls, temp_blks_read FROM rowsource_interval_plans WHERE snap_id > 0 ORDER BY 1, 2, 3, 4",
    );
    let expected = texts(&mut client, BY_WINDOW);
    assert!(expected.len() > 200, "{} rows", expected.len());
    assert_eq!(shown, expected);
    let calls = texts(
        &mut client,
        "SELECT calls FROM rowsource_interval_plans WHERE query = 'SELECT count(*) FROM t' ORDER BY snap_id",
    );
    assert_eq!(calls, [[Some("2".to_string())], [Some("3".to_string())]]);
}

/// Two sessions run new plans all the time while snapshots are taken. A plan that is recorded meanwhile is in
/// a snapshot with all that it stores of a plan, or not at all.
#[test]
fn plans_that_are_recorded_during_a_snapshot_are_stored_whole() {
    let server = basic_server("history-new-plans", &["pg_rowsource.track = 'all'"]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE TABLE t AS SELECT 1 AS id");
    let new_plans = |relation: &str| {
        format!(
            "DO $$DECLARE c text; BEGIN FOR i IN 1..8000 LOOP
                 SELECT 'SELECT ' || string_agg(CASE WHEN (i >> b) & 1 = 1 THEN 'id' ELSE 'id + 1' END, ',') || ' FROM {relation}'
                   INTO c FROM generate_series(0, 12) b;
                 EXECUTE c; END LOOP; END$$"
        )
    };
    let busy = ["t", "t WHERE id > 0"].map(|relation| Busy::run(server.connect(), &new_plans(relation)));
    run_each(&mut client, &"SELECT rowsource_snapshot();".repeat(20));
    for session in busy {
        session.cancel(&mut client);
    }
    let stored: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshot_plans");
    let torn: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_snapshot_plans p
                LEFT JOIN rowsource_snapshot_descriptions d USING (userid, datid, queryid, planid, toplevel)
          WHERE p.statistics IS NULL OR d.queryid IS NULL",
    );
    println!("{torn} of {stored} plans lack something");
    assert!(stored > 100, "{stored} plans");
    assert_eq!(torn, 0, "of {stored} plans");
}

/// A plan seldom runs, and the snapshot with its earlier executions is deleted. They did not happen in the
/// interval in which it runs again.
#[test]
fn what_ran_before_the_kept_snapshots_is_in_no_interval() {
    let server = basic_server("history-deleted", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE TABLE t AS SELECT 1 AS id");
    for runs in [5, 0, 1, 2] {
        for _ in 0..runs {
            measured(&mut client, "SELECT count(*) FROM t");
        }
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    let calls = |client: &mut Client| {
        texts(
            client,
            "SELECT calls, mean_time > 0 FROM rowsource_interval_plans WHERE query = 'SELECT count(*) FROM t' ORDER BY snap_id",
        )
    };
    let some = |text: &str| Some(text.to_string());
    assert_eq!(
        calls(&mut client),
        [[some("1"), some("t")], [some("2"), some("t")]]
    );
    run_each(
        &mut client,
        "DELETE FROM rowsource_snapshots WHERE snap_id = (SELECT min(snap_id) FROM rowsource_snapshots)",
    );
    assert_eq!(calls(&mut client), [[None, None], [some("2"), some("t")]]);
}

/// From 18 on another extension may give two plans of one statement the same number.
#[test]
fn a_snapshot_separates_plans_to_which_another_extension_gives_one_planid() {
    let library = compiled::object("planid/planid.c");
    let server = basic_server(
        "history-planid",
        &[&format!(
            "shared_preload_libraries = 'pg_rowsource, {}'",
            library.display()
        )],
    );
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE p AS SELECT generate_series(1, 10) AS id; CREATE INDEX ON p (id); ANALYZE p; SET enable_bitmapscan = off",
    );
    for round in 0..3 {
        for is_scanned in ["on", "on", "off"] {
            run_each(&mut client, &format!("SET enable_seqscan = {is_scanned}"));
            measured(&mut client, "SELECT count(*) FROM p WHERE id = 1");
        }
        run_each(&mut client, "SELECT rowsource_snapshot()");
        let plans: i64 = value(
            &mut client,
            "SELECT count(*) FROM rowsource_snapshot_plans WHERE query LIKE 'SELECT count(*) FROM p %'
                AND snap_id = (SELECT max(snap_id) FROM rowsource_snapshots)",
        );
        assert_eq!(plans, 2, "round {round}");
    }
    let planids: i64 = value(
        &mut client,
        "SELECT count(DISTINCT planid) FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(*) FROM p %'",
    );
    assert_eq!(planids, 2);
}

/// Deleting a snapshot also deletes its rows, which an index must find.
#[test]
fn the_rows_of_a_snapshot_are_found_by_an_index() {
    let server = basic_server("history-indexes", &[]);
    let tables = texts(
        &mut server.connect(),
        "SELECT conrelid::regclass, EXISTS (SELECT FROM pg_index i WHERE i.indrelid = conrelid AND i.indkey[0] = conkey[1])
           FROM pg_constraint WHERE contype = 'f' AND confrelid = 'rowsource_snapshots'::regclass ORDER BY 1",
    );
    assert!(tables.len() > 1, "{tables:?}");
    assert!(
        tables.iter().all(|row| row[1].as_deref() == Some("t")),
        "{tables:?}"
    );
}

/// The indexes that the plan before used and that are gone are kept with the new plan, in the database's
/// names.
#[test]
fn a_new_plan_keeps_which_indexes_are_gone() {
    let server = basic_server("plan-history-gone", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE SCHEMA \"S\"; CREATE TABLE \"S\".t AS SELECT i AS id, i AS val FROM generate_series(1, 20000) i;
         CREATE INDEX \"T_id\" ON \"S\".t (id); CREATE INDEX t_val ON \"S\".t (val); ANALYZE \"S\".t;
         SET enable_indexscan = off; SET enable_indexonlyscan = off",
    );
    let statement = |what: &str| format!("SELECT {what} FROM \"S\".t WHERE id < 3 OR val < 3");
    let gone = |client: &mut Client, what: &str| {
        let gone = "SELECT gone_indexes::text FROM pg_stat_rowsource_plans";
        texts(
            client,
            &format!("{gone} WHERE query LIKE 'SELECT {what} FROM \"S\".t%' ORDER BY first_seen_at"),
        )
        .concat()
    };
    let both = Some(r#"{"\"S\".\"T_id\"","\"S\".t_val"}"#.to_owned());
    measured(&mut client, &statement("sum(val)"));
    measured(&mut client, &statement("sum(id)"));
    // The plan is another one, but no index is gone.
    run_each(&mut client, "SET enable_bitmapscan = off");
    measured(&mut client, &statement("sum(id)"));
    assert_eq!(gone(&mut client, "sum(id)"), [None, None]);
    run_each(
        &mut client,
        "SET enable_bitmapscan = on; DROP INDEX \"S\".\"T_id\", \"S\".t_val",
    );
    measured(&mut client, &statement("sum(val)"));
    assert_eq!(gone(&mut client, "sum(val)"), [None, both.clone()]);
    // Nothing is known of a plan before.
    measured(&mut client, &statement("min(val)"));
    assert_eq!(gone(&mut client, "min(val)"), [None]);
    // It stays when another session describes the plan again, and when an index is there again.
    run_each(
        &mut client,
        "CREATE INDEX t_val ON \"S\".t (val); ALTER TABLE \"S\".t ADD more int",
    );
    measured(&mut server.connect(), &statement("sum(val)"));
    assert_eq!(gone(&mut client, "sum(val)"), [None, both]);
}

/// The planner expects so much of it that the server would compile it for seconds.
#[test]
fn the_plans_of_an_interval_are_not_compiled() {
    let server = basic_server("history-jit", &[]);
    let setting: String = value(
        &mut server.connect(),
        "SELECT proconfig::text FROM pg_proc WHERE proname = 'rowsource_interval_plans'",
    );
    assert_eq!(setting, "{jit=off}");
}
