//! The regressions that are known, in a table of fixed size: they open, are confirmed, and are over.

use super::judge::{Basis, Finding, Reference};
use super::sums::Sums;
use crate::model::PlanKey;
use crate::room::crowded;
use serde::{Deserialize, Serialize};

/// How many regressions are kept.
const REGRESSIONS: usize = 128;
/// After this time, in microseconds, an open one is looked at again. Unmeasured.
const CONFIRM_US: i64 = 300_000_000;
/// It is confirmed if it still holds after this many more executions. Unmeasured.
const CONFIRM_EXECUTIONS: u64 = 10;
/// Of a statement that comes less than once in [`CONFIRM_US`], after this many of its periods, with as many
/// executions. Unmeasured.
const CONFIRM_PERIODS: u32 = 3;
/// A regression whose statement has not run for this time, in microseconds, is over. Unmeasured.
const IDLE_US: i64 = 86_400_000_000;
/// Of a statement that comes seldom, after [`CONFIRM_PERIODS`] of its periods, and at most after this time:
/// a statement that comes once a week has run meanwhile. Unmeasured.
const MAX_IDLE_US: i64 = 8 * IDLE_US;
/// While nobody looked, the statement may not have been able to run. So no more than this counts at once.
const WATCHED_US: i64 = IDLE_US / 24;

/// How certain a regression is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum State {
    /// It has been found.
    #[default]
    Open,
    /// It was looked at again, and still holds.
    Confirmed,
    /// It does not hold any more.
    Over,
}

impl State {
    /// Returns the name that views show.
    pub fn name(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Confirmed => "confirmed",
            State::Over => "over",
        }
    }
}

/// Why a regression is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Closing {
    /// Its executions are no slower than before.
    #[default]
    Faster,
    /// It did not run. It opens again with the next slow execution.
    NotRun,
    /// The statement runs with another plan, or the change of its plan is not known any more.
    AnotherPlan,
}

impl Closing {
    /// Returns the name that views show.
    pub fn name(self) -> &'static str {
        match self {
            Closing::Faster => "no longer slower",
            Closing::NotRun => "not run",
            Closing::AnotherPlan => "another plan",
        }
    }
}

/// A statement that became slower. Times are microseconds since 2000-01-01 UTC. Zero bytes are a free place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Regression {
    /// Its number, from 1 on.
    pub id: u64,
    /// The plan before.
    pub from: PlanKey,
    /// The new plan's number: that of the plan before if the plan did not change.
    pub to: i64,
    /// When the statement became slower.
    pub since: i64,
    /// When it was found, the last time that it was.
    pub opened_at: i64,
    /// When it was over.
    pub closed_at: i64,
    /// When it was last looked at.
    looked_at: i64,
    /// For how many microseconds, as far as somebody looked, it has not run.
    idle_us: i64,
    /// Until when somebody does not want to see it.
    pub dismissed_until: i64,
    /// How many executions there were when it was found.
    opened_executions: u64,
    /// How many there are now.
    pub executions: u64,
    /// How many times as long the mean execution takes.
    pub ratio: f64,
    /// How many milliseconds all executions took longer.
    pub extra_ms: f64,
    /// The probability that this is chance; less than 0 if there are too few executions for a test.
    chance: f64,
    /// The executions before.
    pub before: Sums,
    /// The mean busy time and the mean time of those since, in milliseconds.
    pub after_ms: [f64; 2],
    /// How certain it is.
    pub state: State,
    /// Why it is over.
    closing: Closing,
    /// What it is compared with.
    pub reference: Reference,
}

/// A statement that is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// The plan before.
    pub from: PlanKey,
    /// The new plan's number: that of the plan before if the plan did not change.
    pub to: i64,
    /// When the statement became slower.
    pub since: i64,
    /// The executions before, and those since.
    pub before: Sums,
    /// See `before`.
    pub after: Sums,
    /// How many executions there are: those of `after`, or those of the plan in all.
    pub executions: u64,
    /// The mean time between executions, in microseconds; 0 if that is not known.
    pub period_us: i64,
    /// What it is compared with.
    pub reference: Reference,
    /// What was found.
    pub found: Found,
}

/// What was found of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found {
    /// It is a regression.
    Slower(Finding),
    /// It is none.
    Nothing,
    /// Too few of its executions ended lately to say more than before.
    TooFew,
}

/// The regressions in a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SavedRegressions {
    last_id: u64,
    all: Vec<Regression>,
}

/// All regressions. Zero bytes are an empty table.
#[repr(C)]
pub struct Regressions {
    last_id: u64,
    all: [Regression; REGRESSIONS],
}

const _: () = assert!(size_of::<Regressions>() <= 32 << 10);

impl Regression {
    /// Returns the key of the new plan.
    pub fn to(&self) -> PlanKey {
        self.from.with_plan(self.to)
    }

    /// Returns the probability that it is chance. `None` if there are too few executions for a test.
    pub fn chance(&self) -> Option<f64> {
        Some(self.chance).filter(|chance| *chance >= 0.0)
    }

    /// Returns why it is over, if it is.
    pub fn closing(&self) -> Option<Closing> {
        (self.state == State::Over).then_some(self.closing)
    }

    /// Returns whether somebody does not want to see it at this moment.
    pub fn is_dismissed(&self, now: i64) -> bool {
        self.dismissed_until > now
    }

    fn is_of(&self, look: &Look) -> bool {
        self.id != 0 && self.to == look.to && self.from == look.from
    }

    fn is_active(&self) -> bool {
        self.id != 0 && self.state != State::Over
    }

    /// Notes that somebody looks, and whether the statement has run since the last time.
    fn note_executions(&mut self, look: &Look, now: i64) {
        let watched = now.saturating_sub(self.looked_at).clamp(0, WATCHED_US);
        self.idle_us = match look.executions == self.executions {
            true => self.idle_us.saturating_add(watched),
            false => 0,
        };
        (self.executions, self.looked_at) = (look.executions, now);
    }

    /// Returns whether it has not run for too long.
    fn is_idle(&self, look: &Look) -> bool {
        let periods = look.period_us.saturating_mul(i64::from(CONFIRM_PERIODS));
        self.idle_us >= periods.clamp(IDLE_US, MAX_IDLE_US)
    }

    fn close(&mut self, closing: Closing, now: i64) {
        (self.state, self.closing, self.closed_at) = (State::Over, closing, now);
    }

    fn set(&mut self, look: &Look, finding: &Finding) {
        self.reference = look.reference;
        (self.since, self.before) = (look.since, look.before);
        self.after_ms = [look.after.mean_busy_ms(), look.after.mean_wall_ms()];
        self.ratio = finding.ratio;
        self.extra_ms = finding.extra_ms;
        self.chance = match finding.basis {
            Basis::Tested(chance) => chance,
            Basis::FewExecutions => -1.0,
        };
    }

    /// Returns whether enough has happened since it was found.
    fn is_confirmed(&self, look: &Look, now: i64) -> bool {
        let since = now.saturating_sub(self.opened_at);
        let executions = look.executions.saturating_sub(self.opened_executions);
        let periods = look.period_us.saturating_mul(i64::from(CONFIRM_PERIODS));
        let is_seldom = look.period_us > CONFIRM_US;
        since >= CONFIRM_US
            && (executions >= CONFIRM_EXECUTIONS
                || is_seldom && since >= periods && executions >= u64::from(CONFIRM_PERIODS))
    }
}

impl Regressions {
    /// Takes over what was found at a moment. All statements must be among `looks`: what is not does not hold
    /// any more. Those without a change of plan may be missing if `knows_unchanged` is false. Calls `changed`
    /// for each regression whose state has changed.
    pub fn update(
        &mut self,
        looks: impl Iterator<Item = Look>,
        knows_unchanged: bool,
        now: i64,
        mut changed: impl FnMut(&Regression),
    ) {
        for look in looks {
            let at = self.all.iter().position(|known| known.is_of(&look));
            let slower = match &look.found {
                Found::Slower(finding) => Some(finding),
                Found::Nothing | Found::TooFew => None,
            };
            let at = at.or_else(|| self.open(&look, slower?));
            let Some(known) = at.and_then(|at| self.all.get_mut(at)) else {
                continue;
            };
            let (state, is_new) = (known.state, known.looked_at == 0);
            known.note_executions(&look, now);
            let is_waiting = known.closing() == Some(Closing::NotRun) && known.idle_us > 0;
            match (&look.found, state) {
                (Found::Slower(_), State::Over) if is_waiting => {}
                (Found::Slower(finding), _) => {
                    if is_new || state == State::Over {
                        (known.state, known.opened_at, known.closed_at) = (State::Open, now, 0);
                        known.opened_executions = look.executions;
                    }
                    known.set(&look, finding);
                    if known.is_confirmed(&look, now) {
                        known.state = State::Confirmed;
                    }
                }
                (Found::Nothing, State::Open | State::Confirmed) => known.close(Closing::Faster, now),
                _ => {}
            }
            if known.is_active() && known.is_idle(&look) {
                known.close(Closing::NotRun, now);
            }
            if (state, is_new) != (known.state, false) {
                changed(known);
            }
        }
        for known in &mut self.all {
            let is_looked_at = knows_unchanged || known.to != known.from.planid;
            if known.is_active() && known.looked_at != now && is_looked_at {
                known.close(Closing::AnotherPlan, now);
                changed(known);
            }
        }
    }

    /// Returns the place of a new regression, or `None` if the role that makes room has only costlier ones.
    fn open(&mut self, look: &Look, finding: &Finding) -> Option<usize> {
        let owners = || self.all.iter().map(|known| known.from.userid);
        let free = self.all.iter().position(|known| known.id == 0);
        let over = |known: &&Regression| known.state == State::Over;
        let oldest = || self.all.iter().filter(over).map(|known| known.closed_at).min();
        let ended = || {
            let oldest = oldest()?;
            self.all
                .iter()
                .position(|known| known.state == State::Over && known.closed_at == oldest)
        };
        let cheapest = || {
            let owner = crowded::<REGRESSIONS>(owners(), look.from.userid);
            let of_owner = (0..REGRESSIONS).filter(|at| self.all[*at].from.userid == owner);
            let cheapest = of_owner.min_by(|a, b| self.all[*a].extra_ms.total_cmp(&self.all[*b].extra_ms))?;
            let is_other = owner != look.from.userid;
            (is_other || self.all[cheapest].extra_ms < finding.extra_ms).then_some(cheapest)
        };
        let at = free.or_else(ended).or_else(cheapest)?;
        self.last_id += 1;
        self.all[at] = Regression {
            id: self.last_id,
            from: look.from,
            to: look.to,
            ..Regression::default()
        };
        Some(at)
    }

    /// Returns the regressions.
    pub fn all(&self) -> impl Iterator<Item = &Regression> {
        self.all.iter().filter(|known| known.id != 0)
    }

    /// Returns what a file keeps. Returns `None` if there is no memory.
    pub fn saved(&self) -> Option<SavedRegressions> {
        let mut all = Vec::new();
        all.try_reserve_exact(REGRESSIONS).ok()?;
        all.extend(self.all());
        Some(SavedRegressions {
            last_id: self.last_id,
            all,
        })
    }

    /// Takes over what a file kept. A table that is in use stays as it is.
    pub fn restore(&mut self, saved: &SavedRegressions) {
        if self.last_id == 0 {
            self.last_id = saved.last_id;
            let places = self.all.iter_mut().zip(&saved.all);
            places.for_each(|(place, kept)| *place = *kept);
        }
    }

    /// The largest number of regressions.
    pub const MAX: usize = REGRESSIONS;

    /// Hides a regression until a moment. Returns `false` if it is not known.
    pub fn dismiss(&mut self, id: u64, until: i64) -> bool {
        let known = self.all.iter_mut().find(|known| id != 0 && known.id == id);
        known.map(|known| known.dismissed_until = until).is_some()
    }

    /// Deletes all that belongs to a user, database and query. 0 means any.
    pub fn clear(&mut self, userid: u32, datid: u32, queryid: i64) {
        for known in &mut self.all {
            if known.from.matches(userid, datid, queryid) {
                *known = Regression::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn table() -> Box<Regressions> {
        Box::new(Regressions {
            last_id: 0,
            all: [Regression::default(); REGRESSIONS],
        })
    }

    fn look(userid: u32, query: i64, executions: u64, extra_ms: f64) -> Look {
        Look {
            from: PlanKey::new(userid, 5, query, 1, true),
            to: 2,
            since: 100 * MINUTE,
            before: Sums::default(),
            after: Sums::default(),
            executions,
            period_us: 0,
            reference: Reference::Plan,
            found: match extra_ms > 0.0 {
                true => Found::Slower(Finding {
                    ratio: 3.0,
                    extra_ms,
                    basis: Basis::Tested(0.001),
                }),
                false => Found::Nothing,
            },
        }
    }

    /// Returns the numbers and states that have changed.
    fn update(table: &mut Regressions, looks: &[Look], minute: i64) -> Vec<(u64, &'static str)> {
        let mut changes = Vec::new();
        let changed = |known: &Regression| changes.push((known.id, known.state.name()));
        table.update(
            looks.iter().copied(),
            true,
            100 * MINUTE + minute * MINUTE,
            changed,
        );
        changes
    }

    #[test]
    fn a_regression_is_confirmed_after_five_minutes_and_ten_executions() {
        let mut table = table();
        let mut at =
            |minute, executions, extra_ms| update(&mut table, &[look(10, 7, executions, extra_ms)], minute);
        assert_eq!(at(0, 20, 9.0), [(1, "open")]);
        assert_eq!(at(4, 90, 9.0), []);
        assert_eq!(at(5, 29, 9.0), []);
        assert_eq!(at(6, 30, 9.0), [(1, "confirmed")]);
        assert_eq!(at(7, 40, 9.0), []);
        assert_eq!(at(8, 50, 0.0), [(1, "over")]);
        assert_eq!(at(9, 60, 0.0), []);
        // It comes back.
        assert_eq!(at(10, 70, 9.0), [(1, "open")]);
        // Somebody else's statement is not among what is looked at any more.
        assert_eq!(update(&mut table, &[], 11), [(1, "over")]);
    }

    #[test]
    fn a_statement_that_comes_seldom_is_confirmed_after_three_periods() {
        let mut table = table();
        let hours = 60;
        let nightly = |executions| Look {
            period_us: 24 * hours * MINUTE,
            ..look(10, 7, executions, 9.0)
        };
        assert_eq!(update(&mut table, &[nightly(1)], 0), [(1, "open")]);
        assert_eq!(update(&mut table, &[nightly(3)], 48 * hours), []);
        assert_eq!(update(&mut table, &[nightly(4)], 72 * hours), [(1, "confirmed")]);
    }

    /// Returns why all are over that are.
    fn closings(table: &Regressions) -> Vec<&'static str> {
        let closings = table.all().filter_map(Regression::closing);
        closings.map(Closing::name).collect()
    }

    #[test]
    fn what_does_not_run_for_a_day_is_over_until_it_runs_again() {
        let mut table = table();
        let mut at = |hour: i64, executions| {
            let changes = update(&mut table, &[look(10, 7, executions, 9.0)], 60 * hour);
            (changes, closings(&table))
        };
        assert_eq!(at(0, 20).0, [(1, "open")]);
        assert_eq!(at(1, 40).0, [(1, "confirmed")]);
        for hour in 2..25 {
            assert_eq!(at(hour, 40).0, [], "{hour}");
        }
        assert_eq!(at(25, 40), (vec![(1, "over")], vec!["not run"]));
        // As long as it does not run, it stays over, and no time is too long.
        for day in 2..40 {
            assert_eq!(at(24 * day, 40), (vec![], vec!["not run"]), "{day}");
        }
        assert_eq!(at(24 * 40, 41), (vec![(1, "open")], vec![]));
    }

    #[test]
    fn time_in_which_nobody_looked_does_not_count() {
        let mut table = table();
        let mut at = |hour: i64| update(&mut table, &[look(10, 7, 20, 9.0)], 60 * hour);
        assert_eq!(at(0), [(1, "open")]);
        // The server was down for two days.
        assert_eq!(at(48), []);
        assert_eq!(at(49), []);
        for hour in 50..71 {
            assert_eq!(at(hour), [], "{hour}");
        }
        assert_eq!(at(71), [(1, "over")]);
    }

    #[test]
    fn a_statement_that_comes_once_a_week_may_be_idle_for_longer() {
        let mut table = table();
        let mut over = Vec::new();
        for hour in 0..1_000 {
            let weekly = Look {
                period_us: 7 * 24 * 60 * MINUTE,
                ..look(10, 7, 1 + (hour / 168).min(2), 9.0)
            };
            let changes = update(&mut table, &[weekly], 60 * hour as i64);
            over.extend(changes.iter().filter(|(_, state)| *state == "over").map(|_| hour));
        }
        // It ran last in hour 336.
        assert_eq!(over, [336 + 8 * 24]);
    }

    #[test]
    fn what_is_over_says_why() {
        let mut table = table();
        update(&mut table, &[look(10, 7, 20, 9.0), look(10, 8, 20, 9.0)], 0);
        update(&mut table, &[look(10, 7, 30, 0.0)], 1);
        assert_eq!(closings(&table), ["no longer slower", "another plan"]);
        // With too few executions to judge, it stays as it is.
        update(&mut table, &[look(10, 7, 40, 9.0)], 2);
        let few = Look {
            found: Found::TooFew,
            ..look(10, 7, 41, 9.0)
        };
        assert_eq!(update(&mut table, &[few], 3), []);
        assert_eq!(closings(&table), ["another plan"]);
        // And what was not found is not opened.
        let few = Look {
            found: Found::TooFew,
            ..look(10, 9, 41, 9.0)
        };
        assert_eq!(update(&mut table, &[few, look(10, 7, 42, 9.0)], 4), []);
    }

    #[test]
    fn who_has_the_most_makes_room() {
        let mut table = table();
        let many: Vec<Look> = (0..REGRESSIONS as i64)
            .map(|i| look(10, i, 9, 100.0 + i as f64))
            .collect();
        assert_eq!(update(&mut table, &many, 0).len(), REGRESSIONS);
        // A cheaper one of the same role finds no room, one of another role does.
        let mut more = many.clone();
        more.push(look(10, 999, 9, 50.0));
        assert_eq!(update(&mut table, &more, 1), []);
        more[REGRESSIONS] = look(11, 999, 9, 50.0);
        assert_eq!(update(&mut table, &more, 2).len(), 1);
        assert_eq!(table.all().filter(|known| known.from.userid == 11).count(), 1);
        // What is over makes room first.
        assert_eq!(update(&mut table, &more[1..], 3), []);
        assert_eq!(update(&mut table, &more[5..], 4).len(), 4);
        assert_eq!(
            update(&mut table, &[look(10, 1_000, 9, 1.0)], 5).first(),
            Some(&(130, "open"))
        );
    }

    #[test]
    fn regressions_are_dismissed_and_cleared() {
        let mut table = table();
        update(&mut table, &[look(10, 7, 9, 9.0), look(11, 8, 9, 9.0)], 0);
        assert!(table.dismiss(2, 500) && !table.dismiss(3, 500) && !table.dismiss(0, 500));
        let dismissed: Vec<_> = table.all().map(|known| known.is_dismissed(499)).collect();
        assert_eq!(dismissed, [false, true]);
        let first = table.all().next().expect("a regression");
        assert_eq!(
            (first.to().planid, first.chance(), first.ratio),
            (2, Some(0.001), 3.0)
        );
        let saved = table.saved().expect("memory");
        let mut restored = self::table();
        restored.restore(&saved);
        assert!(restored.all().eq(table.all()));
        table.clear(10, 0, 0);
        assert_eq!(table.all().map(|known| known.id).collect::<Vec<_>>(), [2]);
        table.clear(0, 0, 0);
        assert_eq!(table.all().count(), 0);
    }
}
