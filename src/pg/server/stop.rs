//! Returns what the server's files say about its stop.

use super::memory;
use pgrx::pg_sys;
use std::fs::File;
use std::io::{self, Read};

/// Returns whether somebody has told the server to stop, or this is a single-user backend, which stops with
/// its only session. The postmaster writes its state to its lock file before it signals its children. True if
/// that file cannot be read.
pub fn is_stopping() -> bool {
    /// LOCK_FILE_LINE_PM_STATUS, counted from 1.
    const STATE_LINE: usize = 8;
    let file = std::fs::read("postmaster.pid").unwrap_or_default();
    let state = file.split(|&byte| byte == b'\n').nth(STATE_LINE - 1);
    !state.is_some_and(|state| matches!(state.trim_ascii(), b"starting" | b"ready" | b"standby"))
}

/// Returns whether the last checkpoint is that of a clean stop. The control file says so, until the server
/// that has started writes to it.
pub fn stopped_cleanly() -> io::Result<bool> {
    use pg_sys::DBState::{DB_SHUTDOWNED, DB_SHUTDOWNED_IN_RECOVERY};
    const LENGTH: usize = size_of::<pg_sys::ControlFileData>();
    // If memory is short, PostgreSQL's allocator falls back to blocks of 1 MB. This is twice that.
    const NEEDED: usize = 2 << 20;
    // In a process that ends, an error that PostgreSQL raises is fatal. So this first checks that it can read
    // the file and get memory.
    File::open("global/pg_control")?.read_exact(&mut [0; LENGTH])?;
    if !memory::can_map(NEEDED) {
        return Err(io::Error::other("the postmaster has no memory to read it"));
    }
    let mut is_intact = false;
    // SAFETY: the path ends with a NUL byte, and is relative to the data directory, the working directory of
    // all server processes. The function returns a valid pointer that this function owns.
    let state = unsafe {
        let file = pg_sys::get_controlfile(c".".as_ptr(), &mut is_intact);
        let state = (*file).state;
        pg_sys::pfree(file.cast());
        state
    };
    Ok(is_intact && matches!(state, DB_SHUTDOWNED | DB_SHUTDOWNED_IN_RECOVERY))
}
