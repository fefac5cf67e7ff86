//! Saves the plans when the server stops cleanly.
//!
//! The postmaster lives longest, but it may not map dynamic shared memory. So who leaves last saves: the
//! sessions are counted ([`super::presence`]), and the background worker with them. When the server stops,
//! the worker is told to end together with the sessions. It waits for them, so usually it saves. A session
//! saves if there is no worker.
//!
//! None of them knows how the stop ends. So the file counts only if the control file says at the next start
//! that the stop was clean.
//!
//! Walsenders are not counted. They end after the checkpoint, and the checkpoint waits for the worker. What
//! they ran until then is saved.
//!
//! The postmaster saves the counters of temporary files itself, and the samples of active sessions. They are
//! in main shared memory.

use super::control::Control;
use super::{access, control, entry, file, listing, record};
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::globals::GLOBALS;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::{self, memory, statfile};
use crate::pg::tempfile;
use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

/// A file, and the function that writes it.
type AtStop = (&'static str, fn() -> io::Result<()>);

/// What the postmaster writes, too, when the server stops cleanly.
static AT_STOP: BackendLocal<Cell<Option<AtStop>>> = BackendLocal::new(Cell::new(None));

/// Lets the postmaster write a file when the server stops cleanly, with what is in main shared memory. After
/// any other stop, the file of the run before is removed. Only `_PG_init` may call this.
pub fn save_at_stop(name: &'static str, save: fn() -> io::Result<()>) {
    AT_STOP.set(Some((name, save)));
}

/// Decides whether the file of the last run counts, and lets the postmaster save the counters of temporary
/// files when it ends. PostgreSQL must be setting up shared memory.
pub(super) fn set_up(control: &Control) {
    if server::is_postmaster() {
        server::after_leaving_memory(at_exit);
    }
    // The server has not written to the control file yet, so that tells how the last run ended.
    if !matches!(server::stopped_cleanly(), Ok(true)) {
        file::remove();
        AT_STOP.get().inspect(|(name, _)| statfile::forget(name));
        control.loaded.store(true, Relaxed);
    }
}

/// Saves the counters of temporary files if the server stops cleanly.
fn at_exit(code: i32) {
    // After a crash or an immediate shutdown, the statistics may be inconsistent, and locks may never be
    // released.
    if code != 0 {
        return;
    }
    match server::stopped_cleanly() {
        Ok(true) => (),
        Ok(false) => return,
        Err(error) => {
            pgrx::log!(
                "pg_rowsource could not save its statistics, because it cannot read \"global/pg_control\": {error}"
            );
            return;
        }
    }
    if guc::save() {
        save_or_log(tempfile::file::NAME, |_| tempfile::file::save());
        AT_STOP
            .get()
            .inspect(|(name, save)| save_or_log(name, |_| save()));
    } else {
        // The setting may have changed after the last process left.
        file::remove();
        AT_STOP.get().inspect(|(name, _)| statfile::forget(name));
        tempfile::file::forget();
    }
}

/// Runs a function that saves statistics. Logs an error, so that the process can still end.
fn save_or_log(name: &str, save: impl FnOnce(&mut Unlocked) -> io::Result<()>) {
    // SAFETY: the process exits, or the worker ends. It holds no lock, and no boundary is around this.
    let unlocked = &mut unsafe { Unlocked::promised() };
    let saved = contained(unlocked, |unlocked| {
        save(unlocked).map_err(|error| error.to_string())
    });
    if let Err(error) = saved.flatten() {
        server::log_alone(&format!(
            "pg_rowsource could not save its statistics to \"{name}\": {error}"
        ));
    }
}

/// Notes that this session may record executions from now on, until it ends. Raises a fatal error if
/// PostgreSQL has no room for another callback.
pub(super) fn session_arrives(control: &Control) {
    server::before_leaving_memory(before_exit);
    server::after_leaving_memory(after_detaching);
    if !GLOBALS.am_walsender.get() {
        control.presence.begin_recording();
        control.presence.arrive();
    }
}

/// Notes that this process is the background worker. Raises a fatal error if PostgreSQL has no room for
/// another callback.
pub(super) fn worker_arrives(control: &Control) {
    server::before_leaving_memory(before_exit);
    control.presence.arrive();
}

/// Flushes the session's buffer and leaves. The session's shared memory is still mapped then, and other
/// processes still see the session as running.
fn before_exit(_code: i32) {
    record::flush_at_exit();
    if let Some(control) = control::preloaded()
        && control.presence.leave()
    {
        save(control);
    }
}

/// Notes that the session can record nothing any more: PostgreSQL has ended its transaction.
fn after_detaching(_code: i32) {
    // A session that is counted is one of a store whose control block is in main shared memory, which is
    // still mapped. If it is in dynamic shared memory, this does not read it.
    if let Some(control) = control::preloaded() {
        control.presence.end_recording();
    }
}

/// Saves the plans, after this process was the last to leave. Logs it if that fails.
pub(super) fn save(control: &Control) {
    if !guc::save() {
        return file::remove();
    }
    // If nobody has needed the store, the file of the last run stays.
    if !control.made.load(Acquire) || !control.loaded.load(Relaxed) {
        return;
    }
    let is_stopping = server::is_stopping();
    if !is_stopping && control.presence.was_saved_lately() {
        return;
    }
    let Some(_saver) = control.presence.become_saver(is_stopping) else {
        return;
    };
    let began = Instant::now();
    // An error is fatal if this process ends. So the old file goes first.
    file::remove();
    save_or_log(file::NAME, |unlocked| write(control, unlocked));
    control.presence.note_saved(began.elapsed());
}

/// Writes all plans to the file, the most valuable first. If the next run has no room for all, it loads
/// those.
fn write(control: &Control, unlocked: &mut Unlocked) -> io::Result<()> {
    // In a process that ends, an error that PostgreSQL raises is fatal. So this first checks that there is
    // enough memory.
    if !memory::can_map(control.mapped_bytes()) {
        return Err(io::Error::other("there is no memory to read them"));
    }
    let store = access::store().ok_or_else(|| io::Error::other("their shared memory cannot be mapped"))?;
    // The keys are first, because that flushes the buffers of walsenders.
    let keys = listing::keys(&store, unlocked, i64::MIN, |one, other| {
        other.rank().total_cmp(&one.rank())
    });
    let head = file::Head {
        reset_at: control.reset_at.load(Relaxed),
        evicted: control.evicted.saved(listing::others(&store, unlocked)),
        flips: control.flips.with_table(|table| table.saved()),
        regressions: control.flips.with_all(|all| all.regressions.saved()),
        database: control.flips.with_all(|all| all.database.saved()),
        events: control.event_names.all(),
    };
    file::write(&head, keys.iter().filter_map(|key| entry::copy(&store, key)))
}
