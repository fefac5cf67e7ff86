//! Records a statement that has ended: takes its counts, or computes its statistics, and has the session
//! store them.

use super::ending::{Alive, Ending};
use super::facts;
use super::lifecycle::{any_running, caller, in_planner};
use super::state::Target;
use super::text::copy_text;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::executor::response::{self, Committed};
use crate::pg::executor::{nesting, parsed, planning, traced, unmeasured};
use crate::pg::handles::QueryRef;
use crate::pg::plan::tree;
use crate::pg::results::{self, parallel};
use crate::pg::server;
use crate::pg::server::builtin_values;
use crate::pg::sql_trace::level;
use crate::session::{self, KnownPlan};
use pgrx::pg_sys;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Buffers, Called, LazyDescription, NodeStats, Outcome, Outside, Parameters, Run};
use rowsource_core::phase::{Event, Phase};
use rowsource_core::plan::Costs;
use rowsource_core::results::{Scratch, Uncounted};
use smallvec::SmallVec;
use std::cell::Cell;
use std::rc::Rc;

impl<'s> Ending<'s> {
    /// Records the statement, unless that was done before.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub fn record(self) {
        let has_run = self.life.phase() != Phase::SetUp;
        if !self.life.advance(Event::Record) {
            return;
        }
        self.nodes.header().end();
        let alive = self.alive().filter(|_| self.switch.get().is_still_on());
        if !alive.is_some_and(record_counts) {
            self.record_statistics(has_run);
        }
    }

    /// Has the session store what the nodes counted.
    #[inline(always)]
    fn store_counts(self, execution: &mut session::Execution, scratch: &mut Scratch) {
        // SAFETY: it does not run, so nothing writes to the histograms.
        let histograms = self.nodes.iter().map(|node| unsafe { node.histogram() });
        if !session::record_counts(execution, &mut scratch.counts, histograms) {
            self.store_computed(execution, scratch);
        }
    }

    /// Has the session store the statistics that are computed from counts.
    #[cold]
    #[inline(never)]
    fn store_computed(self, execution: &mut session::Execution, scratch: &mut Scratch) {
        let mut histograms = SmallVec::new();
        let is_known = scratch.counts.compute(&mut scratch.stats) && self.histograms(&mut histograms);
        if is_known {
            session::record(execution, &mut scratch.stats, &histograms);
        }
    }

    /// Adds the histograms of the nodes. Returns false if there is no memory.
    fn histograms(self, to: &mut SmallVec<[&'s Histogram; 4]>) -> bool {
        let statement = self.statement();
        // SAFETY: it does not run, so nothing else writes to the histograms.
        unsafe { results::histograms(&statement.nodes, &statement.channel, to) }
    }

    /// Computes the statistics, exports them to core's struct, and has the session store them.
    #[inline(never)]
    fn record_statistics(self, has_run: bool) {
        if !self.core_alive() {
            // An abort has unmapped the workers' memory, so it must not be read.
            self.channel.set(None);
        }
        if self.core_contributes && has_run {
            if self.core_alive() && self.outcome.get() != Outcome::Completed {
                self.collect_parts();
            }
            self.note_unwrapped();
        }
        results::with_scratch(|scratch| {
            let mut histograms = SmallVec::new();
            if self.compute(scratch) && self.histograms(&mut histograms) {
                self.store_statistics(&mut scratch.stats, &scratch.called, &histograms);
            } else {
                // There is no memory for its statistics, so the statement is not recorded.
                self.take_outside(&mut [], &mut None);
            }
        });
        if let (Outcome::Completed, Some(channel)) = (self.outcome.get(), self.channel.take()) {
            channel.close();
        }
    }

    /// Has the session store the statistics. A parallel worker reports them to its leader instead.
    fn store_statistics(
        self,
        stats: &mut Vec<NodeStats>,
        called: &[(usize, Called)],
        histograms: &[&Histogram],
    ) {
        let Some(target) = &self.target else {
            let waits = self.take_waits(stats);
            // SAFETY: the plan states are live until the query's context is freed, and this runs before. Only
            // a parallel worker's statement has no target.
            return unsafe { parallel::report(&self.nodes, stats, called, histograms, waits) };
        };
        let mut outside = None;
        self.take_outside(stats, &mut outside);
        if !called.is_empty() {
            outside.get_or_insert_default().called = called;
        }
        if !self.switch.get().is_still_on() {
            return self.drop_across_switch(target);
        }
        if level::is_on() {
            trace(target, self.query(), stats);
        }
        if !self.is_complete() {
            dismiss_estimates(stats, self.outcome.get(), &target.description);
        }
        let returned = stats.first().map_or(0, |root| root.rows);
        self.store::<false>(target, outside, returned, |execution| {
            session::record(execution, stats, histograms);
        });
    }

    /// Drops the statistics of a statement during which the switch was off: its waits since then are missing,
    /// and so are the statements nested in it.
    #[cold]
    #[inline(never)]
    fn drop_across_switch(self, target: &Target) {
        planning::take(target.planned_as);
        if self.is_toplevel() && !self.excluded_from_last.get() {
            unmeasured::ended_while_off();
        }
    }

    /// Passes the statement as a whole to `record`. `returned` is the number of its root's rows. If
    /// `IS_COUNTED`, it has completed, and the wrappers have measured it alone.
    #[inline(always)]
    fn store<const IS_COUNTED: bool>(
        self,
        target: &Target,
        mut outside: Option<Outside>,
        returned: u64,
        record: impl FnOnce(&mut session::Execution),
    ) {
        let planned = planning::take(target.planned_as);
        if let Some(blocks) = planned.blocks {
            add_planning(&mut outside, &blocks.all());
        }
        let (outcome, is_complete) = if IS_COUNTED {
            (Outcome::Completed, true)
        } else {
            (self.outcome.get(), self.is_complete())
        };
        let is_of_client = || {
            let query = self.query().filter(|_| nesting::depth() == 0);
            query.is_some_and(|query| !is_of_sql_function(query))
        };
        let for_client;
        let (plan, toplevel) = if self.is_toplevel() {
            (&target.plan, true)
        } else if is_of_client() {
            for_client = target.for_client();
            (&for_client, true)
        } else {
            (&target.plan, false)
        };
        let is_last = self.core_alive() && !self.excluded_from_last.get() && becomes_last(toplevel);
        // If core contributes, workers may have run. Else nothing can tell what they did.
        let workers = (!IS_COUNTED && is_last && self.core_contributes)
            .then(|| facts::workers(self))
            .flatten();
        let planning_blocks;
        let planning_blocks = match planned.blocks {
            Some(blocks) if is_last => {
                planning_blocks = blocks.last();
                Some(&planning_blocks)
            }
            _ => None,
        };
        let live = Live {
            statement: self,
            planned_as: target.planned_as,
        };
        let statement: &dyn session::LiveStatement = match self.core_alive() {
            true => &live,
            false => &session::Gone,
        };
        let is_wrapped = IS_COUNTED || self.is_wrapped();
        let at = server::time_of_day(self.clock, self.tick_ns);
        let (elapsed_ms, begun) = (self.elapsed_ns.get() / 1e6, self.begun.get());
        let mut last_commit_ms = 0.0;
        if begun.is_sent() && is_last {
            last_commit_ms = response::take_commit();
            response::ended(at, Committed::Last);
        }
        record(&mut session::Execution {
            outside: outside.as_ref(),
            plan,
            description: &target.description,
            older_literals: target.older_literals,
            last_commit_ms,
            statement,
            run: Run {
                outcome,
                unfinished: !is_complete && outcome == Outcome::Completed,
                explained: !IS_COUNTED && self.explained,
                caller: if toplevel { 0 } else { caller() },
                sampfreq: if is_wrapped { self.sampfreq } else { 1 },
                clock: is_wrapped.then_some(self.clock),
                elapsed_ms,
                before_ms: begun.before_ms(target.planned_as, at, elapsed_ms),
                commit_ms: 0.0,
                planning: planned.planning,
                origin: self.origin.get(),
                at,
                changed_rows: self.changed_rows(returned),
            },
            last: self.query().filter(|_| is_last).map(|query| session::Executed {
                text: parsed::text_id(query),
                workers,
                planning_ms: planned.last_ms,
                planning_blocks,
            }),
        });
    }
}

/// Records what the nodes counted, if that is all that there is to record. Returns false if their
/// statistics must be computed.
#[inline(always)]
fn record_counts(statement: Alive) -> bool {
    let this = statement.ending();
    let (Some(shape), Some(target)) = (this.shape.get(), &this.target) else {
        return false;
    };
    if !this.is_complete() || level::is_on() || this.has_outside() {
        return false;
    }
    results::with_scratch(|scratch| {
        let this = statement.ending();
        let collector = this.collector(Some(this.timed));
        let elapsed_ms = this.elapsed_ns.get() / 1e6;
        let counted = scratch.counts.take(&collector, &shape, elapsed_ms);
        match counted {
            Ok(()) => {
                let returned = scratch.counts.returned_rows();
                this.store::<true>(target, None, returned, |execution| {
                    this.store_counts(execution, scratch);
                });
            }
            Err(Uncounted::Now) => {}
            Err(Uncounted::Always) => this.shape.set(None),
        }
        counted.is_ok()
    })
}

impl Target {
    /// Returns the plan of a cursor that a function opened and the client read, or that ends with the
    /// transaction: it counts as sent by the client, as in pg_stat_statements.
    #[cold]
    #[inline(never)]
    fn for_client(&self) -> Rc<KnownPlan> {
        let by_oids = self.plan.by_oids.at_toplevel();
        session::known(&by_oids).unwrap_or_else(|| session::new_plan(by_oids, self.description.to_keep()))
    }
}

/// Returns whether a function in SQL runs a query. It ends with the statement that called the function, if
/// that has not read all rows.
#[cold]
#[inline(never)]
fn is_of_sql_function(query: QueryRef) -> bool {
    query.receiver() == Some(pg_sys::CommandDest::DestSQLFunction)
}

/// Returns whether a statement becomes the last one. A statement that a client sent always does. A statement
/// inside a procedure or DO block does if the client's message had no top-level statement.
fn becomes_last(toplevel: bool) -> bool {
    #[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
    static LAST_MESSAGE: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(0));
    let message = server::message_time();
    if toplevel {
        LAST_MESSAGE.set(message);
    }
    toplevel || (!any_running() && !in_planner() && LAST_MESSAGE.get() != message)
}

/// A statement whose memory contexts are live.
struct Live<'a> {
    statement: Ending<'a>,
    planned_as: i64,
}

impl session::LiveStatement for Live<'_> {
    fn copy_text(&self, to: &mut Vec<u8>) {
        if let Some(query) = self.statement.query() {
            copy_text(query, self.planned_as, to);
        }
    }

    #[cold]
    #[inline(never)]
    fn parameters(&self) -> Option<Parameters> {
        let query = self.statement.query()?;
        // SAFETY: the parameters of a query are null, or as live as it. Without a function that fetches them,
        // they are an array.
        unsafe {
            let Some(list) = query.params.as_ref() else {
                return Some(Parameters::default());
            };
            // These are variables of a function, which may have changed meanwhile.
            if list.paramFetch.is_some() {
                return None;
            }
            let count = list.numParams.max(0) as usize;
            let parameters = std::slice::from_raw_parts(list.params.as_ptr(), count).iter();
            Parameters::keep(parameters.map(|one| (one.ptype.to_u32(), builtin_values::bytes(one))))
        }
    }

    #[cold]
    #[inline(never)]
    fn copy_costs(&self, to: &mut Vec<Costs>) {
        to.clear();
        let has_room = to.try_reserve(self.statement.nodes.count()).is_ok();
        if let Some(shown) = self.statement.shown().filter(|_| has_room) {
            to.extend(shown.map(tree::costs));
        }
    }
}

/// Writes what the nodes did into the session's SQL trace.
#[cold]
#[inline(never)]
fn trace(target: &Target, query: Option<QueryRef>, stats: &[NodeStats]) {
    let (nodes, planid) = (&target.description.decoded().nodes, target.plan.key.planid);
    server::attempt("trace a statement", || {
        traced::stats(query, target.planned_as, planid, nodes, stats);
    });
}

/// Adds the blocks that planning used to what a statement did outside of its nodes.
#[cold]
#[inline(never)]
fn add_planning(outside: &mut Option<Outside<'_>>, used: &Buffers) {
    outside.get_or_insert_default().sums.facts.planning += *used;
}

/// Notes that an execution that did not return all rows says nothing about the estimates of its nodes. If its
/// reader just stopped, nodes that had been read to their end before still say something.
#[cold]
#[inline(never)]
fn dismiss_estimates(stats: &mut [NodeStats], outcome: Outcome, description: &Rc<LazyDescription>) {
    let nodes = &description.to_keep().decoded().nodes;
    for (i, node) in stats.iter_mut().enumerate() {
        let described = nodes.get(description.fold().map_or(i, |fold| fold.of(i)));
        if outcome != Outcome::Completed || described.is_some_and(|node| node.stops_with_reader) {
            node.estimate.dismiss();
        }
    }
}
