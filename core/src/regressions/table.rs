//! The regressions that are known, in a table of fixed size: they open, are confirmed, and are over.

use super::judge::{Basis, Finding, Found, Reference, SIZE, WALL_SIZE};
use super::kept::Against;
use super::recent::{Done, Recent};
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
/// What has become slower is no longer slower if its latest executions take less than this part of what makes
/// a regression. So it does not come and go where they take about as much. Unmeasured.
const FAST: f64 = 0.75;

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
    /// Its executions are slower than before still, and all together cost little.
    Cheap,
    /// The store does not have the plan any more.
    NotStored,
}

impl Closing {
    /// Returns the name that views show.
    pub fn name(self) -> &'static str {
        match self {
            Closing::Faster => "no longer slower",
            Closing::NotRun => "not run",
            Closing::AnotherPlan => "another plan",
            Closing::Cheap => "costs little",
            Closing::NotStored => "plan not stored",
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
    /// When it was last looked at after it had run.
    ran_at: i64,
    /// Until when somebody does not want to see it.
    pub dismissed_until: i64,
    /// How many executions there were when it was found.
    opened_executions: u64,
    /// How many there are now.
    executions: u64,
    /// What was done when it became slower, and when it was last seen to be slow.
    began: Done,
    slow: Done,
    recent: Recent,
    /// How many times as long all plans take as they did in the interval that it is compared with. Of a
    /// change of plan, how many times as long the plans of other queries took while the plan before ran as
    /// before that.
    machine: f64,
    /// How many times as long the mean execution takes.
    pub ratio: f64,
    /// How many milliseconds all executions took longer.
    pub extra_ms: f64,
    /// The probability that this is chance; less than 0 if there are too few executions for a test.
    chance: f64,
    /// The executions before.
    pub before: Sums,
    /// When the interval of these began and ended; 0 if it is not one of the history.
    pub interval: [i64; 2],
    /// The executions since it became slower.
    pub after: Done,
    /// How certain it is.
    pub state: State,
    /// Why it is over.
    closing: Closing,
    /// What it is compared with.
    pub reference: Reference,
}

/// A plan that is a regression already.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Active {
    /// What it is compared with.
    pub against: Against,
    /// How many times as long all plans take as they did then.
    pub machine: f64,
    /// Since when it is slower.
    pub since: i64,
    /// What was done when it became slower, and when it was last seen to be slow.
    pub began: Done,
    /// See `began`.
    pub slow: Done,
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
    /// The executions before.
    pub before: Sums,
    /// All executions of the plan; of a change of plan, those since.
    pub all: Done,
    /// Those of them until it became slower.
    pub began: Done,
    /// The mean time between executions, in microseconds; 0 if that is not known.
    pub period_us: i64,
    /// What it is compared with.
    pub reference: Reference,
    /// When the interval of that began and ended.
    pub interval: [i64; 2],
    /// How many times as long all plans take as they did then. Of a change of plan, how many times as long
    /// the plans of other queries took while the plan before ran as before that.
    pub machine: f64,
    /// How many times as long all plans take as they did while those before ran.
    pub control: f64,
    /// What was found.
    pub found: Found,
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

const _: () = assert!(size_of::<Regressions>() <= 52 << 10);

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
        if look.all.executions == self.executions {
            self.idle_us = self.idle_us.saturating_add(watched);
        } else {
            (self.idle_us, self.ran_at) = (0, now);
        }
        (self.executions, self.looked_at) = (look.all.executions, now);
    }

    /// Returns whether the plan was changed, and its latest executions are fast again. If it is over for that
    /// reason, they stay so until they are as slow as a regression.
    fn is_fast_again(&mut self, look: &Look, now: i64) -> bool {
        if look.to == look.from.planid {
            return false;
        }
        if look.since != self.since {
            self.recent = Recent::default();
        }
        let Some(lately) = self.recent.note(&look.all, now) else {
            return false;
        };
        let part = if self.closing() == Some(Closing::Faster) {
            1.0
        } else {
            FAST
        };
        let least = part * look.control.max(1.0);
        lately.mean_busy_ms() < SIZE * least * look.before.mean_busy_ms()
            && lately.mean_wall_ms() < WALL_SIZE * least * look.before.mean_wall_ms()
    }

    /// Returns the mean time between executions, in microseconds. If only the plan's executions in all are
    /// known, it is that from the beginning until the last one.
    fn period_us(&self, look: &Look) -> i64 {
        if look.period_us > 0 {
            return look.period_us;
        }
        let ran_for = self.ran_at.saturating_sub(self.since);
        let executions = look.all.executions.saturating_sub(self.opened_executions);
        ran_for.max(0) / (executions as i64).saturating_add(1)
    }

    /// Returns whether it has not run for too long.
    fn is_idle(&self, look: &Look) -> bool {
        let periods = self.period_us(look).saturating_mul(i64::from(CONFIRM_PERIODS));
        self.idle_us >= periods.clamp(IDLE_US, MAX_IDLE_US)
    }

    /// Returns what the process that judges plans without a change has to know of it.
    pub fn active(&self) -> Active {
        Active {
            against: Against {
                sums: self.before,
                interval: self.interval,
                reference: self.reference,
            },
            machine: self.machine,
            since: self.since,
            began: self.began,
            slow: self.slow,
        }
    }

    fn close(&mut self, closing: Closing, now: i64) {
        (self.state, self.closing, self.closed_at) = (State::Over, closing, now);
    }

    fn set(&mut self, look: &Look, finding: &Finding) {
        (self.reference, self.interval) = (look.reference, look.interval);
        (self.since, self.before) = (look.since, look.before);
        (self.began, self.after) = (look.began, look.all.since(&look.began));
        (self.ratio, self.extra_ms) = match look.to == look.from.planid {
            // What was found is of the latest intervals only.
            true => self.since_it_became_slower(look.control.max(1.0)),
            false => (finding.ratio, finding.extra_ms),
        };
        self.chance = match finding.basis {
            Basis::Tested(chance) => chance,
            Basis::FewExecutions => -1.0,
        };
    }

    /// Returns how many times as long the mean execution takes, and how many milliseconds all took longer.
    fn since_it_became_slower(&self, control: f64) -> (f64, f64) {
        let (before, after) = (self.before.mean_busy_ms() * control, self.after.mean_busy_ms());
        let extra_ms = (after - before) * self.after.executions as f64;
        (after / before.max(f64::MIN_POSITIVE), extra_ms.max(0.0))
    }

    /// Returns whether enough has happened since it was found.
    fn is_confirmed(&self, look: &Look, now: i64) -> bool {
        let since = now.saturating_sub(self.opened_at);
        let executions = look.all.executions.saturating_sub(self.opened_executions);
        let period_us = self.period_us(look);
        let periods = period_us.saturating_mul(i64::from(CONFIRM_PERIODS));
        let is_seldom = period_us > CONFIRM_US;
        since >= CONFIRM_US
            && (executions >= CONFIRM_EXECUTIONS
                || is_seldom && since >= periods && executions >= u64::from(CONFIRM_PERIODS))
    }
}

impl Regressions {
    /// Takes over what was found at a moment. All statements must be among `looks`: what is not does not hold
    /// any more. Those without a change of plan may be missing if `knows_unchanged` is false. Calls `changed`
    /// for each regression whose state has changed. `is_stored` says whether the store has a plan.
    pub fn update(
        &mut self,
        looks: impl Iterator<Item = Look>,
        knows_unchanged: bool,
        now: i64,
        is_stored: impl Fn(&PlanKey) -> bool,
        mut changed: impl FnMut(&Regression),
    ) {
        for look in looks {
            let at = self.all.iter().position(|known| known.is_of(&look));
            let slower = match &look.found {
                Found::Slower(finding) => Some(finding),
                _ => None,
            };
            let at = at.or_else(|| self.open(&look, slower?));
            let Some(known) = at.and_then(|at| self.all.get_mut(at)) else {
                continue;
            };
            let (state, is_new) = (known.state, known.looked_at == 0);
            known.note_executions(&look, now);
            known.machine = look.machine;
            let found = match known.is_fast_again(&look, now) {
                true => Found::Nothing,
                false => look.found,
            };
            if matches!(found, Found::Slower(_) | Found::Small(_) | Found::StillSlow) {
                known.slow = look.all;
            }
            let is_waiting = known.closing() == Some(Closing::NotRun) && known.idle_us > 0;
            let may_be_small = known.is_active() || known.closing() == Some(Closing::NotRun);
            let finding = match &found {
                Found::Slower(finding) => Some(finding),
                Found::Small(finding) => Some(finding).filter(|_| may_be_small),
                _ => None,
            };
            match (finding, &found, state) {
                (Some(_), _, State::Over) if is_waiting => {}
                (Some(finding), ..) => {
                    if is_new || state == State::Over {
                        (known.state, known.opened_at, known.closed_at) = (State::Open, now, 0);
                        known.opened_executions = look.all.executions;
                    }
                    known.set(&look, finding);
                    if known.is_confirmed(&look, now) {
                        known.state = State::Confirmed;
                    }
                }
                (None, Found::StillSlow, State::Open) if known.is_confirmed(&look, now) => {
                    known.state = State::Confirmed;
                }
                (None, Found::Nothing, State::Open | State::Confirmed) => known.close(Closing::Faster, now),
                (None, Found::Cheap, State::Open | State::Confirmed) => known.close(Closing::Cheap, now),
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
                let is_there = is_stored(&known.to());
                known.close(
                    if is_there {
                        Closing::AnotherPlan
                    } else {
                        Closing::NotStored
                    },
                    now,
                );
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

    /// Returns an empty table.
    #[cfg(test)]
    pub(super) fn empty() -> Box<Regressions> {
        Box::new(Regressions {
            last_id: 0,
            all: [Regression::default(); REGRESSIONS],
        })
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
mod tests;
