//! Copies the data that PostgreSQL and the wrappers have of each node into plain structs.

use super::facts;
use super::node_table::{NodeRef, NodeTable};
use super::parallel::Channel;
use crate::pg::border::globals::GLOBALS;
use crate::pg::compat::{self, NodeInstrumentation};
use crate::pg::handles::{Bare, Handle, PlanStateRef};
use crate::pg::hot::wrapper::{self, Timed};
use pgrx::pg_sys::{self, NodeTag, PlanState};
use rowsource_core::model::facts::SimpleFacts;
use rowsource_core::model::{Called, NodeFacts, Wal};
use rowsource_core::results::{
    Caller, Calls, CoreSample, EarlierCaller, NodeSample, Nodes, Place, Sharing, SimpleSample, TimedCalls,
    parallel_divisor,
};
use std::cell::Cell;
use std::ops::Deref;

/// The nodes of a statement that has ended.
pub struct Collector<'a> {
    pub(super) nodes: &'a NodeTable,
    pub(super) channel: &'a Cell<Option<Channel>>,
    /// Whether the statement's memory contexts are live.
    pub(super) core_alive: bool,
    /// Which calls the wrappers timed; `None` if they were not installed.
    timed: Option<Timed>,
}

impl<'a> Collector<'a> {
    /// Creates a collector for the nodes of a statement, and for the channel to its workers if it has one.
    ///
    /// # Safety
    /// * The plan states of the nodes must be live as long as the collector is used.
    /// * If `core_alive`, the memory contexts of the statement must be live too.
    #[inline(always)]
    pub unsafe fn new(
        nodes: &'a NodeTable,
        channel: &'a Cell<Option<Channel>>,
        core_alive: bool,
        timed: Option<Timed>,
    ) -> Self {
        Collector {
            nodes,
            channel,
            core_alive,
            timed,
        }
    }

    /// Returns a node.
    #[inline(always)]
    pub(super) fn node(&self, i: usize) -> LiveNode<'a> {
        LiveNode {
            node: self.nodes.get(i),
            core_alive: self.core_alive,
        }
    }

    /// Returns what the wrapper counted of a node's calls.
    #[inline(always)]
    fn calls(&self, node: NodeRef) -> Calls {
        match self.timed {
            None => Calls::Untimed { calls: 0 },
            Some(Timed::Sampled) => Calls::Sampled(node.timer()),
            Some(Timed::Never) => Calls::Untimed {
                calls: node.every_call().calls,
            },
            Some(Timed::EveryTsc | Timed::Every) => Calls::Every(node.every_call()),
        }
    }

    /// Returns how many rows a node returned. It is out of line, because few short statements need it.
    #[inline(never)]
    fn rows(&self, i: usize) -> u64 {
        self.sample(i).rows(None)
    }
}

/// A node of a collector, whose plan state is live.
#[derive(Clone, Copy)]
pub(super) struct LiveNode<'a> {
    node: NodeRef<'a>,
    core_alive: bool,
}

impl<'a> Deref for LiveNode<'a> {
    type Target = NodeRef<'a>;

    #[inline(always)]
    fn deref(&self) -> &NodeRef<'a> {
        &self.node
    }
}

impl<'a> LiveNode<'a> {
    /// Returns the plan state, if all that it leads to is live.
    #[inline(always)]
    pub(super) fn whole(self) -> Option<PlanStateRef<'a>> {
        // SAFETY: all of it is live with `core_alive`, because `Collector::new` requires that.
        self.core_alive.then(|| unsafe { Handle::new(self.plan_state()) })
    }

    /// Returns what core has counted.
    #[inline(always)]
    fn instrument(self) -> Option<&'a NodeInstrumentation> {
        // SAFETY: it is null, or as live as the plan state. No other reference to it is in use.
        unsafe { self.state().instrument.as_ref() }
    }
}

impl Nodes for Collector<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.nodes.count()
    }

    #[inline(always)]
    fn place(&self, i: usize) -> Place {
        self.nodes.get(i).place()
    }

    #[inline(always)]
    fn sample(&self, i: usize) -> NodeSample {
        let node = self.node(i);
        let instr = node.instrument();
        let usage = node.usage();
        let (mut buffers, mut wal) = (compat::buffers(&usage.buffers), compat::wal(&usage.wal));
        if let Some((of_called, wal_of_called)) = node.called() {
            buffers += of_called;
            wal += wal_of_called;
        }
        NodeSample {
            place: node.place(),
            is_instrumented: instr.is_some(),
            by_core: node.by_core(),
            processes: processes(node.state(), node.whole()),
            loops: instr.map_or(0.0, |instr| instr.nloops),
            is_running: instr.is_some_and(|instr| instr.running),
            rows: node.rows(),
            core_rows: instr.map_or(0.0, |instr| {
                let in_progress = if instr.running { instr.tuplecount } else { 0.0 };
                instr.ntuples + in_progress
            }),
            counts_calls: node.counts_calls(),
            // SAFETY: slots are as live as the plan states, because they are in the same memory context.
            is_last_row: node.counts_calls() && unsafe { wrapper::is_row(node.last()) },
            interrupted: node.interrupted(),
            calls: self.calls(*node),
            used: usage.used,
            buffers,
            wal,
            waited_ns: node.waited_ns(),
            estimate: node.estimate(),
        }
    }

    fn called(&self, i: usize) -> Called {
        let called = self.nodes.get(i).called();
        called.map_or(Called::default(), |(buffers, wal)| Called::of(&buffers, &wal))
    }

    /// An Append runs its asynchronous scans without their wrappers. The first one calls what they all need,
    /// and core has measured its time with that.
    fn last_caller(&self, i: usize) -> Caller {
        let caller = self.nodes.last_caller(i);
        let Caller::Node(append) = caller else {
            return caller;
        };
        let state = self.node(append).state();
        if state.tag() != NodeTag::T_AppendState || state.cast::<pg_sys::AppendState>().as_nasyncplans <= 0 {
            return caller;
        }
        let is_below = |node: NodeRef| usize::try_from(node.parent()) == Ok(append) && !node.by_expression();
        let is_async = |i: &usize| self.node(*i).state().async_capable;
        let mut below = (append + 1..self.nodes.iter().len()).filter(|i| is_below(self.nodes.get(*i)));
        below.find(is_async).map_or(caller, Caller::Node)
    }

    fn earlier_callers(&self) -> impl Iterator<Item = EarlierCaller> {
        let of_node = |(caller, node): (usize, NodeRef)| {
            let earlier = node.earlier().into_iter().filter(|earlier| earlier.subplan != 0);
            earlier.map(move |earlier| EarlierCaller {
                subplan: earlier.subplan,
                caller,
                ticks: earlier.ticks,
            })
        };
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.used().has_more).flat_map(of_node)
    }

    fn may_be_bypassed(&self, i: usize) -> bool {
        self.nodes.get(i).by_others()
    }

    fn may_have_run(&self, i: usize) -> bool {
        !is_unopened(self.node(i).state())
    }

    #[inline(always)]
    fn simple(&self, i: usize) -> Option<SimpleSample> {
        let node = self.node(i);
        let instr = node.instrument()?;
        let used = node.used();
        if node.by_core() || node.interrupted().is_some() || used.has_more {
            return None;
        }
        // Core has counted rows only if it has called the node itself.
        let rows = match node.counts_calls() || instr.ntuples != 0.0 || instr.tuplecount != 0.0 {
            true => self.rows(i),
            false => node.rows(),
        };
        Some(SimpleSample {
            // SAFETY: it is a count, which is not negative and less than 2^63.
            starts: unsafe { instr.nloops.to_int_unchecked::<i64>() } as u64 + u64::from(instr.running),
            rows,
            timed: match self.timed {
                Some(Timed::Sampled) => node.timed_calls(),
                Some(Timed::Never) | None => TimedCalls::None,
                Some(Timed::EveryTsc | Timed::Every) => TimedCalls::Every,
            },
            shared_hit: node.shared_hit(),
            has_changes: used.has_changes,
            estimate: node.estimate(),
        })
    }

    #[inline(always)]
    fn changes(&self, i: usize) -> (i64, Wal) {
        let node = self.node(i);
        let usage = node.usage();
        let (mut shared_dirtied, mut wal) = (usage.buffers.shared_blks_dirtied, compat::wal(&usage.wal));
        if let Some((buffers, wal_of_called)) = node.called() {
            shared_dirtied += buffers.shared_dirtied;
            wal += wal_of_called;
        }
        (shared_dirtied, wal)
    }

    #[inline(always)]
    fn facts(&self, i: usize) -> NodeFacts {
        let node = self.node(i);
        facts::read(node.state(), node.whole(), node.instrument())
    }

    #[inline(always)]
    fn simple_facts(&self, i: usize) -> Option<SimpleFacts> {
        let node = self.node(i);
        facts::read_simple(node.state(), node.whole(), node.instrument()?)
    }

    // Inlined, so that a caller which needs a part of it computes no more.
    #[inline(always)]
    fn core(&self, i: usize) -> CoreSample {
        let node = self.node(i);
        // SAFETY: it is null, or as live as the plan state, and this is the only reference to it.
        let Some(instr) = (unsafe { node.state().instrument.as_mut() }) else {
            return CoreSample::default();
        };
        let interrupted_ns = compat::core_interrupted_ns(instr);
        let base = compat::common_instrumentation(instr);
        let mut buffers = base.need_bufusage.then(|| compat::buffers(&base.bufusage));
        let mut wal = base.need_walusage.then(|| compat::wal(&base.walusage));
        // If core alone measures, EXPLAIN does not show what an interrupted call used, so it is not added
        // here either.
        if interrupted_ns.is_some()
            && self.timed.is_some()
            && let (Some(buffers), Some(wal)) = (&mut buffers, &mut wal)
        {
            let (in_call, wal_in_call) = compat::core_interrupted_usage(instr);
            *buffers += in_call;
            *wal += wal_in_call;
        }
        CoreSample {
            is_interrupted: interrupted_ns.is_some(),
            total_ns: compat::core_total_ns(instr) + interrupted_ns.unwrap_or(0.0),
            startup_ns: compat::core_startup_ns(instr),
            buffers: buffers.into(),
            wal: wal.into(),
            worker_loops: worker_loops(node.state()),
            workers: self
                .channel
                .get()
                .map(|channel| channel.read(node.plan_node_id()))
                .unwrap_or_default(),
        }
    }
}

/// Returns what a node has to do with the sharing of rows among processes.
pub(super) fn sharing(ps: PlanStateRef) -> Sharing {
    let plan = ps.plan();
    let workers = match ps.tag() {
        NodeTag::T_GatherState => plan.cast::<pg_sys::Gather>().num_workers,
        NodeTag::T_GatherMergeState => plan.cast::<pg_sys::GatherMerge>().num_workers,
        NodeTag::T_AggState | NodeTag::T_GroupState | NodeTag::T_UniqueState => return Sharing::Grouping,
        NodeTag::T_AppendState if plan.parallel_aware => return Sharing::SharedAppend,
        NodeTag::T_AppendState => return Sharing::Append,
        _ if plan.parallel_aware => return Sharing::Shared,
        _ => return Sharing::Plain,
    };
    Sharing::Gather(parallel_divisor(workers, leader_participates()))
}

/// Returns whether the leader of parallel workers runs their part of the plan, too.
fn leader_participates() -> bool {
    GLOBALS.parallel_leader_participation.get()
}

/// Returns whether a node is a scan that has not begun. These scans open their table or index for the first
/// row, and keep it open until the statement ends. Others may begin in another way, or forget it when they
/// begin again.
fn is_unopened(ps: Bare<PlanState>) -> bool {
    match ps.tag() {
        NodeTag::T_SeqScanState
        | NodeTag::T_SampleScanState
        | NodeTag::T_TidScanState
        | NodeTag::T_TidRangeScanState => ps.cast::<pg_sys::ScanState>().ss_currentScanDesc.is_null(),
        NodeTag::T_IndexScanState => ps.cast::<pg_sys::IndexScanState>().iss_ScanDesc.is_null(),
        NodeTag::T_IndexOnlyScanState => ps.cast::<pg_sys::IndexOnlyScanState>().ioss_ScanDesc.is_null(),
        _ => false,
    }
}

/// Returns how many processes run the inputs of a node. `whole` is the same node, if all of it is live.
#[inline(always)]
fn processes(ps: Bare<PlanState>, whole: Option<PlanStateRef>) -> f64 {
    let (workers, is_single) = match ps.tag() {
        NodeTag::T_GatherState => {
            let single = whole.is_some_and(|whole| whole.plan().cast::<pg_sys::Gather>().single_copy);
            (ps.cast::<pg_sys::GatherState>().nworkers_launched, single)
        }
        NodeTag::T_GatherMergeState => (ps.cast::<pg_sys::GatherMergeState>().nworkers_launched, false),
        _ => return 1.0,
    };
    let leader_helps = leader_participates() && !is_single;
    f64::from(workers + i32::from(leader_helps || workers == 0))
}

/// Returns how many finished loops the workers reported for a node.
fn worker_loops(ps: Bare<PlanState>) -> f64 {
    // SAFETY: the workers' array is null, or lives as long as the plan state and has `num_workers` entries.
    unsafe {
        let Some(workers) = ps.worker_instrument.as_ref() else {
            return 0.0;
        };
        workers
            .instrument
            .as_slice(workers.num_workers.max(0) as usize)
            .iter()
            .map(|worker| worker.nloops)
            .sum()
    }
}
