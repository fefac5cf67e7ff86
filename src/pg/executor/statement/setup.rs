//! Sets up a started statement: allocates its nodes, identifies its plan, and decides whether the wrappers or
//! core measure it. If the pool has a statement of the same plan, that one is prepared for another execution
//! instead.

use super::pool::{self, Idle};
use super::state::{
    INSTRUMENT_BUFFERS, INSTRUMENT_ROWSOURCE, INSTRUMENT_TIMER, INSTRUMENT_WAL, Life, Replaced, Statement,
    Target,
};
use super::text::{known_text, text};
use super::{facts, sampling};
use crate::guc;
use crate::instrumentation::{InstrumentationLevel, InstrumentationPlan};
use crate::pg::executor::response::{self, Begun};
use crate::pg::executor::{explain, own, unmeasured, unnamed};
use crate::pg::handles::StartedQuery;
use crate::pg::hot::usage::Usage;
use crate::pg::hot::waits::{self, Folding, Frame};
use crate::pg::hot::wrapper::Timed;
use crate::pg::live::Need;
use crate::pg::plan::fold::{self, Shown};
use crate::pg::plan::tree::{self, Found};
use crate::pg::plan::{describe, identity, temporary};
use crate::pg::results::node_table::NodeTable;
use crate::pg::results::parallel;
use crate::pg::server::contained::Unlocked;
use crate::pg::server::{self, memory, switch};
use crate::pg::sql_trace::level;
use crate::pg::{compat, store};
use crate::session;
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::model::{Estimate, LazyDescription, Outcome, PlanKey, PlanOrigin};
use rowsource_core::phase::Event;
use rowsource_core::results::{Mode, Shape};
use std::cell::{Cell, OnceCell, UnsafeCell};
use std::rc::Rc;

/// Sets up a started statement for measuring. `requested_before` is the instrumentation that others had
/// requested from core before the start, and `added_by_us` is what pg_rowsource added. `toplevel` says that
/// no other statement runs it, and `is_sent` that a client sent it. Returns false if the statement will run
/// unmeasured.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
pub fn attach(
    query: StartedQuery,
    setting: &InstrumentationPlan,
    requested_before: i32,
    added_by_us: i32,
    toplevel: bool,
    is_sent: bool,
) -> bool {
    if memory::is_short() {
        return false;
    }
    let (estate, plan) = (query.estate(), query.plan());
    let requested_by_others = requested_before | (estate.es_instrument & !added_by_us);
    let with_auto_explain;
    let setting = if requested_by_others & INSTRUMENT_TIMER != 0 {
        with_auto_explain = explain::with_auto_explain(setting);
        &with_auto_explain
    } else {
        setting
    };
    let mode = mode(setting, requested_by_others);
    let mut found = tree::Nodes::new();
    tree::walk(query.root(), &mut found);
    if found.is_empty() {
        return false;
    }
    let has_temporary_tables = temporary::session_has_tables();
    let planid = identity::by_oids(&found, has_temporary_tables);
    let planned_as = match compat::query_id(&plan) {
        0 => unnamed::queryid(plan),
        queryid => queryid,
    };
    let queryid = if has_temporary_tables {
        temporary::query_id(estate, planned_as, || known_text(*query, planned_as))
    } else {
        planned_as
    };
    let key = PlanKey::new(
        server::user_id(),
        server::database_id(),
        queryid,
        planid,
        toplevel,
    );
    let matching = if mode == Mode::RowsourceOnly {
        pool::take_matching(&key, planned_as, setting, found.len())
    } else {
        None
    };
    // SAFETY: `found` are all plan states of the query, and its context gets the statement. Equal keys mean
    // plan states of the same kinds and order. No reference to a part of the query is in use.
    unsafe {
        let statement = match matching {
            Some(idle) => idle.revive(query, &found),
            None => match set_up(
                query,
                setting,
                &found,
                (key, planned_as),
                requested_by_others,
                mode,
            ) {
                Some(statement) => statement,
                None => return false,
            },
        };
        let changes_rows = !estate.es_opened_result_relations.is_null();
        statement
            .may_fire_triggers
            .set(changes_rows && facts::count_triggers(estate, statement.level));
        if compat::COUNT_SCAN_IO.is_some() && statement.counts_scan_io {
            facts::count_scan_io(estate, statement.level);
        }
        statement.origin.set(compat::plan_origin(*query));
        if toplevel {
            if let Some(target) = &statement.target {
                response::record_commit_before(&target.plan);
            }
            if waits::waited_outside() {
                statement.take_planning_waits();
            }
        }
        statement
            .begun
            .set(if is_sent { Begun::now() } else { Begun::NESTED });
        if toplevel && !is_sent {
            statement.excluded_from_last.set(true);
        }
        statement.register_reset_callback(estate.es_query_cxt);
    }
    true
}

/// Sets up a new statement. Returns `None` if it is not measured because it uses this extension, or if there
/// is no memory.
///
/// # Safety
/// * `found` must be all plan states of the query, whose context must get the statement.
/// * No reference to a part of the query may be in use.
#[inline(never)]
unsafe fn set_up<'q>(
    query: StartedQuery<'q>,
    setting: &InstrumentationPlan,
    found: &[Found<'q>],
    (key, planned_as): (PlanKey, i64),
    requested_by_others: i32,
    mode: Mode,
) -> Option<Box<Statement>> {
    let is_worker = server::is_parallel_worker();
    if !is_worker && own::uses_extension(&key, query.plan()) {
        unmeasured::uses_extension(query.as_ptr());
        return None;
    }
    let mut key = key;
    if is_worker {
        store::attach_worker();
        // SAFETY: a statement is starting, so the session holds no lock, and is outside of any boundary.
        let unlocked = &mut unsafe { Unlocked::promised() };
        if let Some(leaders) = parallel::find_leader(unlocked) {
            key = leaders.with_plan(key.planid);
        }
    } else {
        store::attach();
    }
    let target = if is_worker {
        None
    } else {
        // SAFETY: the caller promises the same, and errors are caught above.
        Some(unsafe { target(query, found, key, planned_as) }?)
    };
    let (nodes, place) = nodes(found.len(), target.as_ref())?;
    // SAFETY: the query's context owns the statement, so the plan states are live while that can be reached.
    unsafe { fill(&nodes, found) };
    let has_gather = found.iter().any(|f| tree::is_gather(f.plan_state.tag()));
    let clock = setting.clock;
    if let Some(target) = &target {
        let nodes = nodes.iter().zip(found).filter(|(_, found)| !found.hidden);
        for (i, (node, Found { plan_state, .. })) in nodes.enumerate() {
            let is_judged = tree::returns_rows(*plan_state) && !target.description.may_stop_early(i);
            node.set_estimate(Estimate::new(plan_state.plan().plan_rows, is_judged));
        }
    }
    let level = match mode {
        Mode::CoreOnly => core_level(requested_by_others),
        Mode::RowsourceOnly | Mode::AlsoForCore => setting.level,
    };
    let timed = Statement::timed(level, setting.sampfreq, clock);
    let mut statement = Statement {
        query: query.as_ptr(),
        callback: pg_sys::MemoryContextCallback::default(),
        life: Life::new(),
        switch: Cell::new(switch::state()),
        mode,
        nodes,
        core_contributes: mode == Mode::CoreOnly || has_gather,
        only_by_core: false,
        changes_rows: query.operation != pg_sys::CmdType::CMD_SELECT,
        reusable: Cell::new(false),
        may_fire_triggers: Cell::new(false),
        level,
        sampfreq: setting.sampfreq,
        clock,
        timed,
        may_need_beats: timed == Timed::Sampled && Statement::may_need_beats(found),
        tick_ns: clock.scale().ns_per_tick(),
        config: sampling::config(clock, setting.sampfreq),
        shape: Cell::new(None),
        target,
        outside: UnsafeCell::new(Usage::zero()),
        frame: Frame::new(),
        elapsed_ns: Cell::new(0.0),
        begun: Cell::new(Begun::NESTED),
        replaced: Replaced::empty(),
        outcome: Cell::new(Outcome::Completed),
        is_read_to_end: Cell::new(false),
        origin: Cell::new(PlanOrigin::Other),
        // EXPLAIN (ANALYZE) always has core measure something. The statement of a pool is never explained.
        explained: requested_by_others != 0 && explain::is_running(),
        counts_scan_io: level != InstrumentationLevel::Rows && facts::read_ahead(found),
        excluded_from_last: Cell::new(false),
        channel: Cell::new(None),
    };
    statement.note_folding(found[0].hidden);
    let mut statement = pool::into_box(statement, place)?;
    let nodes = &statement.nodes;
    // SAFETY: the nodes and the account belong to the statement, which stays in its box.
    unsafe {
        statement
            .frame
            .set_up(nodes.as_ptr(), nodes.count(), statement.outside.get());
    }
    if mode == Mode::CoreOnly {
        // Core measures in the workers too.
        // SAFETY: no reference to the state is in use.
        unsafe { (*query.estate().as_ptr()).es_instrument &= !INSTRUMENT_ROWSOURCE };
        // SAFETY: the statement has not run yet.
        unsafe { statement.nodes.memory().hide() };
        return Some(statement);
    }
    // SAFETY: the caller promises the same. `fill` gave the nodes these plan states.
    unsafe { statement.install_instrumentation(query, found, has_gather, requested_by_others) };
    statement.set_shape();
    statement.publish(statement.target.as_ref().map_or(key, |target| target.plan.key));
    if is_worker {
        statement.join();
    } else if has_gather {
        statement.channel.set(Some(parallel::Channel::unopened()));
    }
    Some(statement)
}

/// Finds memory for the nodes of a statement, and for what the statement publishes of its plan. Also returns
/// the box of a statement that the pool has given away. Returns `None` if there is no memory.
fn nodes(count: usize, target: Option<&Target>) -> Option<(NodeTable, Option<Idle>)> {
    let mut need = Need::of_nodes(count);
    if let Some(Target { description, .. }) = target {
        need = need.with_description(description.published_size(), || {
            description.outline().published_size()
        });
    }
    let (memory, place) = pool::take_any();
    let mut nodes = NodeTable::new(memory, need)?;
    if !nodes.memory().is_shared()
        && let Some(memory) = pool::take_shared(need)
    {
        nodes = NodeTable::new(memory, Need::of_nodes(count))?;
    }
    Some((nodes, place))
}

/// Copies into new nodes what is the same for all executions of the plan, and their plan states.
///
/// # Safety
/// The plan states must be live while their nodes can be reached.
unsafe fn fill(nodes: &NodeTable, all: &[Found]) {
    for (node, found) in nodes.iter().zip(all) {
        // SAFETY: the caller promises the same.
        unsafe { node.set_plan_state(found.plan_state) };
        node.set_plan_node_id(found.plan_state.plan().plan_node_id);
        node.set_parent(found.parent);
        node.set_depth(found.depth);
        node.set_edge(found.edge);
        node.set_under_gather(found.under_gather);
        node.set_hidden(found.hidden);
        node.set_by_expression(found.by_expression);
        // What an expression runs is run by core.
        let parent = usize::try_from(found.parent)
            .ok()
            .filter(|_| !found.by_expression);
        node.set_by_others(
            parent.is_some_and(|parent| all[parent].plan_state.tag() == NodeTag::T_CustomScanState),
        );
        node.set_by_core(matches!(
            found.plan_state.tag(),
            NodeTag::T_HashState
                | NodeTag::T_BitmapIndexScanState
                | NodeTag::T_BitmapAndState
                | NodeTag::T_BitmapOrState
        ));
    }
}

/// Describes the plan, and finds where its statistics are stored. Returns `None` if there is no memory.
///
/// # Safety
/// As for [`describe::description`].
unsafe fn target<'q>(
    query: StartedQuery<'q>,
    found: &[Found<'q>],
    found_as: PlanKey,
    planned_as: i64,
) -> Option<Target> {
    let (mut unfolded, mut unfolding, mut pruned) = (None, None, Vec::new());
    if !query.plan().appendRelations.is_null() {
        unfolded = session::unfolded(&found_as)
            .filter(|known| fold::is_of(known, found) && !must_describe_pruned(known, &found_as));
        unfolding = match &unfolded {
            Some(known) => known.unfolding().cloned(),
            None => describe::paid(|| fold::fold(query, found, describe::subplans)).map(|folded| {
                pruned = folded.pruned;
                Rc::new(folded.unfolding)
            }),
        };
    }
    let folded = unfolding
        .as_ref()
        .map(|unfolding| found_as.with_plan(unfolding.number));
    let key = folded.unwrap_or(found_as);
    let known = session::known(&key);
    // This is a copy, because describing a plan may run output functions of types, whose statements may
    // replace it.
    let earlier = known
        .as_ref()
        .map(|plan| plan.description.borrow().to_keep().clone());
    let fold = unfolding.as_ref().map(|unfolding| &unfolding.fold);
    let shown = Shown::with_pruned(found, fold, &pruned);
    // SAFETY: the caller promises the same.
    let (mut description, older_literals) = unsafe {
        describe::description(
            query,
            &key,
            || text(*query, planned_as),
            earlier.as_ref().zip(known.as_ref().map(|plan| &plan.compared_at)),
            || store::description(&key.with_plan(store::planid(&key)?)),
            |planid| store::description_or_before(&key.with_plan(planid)),
            &shown,
        )?
    };
    let planid = description.ids().planid;
    let plan = known.filter(|plan| plan.key.planid == planid).unwrap_or_else(|| {
        store::note_planid(&key, planid);
        session::new_plan(key, &description)
    });
    let compared_at = plan.compared_at.clone();
    if let Some(unfolding) = unfolding.clone() {
        let known = unfolded.filter(|known| Rc::ptr_eq(known.to_keep(), &description));
        description = known.unwrap_or_else(|| {
            let unfolded = describe::unfolded(description, unfolding, found, session::decoded_bytes());
            session::keep_unfolded(found_as, &unfolded);
            unfolded
        });
    }
    Some(Target {
        plan,
        found_as,
        planned_as,
        description,
        older_literals,
        compared_at,
    })
}

/// Returns whether nodes must be described that have no states, because their partitions were pruned: the
/// plan must be described in any case, or it should be and the session has the time to do so now.
fn must_describe_pruned(known: &LazyDescription, found_as: &PlanKey) -> bool {
    let unfolding = known.unfolding().filter(|unfolding| unfolding.fold.has_pruned());
    unfolding.is_some_and(|unfolding| {
        let plan = session::known(&found_as.with_plan(unfolding.number));
        let Some(plan) = plan.filter(|_| known.is_normalised() || guc::keep_constants()) else {
            return true;
        };
        let has_names = plan.compared_at.get() == server::catalog_changes();
        (!describe::is_of_all(known) || !has_names) && describe::may_describe_again()
    })
}

/// Decides whether the wrappers or core measure a statement, and whether core's struct needs the results. In
/// a parallel worker the wrappers always measure: the worker saw `INSTRUMENT_ROWSOURCE`, which the leader
/// sets only if its own wrappers measure. The other bits say what the worker must report.
fn mode(setting: &InstrumentationPlan, requested_by_others: i32) -> Mode {
    if server::is_parallel_worker() {
        Mode::AlsoForCore
    } else if requested_by_others == 0 {
        Mode::RowsourceOnly
    } else if covers(setting, requested_by_others) {
        Mode::AlsoForCore
    } else {
        Mode::CoreOnly
    }
}

/// Returns whether the wrappers measure everything that others (EXPLAIN, auto_explain) have requested from
/// core.
fn covers(setting: &InstrumentationPlan, requested_by_others: i32) -> bool {
    let has_times = setting.explain && setting.level == InstrumentationLevel::Timed;
    let has_blocks = setting.level != InstrumentationLevel::Rows;
    (requested_by_others & INSTRUMENT_TIMER == 0 || has_times)
        && (requested_by_others & (INSTRUMENT_BUFFERS | INSTRUMENT_WAL) == 0 || has_blocks)
}

/// Returns what core measures for others.
fn core_level(requested_by_others: i32) -> InstrumentationLevel {
    if requested_by_others & INSTRUMENT_TIMER != 0 {
        InstrumentationLevel::Timed
    } else {
        InstrumentationLevel::Buffers
    }
}

impl Statement {
    /// Prepares the statement for another execution of its plan.
    ///
    /// # Safety
    /// * `found` must be all plan states of the query, with the same kinds and order as those for which the
    ///   statement was set up. The query's context must get the statement.
    /// * No reference to a part of the query may be in use.
    pub(super) unsafe fn reset_for_reexecution<'q>(&mut self, query: StartedQuery<'q>, found: &[Found<'q>]) {
        // This comes first, because it may be cancelled, which frees the nodes. Then no plan state may point
        // to one.
        if let Some(target) = &mut self.target {
            // SAFETY: the caller promises the same, and errors are caught above.
            let is_other = unsafe { target.describe_again(query, found) };
            if is_other {
                self.note_folding(found[0].hidden);
            }
        }
        // A trace shows each execution by itself.
        let is_traced = level::is_on();
        for (node, found) in self.nodes.iter().zip(found) {
            node.reset(is_traced);
            if node.by_core() {
                self.measure_by_core(node, true);
            }
            let plan = found.plan_state.plan();
            node.set_plan_node_id(plan.plan_node_id);
            node.set_estimate(node.estimate().with_plan_rows(plan.plan_rows));
            // SAFETY: the plan state has not run, and gets a pointer to a node that lives as long as the
            // statement, which lives as long as it.
            unsafe {
                node.set_plan_state(found.plan_state);
                (*found.plan_state.as_ptr()).instrument = node.instrumentation();
                compat::count_index_searches(found.plan_state.as_ptr(), node.index_searches());
            }
        }
        self.query = query.as_ptr();
        self.switch.set(switch::state());
        let is_reused = self.life.advance(Event::Reuse);
        debug_assert!(is_reused, "the pool keeps closed statements only");
        self.elapsed_ns.set(0.0);
        self.outcome.set(Outcome::Completed);
        self.is_read_to_end.set(false);
        self.excluded_from_last.set(false);
    }

    /// Notes how the plan is folded, for those who sum up while it runs.
    #[cold]
    #[inline(never)]
    fn note_folding(&mut self, is_root_hidden: bool) {
        let unfolding = self
            .target
            .as_ref()
            .and_then(|target| target.description.unfolding());
        let folded = unfolding.map(|unfolding| Folding::Plan(unfolding.clone(), is_root_hidden));
        self.frame.folded = folded.map_or_else(OnceCell::new, OnceCell::from);
    }

    /// Allows that its executions are summed up as counts, if that is possible.
    fn set_shape(&self) {
        if self.mode != Mode::RowsourceOnly || self.core_contributes && !self.only_by_core {
            return;
        }
        let tick_ns = match (self.level, self.timed) {
            (InstrumentationLevel::Timed, Timed::Sampled) => self.tick_ns,
            (InstrumentationLevel::Buffers, Timed::Never) => 0.0,
            _ => return,
        };
        let nodes = self.nodes.iter().map(|node| (node.place(), node.by_core()));
        self.shape.set(Shape::new(nodes, tick_ns));
    }

    /// Returns whether its query has a queryid. Equal keys mean equal expressions only with a queryid.
    pub(super) fn has_queryid(&self) -> bool {
        let target = self.target.as_ref();
        target.is_some_and(|target| target.plan.key.queryid != 0)
    }
}

impl Target {
    /// Describes the plan for another execution, unless the description is that of this plan already. Returns
    /// whether it may have another description now.
    ///
    /// # Safety
    /// As for [`describe::description`].
    #[inline(always)]
    unsafe fn describe_again<'q>(&mut self, query: StartedQuery<'q>, found: &[Found<'q>]) -> bool {
        if describe::is_of_all(&self.description)
            && describe::has_current_names(&self.description, &self.compared_at, found)
        {
            self.older_literals = false;
            return false;
        }
        // SAFETY: the caller promises the same.
        unsafe { self.describe_with_literals(query, found) };
        true
    }

    /// Describes the plan for another execution if its literals or names may differ.
    ///
    /// # Safety
    /// As for [`describe::description`].
    #[inline(never)]
    unsafe fn describe_with_literals<'q>(&mut self, query: StartedQuery<'q>, found: &[Found<'q>]) {
        let text = text(*query, self.planned_as);
        if describe::is_of(self.description.to_keep(), query, &text) {
            self.older_literals = false;
            return;
        }
        let earlier = self.plan.description.borrow().to_keep().clone();
        let known = Some((&earlier, &self.plan.compared_at));
        let by_oids = self.plan.by_oids;
        let before = |planid| store::description_or_before(&by_oids.with_plan(planid));
        let shown = Shown::of(found, None);
        // SAFETY: the caller promises the same.
        let described = unsafe {
            if self.description.unfolding().is_some() {
                // It may be folded in another way now.
                if let Some(target) = target(query, found, self.found_as, self.planned_as) {
                    *self = target;
                }
                return;
            }
            describe::description(query, &by_oids, || text, known, || None, before, &shown)
        };
        if let Some((description, older_literals)) = described {
            let planid = description.ids().planid;
            if planid != self.plan.key.planid {
                store::note_planid(&by_oids, planid);
                self.plan = session::new_plan(by_oids, &description);
            }
            self.older_literals = older_literals;
            self.description = description;
            self.compared_at.set(self.plan.compared_at.get());
        }
    }
}
