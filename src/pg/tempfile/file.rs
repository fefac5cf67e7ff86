//! The counters across a clean restart: see [`crate::pg::statfile`].

use super::{Source, counters, source};
use crate::guc;
use crate::pg::{server, statfile};
use rowsource_core::tempfile::FileType;
use rowsource_core::tempfile::counters::Copied;
use serde::{Deserialize, Serialize};
use std::io;

pub const NAME: &str = "pg_stat/pg_rowsource_tempfile.stat";

#[derive(Serialize, Deserialize)]
struct Saved {
    sources: [Source; 2],
    databases: Vec<Copied>,
}

/// At the postmaster's clean end.
pub fn save() -> io::Result<()> {
    let Some((sources, databases)) = counters::to_save() else {
        return Ok(());
    };
    statfile::write(NAME, &Saved { sources, databases })
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
    let Some(saved) = statfile::take::<Saved>(NAME) else {
        return;
    };
    if saved.sources == FileType::ALL.map(source) {
        for mut database in saved.databases {
            database.reset_at = database.reset_at.min(server::now());
            counters::restore(&database);
        }
    }
}
