//! What this session knows of its own statements: the plans it ran, their figures in total and of the last
//! execution, and which statement was the last.

use crate::guc;
use crate::pg::server;
use rowsource_core::figures::{NodeFigures, Outcome};
use rowsource_core::plan::PlanNode;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// Identifies a plan of a statement, as run by a user in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlanKey {
    pub userid: u32,
    pub dbid: u32,
    pub queryid: i64,
    pub planid: i64,
    /// Sent by a client, not by a function.
    pub toplevel: bool,
}

/// What a plan is; made once, shared by all its executions.
#[derive(Debug)]
pub struct PlanDescription {
    pub text: String,
    pub nodes: Vec<PlanNode>,
}

/// One finished, failed or cancelled execution.
pub struct Execution {
    pub key: PlanKey,
    pub description: Rc<PlanDescription>,
    /// The description's literals are those of an earlier execution.
    pub older_literals: bool,
    pub figures: Vec<NodeFigures>,
    pub outcome: Outcome,
    pub sampfreq: i32,
    pub clock: &'static str,
    pub elapsed_ms: f64,
    /// It becomes the session's last statement.
    pub last: bool,
}

/// A plan and its statistics.
#[derive(Clone)]
pub struct Plan {
    pub key: PlanKey,
    pub description: Rc<PlanDescription>,
    pub older_literals: bool,
    pub total: Vec<NodeFigures>,
    pub last: Vec<NodeFigures>,
    pub last_outcome: Outcome,
    pub sampfreq: i32,
    pub clock: &'static str,
    pub calls: u64,
    pub failed_calls: u64,
    pub cancelled_calls: u64,
    pub total_ms: f64,
    pub last_ms: f64,
    /// Microseconds since 2000-01-01 UTC.
    pub first_seen: i64,
    pub last_seen: i64,
    used: u64,
}

#[derive(Default)]
struct Session {
    plans: FxHashMap<PlanKey, Plan>,
    last: Option<PlanKey>,
    executions: u64,
}

thread_local! {
    static SESSION: RefCell<Session> = RefCell::default();
}

/// The description of a plan that the session knows.
pub fn description(key: &PlanKey) -> Option<Rc<PlanDescription>> {
    SESSION.with_borrow(|session| session.plans.get(key).map(|plan| plan.description.clone()))
}

/// Adds an execution to its plan's statistics.
pub fn record(execution: Execution) {
    // May run while an error is cleaned up: it must not raise another.
    SESSION.with(|session| {
        if let Ok(mut session) = session.try_borrow_mut() {
            session.record(execution);
        }
    });
}

/// The plan of the session's last statement.
pub fn last() -> Option<Plan> {
    SESSION.with_borrow(|session| session.plans.get(session.last.as_ref()?).cloned())
}

/// The plans with a queryid, a planid or both; the most recently run first.
pub fn plans(queryid: Option<i64>, planid: Option<i64>) -> Vec<Plan> {
    SESSION.with_borrow(|session| {
        let asked = |key: &PlanKey| {
            queryid.is_none_or(|id| id == key.queryid) && planid.is_none_or(|id| id == key.planid)
        };
        let mut plans: Vec<Plan> = session
            .plans
            .values()
            .filter(|plan| asked(&plan.key))
            .cloned()
            .collect();
        plans.sort_by_key(|plan| std::cmp::Reverse(plan.used));
        plans
    })
}

impl Session {
    fn record(&mut self, execution: Execution) {
        let now = server::now();
        self.executions += 1;
        if !self.plans.contains_key(&execution.key) {
            self.make_room();
        }
        let nodes = execution.figures.len();
        let plan = self.plans.entry(execution.key).or_insert_with(|| Plan {
            key: execution.key,
            description: execution.description.clone(),
            older_literals: false,
            total: Vec::new(),
            last: Vec::new(),
            last_outcome: execution.outcome,
            sampfreq: 0,
            clock: "",
            calls: 0,
            failed_calls: 0,
            cancelled_calls: 0,
            total_ms: 0.0,
            last_ms: 0.0,
            first_seen: now,
            last_seen: now,
            used: 0,
        });
        plan.total.resize_with(nodes, NodeFigures::default);
        for (total, figures) in plan.total.iter_mut().zip(&execution.figures) {
            total.add(figures);
        }
        plan.description = execution.description;
        plan.older_literals = execution.older_literals;
        plan.last = execution.figures;
        plan.last_outcome = execution.outcome;
        plan.sampfreq = execution.sampfreq;
        plan.clock = execution.clock;
        plan.calls += 1;
        plan.failed_calls += u64::from(execution.outcome == Outcome::Failed);
        plan.cancelled_calls += u64::from(execution.outcome == Outcome::Cancelled);
        plan.total_ms += execution.elapsed_ms;
        plan.last_ms = execution.elapsed_ms;
        plan.last_seen = now;
        plan.used = self.executions;
        if execution.last {
            self.last = Some(execution.key);
        }
    }

    /// Evicts the tenth of the plans that was used longest ago, when the session's plans are too many.
    fn make_room(&mut self) {
        let most = guc::max_plans();
        if self.plans.len() < most {
            return;
        }
        let mut used: Vec<u64> = self.plans.values().map(|plan| plan.used).collect();
        let tenth = (used.len() / 10).min(used.len() - 1);
        let (_, &mut oldest_kept, _) = used.select_nth_unstable(tenth);
        self.plans.retain(|_, plan| plan.used > oldest_kept);
    }
}
