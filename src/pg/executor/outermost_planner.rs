//! The planner that runs outside of all statements. To catch an error in it would cost each statement 140
//! instructions. Instead, its end is noted by what follows an error that leaves it: the message to the log,
//! or the end of its transaction or subtransaction.

use super::nesting;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::beats;
use std::cell::Cell;

struct OutermostPlanner {
    is_running: Cell<bool>,
    /// The queryid of its query; 0 if it has none.
    queryid: Cell<i64>,
    /// How many subtransactions were begun in it, and have not ended.
    subtransactions: Cell<u32>,
}

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PLANNER: BackendLocal<OutermostPlanner> = BackendLocal::new(OutermostPlanner {
    is_running: Cell::new(false),
    queryid: Cell::new(0),
    subtransactions: Cell::new(0),
});

/// Notes that the planner begins, at nesting level 0. What it starts is one level deeper. `queryid` is that
/// of its query; 0 if it has none.
#[inline(always)]
pub fn enter(queryid: i64) {
    nesting::set(1);
    PLANNER.queryid.set(queryid);
    PLANNER.subtransactions.set(0);
    PLANNER.is_running.set(true);
}

/// Notes that it has ended.
#[inline(always)]
pub fn leave() {
    PLANNER.is_running.set(false);
    nesting::set(0);
    beats::end();
}

/// Notes that all that the client's statement started has ended. If the planner is still noted as running, an
/// error has left it.
#[inline(always)]
pub fn all_ended() {
    if PLANNER.is_running.get() {
        leave();
    }
}

/// Returns whether it is running.
pub fn is_running() -> bool {
    PLANNER.is_running.get()
}

/// Returns the queryid of the query that it plans; 0 if it is not running, or if the query has none.
pub fn queryid() -> i64 {
    if PLANNER.is_running.get() {
        PLANNER.queryid.get()
    } else {
        0
    }
}

/// Notes that a subtransaction begins.
pub fn subtransaction_begins() {
    let begun = &PLANNER.subtransactions;
    begun.set(begun.get().saturating_add(1));
}

/// Notes that a subtransaction has ended. If an error has ended one that began before the planner, it has
/// left the planner.
pub fn subtransaction_ends(by_error: bool) {
    let begun = PLANNER.subtransactions.get();
    if by_error && begun == 0 {
        all_ended();
    }
    PLANNER.subtransactions.set(begun.saturating_sub(1));
}
