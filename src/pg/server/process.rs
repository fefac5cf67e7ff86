//! Returns facts about this process and its state.

use super::processes::{Process, Processes};
use crate::pg::border::unguarded;
use pgrx::pg_sys;
use std::ffi::CStr;

/// Returns whether this process is a parallel worker.
pub fn is_parallel_worker() -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::ParallelWorkerNumber >= 0 }
}

/// Returns whether this process is in parallel mode: it runs a parallel plan, or is a parallel worker.
pub fn is_parallel_mode() -> bool {
    // SAFETY: the function has no preconditions.
    unsafe { pg_sys::IsInParallelMode() }
}

/// Returns whether a statement that starts now can be at top level: a client's portal is running, or this is
/// a background worker, which needs no portal. Deferred triggers at commit run their queries without a
/// portal.
pub fn portal_or_background() -> bool {
    // SAFETY: these are globals of plain types, which are valid at all times.
    unsafe { !pg_sys::ActivePortal.is_null() || pg_sys::MyBackendType != pg_sys::BackendType::B_BACKEND }
}

/// Returns how many messages about changes of catalogs and relations the session has received. Those of its
/// own transaction come when that is committed.
#[inline(always)]
pub fn catalog_changes() -> u64 {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::SharedInvalidMessageCounter }
}

/// Returns whether this transaction has an id. It has one once it has changed a catalog.
#[inline(always)]
pub fn has_transaction_id() -> bool {
    // SAFETY: the function has no preconditions.
    unsafe { unguarded::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// Returns whether a text is the one that the client has sent.
pub fn is_sent(text: *const std::ffi::c_char) -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    std::ptr::eq(text, unsafe { pg_sys::debug_query_string })
}

/// Returns whether core times I/O now.
pub fn core_times_io() -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::track_io_timing }
}

/// Returns whether the server is a standby, or recovers.
pub fn is_in_recovery() -> bool {
    // SAFETY: the function has no preconditions. It only reads shared memory.
    unsafe { unguarded::RecoveryInProgress() }
}

/// Returns whether this transaction may not write.
pub fn is_read_only() -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::XactReadOnly }
}

/// Returns whether the server is loading `shared_preload_libraries`.
pub fn preloading() -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Returns whether this process is the postmaster.
pub fn is_postmaster() -> bool {
    // SAFETY: these are globals of plain types, which are valid at all times.
    unsafe { pg_sys::IsPostmasterEnvironment && !pg_sys::IsUnderPostmaster }
}

/// Makes core compute query ids. Only `_PG_init` may call this.
pub fn enable_query_ids() {
    // SAFETY: the function has no preconditions.
    unsafe { pg_sys::EnableQueryId() }
}

/// Returns this process's id.
#[inline(always)]
pub fn pid() -> i32 {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::MyProcPid }
}

/// Returns the session's application_name, as much of it as pg_stat_activity shows.
pub fn application_name() -> String {
    // SAFETY: the name is null or a C string.
    let bytes = unsafe {
        let name = pg_sys::application_name.cast_const();
        (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes())
    };
    let bytes = bytes.unwrap_or_default();
    let shown = bytes.get(..pg_sys::NAMEDATALEN as usize - 1).unwrap_or(bytes);
    String::from_utf8_lossy(shown).into_owned()
}

/// Returns whether this process is exiting. Then an error is fatal: it is not caught, and PostgreSQL's own
/// clean-up stops.
pub fn is_exiting() -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::proc_exit_inprogress }
}

/// Returns whether a process with this id exists.
pub fn is_alive(pid: i32) -> bool {
    // SAFETY: signal 0 only checks whether the process exists. errno's address is always valid.
    unsafe { libc::kill(pid, 0) == 0 || *libc::__errno_location() != libc::ESRCH }
}

/// Returns the place of this process in PostgreSQL's list of processes.
pub fn process_number() -> u32 {
    Process::own().map_or(0, |own| Processes::all().number(own) as u32)
}

/// Returns whether this process is a child of a postmaster.
pub fn is_under_postmaster() -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::IsUnderPostmaster }
}

/// Returns whether pg_upgrade runs this server.
pub fn is_upgrading() -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times.
    unsafe { pg_sys::IsBinaryUpgrade }
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
