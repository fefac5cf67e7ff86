//! Installs a statement's instrumentation and wrappers in its plan states, and restores wrappers that core
//! has replaced.

use super::owner;
use super::state::{
    INSTRUMENT_BUFFERS, INSTRUMENT_ROWS, INSTRUMENT_ROWSOURCE, INSTRUMENT_TIMER, INSTRUMENT_WAL, Statement,
};
use crate::instrumentation::InstrumentationLevel;
use crate::pg::hot::timing;
use crate::pg::hot::wrapper::{self, Accounting, Scope, Timed};
use crate::pg::plan::{side_effects, tree};
use crate::pg::results::node_table::NodeRef;
use crate::pg::{compat, results, server};
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::results::Mode;

impl Statement {
    /// Makes `PlanState.instrument` point into the nodes, tells core what to measure, and chooses the
    /// wrappers.
    ///
    /// # Safety
    /// * The statement's query must be started, and its nodes must have their plan states.
    /// * None of its nodes may have run yet.
    pub(super) unsafe fn install_instrumentation(&mut self, has_gather: bool, requested_by_others: i32) {
        let estate = {
            // SAFETY: the query is started by the caller's promise, so it has its state.
            unsafe { (*self.query).estate }
        };
        // If core measures nothing, it has not allocated instrumentation.
        // SAFETY: the state of a started query is live.
        let requested = unsafe { (*estate).es_instrument };
        let plan_states = self.nodes.iter().map(|node| node.plan_state());
        // SAFETY: the query is started, and these are its plan states.
        let is_read_only = unsafe { side_effects::is_read_only(self.query, plan_states) };
        let before = if is_read_only {
            // Whoever called a node may have used work files if any node can.
            let mut nodes = self.nodes.iter();
            // SAFETY: the plan states are live by the caller's promise.
            match nodes.any(|node| unsafe { side_effects::may_use_files(node.plan_state()) }) {
                true => Scope::Reads,
                false => Scope::Shared,
            }
        } else {
            Scope::All
        };
        self.link_accounts();
        // SAFETY: the plan states are live by the caller's promise.
        unsafe { self.pair_fused_scans() };
        // The loop goes from the last node to the first, so parents come after their children. As long as the
        // next nodes are less deep than `above`, they have a node below them whose shutdown does work of its
        // own.
        let mut above = 0;
        let (mut core_contributes, mut only_by_core) = (false, !has_gather);
        for node in self.nodes.iter().rev() {
            // SAFETY: the plan state is live by the caller's promise.
            let shuts_down = node.depth() < above || unsafe { shuts_down(node.plan_state()) };
            if shuts_down {
                above = node.depth();
            }
            // SAFETY: the plan state is live, and its node has not run yet, by the caller's promise.
            let contributes =
                unsafe { self.install_in(node, requested != 0, has_gather || shuts_down, before) };
            core_contributes |= contributes;
            only_by_core &= !contributes || node.by_core() && !shuts_down;
        }
        self.core_contributes |= core_contributes;
        self.only_by_core = only_by_core;
        // `is_read_only` depends on more than the plan's identity, so it may be wrong for the next execution.
        // So does what core measures of nodes that others call too.
        self.reusable
            .set(self.mode == Mode::RowsourceOnly && !is_read_only && only_by_core && self.has_queryid());
        if has_gather {
            // SAFETY: the state of a started query is live, and no reference to it exists.
            unsafe { (*estate).es_instrument = self.reported_by_workers(requested | requested_by_others) };
        }
    }

    /// Makes the `instrument` of a node's plan state point to the node, and chooses its wrapper; its caller
    /// can move the counters of `before`. Does nothing if core measures but not this node. Returns whether
    /// core contributes to the node's statistics; it does if `core_contributes`.
    ///
    /// # Safety
    /// The node's plan state must be live, and may not have run yet.
    #[inline(always)]
    unsafe fn install_in(
        &self,
        node: NodeRef,
        core_measures: bool,
        core_contributes: bool,
        before: Scope,
    ) -> bool {
        let (ps, instr) = (node.plan_state(), node.instrumentation());
        // SAFETY: the plan state is live by the caller's promise. Core uses `instrument` only through the
        // plan state. The node lives as long as the statement, which lives as long as the query's context.
        unsafe {
            if !(*ps).instrument.is_null() {
                *instr = *(*ps).instrument;
            } else if core_measures {
                return false;
            }
            let is_async = (*ps).async_capable;
            // Core's calls around shutdown only matter if workers or remote servers are shut down.
            let core_contributes = core_contributes || node.by_core() || is_async || node.under_gather();
            (*instr).async_mode = is_async;
            self.measure_by_core(node, core_contributes);
            node.start_timer();
            let accounting = self.accounting(node);
            node.set_notes_no_reading(
                self.timed == Timed::Sampled
                    && matches!(accounting, Accounting::Leaf | Accounting::FusedScan),
            );
            // What receives the rows of the root may use work files.
            let before = match before {
                Scope::Shared if node.parent() < 0 => Scope::Reads,
                before => before,
            };
            let after = match before {
                Scope::All => Scope::All,
                _ if side_effects::may_use_files(ps) => Scope::Reads,
                _ => Scope::Shared,
            };
            let is_fused = accounting == Accounting::FusedScan;
            let is_drained = is_fused || (!core_contributes && self.is_drained(node));
            node.set_counts_calls(is_drained && wrapper::counts_calls(self.timed, accounting));
            let method = wrapper::method(self.timed, accounting, before, after, is_drained);
            node.set_method(Some(method));
            (*ps).instrument = instr;
            compat::count_index_searches(ps, node.index_searches());
            core_contributes
        }
    }

    /// Tells core what to measure in a node: nothing, or what the statement's level has.
    ///
    /// # Safety
    /// The node may not have run yet in this execution.
    #[inline(always)]
    pub(super) unsafe fn measure_by_core(&self, node: NodeRef, core_contributes: bool) {
        let is_measured = core_contributes && self.level != InstrumentationLevel::Rows;
        // SAFETY: nobody else uses the node's instrumentation now, by the caller's promise.
        let core = compat::common_instrumentation(unsafe { &mut *node.instrumentation() });
        // The timer also tells which calls an error interrupted.
        core.need_timer = is_measured;
        core.need_bufusage = is_measured;
        core.need_walusage = is_measured;
    }

    /// Returns whether a node's caller reads each start of it to its end in a single call of its own.
    ///
    /// # Safety
    /// The plan states must be live.
    #[inline(always)]
    unsafe fn is_drained(&self, node: NodeRef) -> bool {
        match usize::try_from(node.parent()) {
            Ok(parent) if !node.by_expression() => {
                // SAFETY: the plan state is live by the caller's promise.
                unsafe { side_effects::reads_to_the_end(self.nodes.get(parent).plan_state()) }
            }
            _ => false,
        }
    }

    /// Returns what parallel workers measure and report, beside what is requested.
    fn reported_by_workers(&self, requested: i32) -> i32 {
        let mut options = requested | INSTRUMENT_ROWSOURCE | INSTRUMENT_ROWS;
        if self.level == InstrumentationLevel::Timed {
            options |= INSTRUMENT_TIMER;
        }
        if self.level != InstrumentationLevel::Rows {
            options |= INSTRUMENT_BUFFERS | INSTRUMENT_WAL;
        }
        options
    }

    /// Gives each node its caller's account: the account of the nearest node above that has a wrapper. Nodes
    /// such as Hash have none, because core does not call them by ExecProcNode. The caller of an InitPlan or
    /// a subplan is noted when it is called.
    ///
    /// The accounts stay valid until the statement is moved or dropped.
    fn link_accounts(&self) {
        for node in self.nodes.iter() {
            let caller = match usize::try_from(node.parent()).map(|parent| self.nodes.get(parent)) {
                Ok(_) if node.by_expression() => std::ptr::null_mut(),
                Err(_) => self.outside.get(),
                Ok(parent) if parent.by_core() => parent.caller(),
                Ok(parent) => parent.account(),
            };
            node.set_caller(caller);
        }
        self.nodes.list_by_core();
    }

    /// Pairs each plain aggregate with its scan, if it does nothing but read that scan to its end.
    ///
    /// # Safety
    /// The plan states must be live.
    unsafe fn pair_fused_scans(&self) {
        if self.level == InstrumentationLevel::Rows {
            return;
        }
        // An outer child directly follows a parent without InitPlans.
        for i in 1..self.nodes.count() {
            let (parent, node) = (self.nodes.get(i - 1), self.nodes.get(i));
            let is_child = node.parent() == i as i32 - 1 && !parent.by_expression();
            let (aggregate, scan) = (parent.plan_state(), node.plan_state());
            // SAFETY: the plan states are live by the caller's promise.
            let is_fused = is_child
                && unsafe {
                    // Core starts a scan with run-time keys again in its first call. The wrapper that times
                    // nothing would see two starts.
                    side_effects::is_plain_aggregate_over_scan(aggregate, scan)
                        && (self.timed != Timed::Never || !side_effects::has_runtime_keys(scan))
                };
            if is_fused {
                parent.set_fused_scan(node.as_ptr());
                node.set_is_fused_scan(true);
            }
        }
    }

    /// Returns how buffers are charged for a node.
    ///
    /// # Safety
    /// The plan state must be live.
    #[inline(always)]
    unsafe fn accounting(&self, node: NodeRef) -> Accounting {
        if self.level == InstrumentationLevel::Rows {
            Accounting::None
        } else if node.by_expression() {
            Accounting::SubplanRoot
        } else if !node.fused_scan().is_null() {
            Accounting::FusedAggregate
        } else if node.is_fused_scan() {
            Accounting::FusedScan
            // SAFETY: the plan state is live by the caller's promise.
        } else if unsafe { calls_no_node(node.plan_state()) } {
            Accounting::Leaf
        } else {
            Accounting::Switch
        }
    }

    /// Installs the wrappers. This happens at the first run, not at the start, because in a worker Parallel
    /// Hash resets `ExecProcNode` between the two.
    ///
    /// # Safety
    /// The plan states must be live.
    pub(super) unsafe fn install(&self) {
        for node in self.nodes.iter() {
            if node.by_core() || node.method().is_none() {
                continue;
            }
            let plan_state = node.plan_state();
            // SAFETY: the plan states are live by the caller's promise.
            unsafe {
                let first = if tree::is_gather(plan_state) {
                    gather_first_call
                } else {
                    wrapper::first_call
                };
                node.set_installed(Some(first));
                (*plan_state).ExecProcNode = Some(first);
            }
        }
    }

    /// Restores wrappers that core has replaced, and takes what the nodes below used meanwhile from core's
    /// counts, which include it. Parallel Hash resets `ExecProcNode` in the leader too, inside the Gather's
    /// first call. So this is called after that call has returned or failed.
    ///
    /// # Safety
    /// The plan states must be live if core has replaced a wrapper.
    pub(super) unsafe fn note_unwrapped(&self) {
        // SAFETY: the plan states are live by the caller's promise.
        let is_unwrapped = |node: &NodeRef| unsafe { is_unwrapped(*node) };
        if !self.is_wrapped() || !self.nodes.iter().any(|node| is_unwrapped(&node)) {
            return;
        }
        let charged = results::charged_below(&self.nodes);
        for (i, node) in self.nodes.iter().enumerate() {
            if !is_unwrapped(&node) {
                continue;
            }
            // SAFETY: the plan states are live by the caller's promise.
            unsafe { (*node.plan_state()).ExecProcNode = node.method() };
            // Now the node's own counts are complete again: see `live::compute`.
            node.set_before(timing::last().max(1));
            // If there is no memory for the sums, these blocks are counted twice.
            if let Some(charged) = &charged {
                let (buffers, wal) = &charged[i];
                // SAFETY: nobody else uses the node's instrumentation now.
                unsafe { compat::uncount(&mut *node.instrumentation(), buffers, wal) };
            }
        }
    }
}

/// Returns whether shutting a node down does work of its own.
///
/// # Safety
/// `ps` must point to an initialised plan state.
unsafe fn shuts_down(ps: *mut pg_sys::PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and begins with its tag.
    let kind = unsafe { tree::tag(ps) };
    matches!(kind, NodeTag::T_ForeignScanState | NodeTag::T_CustomScanState)
}

/// Returns whether a node calls no node that has a wrapper, neither as an input nor in an expression.
///
/// # Safety
/// `ps` must point to an initialised plan state of a started query.
#[inline(always)]
unsafe fn calls_no_node(ps: *mut pg_sys::PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and its query is started.
    unsafe {
        // Core calls the index scans below a bitmap scan, and they have no wrapper. Any expression may run an
        // InitPlan.
        matches!(
            tree::tag(ps),
            NodeTag::T_SeqScanState
                | NodeTag::T_SampleScanState
                | NodeTag::T_IndexScanState
                | NodeTag::T_IndexOnlyScanState
                | NodeTag::T_BitmapHeapScanState
                | NodeTag::T_TidScanState
                | NodeTag::T_TidRangeScanState
                | NodeTag::T_FunctionScanState
                | NodeTag::T_ValuesScanState
                | NodeTag::T_WorkTableScanState
        ) && (*(*(*ps).state).es_plannedstmt).subplans.is_null()
    }
}

/// Returns whether core has replaced a node's wrapper. That is so if the address is none of those that
/// pg_rowsource installed.
///
/// # Safety
/// The node's plan state must be live.
unsafe fn is_unwrapped(node: NodeRef) -> bool {
    let address = |method: pg_sys::ExecProcNodeMtd| method.map_or(0, |m| m as usize);
    if !node.under_gather() || node.by_core() || node.method().is_none() {
        return false;
    }
    // SAFETY: the plan state is live by the caller's promise.
    let present = address(unsafe { (*node.plan_state()).ExecProcNode });
    present != address(node.method()) && present != address(node.installed())
}

/// The wrapper of a Gather's first call.
///
/// # Safety
/// * Only the executor may call this, for a plan state in which [`Statement::install`] installed it.
/// * An error crosses this frame.
unsafe extern "C-unwind" fn gather_first_call(ps: *mut pg_sys::PlanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: the executor calls this for a node of an open statement. The statement is looked up only after
    // the call, so this frame holds nothing when an error crosses it.
    unsafe {
        let slot = wrapper::first_call(ps);
        if let Some(statement) = owner::of((*ps).state) {
            // No guard stands above this frame.
            server::attempt("note the nodes of a Gather", || statement.note_unwrapped());
        }
        slot
    }
}
