//! The session's last statement, and the executions of which it is made.

use super::late;
use super::plans::{KnownPlan, Plans};
use crate::pg::store::LiveStatement;
use rowsource_core::model::{
    Buffers, Late, LazyDescription, NodeStats, Outside, Run, StatementSums, Workers,
};
use rowsource_core::plan::Costs;
use rowsource_core::results::Counts;
use rowsource_core::waits::plan::PlanWaits;
use std::cell::Cell;
use std::rc::Rc;

/// One finished, failed or cancelled execution.
pub struct Execution<'a> {
    pub run: Run,
    /// What it did outside of its nodes, and what it waited for, unless both are nothing.
    pub outside: Option<&'a Outside<'a>>,
    pub plan: &'a Rc<KnownPlan>,
    pub description: &'a Rc<LazyDescription>,
    /// The description's literals come from an earlier execution.
    pub older_literals: bool,
    /// The milliseconds of the commit of the session's last statement, if they are to be recorded with this
    /// execution; else 0.
    pub last_commit_ms: f64,
    /// The statement.
    pub statement: &'a dyn LiveStatement,
    /// The execution becomes the session's last statement.
    pub last: Option<Executed<'a>>,
}

/// Identifies the text of an execution. That of none is the default, which no execution has.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TextId {
    /// How often the text of what runs next might have changed. It comes first, because it is what differs
    /// for most statements.
    pub parsed: u32,
    /// Where PostgreSQL has the text.
    pub address: usize,
    /// Where PostgreSQL has the plan.
    pub plan: usize,
    /// Where the statement begins in the text, and its length.
    pub place: (i32, i32),
}

/// What is kept of an execution as the session's last statement. The text is copied only if it may differ
/// from that of the last statement before.
pub struct Executed<'a> {
    /// If this is the same, so is the text.
    pub text: TextId,
    /// What each process of a parallel plan did.
    pub workers: Option<Box<Workers>>,
    /// The time of its last planning, in milliseconds.
    pub planning_ms: f64,
    /// The blocks that its last planning used, unless those are none.
    pub planning_blocks: Option<&'a Buffers>,
}

/// The session's last statement.
pub(super) struct Last {
    pub plan: Rc<KnownPlan>,
    pub description: Rc<LazyDescription>,
    pub older_literals: bool,
    pub run: Run,
    /// What it did outside of its nodes, if `has_sums`.
    pub sums: StatementSums,
    pub has_sums: bool,
    /// Its waits.
    pub waits: PlanWaits,
    /// What each process of a parallel plan did.
    pub workers: Option<Box<Workers>>,
    /// The time of its last planning, in milliseconds.
    pub planning_ms: f64,
    /// The blocks that its last planning used.
    pub planning_blocks: Option<Buffers>,
    /// What its planner expected of the nodes. The description may be of another planning.
    pub costs: Vec<Costs>,
    /// The statistics of the nodes, unless there are `counts`.
    pub stats: Vec<NodeStats>,
    /// What the nodes counted, if their statistics are not computed yet.
    pub counts: Box<Counts>,
    /// The statement's text, if its description shows no literals, or older ones.
    pub text: Vec<u8>,
    /// Which text that is.
    pub text_id: TextId,
    /// How many texts may still be copied in this period.
    pub copies: Cell<u32>,
    /// When that number was last reset, in microseconds.
    pub copies_from: i64,
}

/// How many texts a session copies in [`COPIES_PERIOD`]. A session that sends more is no user who looks at
/// each statement.
const COPIES: u32 = 200;
/// The unit is a microsecond.
const COPIES_PERIOD: i64 = 10_000_000;

impl Last {
    /// Makes the last statement of a session that had none. It has no text yet.
    #[cold]
    #[inline(never)]
    pub fn new(execution: &Execution) -> Last {
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
    pub fn compute(&mut self) -> bool {
        let is_computed = self.counts.count() == 0 || self.counts.compute(&mut self.stats);
        if is_computed {
            self.counts.clear();
        }
        is_computed
    }

    /// Returns the number of its nodes in the store.
    pub fn nodes(&self) -> usize {
        match (self.description.fold(), self.counts.count()) {
            (Some(fold), _) => fold.nodes().len(),
            (None, 0) => self.stats.len(),
            (None, counted) => counted,
        }
    }

    /// Returns its waits, in the nodes that the store has.
    pub fn waits_in_store(&self) -> PlanWaits {
        let mut waits = self.waits;
        if let Some(fold) = self.description.fold() {
            fold.move_waits(&mut waits);
        }
        waits
    }

    /// Returns its waits, in the nodes that the session sees.
    pub fn shown_waits(&self) -> PlanWaits {
        let mut waits = self.waits;
        if let Some(fold) = self.description.fold() {
            fold.move_folded_waits(&mut waits);
        }
        waits
    }

    /// Adds what came after its end.
    #[inline(always)]
    pub fn add_late(&self, plans: &Plans, late: Late<'_>) {
        let ended = (self.run.at, self.nodes());
        late::add(plans, (&self.plan, &self.description), ended, late);
    }

    /// Keeps it whole, if it is the slowest execution of its plan with its commit.
    #[cold]
    #[inline(never)]
    pub fn keep_committed(&mut self) {
        if self.compute() {
            let sums = if self.has_sums {
                self.sums
            } else {
                StatementSums::default()
            };
            let plan = (&self.plan, &self.description);
            match self.description.fold() {
                None => late::keep(plan, &self.run, sums, &self.waits, &self.stats),
                Some(fold) => {
                    let (waits, stats) = (self.waits_in_store(), fold.stats(&self.stats));
                    late::keep(plan, &self.run, sums, &waits, &stats);
                }
            }
        }
    }

    /// Keeps what an execution did outside of its nodes, and its waits.
    #[cold]
    #[inline(never)]
    pub fn keep_outside(&mut self, outside: &Outside) {
        self.sums = outside.sums;
        self.has_sums = true;
        if let Some(waits) = outside.waits {
            self.waits = match self.description.fold() {
                Some(fold) => fold.to_keep(waits),
                None => PlanWaits::of(waits),
            };
        }
    }

    #[inline(always)]
    pub fn keep_planning(&mut self, executed: &Executed) {
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
    pub fn keep_costs(&mut self, statement: &dyn LiveStatement, now: i64) {
        self.copy_costs(statement, now);
    }

    /// Allows as many copies of texts as in a new period.
    pub fn allow_copies(&self) {
        self.copies.set(COPIES);
    }

    /// Copies what the planner expected of the nodes. Returns false if the session sends very many
    /// statements: then that is not known.
    #[inline(always)]
    pub fn copy_costs(&mut self, statement: &dyn LiveStatement, now: i64) -> bool {
        if now.saturating_sub(self.copies_from) >= COPIES_PERIOD {
            self.copies_from = now;
            self.copies.set(COPIES);
        }
        let Some(left) = self.copies.get().checked_sub(1) else {
            self.costs.clear();
            return false;
        };
        self.copies.set(left);
        statement.copy_costs(&mut self.costs);
        true
    }

    /// Keeps the text of an execution, unless its description shows it. Not if the session sends very many
    /// statements: then the literals are not known.
    #[cold]
    #[inline(never)]
    pub fn keep_text(
        &mut self,
        id: TextId,
        statement: &dyn LiveStatement,
        description_shows_it: bool,
        now: i64,
    ) {
        self.text_id = TextId::default();
        self.text.clear();
        if self.copy_costs(statement, now) && !description_shows_it {
            self.text_id = id;
            statement.copy_text(&mut self.text);
        }
    }
}
