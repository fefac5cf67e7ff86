//! What this session knows of its own statements: the plans it ran, their figures in total and of the last
//! execution, and which statement was the last. With `shared_preload_libraries` every execution also goes to the
//! store that all sessions share (`pg::shared`).

use crate::guc;
use crate::pg::{server, shared};
use rowsource_core::figures::{NodeFigures, Outcome, Times};
use rowsource_core::histogram::Histogram;
use rowsource_core::plan::PlanNode;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64;

/// Identifies a plan of a statement, as run by a user in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(C)]
pub struct PlanKey {
    pub queryid: i64,
    pub planid: i64,
    pub userid: u32,
    pub dbid: u32,
    /// Sent by a client, not by a function. As wide as it is so that the key has no padding.
    toplevel: u64,
}

impl PlanKey {
    pub fn new(userid: u32, dbid: u32, queryid: i64, planid: i64, toplevel: bool) -> Self {
        PlanKey {
            queryid,
            planid,
            userid,
            dbid,
            toplevel: u64::from(toplevel),
        }
    }

    pub fn toplevel(&self) -> bool {
        self.toplevel != 0
    }
}

/// What a plan is; made once, shared by all its executions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PlanDescription {
    /// The statement's text, cut where it is very long.
    pub text: String,
    /// Length and hash of the whole text.
    identity: (usize, u64),
    pub nodes: Vec<PlanNode>,
}

impl PlanDescription {
    pub fn new(text: &[u8], nodes: Vec<PlanNode>) -> Self {
        let kept = &text[..text.len().min(LONGEST_TEXT)];
        PlanDescription {
            text: server::from_database(kept),
            identity: identity(text),
            nodes,
        }
    }

    /// Whether this is the statement that it was made for.
    pub fn is_of(&self, text: &[u8]) -> bool {
        self.identity.0 == text.len() && self.identity == identity(text)
    }

    /// Whether its predicates show parameters ($1) rather than their values: it is of a generic plan.
    pub fn shows_parameters(&self) -> bool {
        self.nodes
            .iter()
            .flat_map(|node| &node.predicates)
            .any(|(_, predicate)| predicate.contains('$'))
    }
}

/// Longer statement texts are cut: a plan's statistics must not hold megabytes.
const LONGEST_TEXT: usize = 16 * 1024;

fn identity(text: &[u8]) -> (usize, u64) {
    (text.len(), xxh3_64(text))
}

/// The clock that an execution was timed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClockName {
    Tsc,
    #[default]
    System,
    Coarse,
    Syscall,
    /// Core's own, where EXPLAIN ANALYZE measured.
    Core,
}

impl ClockName {
    pub fn as_str(self) -> &'static str {
        match self {
            ClockName::Tsc => "tsc",
            ClockName::System => "system",
            ClockName::Coarse => "coarse",
            ClockName::Syscall => "syscall",
            ClockName::Core => "core",
        }
    }
}

/// One finished, failed or cancelled execution.
pub struct Execution<'a> {
    pub key: PlanKey,
    pub description: Rc<PlanDescription>,
    /// The description's literals are those of an earlier execution.
    pub older_literals: bool,
    pub figures: SmallVec<[NodeFigures; 1]>,
    pub histograms: SmallVec<[&'a Histogram; 4]>,
    pub outcome: Outcome,
    pub sampfreq: i32,
    pub clock: ClockName,
    pub elapsed_ms: f64,
    /// It becomes the session's last statement.
    pub last: bool,
}

/// The statistics of a plan as a whole. Times are microseconds since 2000-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PlanStatistics {
    pub times: Times,
    pub failed_calls: u64,
    pub cancelled_calls: u64,
    pub last_ms: f64,
    pub last_outcome: Outcome,
    pub sampfreq: i32,
    pub clock: ClockName,
    pub first_seen: i64,
    pub last_seen: i64,
}

impl PlanStatistics {
    pub fn add(&mut self, execution: &Execution, now: i64) {
        if self.times.calls == 0 {
            self.first_seen = now;
        }
        self.times.add(execution.elapsed_ms);
        self.failed_calls += u64::from(execution.outcome == Outcome::Failed);
        self.cancelled_calls += u64::from(execution.outcome == Outcome::Cancelled);
        self.last_ms = execution.elapsed_ms;
        self.last_outcome = execution.outcome;
        self.sampfreq = execution.sampfreq;
        self.clock = execution.clock;
        self.last_seen = now;
    }
}

/// A plan and its statistics.
#[derive(Clone)]
pub struct Plan {
    pub key: PlanKey,
    pub description: Rc<PlanDescription>,
    pub older_literals: bool,
    pub statistics: PlanStatistics,
    pub total: Vec<NodeFigures>,
    pub last: Vec<NodeFigures>,
    pub histograms: Vec<Histogram>,
    /// Orders plans by their last use.
    pub used: u64,
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
    let now = server::now();
    shared::record(&execution, now);
    // May run while an error is cleaned up: it must not raise another.
    SESSION.with(|session| {
        if let Ok(mut session) = session.try_borrow_mut() {
            session.record(execution, now);
        }
    });
}

/// The plan of the session's last statement, as the session saw it.
pub fn last() -> Option<Plan> {
    SESSION.with_borrow(|session| session.plans.get(session.last.as_ref()?).cloned())
}

/// All kept plans: those of the shared store, or without one those of this session. The most recently run first.
pub fn plans() -> Vec<Plan> {
    let mut plans = shared::plans()
        .unwrap_or_else(|| SESSION.with_borrow(|session| session.plans.values().cloned().collect()));
    plans.sort_by_key(|plan| std::cmp::Reverse(plan.used));
    plans
}

/// Forgets the session's own plans of a user, database and query; 0 stands for any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    SESSION.with_borrow_mut(|session| {
        session
            .plans
            .retain(|key, _| !matches(key, userid, dbid, queryid));
    });
}

/// Whether a key is meant; 0 stands for any.
pub fn matches(key: &PlanKey, userid: u32, dbid: u32, queryid: i64) -> bool {
    (userid == 0 || key.userid == userid)
        && (dbid == 0 || key.dbid == dbid)
        && (queryid == 0 || key.queryid == queryid)
}

impl Session {
    fn record(&mut self, execution: Execution, now: i64) {
        self.executions += 1;
        if !self.plans.contains_key(&execution.key) {
            self.make_room();
        }
        let nodes = execution.figures.len();
        let plan = self.plans.entry(execution.key).or_insert_with(|| Plan {
            key: execution.key,
            description: execution.description.clone(),
            older_literals: false,
            statistics: PlanStatistics::default(),
            total: Vec::new(),
            last: Vec::new(),
            histograms: Vec::new(),
            used: 0,
        });
        plan.statistics.add(&execution, now);
        plan.total.resize_with(nodes, NodeFigures::default);
        for (total, figures) in plan.total.iter_mut().zip(&execution.figures) {
            total.add(figures);
        }
        plan.histograms.resize_with(nodes, Histogram::default);
        for (total, histogram) in plan.histograms.iter_mut().zip(&execution.histograms) {
            total.add(histogram);
        }
        plan.description = execution.description;
        plan.older_literals = execution.older_literals;
        plan.last.clear();
        plan.last.extend_from_slice(&execution.figures);
        plan.used = self.executions;
        if execution.last {
            self.last = Some(execution.key);
        }
    }

    /// Evicts the tenth of the plans that was used longest ago, when the session's plans are too many.
    fn make_room(&mut self) {
        const MOST: usize = 1000;
        let most = guc::max_plans().min(MOST);
        if self.plans.len() < most {
            return;
        }
        let mut used: Vec<u64> = self.plans.values().map(|plan| plan.used).collect();
        let tenth = (used.len() / 10).min(used.len() - 1);
        let (_, &mut oldest_kept, _) = used.select_nth_unstable(tenth);
        self.plans.retain(|_, plan| plan.used > oldest_kept);
    }
}
