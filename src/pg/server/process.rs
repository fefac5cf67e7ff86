//! Returns facts about this process and its state.

use super::processes::{Process, Processes};
use crate::pg::border::globals::GLOBALS;
use crate::pg::border::{guarded, posix, unguarded};
use pgrx::pg_sys;
use std::ffi::CStr;

/// Returns whether this process is a parallel worker.
pub fn is_parallel_worker() -> bool {
    GLOBALS.ParallelWorkerNumber.get() >= 0
}

/// Returns whether this process is in parallel mode: it runs a parallel plan, or is a parallel worker.
pub fn is_parallel_mode() -> bool {
    unguarded::IsInParallelMode()
}

/// Returns whether a statement that starts now can be at top level: a client's portal is running, or this is
/// a background worker, which needs no portal. Deferred triggers at commit run their queries without a
/// portal.
pub fn portal_or_background() -> bool {
    !GLOBALS.ActivePortal.get().is_null() || GLOBALS.MyBackendType.get() != pg_sys::BackendType::B_BACKEND
}

/// Returns how many messages about changes of catalogs and relations the session has received. Those of its
/// own transaction come when that is committed.
#[inline(always)]
pub fn catalog_changes() -> u64 {
    GLOBALS.SharedInvalidMessageCounter.get()
}

/// Returns whether this transaction has an id. It has one once it has changed a catalog.
#[inline(always)]
pub fn has_transaction_id() -> bool {
    unguarded::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId
}

/// Returns whether the planner makes an Append parallel whose inputs are read in parallel.
pub fn appends_in_parallel() -> bool {
    GLOBALS.enable_parallel_append.get()
}

/// Returns whether a text is the one that the client has sent.
pub fn is_sent(text: *const std::ffi::c_char) -> bool {
    std::ptr::eq(text, GLOBALS.debug_query_string.get())
}

/// Calls a function with the text that the client has sent, if there is one.
pub fn with_sent_text<T>(read: impl FnOnce(Option<&CStr>) -> T) -> T {
    let text = GLOBALS.debug_query_string.get();
    // SAFETY: PostgreSQL keeps the text of the message that it processes, and processes no other meanwhile.
    read((!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }))
}

/// Returns whether core times I/O now.
pub fn core_times_io() -> bool {
    GLOBALS.track_io_timing.get()
}

/// Returns whether the server is a standby, or recovers.
pub fn is_in_recovery() -> bool {
    unguarded::RecoveryInProgress()
}

/// Returns whether this transaction may not write.
pub fn is_read_only() -> bool {
    GLOBALS.XactReadOnly.get()
}

/// Returns whether the server is loading `shared_preload_libraries`.
pub fn preloading() -> bool {
    GLOBALS.process_shared_preload_libraries_in_progress.get()
}

/// Returns whether this process is the postmaster.
pub fn is_postmaster() -> bool {
    GLOBALS.IsPostmasterEnvironment.get() && !GLOBALS.IsUnderPostmaster.get()
}

/// Makes core compute query ids. Only `_PG_init` may call this.
pub fn enable_query_ids() {
    guarded::EnableQueryId();
}

/// Returns this process's id.
#[inline(always)]
pub fn pid() -> i32 {
    GLOBALS.MyProcPid.get()
}

/// Calls a function with the session's application_name, as much of it as pg_stat_activity shows. From 16 on
/// the setting may be longer, because other characters than those of ASCII are escaped. It is empty until the
/// setting exists.
pub fn with_application_name<T>(read: impl FnOnce(&[u8]) -> T) -> T {
    let name = GLOBALS.application_name.get().cast_const();
    if name.is_null() {
        return read(&[]);
    }
    // SAFETY: the setting is a C string, which nobody changes before this function returns.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    read(bytes.get(..pg_sys::NAMEDATALEN as usize - 1).unwrap_or(bytes))
}

/// Returns the session's application_name, as [`with_application_name`] has it.
pub fn application_name() -> String {
    with_application_name(|name| String::from_utf8_lossy(name).into_owned())
}

/// Returns whether this process is exiting. Then an error is fatal: it is not caught, and PostgreSQL's own
/// clean-up stops.
pub fn is_exiting() -> bool {
    GLOBALS.proc_exit_inprogress.get()
}

/// Returns whether a process with this id exists.
pub fn is_alive(pid: i32) -> bool {
    // Signal 0 only checks whether the process exists.
    posix::kill(pid, 0) == 0 || posix::errno() != libc::ESRCH
}

/// Returns the place of this process in PostgreSQL's list of processes.
pub fn process_number() -> u32 {
    Process::own().map_or(0, |own| Processes::all().number(own) as u32)
}

/// Returns whether this process is a child of a postmaster.
pub fn is_under_postmaster() -> bool {
    GLOBALS.IsUnderPostmaster.get()
}

/// Returns whether pg_upgrade runs this server.
pub fn is_upgrading() -> bool {
    GLOBALS.IsBinaryUpgrade.get()
}

/// Returns the name of the library that has this function, without its folder and its ending. Returns `None`
/// if no library has it.
pub fn library_of<'a>(function: *const std::ffi::c_void) -> Option<&'a [u8]> {
    // SAFETY: the function accepts any address, and writes a struct of plain fields. The name lives as long
    // as the library, which PostgreSQL never unloads.
    let path = unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &raw mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr(found.dli_fname).to_bytes()
    };
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    Some(name.strip_suffix(b".so").unwrap_or(name))
}
