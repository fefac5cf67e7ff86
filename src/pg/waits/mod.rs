//! Counts and times every wait of the server's processes.
//!
//! While PostgreSQL waits, a word of the process's entry in shared memory names the wait event, and the
//! process is in a call of the C library. `pg::interpose` replaces these functions, and calls `counting`
//! around the call. That adds the wait to the process's slot (`slots`), in shared memory. `names` returns the
//! names of events and of types of processes; `lasting` keeps those of extensions beyond a restart.
//!
//! A session that loads the library itself counts its own waits from then on, in its own memory.

pub mod counting;
pub mod lasting;
pub mod names;
pub mod slots;

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server;
use std::cell::OnceCell;

/// Why waits are not counted, if they are not. The postmaster sets this once, and its children inherit it.
static REFUSED: BackendLocal<OnceCell<String>> = BackendLocal::new(OnceCell::new());

/// Starts to count. `interposed` tells whether the functions of the C library were replaced. Only `_PG_init`
/// may call this, once.
pub fn init(interposed: Result<(), String>) {
    match interposed {
        Ok(()) if server::preloading() => {}
        Ok(()) => slots::count_own(),
        Err(reason) => {
            if server::preloading() {
                pgrx::log!("pg_rowsource does not count waits: {reason}");
            }
            let _ = REFUSED.set(reason);
        }
    }
}

/// Returns why waits are not counted, if they are not.
pub fn refused() -> Option<&'static str> {
    REFUSED.inner().get().map(String::as_str)
}
