//! The rows of `rowsource_progress`: how far the statements are that run.

use super::live::{self, Live};
use crate::pg::live::private_pids;
use crate::pg::server::srf::{Rows, Value, oid, text, timestamp, value};
use crate::pg::server::{self, HeapSize};
use rowsource_core::model::Published;
use rowsource_core::plan::Extent;
use rowsource_core::progress::{self, Node, Progress, Table};
use rustc_hash::FxHashMap;

/// The number of columns.
const COLUMNS: usize = 20;
/// Less than so many percent are shown as none, and say nothing about the time.
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
    let mut sizes = Sizes::default();
    // What parallel workers do is added to their leaders' nodes.
    for live in all.iter().filter(|live| live.statement.leader.is_none()) {
        rows.add(row(live, &all, &mut sizes));
    }
    for pid in private_pids() {
        let mut row = vec![value(pid)];
        row.extend([const { None }; COLUMNS - 1]);
        rows.add(row);
    }
}

/// Returns the row of a statement.
fn row(live: &Live, all: &[Live], sizes: &mut Sizes) -> Vec<Value> {
    let Live {
        statement,
        computed,
        is_visible,
    } = live;
    let key = &statement.setup.key;
    if !is_visible {
        let mut row = vec![value(statement.pid), oid(key.userid), oid(key.dbid)];
        row.resize_with(COLUMNS, || None);
        return row;
    }
    let is_running = statement.state.is_running;
    let elapsed_ms = statement.elapsed_ns() / 1e6;
    let description = statement.description();
    let published = statement.published.as_ref().filter(|_| !statement.is_private);
    let progress = published
        .and_then(|published| progress(live, published, all, sizes))
        .map(|progress| statement.note_progress(progress));
    let running = computed.running;
    let node = running.and_then(|i| description?.nodes.get(i));
    // A cursor goes on when its client wants more rows.
    let left = |percent: fn(&Progress) -> f64| {
        let percent = progress.as_ref().filter(|_| is_running).map(percent)?;
        (percent >= LEAST).then(|| value(elapsed_ms * (100.0 - percent) / percent))?
    };
    let percent = |percent: Option<f64>| percent.and_then(value);
    let hundredths = |percent: f64, round: fn(f64) -> f64| round(percent * 100.0) / 100.0;
    vec![
        value(statement.pid),
        oid(key.userid),
        oid(key.dbid),
        value(key.queryid),
        value(key.planid),
        value(key.toplevel()),
        value(statement.state.depth as i32),
        text(if is_running { "running" } else { "idle in cursor" }),
        value(elapsed_ms),
        percent(progress.map(|it| hundredths(it.done, f64::round))),
        percent(progress.map(|it| hundredths(it.low, f64::floor))),
        percent(progress.map(|it| hundredths(it.high, f64::ceil))),
        progress.and_then(|it| text(it.basis.name())),
        left(|it| it.done),
        left(|it| it.high),
        left(|it| it.low),
        running.and_then(|i| value(i as i32)),
        node.and_then(|node| text(&node.operation)),
        node.and_then(|node| text(node.object_name.as_deref()?)),
        computed
            .running_ns
            .filter(|_| node.is_some())
            .and_then(|ns| timestamp(server::now() - (ns / 1e3) as i64)),
    ]
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
    let is_this_database = statement.setup.key.dbid == server::database_id();
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
