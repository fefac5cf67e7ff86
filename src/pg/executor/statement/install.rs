//! Installs a statement's instrumentation and wrappers in its plan states, and restores wrappers that core
//! has replaced.

use super::owner;
use super::state::{
    INSTRUMENT_BUFFERS, INSTRUMENT_ROWS, INSTRUMENT_ROWSOURCE, INSTRUMENT_TIMER, INSTRUMENT_WAL, Statement,
};
use crate::instrumentation::InstrumentationLevel;
use crate::pg::handles::{PlanStateRef, StartedQuery};
use crate::pg::hot::timing;
use crate::pg::hot::wrapper::{self, Accounting, Scope, Timed};
use crate::pg::plan::side_effects;
use crate::pg::plan::tree::{self, Found};
use crate::pg::results::node_table::NodeRef;
use crate::pg::{compat, results, server};
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::results::Mode;

impl Statement {
    /// Makes `PlanState.instrument` point into the nodes, tells core what to measure, and chooses the
    /// wrappers.
    ///
    /// # Safety
    /// * These must be the plan states of the statement's nodes, none of which has run yet.
    /// * The query's context must get the statement. No reference to a plan state may be in use.
    pub(super) unsafe fn install_instrumentation(
        &mut self,
        query: StartedQuery,
        found: &[Found],
        has_gather: bool,
        requested_by_others: i32,
    ) {
        let estate = query.estate();
        // If core measures nothing, it has not allocated instrumentation.
        let requested = estate.es_instrument;
        let plan_states = found.iter().map(|found| found.plan_state);
        let is_read_only = side_effects::is_read_only(query, plan_states.clone());
        let before = if is_read_only {
            // Whoever called a node may have used work files if any node can.
            match { plan_states }.any(side_effects::may_use_files) {
                true => Scope::Reads,
                false => Scope::Shared,
            }
        } else {
            Scope::All
        };
        self.link_accounts();
        self.pair_fused_scans(found);
        // The loop goes from the last node to the first, so parents come after their children. As long as the
        // next nodes are less deep than `above`, they have a node below them whose shutdown does work of its
        // own.
        let mut above = 0;
        let (mut core_contributes, mut only_by_core) = (false, !has_gather);
        for (node, place) in self.nodes.iter().zip(found).rev() {
            let shuts_down = node.depth() < above || shuts_down(node.kind());
            if shuts_down {
                above = node.depth();
            }
            let parent = usize::try_from(node.parent())
                .ok()
                .filter(|_| !node.by_expression());
            let is_drained =
                parent.is_some_and(|parent| side_effects::reads_to_the_end(found[parent].plan_state));
            let has_core = has_gather || shuts_down;
            // SAFETY: the caller promises the same.
            let contributes = unsafe {
                self.install_in(
                    node,
                    place.plan_state,
                    requested != 0,
                    has_core,
                    before,
                    is_drained,
                )
            };
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
            let reported = self.reported_by_workers(requested | requested_by_others);
            // SAFETY: no reference to the state is in use.
            unsafe { (*estate.as_ptr()).es_instrument = reported };
        }
    }

    /// Makes the `instrument` of a node's plan state point to the node, and chooses its wrapper; its caller
    /// can move the counters of `before`. Does nothing if core measures but not this node. Returns whether
    /// core contributes to the node's statistics; it does if `core_contributes`. The node's caller reads each
    /// start of it to its end in a single call of its own if it `is_drained`.
    ///
    /// # Safety
    /// As for [`Statement::install_instrumentation`].
    #[inline(always)]
    unsafe fn install_in(
        &self,
        node: NodeRef,
        ps: PlanStateRef,
        core_measures: bool,
        core_contributes: bool,
        before: Scope,
        is_drained: bool,
    ) -> bool {
        let instr = node.instrumentation();
        // SAFETY: core uses `instrument` only through the plan state. The node lives as long as the
        // statement, which lives as long as the query's context. No reference to the plan state is in use.
        unsafe {
            if !ps.instrument.is_null() {
                *instr = *ps.instrument;
            } else if core_measures {
                return false;
            }
            let is_async = ps.async_capable;
            // Core's calls around shutdown only matter if workers or remote servers are shut down.
            let core_contributes = core_contributes || node.by_core() || is_async || node.under_gather();
            (*instr).async_mode = is_async;
            self.measure_by_core(node, core_contributes);
            node.start_timer();
            let accounting = self.accounting(node, ps);
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
            let is_drained = is_fused || (!core_contributes && is_drained);
            node.set_counts_calls(is_drained && wrapper::counts_calls(self.timed, accounting));
            let method = wrapper::method(self.timed, accounting, before, after, is_drained);
            node.set_method(Some(method));
            (*ps.as_ptr()).instrument = instr;
            compat::count_index_searches(ps.as_ptr(), node.index_searches());
            core_contributes
        }
    }

    /// Tells core what to measure in a node: nothing, or what the statement's level has.
    #[inline(always)]
    pub(super) fn measure_by_core(&self, node: NodeRef, core_contributes: bool) {
        let is_measured = core_contributes && self.level != InstrumentationLevel::Rows;
        // SAFETY: the node is live, and no other reference to its instrumentation exists.
        let core = compat::common_instrumentation(unsafe { &mut *node.instrumentation() });
        // The timer also tells which calls an error interrupted.
        core.need_timer = is_measured;
        core.need_bufusage = is_measured;
        core.need_walusage = is_measured;
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
    fn pair_fused_scans(&self, found: &[Found]) {
        if self.level == InstrumentationLevel::Rows {
            return;
        }
        // An outer child directly follows a parent without InitPlans.
        for i in 1..self.nodes.count() {
            let (parent, node) = (self.nodes.get(i - 1), self.nodes.get(i));
            let is_child = node.parent() == i as i32 - 1 && !parent.by_expression();
            let (aggregate, scan) = (found[i - 1].plan_state, found[i].plan_state);
            // Core starts a scan with run-time keys again in its first call. The wrapper that times nothing
            // would see two starts.
            let is_fused = is_child
                && side_effects::is_plain_aggregate_over_scan(aggregate, scan)
                && (self.timed != Timed::Never || !side_effects::has_runtime_keys(scan));
            if is_fused {
                parent.set_fused_scan(node.as_ptr());
                node.set_is_fused_scan(true);
            }
        }
    }

    /// Returns how buffers are charged for a node.
    #[inline(always)]
    fn accounting(&self, node: NodeRef, ps: PlanStateRef) -> Accounting {
        if self.level == InstrumentationLevel::Rows {
            Accounting::None
        } else if node.by_expression() {
            Accounting::SubplanRoot
        } else if !node.fused_scan().is_null() {
            Accounting::FusedAggregate
        } else if node.is_fused_scan() {
            Accounting::FusedScan
        } else if calls_no_node(ps) {
            Accounting::Leaf
        } else {
            Accounting::Switch
        }
    }

    /// Installs the wrappers. This happens at the first run, not at the start, because in a worker Parallel
    /// Hash resets `ExecProcNode` between the two.
    pub(super) fn install(&self) {
        for node in self.nodes.iter() {
            if node.by_core() || node.method().is_none() {
                continue;
            }
            let first = if tree::is_gather(node.kind()) {
                gather_first_call
            } else {
                wrapper::first_call
            };
            node.set_installed(Some(first));
            node.set_called(Some(first));
        }
    }

    /// Restores wrappers that core has replaced, and takes what the nodes below used meanwhile from core's
    /// counts, which include it. Parallel Hash resets `ExecProcNode` in the leader too, inside the Gather's
    /// first call. So this is called after that call has returned or failed.
    pub(super) fn note_unwrapped(&self) {
        if !self.is_wrapped() || !self.nodes.iter().any(is_unwrapped) {
            return;
        }
        let charged = results::charged_below(&self.nodes);
        for (i, node) in self.nodes.iter().enumerate() {
            if !is_unwrapped(node) {
                continue;
            }
            node.set_called(node.method());
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

/// Returns whether shutting a node of this type down does work of its own.
fn shuts_down(kind: NodeTag) -> bool {
    matches!(kind, NodeTag::T_ForeignScanState | NodeTag::T_CustomScanState)
}

/// Returns whether a node calls no node that has a wrapper, neither as an input nor in an expression.
#[inline(always)]
fn calls_no_node(ps: PlanStateRef) -> bool {
    // Core calls the index scans below a bitmap scan, and they have no wrapper. Any expression may run an
    // InitPlan.
    matches!(
        ps.tag(),
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
    ) && ps.statement().subplans.is_null()
}

/// Returns whether core has replaced a node's wrapper. That is so if the address is none of those that
/// pg_rowsource installed.
fn is_unwrapped(node: NodeRef) -> bool {
    let address = |method: pg_sys::ExecProcNodeMtd| method.map_or(0, |m| m as usize);
    if !node.under_gather() || node.by_core() || node.method().is_none() {
        return false;
    }
    let present = address(node.called_now());
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
