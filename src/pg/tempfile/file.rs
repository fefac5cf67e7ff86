//! Keeps the counters across a clean restart: see [`crate::pg::server::statfile`].

use super::counters;
use super::source::{Source, source};
use crate::guc;
use crate::pg::server::{self, statfile};
use rowsource_core::tempfile::FileType;
use rowsource_core::tempfile::counters::Copied;
use std::io;

/// The file's name in the data folder.
pub const NAME: &str = "pg_stat/pg_rowsource_tempfile.stat";

/// The largest file that is read, in bytes. The counters of all databases take less.
const MAX_BYTES: u64 = 16 << 20;

/// Saves the counters. This is called when the postmaster ends without an error.
pub fn save() -> io::Result<()> {
    let Some((sources, databases)) = counters::to_save() else {
        return Ok(());
    };
    let mut file = statfile::Writer::create(NAME)?;
    file.record(&sources)?;
    for database in databases {
        file.record(&database)?;
    }
    file.finish()
}

/// Removes the file, so that its counters do not come back later.
pub fn forget() {
    statfile::forget(NAME);
}

/// Adds the counters that the last run of the server saved. This is called when shared memory is new. Does
/// nothing outside the postmaster. Counters whose sources differ from the current ones are dropped, because
/// they cannot be added to these.
pub(super) fn load() {
    if !server::is_postmaster() {
        return;
    }
    if !guc::save() {
        return forget();
    }
    let Some(mut file) = statfile::take(NAME, MAX_BYTES) else {
        return;
    };
    if file.next::<[Source; 2]>() == Some(FileType::ALL.map(source)) {
        while let Some(mut database) = file.next::<Copied>() {
            database.reset_at = database.reset_at.min(server::now());
            counters::restore(&database);
        }
    }
}
