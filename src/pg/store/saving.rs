//! The postmaster saves the plans when the server stops cleanly.

use super::attach::attach_now;
use super::{control, file, read};
use crate::guc;
use crate::pg::server::contained::contained;
use crate::pg::server::{self, memory};
use crate::pg::tempfile;
use pgrx::{pg_guard, pg_sys};
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::Ordering::Relaxed;

/// Lets the postmaster save the plans when the server stops. Call it after shared memory was set up. A single-user backend
/// does not save: it has unmapped the store by then.
pub(super) fn save_at_exit() {
    // SAFETY: `at_exit` has the type of the callback. PostgreSQL calls it in the postmaster, after all backends have ended.
    unsafe {
        if server::is_postmaster() {
            pg_sys::on_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
        }
    }
}

/// Saves the plans if the server stops cleanly.
///
/// # Safety
/// Only PostgreSQL may call this, in the postmaster, after all other processes have ended.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(code: i32, _arg: pg_sys::Datum) {
    // After a crash or an immediate shutdown, the statistics may be inconsistent, and locks may never be released.
    if code != 0 {
        return;
    }
    match stopped_cleanly() {
        Ok(true) => (),
        Ok(false) => return,
        Err(error) => {
            pgrx::log!(
                "pg_rowsource could not save its statistics, because it cannot read \"global/pg_control\": {error}"
            );
            return;
        }
    }
    if !guc::save() {
        file::remove();
        tempfile::file::forget();
        return;
    }
    save_or_log(tempfile::file::NAME, tempfile::file::save);
    save_or_log(file::NAME, save);
    // `save` mapped dynamic shared memory to read the plans. It must be unmapped before main shared memory: PostgreSQL keeps
    // data about the mappings there.
    // SAFETY: this is the postmaster, which uses no mapped segment afterwards.
    unsafe { pg_sys::dsm_backend_shutdown() }
}

/// Saves statistics with `save`. Logs an error, so that the server can still stop.
fn save_or_log(name: &str, save: fn() -> io::Result<()>) {
    let saved = contained(|| save().map_err(|error| error.to_string()));
    if let Err(error) = saved.flatten() {
        pgrx::log!("pg_rowsource could not save its statistics to \"{name}\": {error}");
    }
}

/// Returns whether the checkpointer has written the shutdown checkpoint. The control file says so.
fn stopped_cleanly() -> io::Result<bool> {
    use pg_sys::DBState::{DB_SHUTDOWNED, DB_SHUTDOWNED_IN_RECOVERY};
    const LENGTH: usize = size_of::<pg_sys::ControlFileData>();
    // If memory is short, PostgreSQL's allocator falls back to blocks of 1 MB. This is twice that.
    const NEEDED: usize = 2 << 20;
    // In a process that ends, an error that PostgreSQL raises is fatal. So this first checks that it can read the file and get
    // memory.
    File::open("global/pg_control")?.read_exact(&mut [0; LENGTH])?;
    if !memory::can_map(NEEDED) {
        return Err(io::Error::other("the postmaster has no memory to read it"));
    }
    let mut is_intact = false;
    // SAFETY: the path ends with a NUL byte, and is relative to the data directory, the working directory of all server
    // processes. The function returns a valid pointer that this function owns. The process ends soon, so it is not freed.
    let state = unsafe { (*pg_sys::get_controlfile(c".".as_ptr(), &mut is_intact)).state };
    Ok(is_intact && matches!(state, DB_SHUTDOWNED | DB_SHUTDOWNED_IN_RECOVERY))
}

/// Saves all plans, the most valuable first. If the next run has no room for all, it loads those.
fn save() -> io::Result<()> {
    let control = control::known();
    // SAFETY: the pointer is null, or points to the control block in main shared memory, which is still mapped here.
    unsafe {
        if control.is_null() || !(*control).made.load(Relaxed) {
            return Ok(());
        }
    }
    // In a process that ends, an error that PostgreSQL raises is fatal. So this first checks that there is enough memory.
    // SAFETY: the pointer is not null, as checked above, and the control block is still mapped.
    if !memory::can_map(unsafe { (*control).mapped_bytes() }) {
        return Err(io::Error::other("the postmaster has no memory to read them"));
    }
    attach_now();
    // The keys are first, because reading them flushes the sessions' buffers.
    let (Some(keys), Some(others)) = (read::keys_by_value(), read::others()) else {
        return Err(io::Error::other("their shared memory cannot be read"));
    };
    // SAFETY: the pointer is not null, as checked above, and the control block is still mapped.
    let control = unsafe { &*control };
    let head = file::Head {
        reset_at: control.reset_at.load(Relaxed),
        evicted: control.evicted.saved(others),
        // SAFETY: the process is outside of any boundary and holds no lock.
        flips: unsafe { control.flips.with_table(|table| table.saved()) },
    };
    file::write(&head, keys.iter().filter_map(read::plan))
}
