//! What the background worker does for the store: it saves the plans when the server stops, see
//! [`super::saving`].

use super::{attach, control, registered, saving};
use crate::pg::server::{self, memory};

/// Notes that the worker runs, if the library was preloaded.
pub fn worker_arrives() {
    if let Some(control) = control::preloaded() {
        saving::worker_arrives(control);
    }
}

/// Notes that the worker ends. If the server stops, it waits for the sessions first. If it is the last one,
/// it saves the plans. The registration of a database is kept in any case.
pub fn worker_leaves() {
    let Some(control) = control::preloaded() else {
        return;
    };
    // Else somebody has only terminated the worker, and PostgreSQL starts it again.
    if server::is_stopping() {
        control.presence.wait_for_sessions();
    }
    registered::keep_registration();
    if control.presence.leave() {
        // Without memory, an error of PostgreSQL ends with a PANIC, because it cannot be copied.
        if memory::can_map(control.mapped_bytes()) {
            attach::attach_worker(control);
        }
        saving::save(control);
    }
}
