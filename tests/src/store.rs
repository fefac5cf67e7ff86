//! Queries of the store that all sessions share. They run at level basic, so that their own plans are not
//! stored.

use crate::attack::send;
use crate::server::Server;
use crate::session::{run_each, value};
use crate::waiting::TIMEOUT;
use postgres::Client;
use std::time::Instant;

/// Starts a server at level basic, with the extension.
pub fn basic_server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec![
        "pg_rowsource.statistics_level = 'basic'",
        "max_parallel_workers_per_gather = 0",
        "jit = off",
    ];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server
}

/// Runs `plans` statements, each with a different plan of about `selects` nodes, on a server of [`keeping`].
pub fn make_plans(client: &mut Client, plans: usize, selects: usize) {
    send(
        client,
        &format!(
            "DO $$DECLARE c text; BEGIN FOR i IN 1..{plans} LOOP
                 SELECT 'SELECT ' || string_agg(CASE WHEN (i >> b) & 1 = 1 THEN 'id' ELSE 'id + 1' END, ',') || ' FROM t WHERE id > 0'
                   INTO c FROM generate_series(0, 12) b;
                 EXECUTE c || repeat(' UNION ALL ' || c, {selects} - 1); END LOOP; END$$"
        ),
    );
}

/// Starts a server that stores the plans of all statements, including those in functions.
pub fn keeping(name: &str, settings: &[&str]) -> Server {
    let mut all = vec!["pg_rowsource.track = 'all'"];
    all.extend(settings);
    let server = basic_server(name, &all);
    run_each(&mut server.connect(), "CREATE TABLE t AS SELECT 1 AS id");
    server
}

/// Fails unless the session measures its statements, on a server of [`keeping`].
pub fn assert_measures(client: &mut Client, number: usize) {
    let sql = format!("SELECT id, {number} AS probe FROM t");
    measured(client, "SELECT rowsource_reset()");
    for _ in 0..3 {
        measured(client, &sql);
    }
    let calls: i64 = value(
        client,
        "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT id, % AS probe%'",
    );
    assert_eq!(calls, 3, "the session measures no more");
}

/// Opens a session that times every call.
pub fn measuring(server: &Server) -> Client {
    let mut client = server.connect();
    measure_all(&mut client);
    client
}

/// Times every call of this session from now on.
pub fn measure_all(client: &mut Client) {
    run_each(
        client,
        "SET pg_rowsource.sampfreq = 1; SET pg_rowsource.statistics_level = 'typical'",
    );
}

/// Runs statements at level typical with every call timed, in a session at level basic.
pub fn measured(client: &mut Client, sql: &str) {
    measure_all(client);
    run_each(client, sql);
    run_each(client, "SET pg_rowsource.statistics_level = 'basic'");
}

/// Runs a statement once in an empty store, so that nothing is cheaper than its plan: evictions treat all
/// total times below a millisecond alike. While a busy machine delays it beyond that, the store is emptied
/// and it runs again. The runner must be at level typical.
pub fn run_cheaply(reader: &mut Client, runner: &mut Client, statement: &str) {
    const CHEAP_MS: f64 = 1.0;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        run_each(reader, "SELECT rowsource_reset()");
        run_each(runner, statement);
        let ms = only_kept(reader, statement).total_time;
        if ms < CHEAP_MS {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{statement}\nalways takes long, now {ms} ms"
        );
    }
}

/// A row of pg_stat_rowsource_plans.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptPlan {
    pub queryid: i64,
    pub planid: i64,
    pub query: String,
    pub calls: i64,
    pub failed_calls: i64,
    pub cancelled_calls: i64,
    pub total_time: f64,
    pub min_time: f64,
    pub max_time: f64,
    pub mean_time: f64,
    pub stddev_time: f64,
    pub last_time: f64,
    pub last_outcome: String,
}

/// Returns the stored plans of statements whose text is LIKE this, the oldest first.
pub fn kept(client: &mut Client, like: &str) -> Vec<KeptPlan> {
    client
        .query(
            "SELECT queryid, planid, query, calls, failed_calls, cancelled_calls, total_time, min_time, max_time,
                    mean_time, stddev_time, last_time, last_outcome
             FROM pg_stat_rowsource_plans WHERE query LIKE $1 ORDER BY first_seen_at, planid",
            &[&like],
        )
        .expect("pg_stat_rowsource_plans")
        .iter()
        .map(|row| KeptPlan {
            queryid: row.get(0),
            planid: row.get(1),
            query: row.get(2),
            calls: row.get(3),
            failed_calls: row.get(4),
            cancelled_calls: row.get(5),
            total_time: row.get(6),
            min_time: row.get(7),
            max_time: row.get(8),
            mean_time: row.get(9),
            stddev_time: row.get(10),
            last_time: row.get(11),
            last_outcome: row.get(12),
        })
        .collect()
}

/// Returns the only stored plan of statements whose text is LIKE this.
pub fn only_kept(client: &mut Client, like: &str) -> KeptPlan {
    let mut plans = kept(client, like);
    assert_eq!(plans.len(), 1, "{like}: {plans:#?}");
    plans.remove(0)
}

/// Returns an expression over a node's row of pg_stat_rowsource.
pub fn node_value(client: &mut Client, plan: &KeptPlan, node: i32, expression: &str) -> f64 {
    value(
        client,
        &format!(
            "SELECT ({expression})::float8 FROM pg_stat_rowsource
             WHERE queryid = {} AND planid = {} AND node_id = {node}",
            plan.queryid, plan.planid
        ),
    )
}

/// Returns a column of rowsource_info().
pub fn info(client: &mut Client, column: &str) -> i64 {
    value(
        client,
        &format!("SELECT ({column})::bigint FROM rowsource_info()"),
    )
}

/// Returns everything in the store as one text, to compare before and after.
pub fn everything(client: &mut Client) -> String {
    let parts = [
        "pg_stat_rowsource_plans",
        "pg_stat_rowsource",
        "pg_stat_rowsource_histogram",
    ];
    parts.map(|view| all_of(client, view)).join("\n")
}

fn all_of(client: &mut Client, view: &str) -> String {
    value(
        client,
        &format!("SELECT coalesce(string_agg(v::text, E'\\n' ORDER BY v::text), '') FROM {view} v"),
    )
}
