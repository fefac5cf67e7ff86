//! A database registers for snapshots: at the first committed use of a function of the extension in it.
//!
//! CREATE EXTENSION is such a use: its script calls one. It may roll back, and it runs neither after
//! pg_upgrade nor in a copy of a template. The first database wins, but no template: who creates the
//! extension there wants it in the copies. A snapshot that finds no database or no extension there, or a
//! template, takes the registration away, so that the next use can register. The worker keeps the
//! registration in a file.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server;
use crate::pg::store::{self, SharedSnapshots};
use pgrx::pg_sys;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

/// Whether the callback is registered in this session.
static REGISTERED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
/// Where this transaction registers the database, if it commits.
static USED: BackendLocal<Cell<Option<&'static SharedSnapshots>>> = BackendLocal::new(Cell::new(None));

/// Notes that a function of the extension is used. All of them call this.
pub fn note_use() {
    let Some(shared) = store::shared_snapshots() else {
        return;
    };
    if shared.database.load(Relaxed) != 0 || server::is_template() {
        return;
    }
    if !REGISTERED.replace(true) {
        server::at_transaction_end(at_end_of_transaction);
    }
    USED.set(Some(shared));
}

/// Registers the database, if the transaction has used a function and commits.
fn at_end_of_transaction(event: pg_sys::XactEvent::Type) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    if !matches!(event, XACT_EVENT_COMMIT | XACT_EVENT_ABORT | XACT_EVENT_PREPARE) {
        return;
    }
    let Some(shared) = USED.take().filter(|_| event == XACT_EVENT_COMMIT) else {
        return;
    };
    let database = server::database_id();
    let _ = shared.database.compare_exchange(0, database, Relaxed, Relaxed);
}
