//! The rows of `pg_stat_rowsource_live`: the nodes of the statements that run.

use super::store::fail_without_store;
use super::wait_names;
use super::words::MASKED;
use crate::pg::live::{self, Computed, Running};
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail};
use pgrx::{PgSqlErrorCode, pg_sys};
use rowsource_core::model::{Buffers, NodeStats, PlanDescription, PlanKey, Time, own_errors};
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
    let columns = columns();
    for live in &all {
        // A worker runs a part of its leader's plan, and the leader has the description.
        let of_plan = leader_of(live, &all).unwrap_or(live);
        let errors = self_errors(live, of_plan);
        for i in 0..live.computed.stats.len() {
            columns.add(rows, &node_row(live, of_plan, &errors, i));
        }
        if live.statement.is_private {
            let statement = Some((live, of_plan));
            let wait = wait(live, of_plan);
            columns.add(
                rows,
                &Row {
                    statement,
                    wait,
                    ..Row::private(live.statement.pid)
                },
            );
        }
    }
    for pid in live::private_pids() {
        columns.add(rows, &Row::private(pid));
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
            match pid == server::pid() {
                true => {
                    "It is this session. Without a pid, rowsource_display() shows its last measured statement."
                }
                false => {
                    "pg_stat_rowsource_live shows the measured statements that run, and the leaders of parallel workers."
                }
            },
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
        database: server::database_name(setup.key.datid).unwrap_or_default(),
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

/// A node of a statement that runs.
pub struct Row<'a> {
    pid: i32,
    /// The statement, and that which has the whole plan.
    statement: Option<(&'a Live, &'a Live)>,
    node: Option<Node<'a>>,
    wait: Option<(String, String)>,
    blocks_until: &'static str,
}

struct Node<'a> {
    /// Its number in the plan.
    id: Option<usize>,
    described: Option<&'a PlanNode>,
    stats: &'a NodeStats,
    self_error_ms: Option<f64>,
    is_running: bool,
    /// Whether it is known which call is in progress. If not, a node has no times until a call of it and of
    /// each node above it has ended.
    is_call_known: bool,
}

impl Row<'_> {
    /// Returns the row of a process that has no shared memory for its nodes.
    fn private(pid: i32) -> Self {
        Row {
            pid,
            statement: None,
            node: None,
            wait: None,
            blocks_until: "private memory",
        }
    }

    /// Returns what runs.
    fn running<T>(&self, of: impl Fn(&Running) -> T) -> Option<T> {
        self.statement.map(|(live, _)| of(&live.statement))
    }

    fn key<T>(&self, of: impl Fn(&PlanKey) -> T) -> Option<T> {
        self.statement
            .map(|(_, of_plan)| of(&of_plan.statement.setup.key))
    }

    fn is_visible(&self) -> bool {
        self.statement.is_some_and(|(_, of_plan)| of_plan.is_visible)
    }

    fn described(&self) -> Option<&PlanNode> {
        self.node.as_ref()?.described
    }

    fn stats<T>(&self, of: impl Fn(&NodeStats) -> T) -> Option<T> {
        self.node.as_ref().map(|node| of(node.stats))
    }

    fn time(&self, of: fn(&Time) -> f64) -> Option<f64> {
        let node = self.node.as_ref()?;
        let time = node.stats.time.get();
        time.filter(|time| node.is_call_known || time.total_ms > 0.0)
            .as_ref()
            .map(of)
    }

    fn self_error(&self) -> Option<f64> {
        self.time(|time| time.error_ms)
            .and(self.node.as_ref()?.self_error_ms)
    }

    fn blocks<T>(&self, of: impl Fn(&Buffers) -> T) -> Option<T> {
        self.node.as_ref()?.stats.buffers.get().as_ref().map(of)
    }
}

/// Returns what a statement waits for, if the user may see that.
fn wait(live: &Live, of_plan: &Live) -> Option<(String, String)> {
    let event = of_plan.is_visible.then_some(live.statement.wait_event)?;
    wait_names::name(event)
}

/// Returns the errors of the own times of the nodes in the plan.
fn self_errors(live: &Live, of_plan: &Live) -> Vec<f64> {
    let Some(description) = of_plan.statement.description() else {
        return Vec::new();
    };
    let (ids, all) = (&live.computed.plan_node_ids, &of_plan.computed.plan_node_ids);
    own_errors(&description.nodes, |id| {
        let plan_node_id = all.get(id)?;
        let i = match ids.get(id) == Some(plan_node_id) {
            true => id,
            false => ids.iter().position(|other| other == plan_node_id)?,
        };
        live.computed.stats.get(i).copied()
    })
}

/// Returns the row of a node. `of_plan` is the statement that has the whole plan.
fn node_row<'a>(live: &'a Live, of_plan: &'a Live, errors: &[f64], i: usize) -> Row<'a> {
    let Live {
        statement, computed, ..
    } = live;
    // A worker's nodes are found in the leader's plan by their plan node ids.
    let plan_node_id = computed.plan_node_ids[i];
    let ids = &of_plan.computed.plan_node_ids;
    let id = if ids.get(i) == Some(&plan_node_id) {
        Some(i)
    } else {
        ids.iter().position(|other| *other == plan_node_id)
    };
    let described = of_plan.statement.description();
    let is_running = computed.running == Some(i);
    let shows_wait = is_running || computed.running.is_none() && i == 0;
    Row {
        pid: statement.pid,
        statement: Some((live, of_plan)),
        node: Some(Node {
            id,
            described: id.and_then(|id| described?.nodes.get(id)),
            stats: &computed.stats[i],
            self_error_ms: id.and_then(|id| errors.get(id).copied()),
            is_running,
            is_call_known: statement.hot.is_some() || !statement.state.is_running,
        }),
        wait: shows_wait.then(|| wait(live, of_plan)).flatten(),
        blocks_until: match &statement.hot {
            Some(hot) if hot.counters.is_some() || !statement.state.is_running => "now",
            Some(_) => "last switch",
            None => "last call",
        },
    }
}

/// Returns what the views call the state of a statement.
pub(super) fn state(statement: &Running) -> &'static str {
    match statement.state.is_running {
        true => "running",
        false => "idle in cursor",
    }
}

/// The columns of `pg_stat_rowsource_live()`.
pub fn columns<'a>() -> Columns<Row<'a>> {
    columns! { |row: &Row<'_>|
        /// The process that runs it
        pid: int = row.pid;
        /// If the process is a parallel worker, the process of its leader
        leader_pid: int = row.running(|it| it.leader).flatten();
        /// The OID of the user who runs the statement
        userid: oid = row.key(|key| key.userid);
        /// The OID of the database in which it runs
        datid: oid = row.key(|key| key.datid);
        /// Identifies the statement, as in pg_stat_statements and pg_stat_activity; NULL if you may not see
        /// it
        queryid: bigint = row.key(|key| key.queryid).filter(|_| row.is_visible());
        /// Identifies the plan by its nodes, objects and strategies; NULL if you may not see it
        planid: bigint = row.key(|key| key.planid).filter(|_| row.is_visible());
        /// Whether a client sent the statement; false if another statement runs it: in a function, procedure
        /// or trigger
        toplevel: boolean = row.key(PlanKey::toplevel);
        /// In how many measured statements of the session it is nested
        nesting_level: int = row.running(|it| it.state.depth);
        /// running, or idle in cursor: between two fetches
        state: text = row.running(state);
        /// Milliseconds since the statement began to run
        age: float8 = row.running(|it| it.age_ns() / 1e6);
        /// Milliseconds in which it ran, without those in which its cursor was idle
        elapsed_time: float8 = row.running(|it| it.elapsed_ns() / 1e6);
        /// The number of the node in the plan, from 0 at the root, in the order of EXPLAIN
        node_id: int = row.node.as_ref().and_then(|node| node.id);
        /// The number of its parent
        parent_id: int = row.described().and_then(|node| node.parent);
        /// The number of nodes above it
        depth: int = row.described().map(|node| node.depth);
        /// What the node does, as EXPLAIN calls it
        operation: text = row.described().map(|node| if row.is_visible() { &node.operation } else { MASKED });
        /// The table, index, function or other object that the node works on
        object_name: text = row.described().and_then(|node| node.object_name.as_ref()).filter(|_| row.is_visible());
        /// Rows per start that the planner expects
        plan_rows: float8 = row.stats(|it| f64::from(it.estimate.plan_rows));
        /// How often the node was started
        starts: bigint = row.stats(|it| it.starts.get()).flatten();
        /// Rows that it has returned so far
        rows: bigint = row.stats(|it| it.rows);
        /// Milliseconds in the node and all nodes below it so far, its current call included
        total_time: float8 = row.time(|time| time.total_ms);
        /// Milliseconds in the node itself
        self_time: float8 = row.time(|time| time.self_ms);
        /// One standard error of total_time, in milliseconds
        time_error: float8 = row.time(|time| time.error_ms);
        /// One standard error of self_time, in milliseconds
        self_time_error: float8 = row.self_error();
        /// Blocks of tables and indexes that the node and those below it found in shared buffers
        shared_blks_hit: bigint = row.blocks(|it| it.shared_hit);
        /// Such blocks that they read
        shared_blks_read: bigint = row.blocks(|it| it.shared_read);
        /// Such blocks that they changed first
        shared_blks_dirtied: bigint = row.blocks(|it| it.shared_dirtied);
        /// Such blocks that they wrote
        shared_blks_written: bigint = row.blocks(|it| it.shared_written);
        /// Blocks of temporary tables that they found in buffers
        local_blks_hit: bigint = row.blocks(|it| it.local_hit);
        /// Such blocks that they read
        local_blks_read: bigint = row.blocks(|it| it.local_read);
        /// Blocks of work files that they read
        temp_blks_read: bigint = row.blocks(|it| it.temp_read);
        /// Blocks of work files that they wrote
        temp_blks_written: bigint = row.blocks(|it| it.temp_written);
        /// Milliseconds of the node's own waits that have ended
        wait_time: float8 = row.blocks(|_| row.stats(|it| it.wait_ms)).flatten();
        /// Whether this is the node that runs; false for all nodes of a statement that runs none of them, or
        /// if that is not known
        running: boolean = row.node.as_ref().map(|node| node.is_running);
        /// The type of what the process waits for, as in pg_stat_activity, in the row of the node that runs,
        /// else of the root; NULL if it does not wait
        wait_event_type: text = row.wait.as_ref().map(|(event_type, _)| event_type);
        /// What it waits for
        wait_event: text = row.wait.as_ref().map(|(_, event)| event);
        /// What the figures include. now: everything; last switch: blocks up to the last time that another
        /// node ran; last call: calls that have ended; private memory: a measured statement whose nodes are
        /// not known, because there was no shared memory for them
        blocks_until: text = row.blocks_until;
    }
}
