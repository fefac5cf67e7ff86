//! The plans across a clean restart: see [`crate::pg::statfile`].
//!
//! The postmaster writes them when the server stops cleanly, plan by plan; the first backend that needs the store reads
//! them in the same way.

use super::control::{self, Control};
use super::{MOST_NODES, Store, attach_now, contained, entry};
use crate::guc;
use crate::pg::{memory, server, statfile, tempfile};
use pgrx::{pg_guard, pg_sys};
use rowsource_core::model::{NodeTotals, PlanDescription, PlanKey, PlanStats};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
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
    statistics: &'a PlanStats,
    description: &'a PlanDescription,
    nodes: &'a [NodeTotals],
}

/// As [`PlanOut`].
#[derive(Deserialize)]
struct PlanIn {
    key: PlanKey,
    statistics: PlanStats,
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
    if code != 0 {
        return;
    }
    match stopped_cleanly() {
        Ok(true) => (),
        Ok(false) => return,
        Err(error) => {
            pgrx::log!("pg_rowsource saves no statistics, as it cannot read \"global/pg_control\": {error}");
            return;
        }
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

/// Returns whether the checkpointer has written its last checkpoint, as the control file says.
fn stopped_cleanly() -> io::Result<bool> {
    use pg_sys::DBState::{DB_SHUTDOWNED, DB_SHUTDOWNED_IN_RECOVERY};
    const LENGTH: usize = size_of::<pg_sys::ControlFileData>();
    // PostgreSQL does without blocks larger than 1 MB when memory is short; this is twice that.
    const NEEDED: usize = 2 << 20;
    // An error that PostgreSQL raises in a process that ends is fatal to it. So what could raise one is tried first:
    // reading the file, and getting memory.
    File::open("global/pg_control")?.read_exact(&mut [0; LENGTH])?;
    if !memory::can_map(NEEDED) {
        return Err(io::Error::other("the postmaster has no memory to read it"));
    }
    let mut is_intact = false;
    // SAFETY: the path is terminated. It is relative to the data directory, where all processes of a server work. The
    // answer is palloc'd and belongs to this function; it is left to the end of the process.
    let state = unsafe { (*pg_sys::get_controlfile(c".".as_ptr(), &mut is_intact)).state };
    Ok(is_intact && matches!(state, DB_SHUTDOWNED | DB_SHUTDOWNED_IN_RECOVERY))
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

/// Reads the file into the store, if there is one, and removes it; once in a server's life. Plans that others run
/// meanwhile are not overwritten.
///
/// # Safety
/// Holding no lock, not inside a boundary.
pub(super) unsafe fn load(store: &Store) {
    /// What a record of the longest takes while it is read.
    const ROOM: usize = 16 << 20;
    // SAFETY: the caller holds no lock; the store's control block stays.
    unsafe {
        let control: &Control = &*store.control;
        if control.loaded.load(Relaxed) {
            return;
        }
        let Some(_maker) = control.become_maker() else {
            return;
        };
        if control.loaded.swap(true, Relaxed) {
            return;
        }
        if !guc::save() {
            return forget();
        }
        // Plans that have no room here are left out; but a file that no store has written is not read through.
        let longest = (4 * guc::max_memory()).max(256 << 20) as u64;
        let Some(mut file) = statfile::take(NAME, longest) else {
            return;
        };
        let Some(head) = file.next::<Head>() else { return };
        control.reset_at.store(head.reset_at.min(server::now()), Relaxed);
        for _ in 0..guc::max_plans() {
            if !memory::can_map(ROOM) {
                break;
            }
            let Some(plan) = file.next::<PlanIn>() else { break };
            let fits = plan.nodes.len() <= MOST_NODES
                && entry::restore(store, &plan.key, &plan.statistics, &plan.nodes, &plan.description);
            if !fits {
                break;
            }
        }
    }
}
