//! What kind of process this is, and what it is doing.

use pgrx::pg_sys;

/// Returns whether this process is a parallel worker.
pub fn is_parallel_worker() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::ParallelWorkerNumber >= 0 }
}

/// Returns whether this process runs a parallel plan, or is a worker of one.
pub fn is_parallel_mode() -> bool {
    // SAFETY: the function asks for nothing of its caller.
    unsafe { pg_sys::IsInParallelMode() }
}

/// Returns whether a statement at this point can be at top level: a client's portal is running, or this is a background
/// worker, which needs no portal. Deferred triggers at commit and their queries run without a portal.
pub fn portal_or_background() -> bool {
    // SAFETY: globals of plain types, which are valid at all times.
    unsafe { !pg_sys::ActivePortal.is_null() || pg_sys::MyBackendType != pg_sys::BackendType::B_BACKEND }
}

/// Returns whether core times I/O now.
pub fn core_times_io() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::track_io_timing }
}

/// Returns whether the server is loading `shared_preload_libraries`.
pub fn preloading() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Returns whether this process is the postmaster.
pub fn is_postmaster() -> bool {
    // SAFETY: globals of plain types, which are valid at all times.
    unsafe { pg_sys::IsPostmasterEnvironment && !pg_sys::IsUnderPostmaster }
}

/// Asks core to compute query ids. To be called from `_PG_init`.
pub fn enable_query_ids() {
    // SAFETY: the function asks for nothing of its caller.
    unsafe { pg_sys::EnableQueryId() }
}

/// Returns this process's number.
#[inline(always)]
pub fn pid() -> i32 {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::MyProcPid }
}

/// Returns whether this process is ending. Then an error is fatal: nobody catches it, and PostgreSQL's own clean-up stops
/// at that point.
pub fn is_exiting() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::proc_exit_inprogress }
}

/// Returns whether a process of this number exists.
pub fn is_alive(pid: i32) -> bool {
    // SAFETY: signal 0 is no signal.
    unsafe { libc::kill(pid, 0) == 0 || *libc::__errno_location() != libc::ESRCH }
}

/// Returns whether this process is a child of a postmaster.
pub fn is_under_postmaster() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::IsUnderPostmaster }
}

/// Returns whether pg_upgrade runs this server.
pub fn is_upgrading() -> bool {
    // SAFETY: a plain global, set from the command line.
    unsafe { pg_sys::IsBinaryUpgrade }
}
