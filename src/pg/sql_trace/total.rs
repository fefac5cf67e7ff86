//! How many trace files there are, and how many bytes they have.
//!
//! All sessions keep the two sums in shared memory. So the folder is listed only if no process has done so
//! since the server started, and when a sum comes near its limit, at most once per second in all sessions
//! together. The listing corrects the sums, because others may have deleted files. Without shared memory,
//! each session has sums of its own, and lists the folder more often.

use super::files::{self, Listed};
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::sql_trace as hot;
use crate::pg::server;
use crate::pg::store::{self, SharedTrace};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The most files of sessions that have ended.
const MAX_FILES: u64 = 1_000;
/// The folder is not listed more often than this, in microseconds.
const LIST_EVERY_US: u64 = 1_000_000;
/// A session with sums of its own lists the folder again after it has written this number of bytes.
const LIST_AFTER: u64 = 8 << 20;

static OWN: BackendLocal<SharedTrace> = BackendLocal::new(SharedTrace {
    bytes: AtomicU64::new(0),
    files: AtomicU64::new(0),
    listed_at: AtomicU64::new(0),
});

/// The bytes that the session has written since it listed the folder.
static WRITTEN: BackendLocal<Cell<u64>> = BackendLocal::new(Cell::new(0));

static TOTAL: BackendLocal<Cell<&'static SharedTrace>> = BackendLocal::new(Cell::new(OWN.inner()));

/// Finds the sums. Callers must hold no lock, and be outside of any boundary.
pub fn attach() {
    if let Some(shared) = store::shared_trace() {
        TOTAL.set(shared);
    }
}

/// Forgets the shared sums. A process that exits must call this before its shared memory is unmapped.
pub fn detach() {
    TOTAL.set(OWN.inner());
}

fn add(to: &AtomicU64, number: u64) {
    to.fetch_add(number, Relaxed);
}

/// Subtracts a number. A sum does not go below zero, whatever others have deleted.
fn subtract(from: &AtomicU64, number: u64) {
    let _ = from.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_sub(number)));
}

/// Counts a file that was created.
pub fn add_file() {
    add(&TOTAL.get().files, 1);
}

/// Counts bytes that were written.
pub fn add_bytes(bytes: u64) {
    if bytes > 0 {
        add(&TOTAL.get().bytes, bytes);
        WRITTEN.set(WRITTEN.get().saturating_add(bytes));
    }
}

/// Removes a file, and counts that.
pub fn remove(file: &Listed) {
    if file.name.remove() {
        subtract(&TOTAL.get().files, 1);
        subtract(&TOTAL.get().bytes, file.bytes);
    }
}

/// Returns how many more bytes all files may have; `None` if these are fewer than are needed. Removes the
/// oldest files of processes that have ended if a limit is near.
pub fn room(needed: u64) -> Option<u64> {
    let (total, most) = (TOTAL.get(), guc::trace_max_total_size());
    let listed_at = total.listed_at.load(Relaxed);
    let left = || most.saturating_sub(total.bytes.load(Relaxed));
    let is_own = std::ptr::eq(total, OWN.inner());
    let is_near = left() < near(most, needed)
        || total.files.load(Relaxed) > MAX_FILES
        || is_own && WRITTEN.get() >= LIST_AFTER;
    if listed_at == 0 || is_near {
        let now = hot::now_us().max(1);
        let is_due = listed_at == 0 || now.saturating_sub(listed_at) >= LIST_EVERY_US;
        // One process lists it.
        let claim = |at| {
            total
                .listed_at
                .compare_exchange(at, now, Relaxed, Relaxed)
                .is_ok()
        };
        if is_due && claim(listed_at) {
            if make_room(total, most, needed) {
                WRITTEN.set(0);
            } else {
                total.listed_at.store(0, Relaxed);
            }
        }
    }
    Some(left()).filter(|left| *left > 0 && *left >= needed)
}

/// Room is made when fewer bytes than this are left. So other sessions can write while one makes room.
fn near(most: u64, needed: u64) -> u64 {
    needed.saturating_add(most / 16)
}

/// Lists the folder, and removes the oldest files of processes that have ended until there is room. Returns
/// false if an interrupt came first.
fn make_room(total: &SharedTrace, most: u64, needed: u64) -> bool {
    let go_on = || !server::is_interrupted();
    let Some(found) = files::list(go_on) else {
        return false;
    };
    let mut bytes = found.iter().map(|file| file.bytes).sum::<u64>();
    // Another process may have this id by now. Then the file stays until that one ends.
    let has_ended = |file: &Listed| !server::is_alive(file.name.pid);
    let mut ended: Vec<Listed> = found.into_iter().filter(has_ended).collect();
    let mut count = ended.len() as u64;
    if most.saturating_sub(bytes) < near(most, needed) || count > MAX_FILES {
        // Room for more than one file is made, so that this is rare.
        let (bytes_left, count_left) = (most - most / 8, MAX_FILES - MAX_FILES / 8);
        ended.sort_by_key(|file| file.modified);
        for file in ended {
            if bytes <= bytes_left && count <= count_left || !go_on() {
                break;
            }
            if file.name.remove() {
                bytes = bytes.saturating_sub(file.bytes);
                count = count.saturating_sub(1);
            }
        }
    }
    total.bytes.store(bytes, Relaxed);
    total.files.store(count, Relaxed);
    true
}
