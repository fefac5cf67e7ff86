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

/// Lets the postmaster save the plans when the server stops. To be called when shared memory has been set up.
pub(super) fn save_at_exit() {
    // SAFETY: a valid callback; runs in the postmaster after all backends have gone. A single-user backend has
    // unmapped the store by then.
    unsafe {
        if server::is_postmaster() {
            pg_sys::on_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
        }
    }
}

/// Saves the plans, where the server stops cleanly.
///
/// # Safety
/// To be called by PostgreSQL only, in the postmaster, when no other process is left.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(code: i32, _arg: pg_sys::Datum) {
    // After a crash or an immediate shutdown the statistics are not to be trusted, and locks may be held for ever.
    if code != 0 {
        return;
    }
    match stopped_cleanly() {
        Ok(true) => (),
        Ok(false) => return,
        Err(error) => {
            pgrx::log!("pg_rowsource saves no statistics, as it cannot read \"global/pg_control\": {error}");
            return;
        }
    }
    if !guc::save() {
        file::forget();
        tempfile::file::forget();
        return;
    }
    saved_or_logged(tempfile::file::NAME, tempfile::file::save);
    saved_or_logged(file::NAME, save);
    // What was mapped to read the plans must go before main shared memory does: PostgreSQL would look there for what it
    // knows about it.
    // SAFETY: this is the postmaster, and nobody else is left who would use what is unmapped.
    unsafe { pg_sys::dsm_backend_shutdown() }
}

/// A server that stops must not be held up by its statistics.
fn saved_or_logged(name: &str, save: fn() -> io::Result<()>) {
    let saved = contained(|| save().map_err(|error| error.to_string()));
    if let Err(error) = saved.flatten() {
        pgrx::log!("pg_rowsource could not save its statistics to \"{name}\": {error}");
    }
}

/// Returns whether the checkpointer has written its last checkpoint, as the control file says.
fn stopped_cleanly() -> io::Result<bool> {
    use pg_sys::DBState::{DB_SHUTDOWNED, DB_SHUTDOWNED_IN_RECOVERY};
    const LENGTH: usize = size_of::<pg_sys::ControlFileData>();
    // PostgreSQL does without blocks larger than 1 MB when memory is short; this is twice that.
    const NEEDED: usize = 2 << 20;
    // An error that PostgreSQL raises in a process that ends is fatal to it. So what could raise one is tried first:
    // reading the file, and getting memory.
    File::open("global/pg_control")?.read_exact(&mut [0; LENGTH])?;
    if !memory::can_map(NEEDED) {
        return Err(io::Error::other("the postmaster has no memory to read it"));
    }
    let mut is_intact = false;
    // SAFETY: the path is terminated. It is relative to the data directory, where all processes of a server work. The
    // answer is palloc'd and belongs to this function; it is left to the end of the process.
    let state = unsafe { (*pg_sys::get_controlfile(c".".as_ptr(), &mut is_intact)).state };
    Ok(is_intact && matches!(state, DB_SHUTDOWNED | DB_SHUTDOWNED_IN_RECOVERY))
}

/// Saves all plans, the most recently run first: of too many, those are loaded.
fn save() -> io::Result<()> {
    let control = control::known();
    // SAFETY: in the postmaster, when nobody else is left: no lock can be contended, and mapping is safe.
    unsafe {
        if control.is_null() || !(*control).made.load(Relaxed) {
            return Ok(());
        }
    }
    // An error that PostgreSQL raises in a process that ends is fatal to it. So nothing is asked of it in vain.
    // SAFETY: this is the postmaster, nobody else is left, and the block was found to be there.
    if !memory::can_map(unsafe { (*control).mapped_bytes() }) {
        return Err(io::Error::other("the postmaster has no memory to read them"));
    }
    attach_now();
    let Some(keys) = read::keys() else {
        return Err(io::Error::other("their shared memory cannot be read"));
    };
    // SAFETY: this is the postmaster, nobody else is left, and the block was found to be there.
    let reset_at = unsafe { (*control).reset_at.load(Relaxed) };
    file::write(reset_at, keys.iter().filter_map(read::plan))
}
