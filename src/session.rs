//! The plans that this session ran, and its last statement. Executions are recorded in the store that all sessions share
//! (`pg::store`). If there is none, they are recorded here.

mod late;
mod plans;

use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::{self, memory};
use crate::pg::store;
use plans::Plans;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{
    Buffers, DatabaseSum, ExecutionStats, Late, LazyDescription, NodeStats, NodeTotals, Outcome, Outside,
    Plan, PlanKey, Run, StatementFacts, StatementSums, Workers,
};
use rowsource_core::plan::Costs;
use rowsource_core::results::Counts;
use rowsource_core::waits::plan::PlanWaits;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub use late::{add_commit, is_last};
pub use plans::KnownPlan;

/// One finished, failed or cancelled execution.
pub struct Execution<'a> {
    pub run: Run,
    /// What it did outside of its nodes, and what it waited for, unless both are nothing.
    pub outside: Option<&'a Outside<'a>>,
    pub plan: &'a Rc<KnownPlan>,
    pub description: &'a Rc<LazyDescription>,
    /// The description's literals come from an earlier execution.
    pub older_literals: bool,
    /// The milliseconds of the commit of the session's last statement, if they are to be recorded with this execution; else 0.
    pub last_commit_ms: f64,
    /// The execution becomes the session's last statement.
    pub last: Option<Executed<'a>>,
}

/// Identifies the text of an execution. That of none is the default, which no execution has.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TextId {
    /// How often the text of what runs next might have changed. It comes first, because it is what differs for most statements.
    pub parsed: u32,
    /// Where PostgreSQL has the text.
    pub address: usize,
    /// Where PostgreSQL has the plan.
    pub plan: usize,
    /// Where the statement begins in the text, and its length.
    pub place: (i32, i32),
}

/// A statement that ends, of which PostgreSQL still has all.
pub trait LiveStatement {
    /// Copies the text, in the server's encoding.
    fn copy_text(&self, to: &mut Vec<u8>);
    /// Copies what the planner expected of the nodes; nothing if there is no memory.
    fn copy_costs(&self, to: &mut Vec<Costs>);
}

/// What is kept of an execution as the session's last statement. The text is copied only if it may differ from that of the last
/// statement before.
pub struct Executed<'a> {
    /// If this is the same, so is the text.
    pub text: TextId,
    /// The statement, as long as PostgreSQL has it.
    pub statement: &'a dyn LiveStatement,
    /// What each process of a parallel plan did.
    pub workers: Option<Box<Workers>>,
    /// The time of its last planning, in milliseconds.
    pub planning_ms: f64,
    /// The blocks that its last planning used, unless those are none.
    pub planning_blocks: Option<&'a Buffers>,
}

/// The session's last statement.
struct Last {
    plan: Rc<KnownPlan>,
    description: Rc<LazyDescription>,
    older_literals: bool,
    run: Run,
    /// What it did outside of its nodes, if `has_sums`.
    sums: StatementSums,
    has_sums: bool,
    /// Its waits.
    waits: PlanWaits,
    /// What each process of a parallel plan did.
    workers: Option<Box<Workers>>,
    /// The time of its last planning, in milliseconds.
    planning_ms: f64,
    /// The blocks that its last planning used.
    planning_blocks: Option<Buffers>,
    /// What its planner expected of the nodes. The description may be of another planning.
    costs: Vec<Costs>,
    /// The statistics of the nodes, unless there are `counts`.
    stats: Vec<NodeStats>,
    /// What the nodes counted, if their statistics are not computed yet.
    counts: Box<Counts>,
    /// The statement's text, if its description shows no literals, or older ones.
    text: Vec<u8>,
    /// Which text that is.
    text_id: TextId,
    /// How many texts may still be copied in this period.
    copies: Cell<u32>,
    /// When that number was last reset, in microseconds.
    copies_from: i64,
}

/// How many texts a session copies in [`COPIES_PERIOD`]. A session that sends more is no user who looks at each statement.
const COPIES: u32 = 200;
/// The unit is a microsecond.
const COPIES_PERIOD: i64 = 10_000_000;

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

/// Returns a plan that the session has run before.
pub fn known(key: &PlanKey) -> Option<Rc<KnownPlan>> {
    SESSION.borrow().plans.get(key).cloned()
}

/// Makes a plan that is new in this session. It is listed before it runs, so that many open cursors of one plan share it.
#[cold]
#[inline(never)]
pub fn new_plan(key: PlanKey, description: &Rc<LazyDescription>) -> Rc<KnownPlan> {
    let plan = Rc::new(KnownPlan::new(key, description.clone()));
    if let Ok(mut session) = SESSION.try_borrow_mut() {
        session.plans.note_use(&plan, description);
    }
    plan
}

/// Adds an execution whose statistics are not computed yet to those of its plan in the shared store. Returns false if they must be
/// computed first. May exchange the counts for those of an earlier execution.
#[inline(always)]
pub fn record_counts<'h>(
    execution: &mut Execution,
    counts: &mut Box<Counts>,
    histograms: impl Iterator<Item = &'h Histogram>,
) -> bool {
    let (plan, description) = (execution.plan, execution.description);
    let in_store = plan.for_store(description);
    let committed = late::committed(execution);
    let (run, outside) = (&execution.run, execution.outside);
    if !store::record_counts(in_store, run, outside, counts, histograms, committed.as_ref()) {
        return false;
    }
    if let Some(committed) = &committed
        && store::may_keep_late(in_store, committed)
    {
        late::keep_committed();
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

/// Adds an execution to its plan's statistics: in the shared store, or in this session if there is none. May exchange the statistics
/// of the nodes for those of an earlier execution.
#[inline(always)]
pub fn record(execution: &mut Execution, nodes: &mut Vec<NodeStats>, histograms: &[&Histogram]) {
    if execution.last_commit_ms > 0.0 {
        add_commit(execution.last_commit_ms, false);
    }
    let (plan, description) = (execution.plan, execution.description);
    let (run, outside) = (&execution.run, execution.outside);
    let (explained, at) = (run.explained, run.at);
    // It is made again, so that it is written to memory only where it is needed.
    let stats = |nodes| ExecutionStats {
        run,
        outside,
        nodes,
        histograms,
    };
    let is_shared = if explained {
        store::record_explained(plan.for_store(description), at, nodes.len())
    } else {
        store::record(plan.for_store(description), stats(nodes))
    };
    // This may run during the cleanup after an error. So it must not panic, as `borrow_mut` could.
    let Ok(mut session) = SESSION.try_borrow_mut() else {
        return;
    };
    session.plans.note_use(plan, description);
    if !is_shared && explained {
        session.plans.record_explained(plan, description, at);
    } else if !is_shared {
        session
            .plans
            .record(plan, description, execution.older_literals, &stats(nodes));
        store::tell(&plan.key, stats(nodes));
    }
    if execution.last.is_some() {
        let last = session.keep_last(execution);
        last.counts.clear();
        std::mem::swap(&mut last.stats, nodes);
    }
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

/// Adds what the session's last statement waited after its end, at its commit, or its last utility statement. Does nothing if that
/// statement ended before this time, or if no client sent it: then the waits are those of another statement.
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
    last.copies.set(COPIES);
    let shown = last.description.decoded();
    let mut description = match last.text.is_empty() {
        true => shown.clone(),
        false if last.older_literals => Rc::new(server::with_text(shown, &last.text)),
        false => Rc::new(server::with_literals(shown, &last.text)),
    };
    description.plan_as(&last.costs);
    let plan = Plan {
        description,
        older_literals: last.older_literals,
        older_text: last.older_literals && last.text.is_empty(),
        explained: last.run.explained,
        statistics: stored.statistics.with_last(&last.run),
        last_waits: Some(last.waits),
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

/// Returns the milliseconds of the last planning of the session's last statement, if it was planned for this execution, and what
/// it did outside of its nodes, with the blocks of that planning.
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

/// Returns whether the session's last measured statement completed, if it ended after this time.
pub fn last_since(time: i64) -> Option<bool> {
    let session = SESSION.try_borrow().ok()?;
    let last = session.last.as_ref().filter(|last| last.run.at >= time)?;
    Some(last.run.outcome == Outcome::Completed)
}

/// Returns the keys of all stored plans, the most recently run first. They are from the shared store, or from this session if
/// there is none.
///
/// # Errors
/// Raises "out of memory".
pub fn keys() -> Vec<PlanKey> {
    store::keys().unwrap_or_else(|| SESSION.borrow().plans.keys())
}

/// Returns a copy of a stored plan. Returns `None` if it was evicted or reset in the meantime. The waits of its last execution are
/// known if it was the last statement of this session.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    let mut plan = store::plan(key).or_else(|| SESSION.borrow().plans.get(key)?.local_copy())?;
    let session = SESSION.borrow();
    let is_own = |last: &&Last| last.plan.key == *key && last.run.at == plan.statistics.last_seen_at;
    plan.last_waits = session.last.as_ref().filter(is_own).map(|last| last.waits);
    Some(plan)
}

/// Visits all stored plans, one at a time, the most recently run first. The user can cancel this.
///
/// # Errors
/// Raises "out of memory".
pub fn each_plan(mut visit: impl FnMut(Plan)) {
    for key in keys() {
        server::check_for_interrupts();
        memory::ensure();
        if let Some(plan) = plan(&key) {
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

/// Deletes the session's own plans of a user, database and query. 0 means any.
pub fn reset(userid: u32, datid: u32, queryid: i64) {
    let mut session = SESSION.borrow_mut();
    session.plans.reset(userid, datid, queryid);
    session
        .last
        .take_if(|last| last.plan.key.matches(userid, datid, queryid));
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
                last.keep_text(executed, shows_it, execution.run.at);
            }
            // Another plan of the same text may cost something else.
            if !is_other && execution.run.planning.plans > 0 {
                last.keep_costs(executed, execution.run.at);
            }
            last.keep_planning(executed);
            if executed.workers.is_some() || last.workers.is_some() {
                last.workers = executed.workers.take();
            }
        }
        if !Rc::ptr_eq(&last.plan, execution.plan) {
            last.plan = execution.plan.clone();
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

impl Last {
    /// Makes the last statement of a session that had none. It has no text yet.
    #[cold]
    #[inline(never)]
    fn new(execution: &Execution) -> Last {
        Last {
            plan: execution.plan.clone(),
            description: execution.description.clone(),
            older_literals: execution.older_literals,
            run: execution.run,
            sums: StatementSums::default(),
            has_sums: false,
            waits: PlanWaits::none(),
            workers: None,
            planning_ms: 0.0,
            planning_blocks: None,
            costs: Vec::new(),
            stats: Vec::new(),
            counts: Box::default(),
            text: Vec::new(),
            text_id: TextId::default(),
            copies: Cell::new(COPIES),
            copies_from: execution.run.at,
        }
    }

    /// Computes the statistics of the nodes if there are only counts. Returns false if there is no memory.
    fn compute(&mut self) -> bool {
        let is_computed = self.counts.count() == 0 || self.counts.compute(&mut self.stats);
        if is_computed {
            self.counts.clear();
        }
        is_computed
    }

    /// Returns the number of its nodes.
    fn nodes(&self) -> usize {
        match self.counts.count() {
            0 => self.stats.len(),
            counted => counted,
        }
    }

    /// Adds what came after its end.
    #[inline(always)]
    fn add_late(&self, plans: &Plans, late: Late<'_>) {
        let ended = (self.run.at, self.nodes());
        late::add(plans, (&self.plan, &self.description), ended, late);
    }

    /// Keeps it whole, if it is the slowest execution of its plan with its commit.
    #[cold]
    #[inline(never)]
    fn keep_committed(&mut self) {
        if self.compute() {
            let sums = if self.has_sums {
                self.sums
            } else {
                StatementSums::default()
            };
            let plan = (&self.plan, &self.description);
            late::keep(plan, &self.run, sums, &self.waits, &self.stats);
        }
    }

    /// Keeps what an execution did outside of its nodes, and its waits.
    #[cold]
    #[inline(never)]
    fn keep_outside(&mut self, outside: &Outside) {
        self.sums = outside.sums;
        self.has_sums = true;
        if let Some(waits) = outside.waits {
            self.waits = PlanWaits::of(waits);
        }
    }

    #[inline(always)]
    fn keep_planning(&mut self, executed: &Executed) {
        self.planning_ms = executed.planning_ms;
        // Not `copied`, which moves the blocks also if there are none.
        match executed.planning_blocks {
            Some(blocks) => self.planning_blocks = Some(*blocks),
            None => self.planning_blocks = None,
        }
    }

    /// Keeps what the planner expected of the nodes in an execution.
    #[cold]
    #[inline(never)]
    fn keep_costs(&mut self, executed: &Executed, now: i64) {
        self.copy_costs(executed, now);
    }

    /// Copies what the planner expected of the nodes. Returns false if the session sends very many statements: then that is not known.
    #[inline(always)]
    fn copy_costs(&mut self, executed: &Executed, now: i64) -> bool {
        if now.saturating_sub(self.copies_from) >= COPIES_PERIOD {
            self.copies_from = now;
            self.copies.set(COPIES);
        }
        let Some(left) = self.copies.get().checked_sub(1) else {
            self.costs.clear();
            return false;
        };
        self.copies.set(left);
        executed.statement.copy_costs(&mut self.costs);
        true
    }

    /// Keeps the text of an execution, unless its description shows it. Not if the session sends very many statements: then the
    /// literals are not known.
    #[cold]
    #[inline(never)]
    fn keep_text(&mut self, text: &Executed, description_shows_it: bool, now: i64) {
        self.text_id = TextId::default();
        self.text.clear();
        if self.copy_costs(text, now) && !description_shows_it {
            self.text_id = text.text;
            text.statement.copy_text(&mut self.text);
        }
    }
}
