//! The file that carries the statistics across a clean restart.
//!
//! The postmaster writes it when the server stops cleanly, to a temporary name first; the first backend that needs
//! the store reads and removes it. So after a crash there is none, and statistics begin anew. A file that is
//! truncated, corrupt or from another version is dropped with one LOG line.

use super::entry::NodeTotals;
use super::{Control, Store, entry};
use crate::guc;
use crate::pg::{compat, server};
use crate::session::{Plan, PlanDescription, PlanKey, PlanStatistics};
use pgrx::{PgTryBuilder, pg_guard, pg_sys};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// In the data folder, where PostgreSQL keeps its own statistics across restarts.
const NAME: &str = "pg_stat/pg_rowsource.stat";
const TEMPORARY_NAME: &str = "pg_stat/pg_rowsource.stat.tmp";
const MAGIC: &[u8; 8] = b"ROWSRC01";
const HEADER: usize = 8 + 4 + 4;

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
        return;
    }
    // A server that stops must not be held up by its statistics.
    PgTryBuilder::new(|| {
        if let Err(error) = save() {
            pgrx::log!("pg_rowsource could not save its statistics to \"{NAME}\": {error}");
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
    let _ = fs::remove_file(NAME);
}

fn save() -> io::Result<()> {
    let result = write();
    if result.is_err() {
        let _ = fs::remove_file(TEMPORARY_NAME);
    }
    result
}

fn write() -> io::Result<()> {
    // SAFETY: in the postmaster, which may map dynamic shared memory when nobody else is left.
    let Some((plans, reset_at)) = (unsafe { super::all_at_exit() }) else {
        return Ok(());
    };
    let plans = plans.into_iter().filter_map(saved).collect();
    let body = postcard::to_stdvec(&Saved { reset_at, plans }).map_err(io::Error::other)?;
    let mut file = File::create(TEMPORARY_NAME)?;
    file.write_all(MAGIC)?;
    file.write_all(&compat::MAJOR_VERSION.to_le_bytes())?;
    file.write_all(&crc32fast::hash(&body).to_le_bytes())?;
    file.write_all(&body)?;
    file.sync_all()?;
    fs::rename(TEMPORARY_NAME, NAME)
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
    let path = Path::new(NAME);
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            server::log_alone(&format!(
                "pg_rowsource could not read \"{NAME}\": {error}; statistics start empty"
            ));
            return;
        }
    };
    match decode(&bytes) {
        // SAFETY: the caller's promise.
        Ok(saved) => unsafe { fill(store, saved) },
        Err(why) => server::log_alone(&format!(
            "pg_rowsource ignores \"{NAME}\": {why}; statistics start empty"
        )),
    }
    let _ = fs::remove_file(path);
}

fn decode(bytes: &[u8]) -> Result<Saved, String> {
    let (header, body) = bytes.split_at_checked(HEADER).ok_or("it is truncated")?;
    if header[..8] != MAGIC[..] {
        return Err("it is not of this version of pg_rowsource".into());
    }
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if number(8) != compat::MAJOR_VERSION {
        return Err(format!("it was written by PostgreSQL {}", number(8)));
    }
    if number(12) != crc32fast::hash(body) {
        return Err("its checksum is wrong".into());
    }
    postcard::from_bytes(body).map_err(|error| error.to_string())
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
