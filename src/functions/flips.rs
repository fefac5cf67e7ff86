//! `rowsource_plan_flips()`: the queries that changed their plan.

use super::words::MASKED;
use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::store;
use crate::pg::store::Judged;
use rowsource_core::flips::{Event, Sample, Verdict, extra_ms};
use rowsource_core::model::Plan;
use rowsource_core::regressions::Sums;

/// A change of a plan.
pub struct Flip {
    event: Event,
    verdict: Verdict,
    is_visible: bool,
    /// One of its plans, if the user may see it and it is stored.
    plan: Option<Plan>,
    /// The query ran with the new plan before, and took less time with it: the change ended a cost, and saved
    /// nothing.
    is_recovery: bool,
}

impl Flip {
    /// Returns what only those see who may see the statement.
    fn seen<T>(&self, value: T) -> Option<T> {
        self.is_visible.then_some(value)
    }

    /// Returns the indexes that are gone since the plan before, if there are some.
    fn gone_indexes(&self) -> Option<&[String]> {
        let later = self.plan.as_ref().filter(|plan| plan.key == self.event.to())?;
        Some(&*later.description.gone_indexes).filter(|gone| !gone.is_empty())
    }

    fn query(&self) -> Option<&str> {
        match self.is_visible {
            true => self.plan.as_ref().map(|plan| plan.description.text.as_str()),
            false => Some(MASKED),
        }
    }
}

/// Adds the rows of `rowsource_plan_flips()`: one per change of a plan. There are none without a shared
/// store.
pub fn rows(rows: &mut Rows) {
    let columns = columns();
    let events = store::flips().unwrap_or_default();
    for Judged { event, verdict, .. } in events.iter().copied() {
        server::check_for_interrupts();
        let returns = |earlier: &Judged| earlier.event.at < event.at && earlier.event.from == event.to();
        let is_recovery = extra_ms(&event.before, &event.after) < Some(0.0) && events.iter().any(returns);
        let is_visible = server::may_see(event.from.userid);
        // The later plan is more likely to be stored still.
        let stored = || store::plan(&event.to()).or_else(|| store::plan(&event.from));
        let plan = is_visible.then(stored).flatten();
        columns.add(
            rows,
            &Flip {
                event,
                verdict,
                is_visible,
                plan,
                is_recovery,
            },
        );
    }
}

/// Returns a time of executions, if there are any.
fn time(sample: &Sample, of: fn(&Sums) -> f64) -> Option<f64> {
    (sample.calls() > 0).then(|| of(&sample.sums))
}

/// The columns of `rowsource_plan_flips()`.
pub fn columns() -> Columns<Flip> {
    columns! { |flip: &Flip|
        /// When the first execution of the new plan ended
        changed_at: timestamptz = flip.event.at;
        /// The OID of the user who ran the statement
        userid: oid = flip.event.from.userid;
        /// The OID of the database in which the statement ran
        datid: oid = flip.event.from.datid;
        /// Identifies the statement, as in pg_stat_statements and pg_stat_activity
        queryid: bigint = flip.seen(flip.event.from.queryid);
        /// Whether a client sent the statement; false if another statement ran it
        toplevel: boolean = flip.event.from.toplevel();
        /// The plan before
        from_planid: bigint = flip.seen(flip.event.from.planid);
        /// The plan that took over
        to_planid: bigint = flip.seen(flip.event.to().planid);
        /// Executions of the plan before, since it took over itself
        calls_before: bigint = flip.event.before.calls();
        /// Milliseconds of these executions on average
        mean_time_before: float8 = time(&flip.event.before, Sums::mean_wall_ms);
        /// The standard error of that mean, in milliseconds
        stderr_before: float8 = flip.event.before.sums.error_ms();
        /// Milliseconds of a typical execution of the plan before, since it took over itself, without waits
        /// for locks, LWLocks, clients and timeouts: the geometric mean, which few very long executions
        /// hardly change
        typical_time_before: float8 = time(&flip.event.before, Sums::typical_ms);
        /// Executions of the new plan, until another one took over
        calls_after: bigint = flip.event.after.calls();
        /// Milliseconds of these executions on average
        mean_time_after: float8 = time(&flip.event.after, Sums::mean_wall_ms);
        /// The standard error of that mean, in milliseconds
        stderr_after: float8 = flip.event.after.sums.error_ms();
        /// Milliseconds of a typical execution of the new plan, until another one took over, without these
        /// waits
        typical_time_after: float8 = time(&flip.event.after, Sums::typical_ms);
        /// Milliseconds that the executions of the new plan took longer in all than they would have taken
        /// before; negative if they took less. It is the difference of the mean times if that is more than
        /// chance, else that of the typical times. NULL if the query went back to an earlier plan that takes
        /// less
        extra_time: float8 = extra_ms(&flip.event.before, &flip.event.after).filter(|_| !flip.is_recovery);
        /// slower: a regression, by the rules of rowsource_regressions(); faster: the same, with the plans
        /// exchanged; or no difference that can be told
        verdict: text = flip.verdict.name();
        /// The text of the statement; NULL if neither plan is stored any more
        query: text = flip.query();
        /// The indexes that the query's plan before used and that were gone when the new plan was first seen;
        /// NULL if none, or if the new plan is not stored any more
        gone_indexes: texts = flip.gone_indexes();
    }
}
