//! The plans across a clean restart: see [`crate::pg::statfile`].
//!
//! The postmaster writes them when the server stops cleanly, plan by plan; the first backend that needs the store reads
//! them in the same way.

use super::control::{self, Control};
use super::{MOST_NODES, Store, attach_now, contained, entry};
use crate::guc;
use crate::pg::{memory, server, statfile, tempfile};
use crate::session::{NodeTotals, PlanDescription, PlanKey, PlanStatistics};
use pgrx::{pg_guard, pg_sys};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

const NAME: &str = "pg_stat/pg_rowsource.stat";

/// What the file begins with.
#[derive(Serialize, Deserialize)]
struct Head {
    reset_at: i64,
}

#[derive(Serialize)]
struct PlanOut<'a> {
    key: &'a PlanKey,
    statistics: &'a PlanStatistics,
    description: &'a PlanDescription,
    nodes: &'a [NodeTotals],
}

/// As [`PlanOut`].
#[derive(Deserialize)]
struct PlanIn {
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

/// Saves the plans, where the server stops cleanly.
///
/// # Safety
/// To be called by PostgreSQL only, in the postmaster, when no other process is left.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
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
    saved_or_logged(tempfile::file::NAME, tempfile::file::save);
    saved_or_logged(NAME, save);
    // What was mapped to read the plans must go before main shared memory does: PostgreSQL would look there for what it
    // knows about it.
    // SAFETY: this is the postmaster, and nobody else is left who would use what is unmapped.
    unsafe { pg_sys::dsm_backend_shutdown() }
}

/// A server that stops must not be held up by its statistics.
fn saved_or_logged(name: &str, save: fn() -> io::Result<()>) {
    let saved = contained(|| save().map_err(|error| error.to_string()));
    if let Err(error) = saved.flatten() {
        pgrx::log!("pg_rowsource could not save its statistics to \"{name}\": {error}");
    }
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
fn forget() {
    statfile::forget(NAME);
}

/// Saves all plans, the most recently run first: of too many, those are loaded.
fn save() -> io::Result<()> {
    let control = control::preloaded();
    // SAFETY: in the postmaster, when nobody else is left: no lock can be contended, and mapping is safe.
    unsafe {
        if control.is_null() || !(*control).made.load(Relaxed) {
            return Ok(());
        }
    }
    // An error that PostgreSQL raises in a process that ends is fatal to it. So nothing is asked of it in vain.
    // SAFETY: this is the postmaster, nobody else is left, and the block was found to be there.
    if !memory::can_map(unsafe { (*control).mapped_bytes() }) {
        return Err(io::Error::other("the postmaster has no memory to read them"));
    }
    attach_now();
    let Some(keys) = super::keys() else {
        return Err(io::Error::other("their shared memory cannot be read"));
    };
    let mut file = statfile::Writer::create(NAME)?;
    file.record(&Head {
        // SAFETY: this is the postmaster, nobody else is left, and the block was found to be there.
        reset_at: unsafe { (*control).reset_at.load(Relaxed) },
    })?;
    for key in keys {
        if let Some(plan) = super::plan(&key) {
            file.record(&PlanOut {
                key: &plan.key,
                statistics: &plan.statistics,
                description: &plan.description,
                nodes: &plan.nodes,
            })?;
        }
    }
    file.finish()
}

/// Reads the file into the store, if there is one, and removes it; once in a server's life.
///
/// # Safety
/// Under the attach lock, which is released where a plan cannot be kept.
pub(super) unsafe fn load(store: &Store) {
    // SAFETY: the caller holds the attach lock: nobody else can be attached to the store.
    unsafe {
        let control: &Control = &*store.control;
        if control.loaded.swap(true, Relaxed) {
            return;
        }
        if !guc::save() {
            return forget();
        }
        // A plan takes less room in the file than in memory.
        let longest = guc::max_memory().max(64 << 20) as u64;
        let Some(mut file) = statfile::take(NAME, longest) else {
            return;
        };
        let Some(head) = file.next::<Head>() else { return };
        control.reset_at.store(head.reset_at.min(server::now()), Relaxed);
        for _ in 0..guc::max_plans() {
            let Some(plan) = file.next::<PlanIn>() else { break };
            let fits = plan.nodes.len() <= MOST_NODES
                && entry::restore(store, &plan.key, &plan.statistics, &plan.nodes, &plan.description);
            if !fits {
                break;
            }
        }
    }
}
