//! Tells the heart that a statement begins that may need beats ([`rowsource_core::beat`]), and wakes it up if
//! it sleeps.

use super::own;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::state::HOT;
use crate::pg::server;
use crate::pg::server::processes::Processes;
use crate::pg::store::{self, SharedHistory};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

static HISTORY: BackendLocal<Cell<Option<&'static SharedHistory>>> = BackendLocal::new(Cell::new(None));

/// Returns whether there is a heart.
pub fn has_heart() -> bool {
    let pid = store::shared_history().map_or(0, |history| history.worker.pid());
    pid != 0 && server::is_alive(pid)
}

/// Returns whether this session gets no beats.
pub fn lacks_beats() -> bool {
    !own::is_hot_shared() || !has_heart()
}

/// Notes that a statement begins that may need beats. Does nothing if the heart cannot see this session.
#[inline(always)]
pub fn may_need_beats() {
    if !HOT.beats.is_wishing() && own::is_hot_shared() {
        note_need();
    }
}

#[inline(never)]
fn note_need() {
    HOT.beats.may_wish();
    if HISTORY.get().is_none() {
        HISTORY.set(store::shared_history());
    }
    if let Some(history) = HISTORY.get()
        && history.sleep.must_be_ended()
    {
        wake(history);
    }
}

#[cold]
#[inline(never)]
fn wake(history: &SharedHistory) {
    let number = history.number.load(Relaxed) as usize;
    // If another process has that place now, it wakes up once for nothing.
    if let Some(process) = Processes::all().get(number) {
        process.wake();
    }
}
