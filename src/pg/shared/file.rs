//! The plans across a clean restart: see [`crate::pg::statfile`].
//!
//! The postmaster writes them when the server stops cleanly; the first backend that needs the store reads them.

use super::entry::NodeTotals;
use super::{Control, Store, entry};
use crate::guc;
use crate::pg::{server, statfile, tempfile};
use crate::session::{Plan, PlanDescription, PlanKey, PlanStatistics};
use pgrx::{PgTryBuilder, pg_guard, pg_sys};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

const NAME: &str = "pg_stat/pg_rowsource.stat";

#[derive(Serialize, Deserialize)]
struct Saved {
    reset_at: i64,
    plans: Vec<SavedPlan>,
}

#[derive(Serialize, Deserialize)]
struct SavedPlan {
    key: PlanKey,
    statistics: PlanStatistics,
    description: PlanDescription,
    nodes: Vec<NodeTotals>,
}

/// Called when shared memory has been set up in the postmaster.
pub(super) fn save_at_exit() {
    // SAFETY: a valid callback; runs in the postmaster after all backends have gone. A single-user backend has
    // unmapped the store by then.
    unsafe {
        if server::is_postmaster() {
            pg_sys::on_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_exit(code: i32, _arg: pg_sys::Datum) {
    // After a crash or an immediate shutdown the figures are not to be trusted, and locks may be held for ever.
    if code != 0 || !stopped_cleanly() {
        return;
    }
    if !guc::save() {
        forget();
        tempfile::file::forget();
        return;
    }
    // A server that stops must not be held up by its statistics.
    PgTryBuilder::new(|| {
        for (name, result) in [(tempfile::file::NAME, tempfile::file::save()), (NAME, save())] {
            if let Err(error) = result {
                pgrx::log!("pg_rowsource could not save its statistics to \"{name}\": {error}");
            }
        }
    })
    .catch_others(|_| ())
    .execute();
}

/// Whether the checkpointer has written its last checkpoint: `DBState` in the control file, after three numbers of 8, 4
/// and 4 bytes.
fn stopped_cleanly() -> bool {
    const STATE: std::ops::Range<usize> = 16..20;
    const SHUTDOWNED: [u32; 2] = [1, 2];
    let control = fs::read("global/pg_control").unwrap_or_default();
    let state = control
        .get(STATE)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_ne_bytes);
    state.is_some_and(|state| SHUTDOWNED.contains(&state))
}

/// Removes what an earlier run saved: it is not to come back later.
pub(super) fn forget() {
    statfile::forget(NAME);
}

fn save() -> io::Result<()> {
    // SAFETY: in the postmaster, which may map dynamic shared memory when nobody else is left.
    let Some((plans, reset_at)) = (unsafe { super::all_at_exit() }) else {
        return Ok(());
    };
    let plans = plans.into_iter().filter_map(saved).collect();
    statfile::write(NAME, &Saved { reset_at, plans })
}

fn saved(plan: Plan) -> Option<SavedPlan> {
    Some(SavedPlan {
        key: plan.key,
        statistics: plan.statistics,
        nodes: NodeTotals::of(&plan),
        description: std::rc::Rc::into_inner(plan.description)?,
    })
}

/// Reads the file into the store, if there is one, and removes it.
///
/// # Safety
/// Under the control lock.
pub(super) unsafe fn load(store: &Store) {
    if let Some(saved) = statfile::take(NAME) {
        // SAFETY: the caller's promise.
        unsafe { fill(store, saved) }
    }
}

unsafe fn fill(store: &Store, saved: Saved) {
    let most = guc::max_plans();
    let mut plans = saved.plans;
    plans.sort_by_key(|plan| std::cmp::Reverse(plan.statistics.last_seen));
    // SAFETY: under the control lock.
    unsafe {
        let control: &Control = &*store.control;
        for plan in plans.into_iter().take(most) {
            let Ok(description) = postcard::to_stdvec(&plan.description) else {
                continue;
            };
            entry::insert(store, &plan.key, &plan.statistics, &plan.nodes, &description);
        }
        control.reset_at.store(saved.reset_at.min(server::now()), Relaxed);
    }
}
