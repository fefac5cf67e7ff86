//! The queries of the program. `@` stands for the schema of the extension. The search path has only
//! PostgreSQL's own schema.

use crate::model::{Node, Server};
use crate::raw::Form;

/// Which rows of a statement's plan are meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanKey {
    pub userid: i64,
    pub datid: i64,
    pub queryid: i64,
    pub planid: i64,
    pub toplevel: bool,
}

impl PlanKey {
    /// Returns the key of the plan that a node is of; nothing if the user may not see it.
    pub fn of_node(node: &Node) -> Option<Self> {
        Some(Self {
            userid: node.userid,
            datid: node.datid,
            queryid: node.queryid?,
            planid: node.planid?,
            toplevel: node.toplevel,
        })
    }
}

/// What a screen needs from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// All plans, or those that ran since a time, in seconds since 1970.
    Plans(Option<i64>),
    Texts(Vec<i64>),
    /// The nodes of statements, or of those of their plans that ran since a time.
    Nodes(Vec<i64>, Option<i64>),
    Plan(PlanKey),
    /// What runs. A process that is named is among the rows, however many there are.
    Live(Option<i64>),
    /// Only what this process runs.
    LiveOf(i64),
    LivePlan(i64),
    Working,
    Activity,
    Findings,
    Waits,
    Temp,
    Locks,
    /// A session that waits, and whom it waits for, up to who waits for nobody.
    Blockers(i64),
    /// As `Live`. A process that is named is among the rows although it is idle.
    Sessions(Option<i64>),
    /// Only this process, whatever it does.
    SessionOf(i64),
}

/// How each query of the screens begins.
pub const OWN: &str = "SELECT /* rowsource */";

/// Of a statement at most this many characters come.
pub const LONGEST_TEXT: usize = 2_000;

/// Returns what asks for the rows of a query as JSON. What is NULL is left out: the rows' types have a value
/// for what is not there. The second column says how many seconds the server has worked for the message.
pub fn rows_of(query: &str, form: Form) -> String {
    let rows = form.value("json_strip_nulls(coalesce(json_agg(x), '[]'))::text");
    format!(
        "{OWN} {rows}, extract(epoch FROM clock_timestamp() - statement_timestamp())::float8 FROM ({}) x",
        form.query(query)
    )
}

/// Returns the query of what the store says of itself: a single row.
pub fn info(schema: &str) -> String {
    format!(
        "SELECT extract(epoch FROM stats_reset)::float8 AS reset, evictions FROM {schema}.rowsource_info()"
    )
}

/// Describes the server and the connection: a single row.
pub const SERVER: &str = "SELECT current_setting('server_version') AS version,
  extract(epoch FROM pg_postmaster_start_time())::float8 AS started, current_database() AS database, current_user AS \"user\",
  pg_is_in_recovery() AS standby, pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all,
  (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
   WHERE extname = 'pg_rowsource') AS schema,
  current_setting('pg_rowsource.enabled', true) IS NOT NULL AS loaded,
  extract(epoch FROM clock_timestamp())::float8 AS at";

/// A list of what is now has at most this many rows. Their column `total` says how many there are.
const MOST: usize = 200;
/// A running plan has at most this many rows, in all processes.
const MOST_NODES: usize = 2_000;

/// The names are looked up for each row: when the program has begun, few plans have changed.
const PLANS: &str = "SELECT userid::int8, datid::int8, queryid, planid, toplevel,
  pg_get_userbyid(userid) AS usename, (SELECT d.datname FROM pg_database d WHERE d.oid = datid) AS datname,
  extract(epoch FROM first_seen_at)::float8 AS first_seen, calls, failed_calls + cancelled_calls AS failed,
  coalesce(total_time, 0) AS time, coalesce(wait_time, 0) AS wait, rows, shared_blks_hit + local_blks_hit AS hits,
  shared_blks_read + local_blks_read AS reads, temp_blks_read + temp_blks_written AS temp, wal_bytes::float8 AS wal
  FROM @.pg_stat_rowsource_plans";

const NODE_COLUMNS: &str =
    "SELECT userid::int8, datid::int8, queryid, planid, toplevel, node_id, depth, operation,
  object_name AS object, plan_rows, executions, starts, rows, coalesce(total_time, 0) AS time,
  coalesce(self_time, 0) AS own_time, coalesce(wait_time, 0) AS wait, coalesce(shared_blks_hit, 0) AS hits,
  coalesce(self_blks_read, 0) AS reads, coalesce(self_temp_blks_read + self_temp_blks_written, 0) AS temp,
  coalesce(rows_removed, 0) AS removed";

/// Who blocks a session is looked up for those that run longest: that stops all others at the table of locks.
const LIVE: &str =
    "SELECT p.pid, p.usename, p.datname, p.queryid, p.planid, p.nesting_level AS nesting, p.state,
  p.elapsed_time AS elapsed, p.percent_done AS percent, p.percent_low AS low, p.percent_high AS high,
  p.time_left AS left, p.node_id, p.operation, p.object_name AS object, a.wait_event_type AS wait_type,
  a.wait_event AS wait, CASE WHEN a.wait_event_type = 'Lock' AND row_number() OVER (PARTITION BY a.wait_event_type
    ORDER BY p.elapsed_time DESC NULLS LAST) <= 20 THEN (pg_blocking_pids(p.pid))[1] END AS blocker, left(a.query, 400) AS query,
  count(*) OVER () AS total FROM @.rowsource_progress p LEFT JOIN pg_stat_activity a ON a.pid = p.pid
  WHERE p.pid <> pg_backend_pid()";

const LIVE_PLAN: &str = "SELECT pid, leader_pid AS leader, nesting_level AS nesting, node_id, depth, operation,
  object_name AS object, plan_rows, coalesce(starts, 0) AS starts, coalesce(rows, 0) AS rows, total_time AS time,
  self_time AS own_time, coalesce(shared_blks_read, 0) + coalesce(local_blks_read, 0) AS reads,
  coalesce(temp_blks_read, 0) + coalesce(temp_blks_written, 0) AS temp, coalesce(running, false) AS running,
  wait_event AS wait, queryid, planid, count(*) OVER () AS total FROM @.pg_stat_rowsource_live";

/// Statements of this program are no work: a message of it begins with its settings, or with its mark and the
/// name of its own function. Background processes that wait for work have the
/// class Activity, or Extension.
const WORKING: &str = "SELECT class, event, count(*) AS processes, count(*) FILTER (WHERE elapsed >= 1000) AS statements,
  count(*) FILTER (WHERE elapsed >= 1000 AND NOT has_plan) AS planless, max(elapsed) AS longest FROM (
    SELECT wait_event_type AS class, wait_event AS event, CASE WHEN backend_type = 'client backend'
      THEN extract(epoch FROM clock_timestamp() - query_start)::float8 * 1000 END AS elapsed,
      pid IN (SELECT pid FROM @.rowsource_progress) AS has_plan
    FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type <> 'walsender' AND (state = 'active' AND query !~ '^(SET LOCAL statement_timeout = [0-9]+; SET LOCAL [^/]*)?SELECT /[*] rowsource [*]/ (json_strip_nulls|pg_(catalog|cancel|terminate))'
      OR backend_type <> 'client backend' AND wait_event_type NOT IN ('Activity', 'Extension'))) w GROUP BY class, event";

const ACTIVITY: &str =
    "SELECT CASE WHEN wait_event_type IS NULL THEN 'CPU' ELSE wait_event_type END AS class,
  wait_event AS event, queryid, planid, node_id, operation, object_name AS object, percent,
  average_active_sessions AS sessions, count(*) OVER () AS total
  FROM @.rowsource_top_activity(clock_timestamp() - interval '1 min', clock_timestamp()) ORDER BY average_active_sessions DESC";

const FINDINGS: &str =
    "SELECT id, state, to_char(changed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS at, queryid, calls_after AS calls,
  mean_time_before AS before, mean_time_after AS after, ratio AS factor, extra_time AS extra, basis,
  coalesce(cause, 'the same plan') AS cause, command, left(query, 2000) AS query,
  count(*) OVER () AS total
  FROM @.rowsource_regressions() ORDER BY state = 'over', extra_time DESC";

const WAITS: &str =
    "SELECT backend_type, wait_event_type AS class, wait_event AS event, coalesce(waits, 0) AS waits,
  coalesce(wait_time, 0) AS time, max_time AS max FROM @.pg_stat_rowsource_system_waits";

const TEMP: &str =
    "SELECT pid, datname, usename, queryid, filetype, files, bytes, wait_time AS wait, percent,
  count(*) OVER () AS total
  FROM @.rowsource_tempfile_usage() ORDER BY bytes DESC";

const LOCKS: &str = "SELECT root_pid AS root, blocked_sessions AS blocked, depth, pid, usename,
  application_name AS application, state, mode, relation,
  extract(epoch FROM clock_timestamp() - waitstart)::float8 * 1000 AS waited,
  extract(epoch FROM clock_timestamp() - xact_start)::float8 * 1000 AS open, queryid, left(query, 2000) AS query";

const SESSIONS: &str =
    "SELECT pid, usename, datname, application_name AS application, state, wait_event_type AS class,
  wait_event AS event, extract(epoch FROM clock_timestamp() - query_start)::float8 * 1000 AS elapsed,
  left(query, 400) AS query, query_start, count(*) OVER () AS total FROM pg_stat_activity";

/// Which of them are listed.
const AT_WORK: &str =
    "backend_type = 'client backend' AND pid <> pg_backend_pid() AND state IS DISTINCT FROM 'idle'";

/// Writes a time as an argument of a function; none if there is no time.
fn time(since: Option<i64>) -> String {
    since.map_or_else(String::new, |since| format!("to_timestamp({since})"))
}

/// Selects the plans that ran since a time. Those that the role may not see have no numbers, so that nothing
/// tells them apart; the sums of what is not stored have no user.
fn plans(since: Option<i64>) -> String {
    let since = time(since);
    format!("{PLANS}({since}) WHERE calls > 0 AND (queryid IS NOT NULL OR userid IS NULL)")
}

/// Selects a session that waits, and whom it waits for.
fn blockers(pid: i64) -> String {
    format!(
        "WITH RECURSIVE found AS MATERIALIZED (SELECT * FROM @.rowsource_blockers), chain AS (
           SELECT found.*, 0 AS place FROM found WHERE pid = {pid}
           UNION ALL
           SELECT found.*, place + 1 FROM chain JOIN found ON found.pid = chain.blocking_pid WHERE place < {MOST})
         {LOCKS} FROM chain ORDER BY place"
    )
}

/// Selects the first rows of a list, and among them those of a process. The order is then what it is without.
fn first_rows(list: &str, order: &str, pid: Option<i64>) -> String {
    let first = pid.map_or_else(String::new, |pid| format!("pid = {pid} DESC, "));
    format!(
        "SELECT * FROM (SELECT * FROM ({list}) l ORDER BY {first}{order} LIMIT {MOST}) l ORDER BY {order}"
    )
}

/// Has texts that are cut end with three dots.
fn with_dots(mut sql: String) -> String {
    for most in ["2000", "400"] {
        for text in ["query", "a.query"] {
            let cut = format!("left({text}, {most})");
            let said = format!("({cut} || CASE WHEN length({text}) > {most} THEN ' ...' ELSE '' END)");
            sql = sql.replace(&cut, &said);
        }
    }
    sql
}

impl Want {
    /// Returns what brings a whole list, too.
    pub fn with_list(self) -> Self {
        match self {
            Self::LiveOf(pid) => Self::Live(Some(pid)),
            Self::SessionOf(pid) => Self::Sessions(Some(pid)),
            want => want,
        }
    }

    /// Returns the query, and the name of the part that it makes. A text that is cut says so at its end.
    pub fn query(&self, server: &Server) -> (String, &'static str) {
        // A single constant: a list of each length would be a statement of its own to the server.
        let list = |ids: &[i64]| {
            let ids = ids.iter().map(i64::to_string).collect::<Vec<_>>();
            format!("= ANY ('{{{}}}'::int8[])", ids.join(","))
        };
        let (sql, part) = match self {
            Self::Plans(since) => (plans(*since), since.map_or("Plans", |_| "ChangedPlans")),
            // The texts of statements that have not ended yet are not stored.
            Self::Texts(ids) => (
                format!(
                    "SELECT DISTINCT ON (queryid) queryid, query, place = 2 AS is_passing FROM (
                       SELECT queryid, left(query, 2000) AS query, 1 AS place FROM @.pg_stat_rowsource_plans WHERE queryid {ids}
                       UNION ALL SELECT query_id, left(query, 2000), 2 FROM pg_stat_activity WHERE query_id {ids}) t
                     ORDER BY queryid, place",
                    ids = list(ids)
                ),
                "Texts",
            ),
            Self::Nodes(ids, since) => (
                format!(
                    "{NODE_COLUMNS} FROM @.pg_stat_rowsource({}) WHERE queryid {}",
                    time(*since),
                    list(ids)
                ),
                since.map_or("Nodes", |_| "ChangedNodes"),
            ),
            Self::Plan(key) => (
                format!(
                    "{NODE_COLUMNS}, details FROM @.pg_stat_rowsource WHERE userid = {} AND datid = {} AND queryid = {}
                     AND planid = {} AND toplevel = {} ORDER BY node_id",
                    key.userid, key.datid, key.queryid, key.planid, key.toplevel
                ),
                "Plan",
            ),
            Self::Live(pid) => (first_rows(LIVE, "elapsed DESC NULLS LAST", *pid), "Live"),
            Self::LiveOf(pid) => (format!("{LIVE} AND p.pid = {pid} LIMIT {MOST}"), "Live"),
            Self::LivePlan(pid) => (
                format!("{LIVE_PLAN} WHERE {pid} IN (pid, leader_pid) AND {pid} <> pg_backend_pid() ORDER BY nesting_level, node_id, pid LIMIT {MOST_NODES}"),
                "LivePlan",
            ),
            Self::Working => (WORKING.to_owned(), "Working"),
            Self::Activity => (format!("{ACTIVITY} LIMIT {MOST}"), "Activity"),
            Self::Findings => (format!("{FINDINGS} LIMIT {MOST}"), "Findings"),
            Self::Waits => (WAITS.to_owned(), "Waits"),
            Self::Temp => (format!("{TEMP} LIMIT {MOST}"), "Temp"),
            Self::Locks => (
                format!("{LOCKS}, count(*) OVER () AS total FROM @.rowsource_blockers LIMIT {MOST}"),
                "Locks",
            ),
            Self::Blockers(pid) => (blockers(*pid), "Blockers"),
            Self::Sessions(pid) => {
                let or_named = pid.map_or_else(String::new, |pid| format!(" OR pid = {pid}"));
                let list = format!("{SESSIONS} WHERE {AT_WORK}{or_named}");
                (first_rows(&list, "query_start", *pid), "Sessions")
            }
            // Behind a pooler, the process may be the one that answers this.
            Self::SessionOf(pid) => (
                format!("SELECT s.*, pid = pg_backend_pid() AS is_own FROM ({SESSIONS} WHERE pid = {pid}) s"),
                "Sessions",
            ),
        };
        (
            with_dots(sql).replace('@', server.schema.as_deref().unwrap_or("pg_catalog")),
            part,
        )
    }
}
