//! Changes of plans: a query that ran with one plan runs with another one from now on.
//!
//! Executions come in batches: those of a session within a second, or until the session ran another plan of
//! the query. So the order between sessions is known only if their batches do not overlap. Each query has a
//! current plan, and runs: executions of other plans in a row, which follow it. A run is judged if no
//! executions before it can be missing any more: three seconds later, or if a reader has had all sessions add
//! their executions.
//!
//! - A run that is long enough makes its plan the current one, and is an event. So is the way back, no matter
//!   how soon.
//! - A run that is too short is forgotten.
//! - If batches of different plans overlap, the plans are used side by side, and the runs are forgotten.
//!
//! After two events, each one doubles how long a run must be, and each hour without any halves that again. So
//! plans that alternate make a few events: until a run must be longer than theirs are.
//!
//! All of this lies in tables of fixed size. If one is full, the role with the most of it makes room: of its
//! queries in the same set the least recently used one is forgotten, and of the older half of its events the
//! one that changed the least. A query that was forgotten goes on with its last event when it runs again. A
//! query is observed from its second plan on: which plans a query has is in another table, with room for all
//! plans of the store ([`KnownPlans`]).

mod known;
mod pace;
mod query;
mod sample;

pub use known::{KnownPlan, KnownPlans};
pub use pace::Pace;
pub use sample::{Executions, Sample, Verdict, extra_ms, verdicts};

use crate::model::PlanKey;
use crate::room::crowded;
use known::hash_of_query;
use query::{Place, Query, RUNS, Run};
use serde::{Deserialize, Serialize};

/// How many events are kept.
const EVENTS: usize = 256;
/// How many queries with several plans are observed, in sets of [`WAYS`].
const QUERIES: usize = SETS * WAYS;
const SETS: usize = 32;
const WAYS: usize = 16;
/// Sessions keep executions for a second. After this time, in microseconds, none are missing.
const QUIET_US: i64 = 3_000_000;

/// A plan took over from another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Event {
    /// The number of the event; 0 if the place is free.
    serial: u64,
    /// When the first execution of the new plan ended, in microseconds since 2000-01-01 UTC.
    pub at: i64,
    /// The plan before.
    pub from: PlanKey,
    /// The new plan's number. All else is as in `from`.
    to: i64,
    /// The executions of the plan before, since it took over itself.
    pub before: Sample,
    /// The executions of the new plan, until another one took over.
    pub after: Sample,
}

impl Event {
    /// Returns the key of the new plan.
    pub fn to(&self) -> PlanKey {
        self.from.with_plan(self.to)
    }

    /// Returns the run of the new plan so far. When its last execution ended is not known.
    fn run_after(&self) -> Run {
        Run {
            plan: self.to,
            sample: self.after,
            first_at: self.at,
            last_at: self.at,
        }
    }

    /// Returns how much it changed: the milliseconds that the executions after it took longer, or less long.
    fn weight(&self) -> f64 {
        extra_ms(&self.before, &self.after).map_or(0.0, f64::abs)
    }

    /// Returns the change from an earlier plan to the same plan: `from`, with these executions until `at`.
    /// Nothing if that is this event, or if the query went back to that plan.
    pub fn from_before(&self, from: &PlanKey, before: Sample, at: i64) -> Option<Event> {
        let is_other = self.from != *from && self.to() != *from;
        is_other.then_some(Event {
            from: *from,
            before,
            at,
            ..*self
        })
    }

    /// Returns whether it came after another event.
    pub fn is_after(&self, other: &Event) -> bool {
        self.serial > other.serial
    }

    /// Returns whether another event is of the same query.
    pub fn is_of_query(&self, other: &Event) -> bool {
        self.from.is_same_query(&other.from)
    }
}

/// The events and the observed queries. Zero bytes are an empty table.
#[repr(C)]
pub struct Flips {
    last_serial: u64,
    events: [Event; EVENTS],
    queries: [Query; QUERIES],
}

const _: () = assert!(size_of::<Flips>() <= 320 << 10);

/// The events and queries in a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SavedFlips {
    last_serial: u64,
    events: Vec<Event>,
    queries: Vec<Query>,
}

impl Flips {
    /// Returns whether the query of a plan is observed already.
    pub fn observes(&self, key: &PlanKey) -> bool {
        self.find(key).is_some()
    }

    /// Returns the plan with which the query of a plan ran last, if it is observed. It may be the plan
    /// itself.
    pub fn last_plan(&self, key: &PlanKey) -> Option<PlanKey> {
        let mut runs = self.queries[self.find(key)?].runs.iter().rev();
        Some(key.with_plan(runs.find(|run| run.exists())?.plan))
    }

    fn find(&self, key: &PlanKey) -> Option<usize> {
        set_of(key).find(|at| {
            let query = &self.queries[*at];
            query.is_used() && query.key.is_same_query(key)
        })
    }

    /// Observes a query from now on. `key` is its current plan, and `done` its executions so far.
    pub fn observe_query(&mut self, key: &PlanKey, done: &Executions) {
        if key.queryid == 0 || done.sample.calls() == 0 || self.find(key).is_some() {
            return;
        }
        let at = self.room_for_query(key);
        // The query that goes may be about to change its plan.
        self.judge(at, 0);
        let known = self.last_event(key);
        let (event, run) = match known.filter(|event| event.to == key.planid) {
            // All executions since then have been added to it.
            Some(event) => (event.serial, event.run_after()),
            None => (0, Run::new(key.planid, done)),
        };
        let events = self.events().filter(|event| event.from.is_same_query(key));
        self.queries[at] = Query {
            key: *key,
            event,
            recent: events.count() as u32,
            ..Query::default()
        };
        self.queries[at].runs[0] = run;
    }

    /// Observes a query that was loaded from the file, unless there is room only for those that ran later.
    pub fn observe_loaded(&mut self, key: &PlanKey, done: &Executions) {
        let place = &self.queries[self.room_for_query(key)];
        if !place.is_used() || place.last_at() < done.last_at {
            self.observe_query(key, done);
        }
    }

    /// Returns the last event of the query of a plan.
    fn last_event(&self, key: &PlanKey) -> Option<&Event> {
        let of_query = self.events().filter(|event| event.from.is_same_query(key));
        of_query.max_by_key(|event| event.serial)
    }

    /// Returns the place for another query.
    fn room_for_query(&self, key: &PlanKey) -> usize {
        let set = set_of(key);
        if let Some(free) = set.clone().find(|at| !self.queries[*at].is_used()) {
            return free;
        }
        let first = set.start;
        let users = self.queries[set.clone()].iter().map(|query| query.key.userid);
        let owner = crowded::<WAYS>(users, key.userid);
        let of_owner = set.filter(|at| self.queries[*at].key.userid == owner);
        of_owner
            .min_by_key(|at| self.queries[*at].last_at())
            .unwrap_or(first)
    }

    /// Returns the place for another event of a role.
    fn room_for_event(&self, userid: u32) -> usize {
        if let Some(free) = (0..EVENTS).find(|at| self.events[*at].serial == 0) {
            return free;
        }
        let owner = crowded::<EVENTS>(self.events.iter().map(|event| event.from.userid), userid);
        let serials = || {
            self.events
                .iter()
                .filter(|event| event.from.userid == owner)
                .map(|event| event.serial)
        };
        let mut sorted = [0; EVENTS];
        let count = sorted
            .iter_mut()
            .zip(serials())
            .map(|(place, serial)| *place = serial)
            .count();
        let sorted = &mut sorted[..count];
        sorted.sort_unstable();
        // What has just changed may still become costly.
        let last_old = sorted.get((count - 1) / 2).copied().unwrap_or(0);
        let old = (0..EVENTS).filter(|at| {
            let event = &self.events[*at];
            event.from.userid == owner && event.serial <= last_old
        });
        old.min_by(|one, other| {
            let [one, other] = [one, other].map(|at| &self.events[*at]);
            one.weight()
                .total_cmp(&other.weight())
                .then(one.serial.cmp(&other.serial))
        })
        .unwrap_or(0)
    }

    /// Adds executions of a plan whose query has several plans.
    pub fn add(&mut self, key: &PlanKey, done: &Executions) {
        if done.sample.calls() == 0 {
            return;
        }
        let at = match self.find(key) {
            Some(at) => at,
            None => {
                // It was forgotten. If the plan is that of its last event, or another one, it goes on from
                // there.
                let Some(to) = self.last_event(key).map(Event::to) else {
                    return self.observe_query(key, done);
                };
                self.observe_query(&to, done);
                match self.find(key) {
                    Some(at) => at,
                    None => return,
                }
            }
        };
        let done = Run::new(key.planid, done);
        match self.queries[at].place(&done) {
            Place::Before => self.add_before(at, &done),
            Place::In(run) => self.queries[at].runs[run].add(&done),
            Place::Behind => {
                if self.queries[at].count() == RUNS {
                    self.judge_next(at);
                }
                let query = &mut self.queries[at];
                query.runs[query.count()] = done;
            }
            Place::Overlap => self.queries[at].forget_order(&done),
        }
        self.judge(at, QUIET_US);
    }

    /// Adds late executions of the plan that ran before the current one.
    fn add_before(&mut self, at: usize, done: &Run) {
        if let Some(event) = self.event(self.queries[at].event)
            && event.from.planid == done.plan
        {
            event.before.merge(&done.sample);
        }
    }

    /// Judges the runs of all queries. All sessions must have added their executions.
    pub fn settle(&mut self) {
        (0..QUERIES).for_each(|at| self.judge(at, 0));
    }

    /// Judges the runs of a query whose current plan last ran `quiet_us` microseconds ago.
    fn judge(&mut self, at: usize, quiet_us: i64) {
        loop {
            let query = &self.queries[at];
            let quiet = query.last_at().saturating_sub(query.runs[0].last_at);
            if !query.runs[1].exists() || quiet < quiet_us || !self.judge_next(at) {
                break;
            }
        }
        let Query { event, runs, .. } = self.queries[at];
        if let Some(event) = self.event(event) {
            event.after = runs[0].sample;
        }
    }

    /// Judges the run behind that of the current plan. Returns false if it may still become longer.
    fn judge_next(&mut self, at: usize) -> bool {
        let query = &mut self.queries[at];
        if query.runs[1].is_long(query.needed()) {
            self.take_over(at);
            true
        } else if query.runs[2].exists() {
            query.forget_next();
            true
        } else {
            false
        }
    }

    /// Makes the plan of the next run the current one.
    fn take_over(&mut self, at: usize) {
        // The serial number says the place.
        let place = self.room_for_event(self.queries[at].key.userid) as u64;
        let next = self.last_serial + 1;
        let serial = next + (place + EVENTS as u64 - next % EVENTS as u64) % EVENTS as u64;
        self.last_serial = serial;
        let query = &mut self.queries[at];
        let [before, after, _] = query.runs;
        self.events[serial as usize % EVENTS] = Event {
            serial,
            at: after.first_at,
            from: query.key.with_plan(before.plan),
            to: after.plan,
            before: before.sample,
            after: after.sample,
        };
        query.recent = query.recent() + 1;
        query.remove(0);
        query.event = serial;
    }

    fn event(&mut self, serial: u64) -> Option<&mut Event> {
        let event = &mut self.events[serial as usize % EVENTS];
        (serial != 0 && event.serial == serial).then_some(event)
    }

    /// Returns the events.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.serial != 0)
    }

    /// The largest number of events.
    pub const MAX_EVENTS: usize = EVENTS;

    /// Deletes all that belongs to a user, database and query. 0 means any.
    pub fn clear(&mut self, userid: u32, datid: u32, queryid: i64) {
        for event in &mut self.events {
            if event.serial != 0 && event.from.matches(userid, datid, queryid) {
                *event = Event::default();
            }
        }
        for query in &mut self.queries {
            if query.is_used() && query.key.matches(userid, datid, queryid) {
                *query = Query::default();
            }
        }
    }

    /// Returns what a file keeps. Returns `None` if there is no memory.
    pub fn saved(&self) -> Option<SavedFlips> {
        let mut saved = SavedFlips {
            last_serial: self.last_serial,
            ..SavedFlips::default()
        };
        saved.events.try_reserve_exact(EVENTS).ok()?;
        saved.queries.try_reserve_exact(QUERIES).ok()?;
        saved.events.extend(self.events());
        saved
            .queries
            .extend(self.queries.iter().filter(|query| query.is_used()));
        Some(saved)
    }

    /// Takes over what a file kept. A table that is in use stays as it is.
    pub fn restore(&mut self, saved: &SavedFlips) {
        if self.last_serial != 0 {
            return;
        }
        self.last_serial = saved.last_serial;
        for event in saved.events.iter().filter(|event| event.serial != 0) {
            self.events[event.serial as usize % EVENTS] = *event;
        }
        for query in saved.queries.iter().filter(|query| query.is_used()) {
            let mut set = self.queries[set_of(&query.key)].iter_mut();
            if let Some(free) = set.find(|place| !place.is_used()) {
                *free = *query;
            }
        }
    }
}

/// Returns the places that the query of a plan may have.
fn set_of(key: &PlanKey) -> std::ops::Range<usize> {
    let set = hash_of_query(key) as usize % SETS;
    set * WAYS..(set + 1) * WAYS
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod unchanged;
