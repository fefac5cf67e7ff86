//! Requests the store's main shared memory, in a postmaster that preloads the library.

use super::control;
use super::{executions, saving};
use crate::pg::server::{self, MainMemory};
use crate::pg::{tempfile, waits};

/// Requests main shared memory, but not in a session that loads the library later. Has errors counted that no
/// user sees.
pub fn init() {
    server::on_error(control::count_error);
    if server::preloading() {
        server::use_main_memory(MainMemory { size, set_up });
        executions::init();
    }
}

fn size() -> usize {
    let sizes = [
        control::size(),
        tempfile::counters::SIZE,
        tempfile::sessions::size(),
        waits::slots::size(),
    ];
    sizes.iter().sum()
}

/// Finds or makes the structures.
///
/// # Safety
/// PostgreSQL must be setting up shared memory.
unsafe fn set_up() {
    // SAFETY: the caller promises what the function expects.
    unsafe { control::find_or_make_preloaded() };
    tempfile::set_up();
    waits::slots::set_up();
    // SAFETY: the control block was just found or made.
    unsafe { saving::set_up(&*control::known()) };
}
