//! Remembers the plans whose description did not end, for all sessions: it was cancelled, or it failed
//! together with its statement. They are not described again, because that might fail their statement each
//! time.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::{self, MainMemory, SettingUp};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The hashes of so many plans are remembered. A plan has one place only, from where another one may push it.
/// 0 is none.
type Places = [AtomicU64; 64];

const NAME: &CStr = c"pg_rowsource plans without a description";

/// The places in main shared memory; null if the library was not preloaded.
static SHARED: BackendLocal<Cell<Option<&'static [AtomicU64]>>> = BackendLocal::new(Cell::new(None));
/// Those of a session that loaded the library by itself.
static OWN: Places = [const { AtomicU64::new(0) }; 64];

/// Has the places made in shared memory. Only `_PG_init` may call this.
pub fn init() {
    if server::preloading() {
        server::use_main_memory(MainMemory {
            size: || size_of::<Places>(),
            set_up,
        });
    }
}

/// Finds or makes the places.
fn set_up(shared: &SettingUp) {
    SHARED.set(Some(shared.zeroed(NAME, OWN.len()).0));
}

fn places() -> &'static [AtomicU64] {
    SHARED.get().unwrap_or(&OWN)
}

fn place(plan: u64) -> &'static AtomicU64 {
    &places()[plan as usize % OWN.len()]
}

/// Returns whether the description of the plan with this hash did not end.
pub fn contains(plan: u64) -> bool {
    plan != 0 && place(plan).load(Relaxed) == plan
}

/// Forgets all of them, so that they are described again.
pub fn forget() {
    places().iter().for_each(|place| place.store(0, Relaxed));
}

/// A description in progress, of the plan with this hash. Dropping it notes that it did not end.
pub struct InProgress(pub u64);

impl InProgress {
    /// Notes that it ended.
    pub fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if self.0 != 0 {
            place(self.0).store(self.0, Relaxed);
        }
    }
}
