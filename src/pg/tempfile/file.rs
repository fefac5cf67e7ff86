//! The counters across a clean restart: see [`crate::pg::statfile`].

use super::{Source, counters, source};
use crate::guc;
use crate::pg::{server, statfile};
use rowsource_core::tempfile::FileType;
use rowsource_core::tempfile::counters::Copied;
use std::io;

pub const NAME: &str = "pg_stat/pg_rowsource_tempfile.stat";

/// Counters of all databases take less.
const LONGEST: u64 = 16 << 20;

/// At the postmaster's clean end.
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

/// What was saved is not to come back later.
pub fn forget() {
    statfile::forget(NAME);
}

/// In the postmaster, when shared memory is new. Counters that came from elsewhere than today's are left behind: they do
/// not add up with them.
pub(super) fn load() {
    if !server::is_postmaster() {
        return;
    }
    if !guc::save() {
        return forget();
    }
    let Some(mut file) = statfile::take(NAME, LONGEST) else {
        return;
    };
    if file.next::<[Source; 2]>() == Some(FileType::ALL.map(source)) {
        while let Some(mut database) = file.next::<Copied>() {
            database.reset_at = database.reset_at.min(server::now());
            counters::restore(&database);
        }
    }
}
