//! The rows of `rowsource_progress`: how far the statements are that run.

use super::live::{self, Live};
use crate::pg::live::private_pids;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, HeapSize};
use rowsource_core::model::{PlanKey, Published};
use rowsource_core::plan::{Extent, PlanNode};
use rowsource_core::progress::{self, Node, Progress, Table};
use rustc_hash::FxHashMap;

/// A progress of fewer percent is shown as 0, and says nothing about the time that is left.
const LEAST: f64 = 0.01;

/// The sizes of this database's tables, by their OIDs.
#[derive(Default)]
struct Sizes(FxHashMap<u32, Option<HeapSize>>);

impl Sizes {
    fn of(&mut self, extent: Option<&Extent>) -> Option<Table> {
        let Some(&Extent::Table { oid, file, blocks }) = extent else {
            return None;
        };
        let size = *self.0.entry(oid).or_insert_with(|| server::heap_size(oid));
        size.map(|size| Table {
            blocks: f64::from(size.blocks),
            least_blocks: if size.file == file {
                f64::from(blocks.min(size.blocks))
            } else {
                0.0
            },
            max_rows_per_block: f64::from(size.max_rows_per_block),
            rows_per_block: size.rows_per_block,
        })
    }
}

/// Adds the rows of `rowsource_progress`.
pub fn rows(rows: &mut Rows) {
    let all = live::all();
    let columns = columns();
    let mut sizes = Sizes::default();
    // What parallel workers do is added to their leaders' nodes.
    for live in all.iter().filter(|live| live.statement.leader.is_none()) {
        let statement = &live.statement;
        let published = statement.published.as_ref();
        let progress = published
            .filter(|_| live.is_visible && !statement.is_private)
            .and_then(|published| progress(live, published, &all, &mut sizes))
            .map(|progress| statement.note_progress(progress));
        let (pid, live) = (statement.pid, Some(live));
        columns.add(rows, &Row { pid, live, progress });
    }
    for pid in private_pids() {
        let (live, progress) = (None, None);
        columns.add(rows, &Row { pid, live, progress });
    }
}

/// A statement that runs.
pub struct Row<'a> {
    pid: i32,
    live: Option<&'a Live>,
    progress: Option<Progress>,
}

impl Row<'_> {
    fn key(&self) -> Option<&PlanKey> {
        self.live.map(|live| &live.statement.setup.key)
    }

    /// Returns the statement, if the user may see it.
    fn seen(&self) -> Option<&Live> {
        self.live.filter(|live| live.is_visible)
    }

    fn seen_key(&self) -> Option<&PlanKey> {
        self.key().filter(|_| self.seen().is_some())
    }

    /// Returns the node that runs.
    fn node(&self) -> Option<&PlanNode> {
        let live = self.seen()?;
        live.statement.description()?.nodes.get(live.computed.running?)
    }

    fn percent(&self, of: fn(&Progress) -> f64, round: fn(f64) -> f64) -> Option<f64> {
        self.progress
            .as_ref()
            .map(|progress| round(of(progress) * 100.0) / 100.0)
    }

    /// Returns the milliseconds that the rest takes. A cursor goes on when its client wants more rows.
    fn left(&self, percent: fn(&Progress) -> f64) -> Option<f64> {
        let statement = &self.live?.statement;
        let percent = self
            .progress
            .as_ref()
            .filter(|_| statement.state.is_running)
            .map(percent)?;
        (percent >= LEAST).then(|| statement.elapsed_ns() / 1e6 * (100.0 - percent) / percent)
    }

    fn call_started_at(&self) -> Option<i64> {
        let ns = self
            .seen()?
            .computed
            .running_ns
            .filter(|_| self.node().is_some())?;
        Some(server::now() - (ns / 1e3) as i64)
    }
}

/// The columns of `rowsource_progress()`.
pub fn columns<'a>() -> Columns<Row<'a>> {
    columns! { |row: &Row<'_>|
        /// The process that runs it; of a parallel statement, the leader
        pid: int = row.pid;
        /// The OID of the user who runs the statement
        userid: oid = row.key().map(|key| key.userid);
        /// The OID of the database in which it runs
        datid: oid = row.key().map(|key| key.datid);
        /// Identifies the statement, as in pg_stat_statements and pg_stat_activity; NULL if you may not see
        /// it
        queryid: bigint = row.seen_key().map(|key| key.queryid);
        /// Identifies the plan by its nodes, objects and strategies; NULL if you may not see it
        planid: bigint = row.seen_key().map(|key| key.planid);
        /// Whether a client sent the statement; false if another statement runs it: in a function, procedure
        /// or trigger
        toplevel: boolean = row.seen_key().map(PlanKey::toplevel);
        /// In how many measured statements of the session it is nested
        nesting_level: int = row.seen().map(|live| live.statement.state.depth);
        /// running, or idle in cursor: between two fetches
        state: text = row.seen().map(|live| live::state(&live.statement));
        /// Milliseconds in which it ran, without those in which its cursor was idle
        elapsed_time: float8 = row.seen().map(|live| live.statement.elapsed_ns() / 1e6);
        /// How much of its work is done in percent, about; NULL if nothing can be said
        percent_done: float8 = row.percent(|it| it.done, f64::round);
        /// How many percent of its work are done at least. The work is the rows that its nodes scan, take and
        /// return, each weighted by its kind
        percent_low: float8 = row.percent(|it| it.low, f64::floor);
        /// How many percent of its work are done at most, if the statement is read to its end
        percent_high: float8 = row.percent(|it| it.high, f64::ceil);
        /// What percent_done rests on. rows: mostly rows and blocks that were counted, and sizes of tables;
        /// planner: mostly the planners estimates
        basis: text = row.progress.map(|it| it.basis.name());
        /// Milliseconds that the rest takes if it is as fast as what is done; NULL if nothing is done, and
        /// for an idle cursor
        time_left: float8 = row.left(|it| it.done);
        /// Milliseconds that the rest takes at least: the same from percent_high
        time_left_low: float8 = row.left(|it| it.high);
        /// Milliseconds that the rest takes at most: the same from percent_low; NULL if percent_low is 0
        time_left_high: float8 = row.left(|it| it.low);
        /// The number of the node that runs, from 0 at the root, in the order of EXPLAIN; NULL if none runs,
        /// or if it is not known
        node_id: int = row.seen().and_then(|live| live.computed.running);
        /// What that node does, as EXPLAIN calls it
        operation: text = row.node().map(|node| &node.operation);
        /// The table, index, function or other object that it works on
        object_name: text = row.node().and_then(|node| node.object_name.as_ref());
        /// When the call of that node that is in progress began, some milliseconds too early (see Beats in
        /// the chapter about time); NULL if the node is not timed
        call_started_at: timestamptz = row.call_started_at();
    }
}

/// Estimates how far a statement is. Returns `None` if nothing can be said.
fn progress(leader: &Live, published: &Published, all: &[Live], sizes: &mut Sizes) -> Option<Progress> {
    let Live {
        statement, computed, ..
    } = leader;
    let (mut stats, mut removed) = (computed.stats.clone(), computed.removed.clone());
    let of_leader = |worker: &&Live| live::leader_of(worker, all).is_some_and(|it| std::ptr::eq(it, leader));
    let mut workers = 0;
    for worker in all.iter().filter(of_leader) {
        workers += 1;
        for (i, id) in worker.computed.plan_node_ids.iter().enumerate() {
            let place = computed.plan_node_ids.iter().position(|other| other == id);
            if let Some(place) = place {
                stats[place].add(&worker.computed.stats[i]);
                removed[place] += worker.computed.removed[i];
            }
        }
    }
    let Published { description, extents } = published;
    if description.nodes.len() != stats.len() {
        return None;
    }
    let blocks_are_known =
        !statement.state.is_running || statement.hot.is_some_and(|hot| hot.counters.is_some());
    // Another database's tables cannot be opened.
    let is_this_database = statement.setup.key.datid == server::database_id();
    let mut nodes = Vec::with_capacity(stats.len());
    for (i, (plan, stats)) in description.nodes.iter().zip(&stats).enumerate() {
        let extent = extents.get(i);
        let files = stats.buffers.get_or_zero();
        let buffers = stats.buffers.get().filter(|_| blocks_are_known);
        nodes.push(Node {
            plan,
            plan_rows: f64::from(stats.estimate.plan_rows),
            starts: stats.starts.get(),
            rows: stats.rows,
            removed: removed[i],
            self_ms: stats.time.get().map(|time| time.self_ms),
            waiting_ms: computed
                .running_ns
                .filter(|_| computed.running == Some(i) && statement.wait_event != 0)
                .map_or(0.0, |ns| ns / 1e6),
            work_files: [files.temp_read, files.temp_written].map(|blocks| blocks as f64),
            blocks: buffers.map(|it| it.gets().max(0) as f64),
            table: is_this_database.then(|| sizes.of(extent)).flatten(),
            has_constant_limit: extent == Some(&Extent::ConstantLimit),
        });
    }
    progress::progress(&nodes, workers, description.text.is_empty())
}
