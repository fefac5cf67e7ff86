//! The file that keeps which database has registered for snapshots. It outlives crashes, and a copy of the
//! data directory has it: a standby that is promoted takes its snapshots in the same database.

use super::control::{self, Control};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::{self, statfile};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

/// It has the OID of the database, or 0.
const NAME: &str = "pg_stat/pg_rowsource_database";

fn read() -> u32 {
    let text = statfile::read_text(NAME).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Finds the database that had registered. PostgreSQL must be setting up shared memory.
pub(super) fn set_up(control: &Control) {
    control.snapshots.database.store(read(), Relaxed);
}

/// Writes the file if another database has registered, or if none has any more. Only the background worker
/// may call this.
pub fn keep_registration() {
    static KEPT: BackendLocal<Cell<Option<u32>>> = BackendLocal::new(Cell::new(None));
    let Some(control) = control::known() else {
        return;
    };
    let database = control.snapshots.database.load(Relaxed);
    if KEPT.replace(Some(database)) == Some(database) || read() == database {
        return;
    }
    if let Err(error) = statfile::write_text(NAME, &format!("{database}\n")) {
        server::log_alone(&format!(
            "pg_rowsource could not write \"{NAME}\": {error}; after a restart, the next use of a function registers its database for snapshots"
        ));
    }
}
