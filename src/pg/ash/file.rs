//! The file that keeps the samples across a clean restart, see [`crate::pg::server::statfile`].
//!
//! The postmaster writes it when all other processes have ended, and the worker reads it before it takes its
//! first sample. Names of statements and of events come from the file of the store. If the ring is in dynamic
//! memory, nothing is kept.

use super::memory;
use crate::guc;
use crate::pg::server::{self, statfile};
use crate::pg::store;
use rowsource_core::ash::{RECORD_BYTES, Ring, SavedHeader, SavedMoment, TIERS};
use std::io;

const NAME: &str = "pg_stat/pg_rowsource_ash.stat";
/// Of each tier so many records are kept. So 64 MB are written when the server stops.
const MOST: u64 = (16 << 20) / RECORD_BYTES as u64;
/// The largest file that is read. A record takes more bytes there.
const MAX_BYTES: u64 = TIERS as u64 * MOST * 2 * RECORD_BYTES as u64;

/// Lets the postmaster save the samples. Only `_PG_init` may call this, while the server preloads the
/// library.
pub(super) fn init() {
    store::save_at_stop(NAME, save);
}

/// Writes the file. If no worker has begun with the ring, that of the last run stays.
fn save() -> io::Result<()> {
    let Some(ring) = memory::ring().filter(|ring| !ring.is_new()) else {
        return Ok(());
    };
    statfile::forget(NAME);
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
