//! Reads what each process of a parallel plan did, when a statement has ended.

use super::facts;
use super::workarea::Whose;
use crate::pg::compat;
use crate::pg::handles::{Handle, PlanStateRef};
use pgrx::pg_sys;
use rowsource_core::model::{Jit, NodeStats, Time, WorkerPart, Workers};

/// Returns what each process did of the nodes that EXPLAIN shows. `read_jit` returns what a worker compiled.
/// `states` are those of the nodes that are shown. Returns `None` if no workers may have run any node, or if
/// that is too much to keep.
#[cold]
#[inline(never)]
pub fn read<'q>(
    states: impl Iterator<Item = PlanStateRef<'q>>,
    read_jit: impl Fn(&pg_sys::JitInstrumentation) -> Jit,
) -> Option<Box<Workers>> {
    let mut workers = Workers::default();
    for (i, state) in states.enumerate() {
        add_node(&mut workers, i, state, &read_jit)?;
    }
    (!workers.is_empty()).then(|| Box::new(workers))
}

/// Adds a node, if workers may have run it. Returns `None` if that is too much to keep.
fn add_node(
    workers: &mut Workers,
    i: usize,
    ps: PlanStateRef,
    read_jit: impl Fn(&pg_sys::JitInstrumentation) -> Jit,
) -> Option<()> {
    let Some(all) = ps.reach(|ps| &ps.worker_instrument) else {
        return Some(());
    };
    workers
        .add_node(i, facts::of_process(ps, Whose::Leader))
        .then_some(())?;
    let jit = ps.reach(|ps| &ps.worker_jit_instrument);
    let jit = jit.map_or(&[][..], Handle::reports);
    for (n, part) in all.reports().iter().enumerate() {
        let stats = NodeStats {
            facts: facts::of_process(ps, Whose::Worker(n)),
            ..stats(*part)
        };
        let part = WorkerPart {
            worker: n as u32,
            stats,
            jit: jit.get(n).map(&read_jit),
        };
        // Of a scan that may read ahead, EXPLAIN shows the workers that were not launched too.
        if part.is_shown() || compat::worker_scan_io(ps, n).is_some() {
            workers.add_part(part).then_some(())?;
        }
    }
    Some(())
}

/// Returns what a worker reported of a node, without the node's facts.
fn stats(mut reported: compat::NodeInstrumentation) -> NodeStats {
    let (total_ns, startup_ns) = (
        compat::core_total_ns(&mut reported),
        compat::core_startup_ns(&mut reported),
    );
    let (loops, rows) = (reported.nloops, reported.ntuples);
    let base = compat::common_instrumentation(&mut reported);
    let time = Time {
        total_ms: total_ns / 1e6,
        startup_ms: startup_ns / 1e6,
        ..Time::default()
    };
    NodeStats {
        starts: (loops as u64).into(),
        rows: rows as u64,
        time: base.need_timer.then_some(time).into(),
        buffers: base.need_bufusage.then(|| compat::buffers(&base.bufusage)).into(),
        wal: base.need_walusage.then(|| compat::wal(&base.walusage)).into(),
        ..NodeStats::default()
    }
}
