//! Requests the store's main shared memory, in a postmaster that preloads the library.

use super::control;
use super::{executions, registered, saving};
use crate::pg::server::{self, MainMemory, SettingUp};
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
fn set_up(shared: &SettingUp) {
    control::find_or_make_preloaded(shared);
    tempfile::set_up(shared);
    waits::slots::set_up(shared);
    control::known().into_iter().for_each(|control| {
        saving::set_up(control);
        registered::set_up(control);
    });
}
