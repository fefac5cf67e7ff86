//! `rowsource_regressions()`: the statements that became slower. The background worker looks for them.

use super::commands::prefix;
use super::compare::Why;
use super::interval_plans::Baseline;
use super::plan_changes::{Change, Changes};
use super::unconfirmed::Slower;
use super::words::MASKED;
use super::{compare, interval_plans};
use crate::pg::ash::judge::judge_now;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail, memory};
use crate::pg::store;
use pgrx::PgSqlErrorCode;
use rowsource_core::model::{Plan, PlanKey, archive};
use rowsource_core::regressions::{Against, Closing, Reference, Regression, State, Sums};
use rowsource_core::report::comparison::NOT_KNOWN;
use std::cell::OnceCell;
use std::rc::Rc;

/// Of how many plans that did not change, or that had run before, the cause is looked for in the history:
/// those that cost the most.
const HISTORY_CAUSES: usize = 16;

/// A regression, as a user sees it.
pub struct Seen {
    pub known: Regression,
    /// Whether he may see the statement.
    pub is_visible: bool,
    /// One of its plans, if he may, and it is stored.
    plan: Option<Plan>,
    /// Whether its cause is looked for in the history.
    is_costly: bool,
    /// The changes of plans and the snapshots of the history, of all regressions.
    changes: Rc<Changes>,
    /// The baselines of the history, likewise.
    baselines: Rc<OnceCell<Vec<Baseline>>>,
}

impl Seen {
    /// Returns what only those see who may see the statement.
    fn seen<T>(&self, value: T) -> Option<T> {
        self.is_visible.then_some(value)
    }

    fn has_changed_plan(&self) -> bool {
        self.known.to != self.known.from.planid
    }

    fn basis(&self) -> String {
        let reference = self.known.reference.name();
        match (self.known.chance(), self.baseline()) {
            (Some(_), Some(name)) => format!("tested against {reference} \"{name}\""),
            (Some(_), None) => format!("tested against {reference}"),
            (None, _) => "few executions".to_owned(),
        }
    }

    /// Returns the name of the baseline that it is compared with, if it is still there.
    fn baseline(&self) -> Option<&str> {
        if self.known.reference != Reference::Baseline {
            return None;
        }
        let interval = self.known.interval.into();
        let all = self.baselines.get_or_init(interval_plans::baselines);
        let found = all.iter().find(|baseline| baseline.is_of(interval))?;
        Some(&found.name)
    }

    fn query(&self) -> Option<&str> {
        match self.is_visible {
            true => self.plan.as_ref().map(|plan| plan.description.text.as_str()),
            false => Some(MASKED),
        }
    }

    /// Returns whether the new plan had run before.
    fn has_returned(&self) -> bool {
        let is_returned =
            |plan: &Plan| plan.key == self.known.to() && plan.statistics.first_seen_at < self.known.since;
        self.has_changed_plan() && self.plan.as_ref().is_some_and(is_returned)
    }

    /// Returns whether only the history has what its cause needs.
    fn needs_history(&self) -> bool {
        let needs = !self.has_changed_plan() || self.has_returned();
        needs && self.is_visible && self.known.state != State::Over
    }

    /// Returns the cause, if what is needed is stored: both plans, or the plan in both intervals.
    fn cause(&self) -> Option<Why> {
        if !self.is_visible {
            return None;
        }
        let Regression { from, since, .. } = &self.known;
        let [_, (_, end)] = self.intervals();
        match self.has_changed_plan() {
            true => {
                let change = Change {
                    from: *from,
                    to: self.known.to(),
                    at: *since,
                    end,
                };
                compare::cause(&change, Some(&*self.changes).filter(|_| self.is_costly))
            }
            false if !self.is_costly || !self.is_in_history() => None,
            false => compare::cause_since(from, self.intervals()),
        }
    }

    /// Returns the interval that a plan without a change is compared with, and that since it became slower.
    fn intervals(&self) -> [(i64, i64); 2] {
        let Regression { since, closed_at, .. } = self.known;
        let end = match self.known.state {
            State::Over => closed_at,
            _ => server::now(),
        };
        [self.known.interval.into(), (since, end.max(since + 1))]
    }

    /// Returns whether the history has both.
    fn is_in_history(&self) -> bool {
        interval_plans::tells_apart(self.changes.snapshots(), self.intervals())
    }

    /// Returns the command that shows more. Without the history, nothing is left of the time before.
    pub fn command(&self, prefix: &str) -> String {
        let Regression { from, to, since, .. } = &self.known;
        let [a, b] = match self.has_changed_plan() {
            true => [from.planid.to_string(), to.to_string()],
            false if self.is_in_history() => {
                let [(begin, end), (_, last)] = self.intervals();
                let [begin, end, since, last] = [begin, end, *since, last].map(server::shown_time);
                match self.known.state {
                    State::Over => [format!("{begin}..{end}"), format!("{since}..{last}")],
                    _ => [format!("{begin}..{end}"), format!("{since}..")],
                }
            }
            false => ["mean", "slowest"].map(|which| format!("{to} {which}")),
        };
        format!(
            "SELECT * FROM {prefix}rowsource_compare({}, '{a}', '{b}')",
            from.queryid
        )
    }

    /// Returns the command that makes the planner choose the plan before again, if it is known.
    fn advice_command(&self) -> Option<String> {
        let is_known = self.is_visible && self.has_changed_plan();
        let before = is_known.then(|| store::plan(&self.known.from)).flatten()?;
        let advice = before.description.advice.as_deref()?;
        let advice = advice.replace('\n', " ").replace('\'', "''");
        Some(format!("SET pg_plan_advice.advice = '{advice}'"))
    }

    /// Returns a sentence for the report.
    pub fn sentence(&self) -> String {
        let known = &self.known;
        let plan = match self.has_changed_plan() {
            true => "another plan",
            false => SAME_PLAN,
        };
        let when = match known.state {
            State::Over => format!(
                "from {} to {}",
                server::shown_time(known.since),
                server::shown_time(known.closed_at)
            ),
            _ => format!("since {}", server::shown_time(known.since)),
        };
        sentence(
            &format!("{plan} {when}, {}", known.state.name()),
            [known.before.mean_wall_ms(), known.after.mean_wall_ms()],
            (known.ratio, known.after.executions),
            self.cause(),
            self.query().unwrap_or_default(),
        )
    }
}

/// What a sentence says of a statement that did not change its plan.
const SAME_PLAN: &str = "slower with the same plan";

/// Returns a sentence on a statement that takes longer: what it is, its mean times before and since, how many
/// times as long it takes and how many executions show that, and why.
fn sentence(
    what: &str,
    [before, after]: [f64; 2],
    (ratio, executions): (f64, u64),
    cause: Option<Why>,
    query: &str,
) -> String {
    let cause = match cause {
        Some(Why::Known(cause)) if cause == NOT_KNOWN => ", the cause is not known".to_owned(),
        Some(Why::Known(cause)) => format!(", because {cause}"),
        Some(Why::Mixed) => ", no snapshot tells the executions before that apart".to_owned(),
        None => String::new(),
    };
    format!("{what}: {before:.3} ms -> {after:.3} ms ({ratio:.1}x, {executions} executions){cause}: {query}")
}

impl Slower {
    /// Returns a sentence for the report.
    pub fn sentence(&self) -> String {
        let plan = store::plan(&self.key);
        let since = server::shown_time(self.intervals[1].0);
        sentence(
            &format!("{SAME_PLAN} since {since}, not confirmed"),
            [self.before.mean_wall_ms(), self.after.mean_wall_ms()],
            (self.finding.ratio, self.after.executions),
            self.cause(),
            plan.as_ref().map_or("", |plan| plan.description.text.as_str()),
        )
    }

    /// Returns the command that shows more.
    pub fn command(&self, prefix: &str) -> String {
        let sides = self.intervals.map(|(from, to)| {
            let [from, to] = [from, to].map(server::shown_time);
            format!("'{from}..{to}'")
        });
        let queryid = self.key.queryid;
        format!(
            "SELECT * FROM {prefix}rowsource_compare({queryid}, {})",
            sides.join(", ")
        )
    }
}

/// Returns the regressions that were not over before an interval, and had begun until its end.
pub fn seen((from, to): (i64, i64)) -> Vec<Seen> {
    let mut all = store::regressions().unwrap_or_default();
    all.retain(|known| known.since <= to && (known.state != State::Over || known.closed_at >= from));
    let (changes, baselines) = (Rc::default(), Rc::default());
    let seen = |known: Regression| {
        server::check_for_interrupts();
        let is_visible = server::may_see(known.from.userid);
        // The later plan is more likely to be stored still.
        let stored = || store::plan(&known.to()).or_else(|| store::plan(&known.from));
        Seen {
            known,
            is_visible,
            plan: is_visible.then(stored).flatten(),
            is_costly: false,
            changes: Rc::clone(&changes),
            baselines: Rc::clone(&baselines),
        }
    };
    let mut seen: Vec<Seen> = all.into_iter().map(seen).collect();
    let mut costs: Vec<f64> = memory::with_room(seen.len());
    let needing = seen.iter().filter(|one| one.needs_history());
    costs.extend(needing.map(|one| one.known.extra_ms));
    costs.sort_unstable_by(|one, other| other.total_cmp(one));
    let least = costs.get(HISTORY_CAUSES - 1).copied().unwrap_or(f64::MIN);
    for one in &mut seen {
        one.is_costly = one.needs_history() && one.known.extra_ms >= least;
    }
    seen
}

/// Adds the rows of `rowsource_regressions()`.
pub fn rows(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    let columns = columns();
    for known in seen((from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX))) {
        columns.add(rows, &known);
    }
}

/// Lets the report leave out a regression until a moment, or for good.
///
/// # Errors
/// Raises an error if the user knows no such regression.
pub fn dismiss(id: Option<i64>, until: Option<i64>) {
    let is_allowed = |known: &Regression| server::may_see(known.from.userid);
    let id = id.and_then(|id| u64::try_from(id).ok()).unwrap_or_default();
    if !store::dismiss(id, until.unwrap_or(i64::MAX), is_allowed) {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("there is no regression {id} of a statement that you may see"),
            "rowsource_regressions() lists them.",
        )
    }
}

/// What a plan did in an earlier interval, as a snapshot has it.
pub struct Earlier<'a> {
    /// Which interval that is: its place in [`Reference::ALL`].
    pub reference: Option<i32>,
    /// When it began and ended.
    pub interval: [Option<i64>; 2],
    /// Its stored statistics until the end, and until the beginning.
    pub statistics: Option<&'a [u8]>,
    /// See `statistics`.
    pub earlier: Option<&'a [u8]>,
}

impl Earlier<'_> {
    /// Returns what it is compared with; `None` if there is nothing, or if another version has stored it.
    fn against(&self) -> Option<Against> {
        let sums = |bytes| archive::stored_whole(bytes).map(|stats| Sums::of(&stats)).ok();
        let reference = *Reference::ALL.get(usize::try_from(self.reference?).ok()?)?;
        let until = sums(self.statistics?)?;
        let sums = match self.earlier {
            Some(earlier) => until.since(&sums(earlier)?),
            None => until,
        };
        let [from, to] = self.interval;
        Some(Against {
            sums,
            interval: [from?, to?],
            reference,
        })
    }
}

/// Notes at a snapshot what a plan did in an earlier interval, for the process that judges.
pub fn note_reference(key: &PlanKey, at: i64, earlier: &Earlier<'_>) {
    store::note_reference(key, at, earlier.against());
}

/// Looks for regressions now, or as if it were a moment.
pub fn judge(at: Option<i64>) {
    if !judge_now(at) {
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "the background worker of pg_rowsource does not run",
            "Preload the library, or start the worker with rowsource_ash_start().",
        )
    }
}

/// The columns of `rowsource_regressions()`.
pub fn columns() -> Columns<Seen> {
    columns! { |seen: &Seen|
        /// Its number
        id: bigint = seen.known.id;
        /// open: it has been found. confirmed: it still held five minutes and ten executions later, or after
        /// three periods of a statement that comes seldom. over: it does not hold any more
        state: text = seen.known.state.name();
        /// When the statement became slower: when the first execution of the new plan ended, or when the
        /// first slow interval began
        changed_at: timestamptz = seen.known.since;
        /// When it was found
        opened_at: timestamptz = seen.known.opened_at;
        /// When it was over; NULL if it is not
        closed_at: timestamptz = Some(seen.known.closed_at).filter(|_| seen.known.state == State::Over);
        /// Why it is over. no longer slower: its executions are as fast as before, or nearly. costs little:
        /// its executions are slower still, and all together cost less than half of 10 s and of 1 % of the
        /// time of all statements. not run: the statement has not run for a day, or for three of its periods
        /// if it comes seldom, at most eight days; with its next slow execution the regression is open
        /// again. another plan: the statement runs with another plan, or the change of its plan is not known
        /// any more. plan not stored: the plan was evicted or reset
        closing_reason: text = seen.known.closing().map(Closing::name);
        /// The OID of the user who ran the statement
        userid: oid = seen.known.from.userid;
        /// The OID of the database in which the statement ran
        datid: oid = seen.known.from.datid;
        /// Identifies the statement, as in pg_stat_statements and pg_stat_activity
        queryid: bigint = seen.seen(seen.known.from.queryid);
        /// Whether a client sent the statement; false if another statement ran it
        toplevel: boolean = seen.known.from.toplevel();
        /// The plan before
        from_planid: bigint = seen.seen(seen.known.from.planid);
        /// The plan since then; the same one if the plan did not change
        to_planid: bigint = seen.seen(seen.known.to);
        /// How many times as long an execution takes, beyond what all plans take longer
        ratio: float8 = seen.known.ratio;
        /// Milliseconds that the executions since then took longer in all than they would have taken before
        extra_time: float8 = seen.known.extra_ms;
        /// Executions before
        calls_before: bigint = seen.known.before.executions;
        /// Milliseconds of these executions on average
        mean_time_before: float8 = seen.known.before.mean_wall_ms();
        /// Milliseconds of these executions on average, without waits for locks, LWLocks, clients and
        /// timeouts
        mean_busy_time_before: float8 = seen.known.before.mean_busy_ms();
        /// Executions since then
        calls_after: bigint = seen.known.after.executions;
        /// Milliseconds of the executions since then on average
        mean_time_after: float8 = seen.known.after.mean_wall_ms();
        /// Milliseconds of these executions on average, without these waits
        mean_busy_time_after: float8 = seen.known.after.mean_busy_ms();
        /// tested against ...: chance does not explain the difference from the executions of the plan before;
        /// if the plan did not change, from those of the newest baseline, which it names, of the same hour a
        /// week ago, of the same hour yesterday, or of the quarter of an hour before it became slower. few
        /// executions: nothing is tested; the longest one takes four times as long as all before, and a
        /// second more
        basis: text = seen.basis();
        /// The probability that the difference is chance; NULL if nothing is tested
        chance: float8 = seen.known.chance();
        /// Why it takes longer, as rowsource_compare() says it; not known if no part is large enough. If the
        /// plan changed, from all executions of both plans; NULL if one is not stored any more. If it did not
        /// change, or the new plan had run before, from the history, of the 16 that cost the most. Without
        /// that, because the snapshots of this database do not have the time before, you may not read them,
        /// or it is over: NULL; of a plan that had run before, from all executions, if these take longer
        cause: text = seen.cause().and_then(Why::known);
        /// The command that shows more
        command: text = seen.seen(seen.command(&prefix()));
        /// The command after which the session's next plan of the statement is the plan before: from 19 on,
        /// if the plan changed, and pg_plan_advice.always_store_advice_details was on when the plan before
        /// was first seen
        advice_command: text = seen.advice_command();
        /// Until when the report leaves it out; NULL if nobody has dismissed it
        dismissal_ends_at: timestamptz = Some(seen.known.dismissed_until).filter(|until| *until != 0);
        /// The text of the statement; NULL if neither plan is stored any more
        query: text = seen.query();
    }
}
