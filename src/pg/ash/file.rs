//! The file that keeps the samples across a clean restart, see [`crate::pg::server::statfile`].
//!
//! The postmaster writes it when all other processes have ended, and the worker reads it before it takes its
//! first sample. Names of statements and of events come from the file of the store. If the ring is in dynamic
//! memory, nothing is kept.

use super::memory;
use crate::guc;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::{self, statfile};
use pgrx::{pg_guard, pg_sys};
use rowsource_core::ash::{RECORD_BYTES, Ring, SavedHeader, SavedMoment, TIERS};
use std::io;

const NAME: &str = "pg_stat/pg_rowsource_ash.stat";
/// Of each tier so many records are kept. So 64 MB are written when the server stops.
const MOST: u64 = (16 << 20) / RECORD_BYTES as u64;
/// The largest file that is read. A record takes more bytes there.
const MAX_BYTES: u64 = TIERS as u64 * MOST * 2 * RECORD_BYTES as u64;

/// Decides whether the file of the last run counts, and lets the postmaster write one when it ends.
///
/// # Safety
/// PostgreSQL must be setting up shared memory.
pub(super) unsafe fn set_up() {
    if server::is_postmaster() {
        // SAFETY: `at_exit` has the type of the callback. PostgreSQL calls it in the postmaster, after all
        // backends have ended.
        unsafe { pg_sys::on_shmem_exit(Some(at_exit), pg_sys::Datum::from(0)) };
    }
    // The server has not written to the control file yet, so that tells how the last run ended.
    if !matches!(server::stopped_cleanly(), Ok(true)) {
        statfile::forget(NAME);
    }
}

/// Writes the samples if the server stops cleanly.
///
/// # Safety
/// Only PostgreSQL may call this, in the postmaster, after all other processes have ended.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(code: i32, _arg: pg_sys::Datum) {
    let Some(ring) = memory::ring() else { return };
    // If no worker has begun with the ring, the file of the last run stays.
    if code != 0 || ring.is_new() || !matches!(server::stopped_cleanly(), Ok(true)) {
        return;
    }
    statfile::forget(NAME);
    if !guc::save() {
        return;
    }
    // SAFETY: the process exits. It holds no lock, and no boundary is around this.
    let unlocked = unsafe { Unlocked::promised() };
    let saved = contained(unlocked, || write(&ring).map_err(|error| error.to_string()));
    if let Err(error) = saved.flatten() {
        server::log_alone(&format!(
            "pg_rowsource could not save the samples of sessions to \"{NAME}\": {error}"
        ));
    }
}

fn write(ring: &Ring<'_>) -> io::Result<()> {
    let mut file = statfile::Writer::create(NAME)?;
    file.record(&ring.saved_header())?;
    ring.save(MOST, |moment| file.record(moment))?;
    file.finish()
}

/// Begins with the ring, and first reads the file into it: once while the server runs. Only the worker may
/// call this.
pub(super) fn begin(ring: &Ring<'_>) {
    if !ring.is_new() {
        return;
    }
    if !guc::save() || !memory::is_main() {
        statfile::forget(NAME);
    } else if let Some(mut file) = statfile::take(NAME, MAX_BYTES)
        && let Some(header) = file.next::<SavedHeader>()
    {
        ring.restore(&header);
        while let Some(moment) = file.next::<SavedMoment>() {
            ring.restore_moment(&moment);
        }
    }
    ring.begin(server::now());
}
