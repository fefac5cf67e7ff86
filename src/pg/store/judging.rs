//! Looks for regressions: the background worker judges all changes of plans, and all plans without one. What
//! it finds lies in shared memory, beside the changes of plans.

use super::access::Store;
use super::read::{Reading, loaded, reading};
use super::{attach, control, entry, listing, pending};
use crate::pg::server::contained::{self, Unlocked};
use crate::pg::server::{self, memory};
use rowsource_core::flips::{Event, Flips, Sample, Verdict, verdicts};
use rowsource_core::model::PlanKey;
use rowsource_core::regressions::{
    Done, Found, Known, Look, PlanNow, Reference, Regression, Regressions, State, Steady, total_ms,
};
use std::collections::TryReserveError;
use std::sync::atomic::Ordering::Relaxed;

/// A change of a plan, and how the new plan compares with the one before.
#[derive(Clone, Copy)]
pub struct Judged {
    pub event: Event,
    pub verdict: Verdict,
    /// The query changed its plan so. Else the plan is compared with one before that.
    is_change: bool,
}

/// Judges all at a moment, and keeps what was found. `steady` is what the worker knows of plans without a
/// change. Returns the regressions whose state has changed, or `None` if the plans of the last run are still
/// being loaded: those that are there already are not all. Only the background worker may call this.
pub fn judge(steady: &mut Steady, now: i64) -> Option<Vec<Regression>> {
    // Without memory, an error of PostgreSQL ends with a PANIC, because it cannot be copied.
    if let Some(control) = control::known().filter(|control| memory::can_map(control.mapped_bytes())) {
        attach::attach_worker(control);
    }
    let Some(Reading { store, mut unlocked }) = reading() else {
        return Some(Vec::new());
    };
    if store.control().is_loading() {
        return None;
    }
    let found = contained::attempt(&mut unlocked, "look for regressions", |unlocked| {
        pending::flush_soon(&store, unlocked);
        let plans = plans(&store, unlocked, now);
        let active = known(&store, |known| known.state != State::Over);
        let judged = judged(&store, &active, || {});
        let marked = match steady.is_due(now) {
            true => mark(steady, &store, now, &plans, &active, &judged),
            false => steady.forget(&plans),
        };
        if marked.is_err() {
            memory::out_of_memory();
        }
        let mut looks: Vec<Look> = memory::with_room(judged.len());
        let is_current =
            |one: &&Judged| is_latest(&one.event, &judged) && !is_of_longer(one, &judged, &active);
        looks.extend(judged.iter().filter(is_current).map(|one| look(one, now)));
        let unchanged = steady.looks();
        let mut found: Vec<Regression> = memory::with_room(2 * Regressions::MAX);
        store.control().flips.with_all(|all| {
            let looks = looks.iter().chain(unchanged.unwrap_or_default()).copied();
            let is_stored = |key: &PlanKey| plans.iter().any(|plan| plan.key == *key);
            all.regressions
                .update(looks, unchanged.is_some(), now, is_stored, |known| {
                    if found.len() < found.capacity() {
                        found.push(*known);
                    }
                });
        });
        found
    });
    Some(found.unwrap_or_default())
}

/// Returns the sums of all plans, and notes the time of all statements until now. What runs inside of others
/// is a part of their time.
fn plans(store: &Store, unlocked: &mut Unlocked, now: i64) -> Vec<PlanNow> {
    let mut plans = memory::with_room(store.control().plans.load(Relaxed) as usize + 1_000);
    let evicted = || {
        let (others, evictions) = listing::others_and_evictions(store, unlocked);
        let toplevel = others.iter().filter(|sum| sum.toplevel);
        let ms = toplevel.map(|sum| sum.totals.plan.times.total_ms);
        (evictions, ms.sum::<f64>())
    };
    let stored = || {
        plans.clear();
        entry::list::sums(store, now, &mut plans);
        let toplevel = plans.iter().filter(|plan: &&PlanNow| plan.key.toplevel());
        toplevel.map(|plan| plan.sums.wall_ms).sum::<f64>()
    };
    if let Some(total_ms) = total_ms(evicted, stored) {
        store
            .control()
            .flips
            .with_all(|all| all.database.note(now, total_ms));
    }
    plans
}

/// Marks the end of an interval of the plans without a change, and judges them.
fn mark(
    steady: &mut Steady,
    store: &Store,
    now: i64,
    plans: &[PlanNow],
    active: &[Regression],
    judged: &[Judged],
) -> Result<(), TryReserveError> {
    steady.mark(
        &Known {
            now,
            plans,
            active: &|key| {
                let is_of = |known: &&Regression| known.from == *key && known.to == key.planid;
                active.iter().find(is_of).map(Regression::active)
            },
            has_changed: &|key, since| {
                let mut events = judged.iter().map(|one| &one.event);
                events.any(|event| event.at >= since && event.from.is_same_query(key))
            },
            database_ms: &|since| store.control().flips.with_all(|all| all.database.since(since)),
        },
        || {},
    )
}

/// Returns the regressions that are wanted.
fn known(store: &Store, is_wanted: impl Fn(&Regression) -> bool) -> Vec<Regression> {
    let mut all: Vec<Regression> = memory::with_room(Regressions::MAX);
    store
        .control()
        .flips
        .with_all(|known| all.extend(known.regressions.all().filter(|known| is_wanted(known))));
    all
}

/// Returns the changes of plans, with verdicts. Returns `None` if there is no shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn flips() -> Option<Vec<Judged>> {
    let Reading { store, mut unlocked } = loaded()?;
    pending::flush_all(&store, &mut unlocked);
    // The comparisons with a plan before both are candidates for the worker, too. They are no changes.
    let active = known(&store, |known| known.state != State::Over);
    let mut judged = judged(&store, &active, server::check_for_interrupts);
    judged.retain(|one| one.is_change);
    Some(judged)
}

/// Returns all changes of plans with their verdicts. A plan that took over from one that is a regression
/// (`active`) is also compared with the plan before both. `check` is called for each of them.
///
/// # Errors
/// Raises "out of memory".
fn judged(store: &Store, active: &[Regression], check: impl FnMut()) -> Vec<Judged> {
    let most = Flips::MAX_EVENTS + active.len();
    let mut events: Vec<Event> = memory::with_room(most);
    let mut changes: Vec<(Sample, Sample, f64)> = memory::with_room(most);
    let mut count = 0;
    store.control().flips.with_all(|all| {
        all.flips.settle();
        events.extend(all.flips.events());
        count = events.len();
        for known in active.iter().filter(|known| known.to != known.from.planid) {
            let of_query = all
                .flips
                .events()
                .filter(|event| event.from.is_same_query(&known.from));
            let latest = of_query.reduce(|one, other| if other.is_after(one) { other } else { one });
            events.extend(
                latest.and_then(|latest| latest.from_before(&known.from, Sample::before(known), known.since)),
            );
        }
        let since = |event: &Event| all.database.since(event.at);
        changes.extend(
            events
                .iter()
                .map(|event| (event.before, event.after, since(event))),
        );
    });
    let Ok(verdicts) = verdicts(&changes, check) else {
        memory::out_of_memory()
    };
    let mut judged = memory::with_room(events.len());
    let pairs = events.into_iter().zip(verdicts).enumerate();
    judged.extend(pairs.map(|(i, (event, verdict))| Judged {
        event,
        verdict,
        is_change: i < count,
    }));
    judged
}

/// Returns whether a change leads to the current plan of its query.
fn is_latest(event: &Event, all: &[Judged]) -> bool {
    let is_later = |other: &Judged| other.event.is_of_query(event) && other.event.is_after(event);
    !all.iter().any(is_later)
}

/// Returns whether the same plan is also slower than one from before. `active` has the regressions that are
/// open, of which some cost a little less than others do when they open.
fn is_of_longer(one: &Judged, all: &[Judged], active: &[Regression]) -> bool {
    let is_open = |other: &Judged| {
        let is_it =
            |known: &Regression| known.from == other.event.from && known.to == other.event.to().planid;
        active.iter().any(is_it)
    };
    all.iter().any(|other| {
        let is_slower = match other.verdict {
            Verdict::Slower(_) => true,
            Verdict::Small(_) => is_open(other),
            _ => false,
        };
        is_slower
            && other.event.at < one.event.at
            && other.event.is_of_query(&one.event)
            && is_latest(&other.event, all)
    })
}

fn look(judged: &Judged, now: i64) -> Look {
    let event = &judged.event;
    let all = Done::of(&event.after.sums);
    Look {
        from: event.from,
        to: event.to().planid,
        since: event.at,
        before: event.before.sums,
        all,
        began: Done::default(),
        period_us: now.saturating_sub(event.at).max(0) / all.executions.max(1) as i64,
        reference: Reference::Plan,
        interval: [0; 2],
        machine: event.before.pace(),
        control: event.after.machine(&event.before),
        found: match judged.verdict {
            Verdict::Slower(finding) => Found::Slower(finding),
            Verdict::Small(finding) => Found::Small(finding),
            Verdict::Cheap => Found::Cheap,
            Verdict::Faster | Verdict::Unknown => Found::Nothing,
        },
    }
}

/// Returns the regressions that are known. Returns `None` if there is no shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn regressions() -> Option<Vec<Regression>> {
    Some(known(&loaded()?.store, |_| true))
}

/// Hides a regression until a moment. Returns `false` if it is not known, or if `is_allowed` says so.
pub fn dismiss(id: u64, until: i64, is_allowed: impl Fn(&Regression) -> bool) -> bool {
    let known = regressions().unwrap_or_default();
    let is_known = known.iter().any(|known| known.id == id && is_allowed(known));
    let Some(Reading { store, .. }) = reading().filter(|_| is_known) else {
        return false;
    };
    store
        .control()
        .flips
        .with_all(|all| all.regressions.dismiss(id, until))
}
