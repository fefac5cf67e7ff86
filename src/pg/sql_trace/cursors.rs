//! The cursors of the session's trace file: which statements have a number in it, and whose nodes it
//! describes.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::sql_trace as hot;
use crate::pg::server;
use rowsource_core::sql_trace::MAX_CURSORS;
use rustc_hash::FxBuildHasher;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// A cursor's queryid and user.
type Key = (i64, u32);

/// A cursor of the file.
#[derive(Clone, Copy)]
struct Cursor {
    number: u64,
    /// Which nodes were described last.
    nodes: u64,
}

struct Cursors {
    list: RefCell<HashMap<Key, Cursor, FxBuildHasher>>,
    /// The cursor that was last asked for: most are asked for several times in a row. 0 if there is none.
    recent: Cell<(Key, u64)>,
    last_number: Cell<u64>,
    /// How often the cursors were forgotten.
    generation: Cell<u64>,
    /// How often lines had been lost because of a limit when the cursors were last forgotten.
    losses: Cell<u64>,
}

static CURSORS: BackendLocal<Cursors> = BackendLocal::new(Cursors {
    list: RefCell::new(HashMap::with_hasher(FxBuildHasher)),
    recent: Cell::new(((0, 0), 0)),
    last_number: Cell::new(0),
    generation: Cell::new(0),
    losses: Cell::new(0),
});

/// Returns a number that changes when cursors must be described again: another file has begun, or their
/// descriptions may be among lines that were lost.
pub fn generation() -> u64 {
    if CURSORS.losses.replace(hot::losses()) != hot::losses() {
        forget();
    }
    CURSORS.generation.get()
}

/// Returns the cursor with this queryid and the current user, and whether it is new in the file.
pub fn cursor(queryid: i64) -> (u64, bool) {
    if let Some(recent) = recent(queryid) {
        return (recent, false);
    }
    let key = (queryid, server::user_id());
    let Ok(mut list) = CURSORS.list.try_borrow_mut() else {
        return (0, false);
    };
    if let Some(cursor) = list.get(&key) {
        CURSORS.recent.set((key, cursor.number));
        return (cursor.number, false);
    }
    if list.len() >= MAX_CURSORS {
        list.clear();
    }
    if list.try_reserve(1).is_err() {
        return (0, false);
    }
    let number = CURSORS.last_number.get() + 1;
    CURSORS.last_number.set(number);
    list.insert(key, Cursor { number, nodes: 0 });
    CURSORS.recent.set((key, number));
    (number, true)
}

/// Returns the cursor that was last asked for, if it is the one with this queryid and the current user.
#[inline(always)]
pub fn recent(queryid: i64) -> Option<u64> {
    // This may forget those that are known.
    generation();
    let ((of, user), cursor) = CURSORS.recent.get();
    (cursor > 0 && of == queryid && user == server::user_id()).then_some(cursor)
}

/// Returns the cursor with this queryid and the current user, if the file has it.
pub fn known(queryid: i64) -> Option<u64> {
    find(queryid).map(|cursor| cursor.number)
}

fn find(queryid: i64) -> Option<Cursor> {
    let list = CURSORS.list.try_borrow().ok()?;
    list.get(&(queryid, server::user_id())).copied()
}

/// Returns whether the file has the nodes with this fingerprint as those of the cursor.
pub fn has_nodes(queryid: i64, fingerprint: u64) -> bool {
    find(queryid).is_some_and(|cursor| cursor.nodes == fingerprint)
}

/// Notes that the file has them.
pub fn note_nodes(queryid: i64, fingerprint: u64) {
    if let Ok(mut list) = CURSORS.list.try_borrow_mut()
        && let Some(cursor) = list.get_mut(&(queryid, server::user_id()))
    {
        cursor.nodes = fingerprint;
    }
}

/// Has each cursor described again, under another number.
pub fn forget() {
    CURSORS.generation.set(CURSORS.generation.get().wrapping_add(1));
    CURSORS.recent.set(((0, 0), 0));
    if let Ok(mut list) = CURSORS.list.try_borrow_mut() {
        list.clear();
    }
}
