//! The plans that this session ran, and its last statement. Executions are recorded in the store that all
//! sessions share (`pg::store`). If there is none, they are recorded here.

mod last;
mod late;
mod plans;
mod unfolded;

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::{self, memory};
use crate::pg::store;
use last::Last;
use plans::Plans;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::partitions::PartitionSum;
use rowsource_core::model::{
    DatabaseSum, ExecutionStats, Fold, Late, LazyDescription, NodeStats, NodeTotals, Outcome, Outside, Plan,
    PlanKey, Run, StatementFacts, Workers,
};
use rowsource_core::results::Counts;
use rowsource_core::waits::plan::PlanWaits;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

pub use crate::pg::store::{Gone, LiveStatement};
pub use last::{Executed, Execution, TextId};
pub use plans::KnownPlan;

struct Session {
    plans: Plans,
    last: Option<Last>,
    utility: Option<late::Utility>,
}

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static SESSION: BackendLocal<RefCell<Session>> = BackendLocal::new(RefCell::new(Session {
    plans: Plans::new(),
    last: None,
    utility: None,
}));

/// Returns a plan that the session has run before, by the key that sessions know it by.
pub fn known(by_oids: &PlanKey) -> Option<Rc<KnownPlan>> {
    SESSION.borrow().plans.get(by_oids).cloned()
}

/// Returns the description of an execution of a plan with partitions that has this key before it is folded.
pub fn unfolded(found_as: &PlanKey) -> Option<Rc<LazyDescription>> {
    let mut session = SESSION.try_borrow_mut().ok()?;
    session.plans.unfolded.get(found_as)
}

/// Returns where the bytes of such descriptions are counted that were decoded.
pub fn decoded_bytes() -> Rc<Cell<usize>> {
    SESSION.borrow().plans.unfolded.decoded_bytes().clone()
}

/// Keeps such a description, so that the plan is not folded at each execution.
pub fn keep_unfolded(found_as: PlanKey, description: &Rc<LazyDescription>) {
    if let Ok(mut session) = SESSION.try_borrow_mut() {
        session.plans.unfolded.keep(found_as, description);
    }
}

/// Makes a plan that is new in this session. It is listed before it runs, so that many open cursors of one
/// plan share it.
#[cold]
#[inline(never)]
pub fn new_plan(by_oids: PlanKey, description: &Rc<LazyDescription>) -> Rc<KnownPlan> {
    let plan = Rc::new(KnownPlan::new(by_oids, description.clone()));
    if let Ok(mut session) = SESSION.try_borrow_mut() {
        session.plans.note_use(&plan, description);
    }
    plan
}

/// Adds an execution whose statistics are not computed yet to those of its plan in the shared store. Returns
/// false if they must be computed first. May exchange the counts for those of an earlier execution.
#[inline(always)]
pub fn record_counts<'h>(
    execution: &mut Execution,
    counts: &mut Box<Counts>,
    histograms: impl Iterator<Item = &'h Histogram>,
) -> bool {
    let (plan, description) = (execution.plan, execution.description);
    let in_store = plan.for_store(description);
    let committed = committed(execution);
    let (run, outside) = (&execution.run, execution.outside);
    let statement = execution.statement;
    let committed_run = committed.as_ref();
    let is_added = match description.fold() {
        None => store::record_counts(
            in_store,
            run,
            outside,
            (counts, &[]),
            histograms,
            committed_run,
            statement,
        ),
        Some(fold) => {
            // What a node waited would have to be moved.
            let waits = outside.is_some_and(|outside| outside.waits.is_some() || !outside.called.is_empty());
            let folded = counts.folded(fold).filter(|_| !waits);
            let histograms: SmallVec<[&Histogram; 8]> = histograms.collect();
            let partitions = description
                .unfolding()
                .map(|unfolding| counts.partitions(unfolding));
            folded.is_some_and(|folded| {
                let histograms = fold.histograms(&histograms);
                let histograms = histograms.iter();
                store::record_counts(
                    in_store,
                    run,
                    outside,
                    (&folded, partitions.as_deref().unwrap_or_default()),
                    histograms,
                    committed_run,
                    statement,
                )
            })
        }
    };
    if !is_added {
        return false;
    }
    if let Some(committed) = &committed
        && store::may_keep_late(in_store, committed)
    {
        keep_committed();
    }
    if let Ok(mut session) = SESSION.try_borrow_mut() {
        session.plans.note_use(plan, description);
        if execution.last.is_some() {
            let last = session.keep_last(execution);
            std::mem::swap(&mut last.counts, counts);
        }
    }
    true
}

/// Adds an execution to its plan's statistics: in the shared store, or in this session if there is none. May
/// exchange the statistics of the nodes for those of an earlier execution.
#[inline(always)]
pub fn record(execution: &mut Execution, nodes: &mut Vec<NodeStats>, histograms: &[&Histogram]) {
    if execution.last_commit_ms > 0.0 {
        add_commit(execution.last_commit_ms, false);
    }
    let session = match execution.description.fold() {
        None => add(execution, execution.outside, nodes, histograms, &[]),
        Some(fold) => add_folded(execution, fold, nodes, histograms),
    };
    // This may run during the cleanup after an error. So it must not panic, as `borrow_mut` could.
    if let Some(mut session) = session
        && execution.last.is_some()
    {
        let last = session.keep_last(execution);
        last.counts.clear();
        std::mem::swap(&mut last.stats, nodes);
    }
}

/// Adds an execution to its plan's statistics. Returns the session, unless something else uses it.
#[inline(always)]
fn add(
    execution: &Execution,
    outside: Option<&Outside>,
    nodes: &[NodeStats],
    histograms: &[&Histogram],
    partitions: &[PartitionSum],
) -> Option<RefMut<'static, Session>> {
    let (plan, description, run) = (execution.plan, execution.description, &execution.run);
    let (explained, at) = (run.explained, run.at);
    // It is made again, so that it is written to memory only where it is needed.
    let stats = || ExecutionStats {
        run,
        outside,
        nodes,
        histograms,
        partitions,
    };
    let is_shared = if explained {
        store::record_explained(plan.for_store(description), at, nodes.len())
    } else {
        store::record(plan.for_store(description), stats(), execution.statement)
    };
    let mut session = SESSION.try_borrow_mut().ok()?;
    session.plans.note_use(plan, description);
    if !is_shared && explained {
        session.plans.record_explained(plan, description, at);
    } else if !is_shared {
        session
            .plans
            .record(plan, description, execution.older_literals, &stats());
        store::tell(&plan.key, stats());
    }
    Some(session)
}

/// Adds an execution whose plan was folded.
#[cold]
#[inline(never)]
fn add_folded(
    execution: &Execution,
    fold: &Fold,
    nodes: &[NodeStats],
    histograms: &[&Histogram],
) -> Option<RefMut<'static, Session>> {
    let partitions = execution.description.unfolding();
    let partitions = partitions.map_or_else(Vec::new, |unfolding| unfolding.partitions(nodes));
    let all = ExecutionStats {
        run: &execution.run,
        outside: execution.outside,
        nodes,
        histograms,
        partitions: &partitions,
    };
    fold.fold(&all, |folded| {
        add(
            execution,
            folded.outside,
            folded.nodes,
            folded.histograms,
            folded.partitions,
        )
    })
}

/// Keeps a utility statement of the client, and what its nodes did, until its commit is known.
pub fn keep_utility(execution: &Execution, nodes: Vec<NodeStats>) {
    if let Ok(mut session) = SESSION.try_borrow_mut() {
        let waits = execution.outside.and_then(|outside| outside.waits);
        session.utility = Some(late::Utility {
            plan: execution.plan.clone(),
            description: execution.description.clone(),
            run: execution.run,
            waits: waits.map(PlanWaits::of).unwrap_or_default(),
            nodes,
        });
    }
}

/// Returns whether this is the plan of the session's last statement.
#[inline(always)]
pub fn is_last(plan: &Rc<KnownPlan>) -> bool {
    let session = SESSION.try_borrow();
    session.is_ok_and(|session| {
        session
            .last
            .as_ref()
            .is_some_and(|last| Rc::ptr_eq(&last.plan, plan))
    })
}

/// Returns the session's last statement, if its commit is to be recorded with this execution. If that is of
/// another plan, or if the statement was explained, adds the commit now.
#[inline(always)]
fn committed(execution: &mut Execution) -> Option<Run> {
    let ms = execution.last_commit_ms;
    if ms <= 0.0 {
        return None;
    }
    if let Ok(mut session) = SESSION.try_borrow_mut()
        && let Some(last) = &mut session.last
        && Rc::ptr_eq(&last.plan, execution.plan)
        && !last.run.explained
    {
        last.run.commit_ms = ms;
        return Some(last.run);
    }
    execution.last_commit_ms = 0.0;
    add_commit(ms, false);
    None
}

/// Keeps the session's last statement whole, which was slow with its commit.
#[cold]
#[inline(never)]
fn keep_committed() {
    if let Ok(mut session) = SESSION.try_borrow_mut()
        && let Some(last) = &mut session.last
    {
        last.keep_committed();
    }
}

/// Adds how long the commit of the session's last statement took, or of its last utility statement.
#[cold]
#[inline(never)]
pub fn add_commit(ms: f64, is_utility: bool) {
    let Ok(mut session) = SESSION.try_borrow_mut() else {
        return;
    };
    let Session { plans, last, utility } = &mut *session;
    if is_utility {
        return utility
            .iter_mut()
            .for_each(|utility| utility.add_commit(plans, ms));
    }
    if let Some(last) = last.as_mut().filter(|last| !last.run.explained) {
        last.run.commit_ms = ms;
        last.add_late(plans, Late::Commit(&last.run));
        if store::may_keep_late(last.plan.for_store(&last.description), &last.run) {
            last.keep_committed();
        }
    }
}

/// Adds what the session's last statement waited after its end, at its commit, or its last utility statement.
/// Does nothing if that statement ended before this time, or if no client sent it: then the waits are those
/// of another statement.
pub fn add_late_waits(since: i64, waits: &PlanWaits, is_utility: bool) {
    let Ok(mut session) = SESSION.try_borrow_mut() else {
        return;
    };
    let Session { plans, last, utility } = &mut *session;
    if is_utility {
        return utility
            .iter_mut()
            .for_each(|utility| utility.add_waits(plans, waits));
    }
    let Some(last) = last.as_mut().filter(|last| last.run.at >= since) else {
        return;
    };
    if !last.plan.key.toplevel() {
        return;
    }
    last.waits.merge(waits);
    if !last.run.explained {
        last.add_late(plans, Late::Waits(waits));
    }
}

/// The session's last statement.
pub struct LastStatement {
    /// The plan, with the totals of all executions.
    pub plan: Plan,
    /// The statistics of the nodes in this execution.
    pub stats: Vec<NodeStats>,
}

/// Returns the session's last statement.
///
/// # Errors
/// Raises "out of memory".
pub fn last() -> Option<LastStatement> {
    if !SESSION.borrow_mut().last.as_mut()?.compute() {
        memory::out_of_memory();
    }
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    let stored = store::current_plan(&last.plan.key).or_else(|| last.plan.local_copy());
    let is_folded = stored.is_some() && last.description.fold().is_some();
    let stored = stored.unwrap_or_else(|| {
        let mut single = Plan::new(last.plan.key, last.description.decoded().clone());
        if last.run.explained {
            single.statistics.add_explained(last.run.at);
        } else {
            single.statistics.add(&last.run);
        }
        single.nodes = memory::with_room(last.stats.len());
        single.nodes.extend(last.stats.iter().map(|stats| NodeTotals {
            total: *stats,
            last: *stats,
            ..NodeTotals::default()
        }));
        single
    });
    let mut stats = memory::with_room(last.stats.len());
    stats.extend_from_slice(&last.stats);
    // The user looks at the session's statements.
    last.allow_copies();
    let shown = last.description.decoded();
    let mut description = match last.text.is_empty() {
        true => shown.clone(),
        false if last.older_literals => Rc::new(server::with_text(shown, &last.text)),
        false => Rc::new(server::with_literals(shown, &last.text)),
    };
    description.plan_as(&last.costs);
    let plan = Plan {
        description,
        folded: is_folded.then(|| last.description.to_keep().decoded().clone()),
        older_literals: last.older_literals,
        older_text: last.older_literals && last.text.is_empty(),
        explained: last.run.explained,
        statistics: stored.statistics.with_last(&last.run),
        last_waits: Some(last.shown_waits()),
        ..stored
    };
    Some(LastStatement { plan, stats })
}

/// Returns the key and the outcome of the session's last statement.
pub fn last_outcome() -> Option<(PlanKey, Outcome)> {
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    Some((last.plan.key, last.run.outcome))
}

/// Returns the milliseconds of the last planning of the session's last statement, if it was planned for this
/// execution, and what it did outside of its nodes, with the blocks of that planning.
pub fn last_summary() -> Option<(Option<f64>, StatementFacts)> {
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    let mut facts = if last.has_sums {
        last.sums.facts
    } else {
        StatementFacts::default()
    };
    facts.planning = last.planning_blocks.unwrap_or_default();
    let is_planned = last.run.planning.plans > 0;
    Some((is_planned.then_some(last.planning_ms), facts))
}

/// Returns what each process of the session's last statement did, if its plan was parallel.
pub fn last_workers() -> Option<Workers> {
    let session = SESSION.borrow();
    session.last.as_ref()?.workers.as_deref().cloned()
}

/// Returns when the session's last measured statement ended, in microseconds since 2000-01-01 UTC.
pub fn last_at() -> Option<i64> {
    let session = SESSION.try_borrow().ok()?;
    session.last.as_ref().map(|last| last.run.at)
}

/// Returns whether the session's last measured statement is one that a client did not send.
pub fn last_is_nested() -> bool {
    let session = SESSION.try_borrow();
    session.is_ok_and(|session| {
        session
            .last
            .as_ref()
            .is_some_and(|last| !last.plan.key.toplevel())
    })
}

/// Returns whether the session's last measured statement completed, if it ended after this time.
pub fn last_since(time: i64) -> Option<bool> {
    let session = SESSION.try_borrow().ok()?;
    let last = session.last.as_ref().filter(|last| last.run.at >= time)?;
    Some(last.run.outcome == Outcome::Completed)
}

/// Returns the keys of all stored plans, the most recently run first. They are from the shared store, or from
/// this session if there is none.
///
/// # Errors
/// Raises "out of memory".
pub fn keys() -> Vec<PlanKey> {
    keys_since(i64::MIN)
}

/// Returns the keys of those that ran since a time in microseconds; if they are this session's, of all.
fn keys_since(since: i64) -> Vec<PlanKey> {
    store::keys(since).unwrap_or_else(|| SESSION.borrow().plans.keys())
}

/// Returns a copy of a stored plan. Returns `None` if it was evicted or reset in the meantime. The waits of
/// its last execution are known if it was the last statement of this session.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    let mut plan = store::plan(key).or_else(|| SESSION.borrow().plans.local(key)?.local_copy())?;
    let session = SESSION.borrow();
    let is_own = |last: &&Last| last.plan.key == *key && last.run.at == plan.statistics.last_seen_at;
    plan.last_waits = session.last.as_ref().filter(is_own).map(Last::waits_in_store);
    Some(plan)
}

/// Visits all stored plans, one at a time, the most recently run first. The user can cancel this.
///
/// # Errors
/// Raises "out of memory".
pub fn each_plan(visit: impl FnMut(Plan)) {
    each_plan_since(i64::MIN, visit);
}

/// Visits those that ran since a time in microseconds.
///
/// # Errors
/// Raises "out of memory".
pub fn each_plan_since(since: i64, mut visit: impl FnMut(Plan)) {
    for key in keys_since(since) {
        server::check_for_interrupts();
        memory::ensure();
        if let Some(plan) = plan(&key).filter(|plan| plan.statistics.last_seen_at >= since) {
            visit(plan);
        }
    }
}

/// Returns the sums of the executions whose plans are not stored, one for each database.
///
/// # Errors
/// Raises "out of memory".
pub fn others() -> Vec<DatabaseSum> {
    store::others().unwrap_or_default()
}

/// Deletes the session's own plans of a user, database and query. 0 means any. Returns whether there were
/// some.
pub fn reset(userid: u32, datid: u32, queryid: i64) -> bool {
    let mut session = SESSION.borrow_mut();
    let has_deleted = session.plans.reset(userid, datid, queryid);
    let last = &mut session.last;
    let last = last.take_if(|last| last.plan.key.matches(userid, datid, queryid));
    has_deleted || last.is_some()
}

impl Session {
    /// Keeps an execution as the session's last statement, but for its nodes.
    #[inline(always)]
    fn keep_last(&mut self, execution: &mut Execution) -> &mut Last {
        let last = self.last.get_or_insert_with(|| Last::new(execution));
        if let Some(executed) = &mut execution.last {
            // Texts of different statements may lie at the same place one after the other.
            let is_other = last.text_id != executed.text || !Rc::ptr_eq(&last.plan, execution.plan);
            if is_other {
                let shows_it = !execution.description.is_normalised() && !execution.older_literals;
                last.keep_text(executed.text, execution.statement, shows_it, execution.run.at);
                if !Rc::ptr_eq(&last.plan, execution.plan) {
                    last.plan = execution.plan.clone();
                }
            }
            // Another plan of the same text may cost something else.
            if !is_other && execution.run.planning.plans > 0 {
                last.keep_costs(execution.statement, execution.run.at);
            }
            last.keep_planning(executed);
            if executed.workers.is_some() || last.workers.is_some() {
                last.workers = executed.workers.take();
            }
        }
        if !Rc::ptr_eq(&last.description, execution.description) {
            last.description = execution.description.clone();
        }
        last.older_literals = execution.older_literals;
        last.run = execution.run;
        last.has_sums = false;
        last.waits.clear();
        if let Some(outside) = execution.outside {
            last.keep_outside(outside);
        }
        last
    }
}
