//! Copies the data that PostgreSQL and the wrappers have of each node into plain structs.

use super::facts;
use super::node_table::{NodeRef, NodeTable};
use super::parallel::Channel;
use crate::pg::compat;
use crate::pg::hot::wrapper::{self, Timed};
use crate::pg::plan::tree;
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::model::facts::SimpleFacts;
use rowsource_core::model::{Called, NodeFacts, Wal};
use rowsource_core::results::{
    Caller, Calls, CoreSample, EarlierCaller, NodeSample, Nodes, Place, Sharing, SimpleSample, TimedCalls,
    parallel_divisor,
};
use std::cell::Cell;

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
        let node = self.nodes.get(i);
        let plan_state = node.plan_state();
        // SAFETY: the plan state is live, and with `core_alive` so are its memory contexts, because `new`
        // requires that. Its instrumentation is null or lives as long as it.
        let (instr, processes) = unsafe { ((*plan_state).instrument.as_ref(), processes(plan_state)) };
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
            processes,
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
            calls: self.calls(node),
            used: usage.used,
            buffers,
            wal,
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
        // SAFETY: the plan state is live, because `new` requires that.
        if !unsafe { tree::runs_asynchronous_scans(self.nodes.get(append).plan_state()) } {
            return caller;
        }
        let is_below = |node: NodeRef| usize::try_from(node.parent()) == Ok(append) && !node.by_expression();
        // SAFETY: as above.
        let is_async = |i: &usize| unsafe { (*self.nodes.get(*i).plan_state()).async_capable };
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
        // SAFETY: the plan state is live, because `new` requires that.
        !unsafe { is_unopened(self.nodes.get(i).plan_state()) }
    }

    #[inline(always)]
    fn simple(&self, i: usize) -> Option<SimpleSample> {
        let node = self.nodes.get(i);
        // SAFETY: the plan state is live, because `new` requires that. Its instrumentation is null or lives
        // as long as it.
        let instr = unsafe { (*node.plan_state()).instrument.as_ref()? };
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
        let node = self.nodes.get(i);
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
        let plan_state = self.nodes.get(i).plan_state();
        // SAFETY: the plan state is live, and with `core_alive` so are its memory contexts, because `new`
        // requires that. Its instrumentation is null or lives as long as it.
        unsafe { facts::read(plan_state, (*plan_state).instrument.as_ref(), self.core_alive) }
    }

    #[inline(always)]
    fn simple_facts(&self, i: usize) -> Option<SimpleFacts> {
        let plan_state = self.nodes.get(i).plan_state();
        // SAFETY: as above.
        unsafe { facts::read_simple(plan_state, (*plan_state).instrument.as_ref()?, self.core_alive) }
    }

    // Inlined, so that a caller which needs a part of it computes no more.
    #[inline(always)]
    fn core(&self, i: usize) -> CoreSample {
        let node = self.nodes.get(i);
        let plan_state = node.plan_state();
        // SAFETY: the plan state is live, because `new` requires that. Its instrumentation is null or lives
        // as long as it, and this is the only reference to it.
        let Some(instr) = (unsafe { (*plan_state).instrument.as_mut() }) else {
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
            // SAFETY: the plan state is live, because `new` requires that.
            worker_loops: unsafe { worker_loops(plan_state) },
            workers: self
                .channel
                .get()
                .map(|channel| channel.read(node.plan_node_id()))
                .unwrap_or_default(),
        }
    }
}

/// Returns what a node has to do with the sharing of rows among processes.
///
/// # Safety
/// `ps` must point to an initialised plan state, whose plan must be live.
pub(super) unsafe fn sharing(ps: *mut pg_sys::PlanState) -> Sharing {
    // SAFETY: the plan state and its plan are live by the caller's promise, and each cast follows the tag.
    unsafe {
        let plan = (*ps).plan;
        let workers = match tree::tag(ps) {
            NodeTag::T_GatherState => (*plan.cast::<pg_sys::Gather>()).num_workers,
            NodeTag::T_GatherMergeState => (*plan.cast::<pg_sys::GatherMerge>()).num_workers,
            NodeTag::T_AggState | NodeTag::T_GroupState | NodeTag::T_UniqueState => return Sharing::Grouping,
            NodeTag::T_AppendState if (*plan).parallel_aware => return Sharing::SharedAppend,
            NodeTag::T_AppendState => return Sharing::Append,
            _ if (*plan).parallel_aware => return Sharing::Shared,
            _ => return Sharing::Plain,
        };
        Sharing::Gather(parallel_divisor(workers, pg_sys::parallel_leader_participation))
    }
}

/// Returns whether a node is a scan that has not begun. These scans open their table or index for the first
/// row, and keep it open until the statement ends. Others may begin in another way, or forget it when they
/// begin again.
///
/// # Safety
/// `ps` must point to an initialised plan state.
unsafe fn is_unopened(ps: *mut pg_sys::PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and of the type that its tag says.
    unsafe {
        match tree::tag(ps) {
            NodeTag::T_SeqScanState
            | NodeTag::T_SampleScanState
            | NodeTag::T_TidScanState
            | NodeTag::T_TidRangeScanState => (*ps.cast::<pg_sys::ScanState>()).ss_currentScanDesc.is_null(),
            NodeTag::T_IndexScanState => (*ps.cast::<pg_sys::IndexScanState>()).iss_ScanDesc.is_null(),
            NodeTag::T_IndexOnlyScanState => {
                (*ps.cast::<pg_sys::IndexOnlyScanState>()).ioss_ScanDesc.is_null()
            }
            _ => false,
        }
    }
}

/// Returns how many processes run the inputs of a node.
///
/// # Safety
/// `ps` must point to an initialised plan state.
#[inline(always)]
unsafe fn processes(ps: *mut pg_sys::PlanState) -> f64 {
    // SAFETY: the plan state is initialised by the caller's promise, and of the type that its tag says.
    let (workers, is_single) = unsafe {
        match tree::tag(ps) {
            NodeTag::T_GatherState => {
                let single = (*(*ps).plan.cast::<pg_sys::Gather>()).single_copy;
                ((*ps.cast::<pg_sys::GatherState>()).nworkers_launched, single)
            }
            NodeTag::T_GatherMergeState => {
                ((*ps.cast::<pg_sys::GatherMergeState>()).nworkers_launched, false)
            }
            _ => return 1.0,
        }
    };
    // SAFETY: this is a global of a plain type, which is valid at all times.
    let leader_helps = unsafe { pg_sys::parallel_leader_participation } && !is_single;
    f64::from(workers + i32::from(leader_helps || workers == 0))
}

/// Returns how many finished loops the workers reported for a node.
///
/// # Safety
/// `ps` must point to an initialised plan state.
unsafe fn worker_loops(ps: *mut pg_sys::PlanState) -> f64 {
    // SAFETY: the plan state is initialised by the caller's promise. The workers' array, if there is one,
    // lives as long as it and has `num_workers` entries.
    unsafe {
        let Some(workers) = (*ps).worker_instrument.as_ref() else {
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
