//! What plans are compared with, as a snapshot has it. The snapshot may roll back, so it is put into shared
//! memory when its transaction commits.

use super::entry;
use super::read::{Reading, loaded, reading};
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::contained;
use crate::pg::server::{self, memory};
use pgrx::pg_sys;
use rowsource_core::model::PlanKey;
use rowsource_core::regressions::{Against, Reference};
use std::cell::{Cell, RefCell};

/// What a transaction has noted of a plan.
struct Noted {
    key: PlanKey,
    at: i64,
    against: Option<Against>,
}

static NOTED: BackendLocal<RefCell<Vec<Noted>>> = BackendLocal::new(RefCell::new(Vec::new()));
/// Whether the callback is registered in this session.
static REGISTERED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Notes at a snapshot what a plan did in an interval of the history, or that it ran: it will be compared
/// with that. It counts when the transaction commits.
///
/// # Errors
/// Raises "out of memory".
pub fn note_reference(key: &PlanKey, at: i64, against: Option<Against>) {
    if loaded().is_none() {
        return;
    }
    if !REGISTERED.get() {
        server::at_transaction_end(at_end_of_transaction);
        REGISTERED.set(true);
    }
    memory::ensure();
    let mut noted = NOTED.borrow_mut();
    // A snapshot notes no plan more often.
    let most = (Reference::ALL.len() + 1) * guc::max_plans();
    if noted.len() < most && noted.try_reserve(1).is_ok() {
        noted.push(Noted {
            key: *key,
            at,
            against,
        });
    }
}

/// Forgets what the transaction has noted: a subtransaction aborts, and that may be its own. The next
/// snapshot notes it again.
pub fn forget_references() {
    NOTED.take();
}

/// Puts into shared memory what the transaction has noted, if it commits.
fn at_end_of_transaction(event: pg_sys::XactEvent::Type) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    if !matches!(event, XACT_EVENT_COMMIT | XACT_EVENT_ABORT | XACT_EVENT_PREPARE) {
        return;
    }
    let noted = NOTED.take();
    if event != XACT_EVENT_COMMIT || noted.is_empty() {
        return;
    }
    let Some(Reading { store, mut unlocked }) = reading() else {
        return;
    };
    let datid = server::database_id();
    // An error here would be a PANIC.
    contained::attempt(&mut unlocked, "note what plans are compared with", |_| {
        for one in &noted {
            entry::keep(&store, &one.key, |kept| {
                kept.note((one.at, datid), one.against.as_ref())
            });
        }
    });
}
