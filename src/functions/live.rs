//! The rows of `pg_stat_rowsource_live`: the nodes of the statements that run.

use super::store::fail_without_store;
use super::wait_names;
use super::words::MASKED;
use crate::pg::live::{self, Computed, Running};
use crate::pg::server::srf::{Rows, Value, oid, text, value};
use crate::pg::server::{self, fail};
use pgrx::{PgSqlErrorCode, pg_sys};
use rowsource_core::model::{Buffers, NodeStats, PlanDescription};
use rowsource_core::plan::PlanNode;
use rowsource_core::report::{self, Format, Header, Now, Shown};

/// A statement that runs, and its statistics.
pub(super) struct Live {
    pub statement: Running,
    pub computed: Computed,
    /// Whether the current user may see more of it than its numbers.
    pub is_visible: bool,
}

/// Returns the statements that run, those of a session together and the outermost first.
///
/// # Errors
/// Raises "out of memory", or an error if the sessions share no memory.
pub(super) fn all() -> Vec<Live> {
    let mut found = Vec::new();
    let are_shared = live::each_running(|running| {
        let live = running.compute().map(|(computed, statement)| Live {
            is_visible: server::may_see_running(statement.pid, statement.setup.key.userid),
            statement,
            computed,
        });
        found.extend(live);
    });
    if !are_shared {
        fail_without_store("the sessions share no memory in which pg_rowsource could see what they run")
    }
    found
}

/// Returns the statement of a parallel worker's leader for which the worker works.
pub(super) fn leader_of<'a>(worker: &Live, all: &'a [Live]) -> Option<&'a Live> {
    let (leader, key) = (worker.statement.leader?, &worker.statement.setup.key);
    all.iter()
        .rfind(|live| live.statement.pid == leader && live.statement.setup.key.queryid == key.queryid)
}

/// Adds the rows of `pg_stat_rowsource_live`.
pub fn rows(rows: &mut Rows) {
    let all = all();
    for live in &all {
        // A worker runs a part of its leader's plan, and the leader has the description.
        let of_plan = leader_of(live, &all).unwrap_or(live);
        for i in 0..live.computed.stats.len() {
            rows.add(node_row(live, of_plan, i));
        }
        if live.statement.is_private {
            let mut row = statement_columns(&live.statement, of_plan).to_vec();
            let wait = wait_columns(&live.statement, of_plan.is_visible);
            row.resize_with(COLUMNS - wait.len() - 1, || None);
            row.extend(wait);
            row.push(text(PRIVATE));
            rows.add(row);
        }
    }
    for pid in live::private_pids() {
        let mut row = vec![value(pid)];
        row.resize_with(COLUMNS - 1, || None);
        row.push(text(PRIVATE));
        rows.add(row);
    }
}

/// Adds the tables of the statements that a process runs, the outermost first.
///
/// # Errors
/// Raises an error if the process runs no measured statement, or if the user may not see it.
pub(super) fn lines(rows: &mut Rows, pid: i32, format: &Format) {
    let all = all();
    let of_process = all.iter().filter(|live| live.statement.pid == pid);
    let mut is_first = true;
    for live in of_process {
        if !live.is_visible {
            fail(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                "permission denied to see another user's statement",
                "Only roles with the privileges of pg_read_all_stats may see the statements of others.",
            )
        }
        // A parallel worker alone has no description: the leader's statement shows what it does.
        let Some(description) = live.statement.description() else {
            continue;
        };
        if !std::mem::take(&mut is_first) {
            rows.add_line("");
        }
        let mut stats = live.computed.stats.clone();
        let workers = add_workers(live, &all, &mut stats);
        let header = header(live, description, workers);
        for line in report::display(&header, &description.nodes, &stats, format) {
            rows.add_line(&line);
        }
    }
    if is_first {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!("process {pid} runs no measured statement"),
            "pg_stat_rowsource_live shows the measured statements that run, and the leaders of parallel workers.",
        )
    }
}

/// Adds what parallel workers did to the statistics of their leader's nodes. Returns the number of workers.
fn add_workers(leader: &Live, all: &[Live], stats: &mut [NodeStats]) -> usize {
    let of_leader = |worker: &&Live| leader_of(worker, all).is_some_and(|it| std::ptr::eq(it, leader));
    let mut workers = 0;
    for worker in all.iter().filter(of_leader) {
        workers += 1;
        for (id, add) in worker.computed.plan_node_ids.iter().zip(&worker.computed.stats) {
            let place = leader.computed.plan_node_ids.iter().position(|other| other == id);
            if let Some(stats) = place.and_then(|place| stats.get_mut(place)) {
                stats.add(add);
            }
        }
    }
    workers
}

/// What the display says of a statement in private memory.
const NO_NODES: &str = "no shared memory was left for the nodes of this statement";

/// Returns what the display says about a statement that runs.
fn header(live: &Live, description: &PlanDescription, workers: usize) -> Header {
    let Live {
        statement, computed, ..
    } = live;
    let (setup, state) = (&statement.setup, &statement.state);
    let waits_for = wait_names::name(statement.wait_event);
    Header {
        queryid: setup.key.queryid,
        planid: setup.key.planid,
        sampfreq: setup.sampfreq,
        clock: statement
            .clock()
            .map(|clock| clock.name().to_owned())
            .unwrap_or_default(),
        text: description.text.clone(),
        user: server::user_name(setup.key.userid).unwrap_or_default(),
        database: server::database_name(setup.key.dbid).unwrap_or_default(),
        elapsed_ms: statement.elapsed_ns() / 1e6,
        shown: Shown::Last,
        block_size: pg_sys::BLCKSZ,
        search_path: server::search_path(),
        beats_missing: !statement.has_beats,
        now: Some(Now {
            pid: statement.pid,
            node: computed.running,
            is_idle: !state.is_running,
            waits_for: waits_for
                .map(|(of, event)| format!("{of}:{event}"))
                .unwrap_or_default(),
            workers,
        }),
        warning: statement.is_private.then(|| NO_NODES.to_owned()),
        ..Header::default()
    }
}

/// The number of columns.
const COLUMNS: usize = 35;
/// What blocks_until says of a statement in private memory.
const PRIVATE: &str = "private memory";

/// Returns the row of a node. `of_plan` is the statement that has the whole plan.
fn node_row(live: &Live, of_plan: &Live, i: usize) -> Vec<Value> {
    let Live {
        statement, computed, ..
    } = live;
    let is_visible = of_plan.is_visible;
    // A worker's nodes are found in the leader's plan by their plan node ids.
    let id = computed.plan_node_ids[i];
    let ids = &of_plan.computed.plan_node_ids;
    let place = if ids.get(i) == Some(&id) {
        Some(i)
    } else {
        ids.iter().position(|other| *other == id)
    };
    let described = of_plan.statement.description();
    let node = place.and_then(|place| described?.nodes.get(place));
    let stats = &computed.stats[i];
    let is_running = computed.running == Some(i);
    let shows_wait = is_running || computed.running.is_none() && i == 0;
    let mut row = statement_columns(statement, of_plan).to_vec();
    row.push(place.and_then(|place| value(place as i32)));
    row.extend(description(node, stats, is_visible));
    row.extend(numbers(
        stats,
        statement.hot.is_some() || !statement.state.is_running,
    ));
    row.push(value(is_running));
    row.extend(wait_columns(statement, is_visible && shows_wait));
    row.push(text(match &statement.hot {
        Some(hot) if hot.counters.is_some() || !statement.state.is_running => "now",
        Some(_) => "last switch",
        None => "last call",
    }));
    row
}

/// Returns the columns from pid to elapsed_time. `of_plan` is the statement that has the whole plan.
fn statement_columns(statement: &Running, of_plan: &Live) -> [Value; 11] {
    let key = &of_plan.statement.setup.key;
    let seen = |number: i64| of_plan.is_visible.then_some(number).and_then(value);
    [
        value(statement.pid),
        statement.leader.and_then(value),
        oid(key.userid),
        oid(key.dbid),
        seen(key.queryid),
        seen(key.planid),
        value(key.toplevel()),
        value(statement.state.depth as i32),
        text(if statement.state.is_running {
            "running"
        } else {
            "idle in cursor"
        }),
        value(statement.age_ns() / 1e6),
        value(statement.elapsed_ns() / 1e6),
    ]
}

/// Returns the columns wait_event_type and wait_event, if they are shown.
fn wait_columns(statement: &Running, are_shown: bool) -> [Value; 2] {
    let wait = are_shown
        .then(|| wait_names::name(statement.wait_event))
        .flatten();
    let (wait_type, wait_event) = wait.unzip();
    [wait_type, wait_event].map(|name| name.as_deref().and_then(text))
}

/// Returns the columns parent_id, depth, operation, object_name and plan_rows.
fn description(node: Option<&PlanNode>, stats: &NodeStats, is_visible: bool) -> [Value; 5] {
    [
        node.and_then(|node| value(node.parent? as i32)),
        node.and_then(|node| value(node.depth as i32)),
        node.and_then(|node| text(if is_visible { &node.operation } else { MASKED })),
        node.and_then(|node| text(node.object_name.as_deref().filter(|_| is_visible)?)),
        value(f64::from(stats.estimate.plan_rows)),
    ]
}

/// Returns the columns from starts to wait_time. If it is not known which call is in progress, a node has no times until a call of it and
/// of each node above it has ended.
fn numbers(stats: &NodeStats, is_call_known: bool) -> Vec<Value> {
    let (time, buffers) = (stats.time.get(), stats.buffers.get());
    let time = time.filter(|time| is_call_known || time.total_ms > 0.0);
    let count = |of: fn(&Buffers) -> i64| buffers.as_ref().map(of).and_then(value);
    vec![
        stats.starts.get().and_then(|starts| value(starts as i64)),
        value(stats.rows as i64),
        time.and_then(|time| value(time.total_ms)),
        time.and_then(|time| value(time.self_ms)),
        time.and_then(|time| value(time.error_ms)),
        count(|buffers| buffers.shared_hit),
        count(|buffers| buffers.shared_read),
        count(|buffers| buffers.shared_dirtied),
        count(|buffers| buffers.shared_written),
        count(|buffers| buffers.local_hit),
        count(|buffers| buffers.local_read),
        count(|buffers| buffers.temp_read),
        count(|buffers| buffers.temp_written),
        buffers.and_then(|_| value(stats.wait_ms)),
    ]
}
