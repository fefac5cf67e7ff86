//! Returns how temporary tables are read, which process owns them, and the numbers of processes.

use pgrx::pg_sys;

/// Returns whether temporary tables are read without system calls of the backend. From 18 on, io_uring does
/// that.
#[cfg(pg_ge_18)]
#[inline(always)]
pub fn temp_tables_bypass_syscalls() -> bool {
    // A server that was built without liburing has no name for it.
    const WORKER: i32 = pg_sys::IoMethod::IOMETHOD_WORKER as i32;
    super::globals::GLOBALS.io_method.get() > WORKER
}
#[cfg(not(pg_ge_18))]
#[inline(always)]
pub fn temp_tables_bypass_syscalls() -> bool {
    false
}

/// Returns the process that owns the temporary tables whose files have this number, in a database. Returns
/// `None` if it has ended.
pub fn pid_of_temp_tables(number: i32, database: u32) -> Option<i32> {
    let process = process(number)?;
    (process.pid != 0 && process.databaseId.to_u32() == database).then_some(process.pid)
}

/// Returns the process that has this number, if there is one.
pub fn pid_of_session(number: i32) -> Option<i32> {
    let process = process(number)?;
    (process.pid != 0).then_some(process.pid)
}

/// Returns the number of this session, which its parallel workers share; a negative number if it has none.
#[cfg(pg_ge_17)]
#[inline(always)]
pub fn number_of_session() -> i32 {
    let (leader, mine) = (
        super::globals::GLOBALS.ParallelLeaderProcNumber.get(),
        super::globals::GLOBALS.MyProcNumber.get(),
    );
    if leader >= 0 { leader } else { mine }
}
#[cfg(not(pg_ge_17))]
#[inline(always)]
pub fn number_of_session() -> i32 {
    let (leader, mine) = (
        super::globals::GLOBALS.ParallelLeaderBackendId.get(),
        super::globals::GLOBALS.MyBackendId.get(),
    );
    if leader >= 0 { leader } else { mine }
}

/// Returns the entry of the process that has this number, if there is one.
fn process(number: i32) -> Option<&'static pg_sys::PGPROC> {
    #[cfg(not(pg_ge_17))]
    use pg_sys::BackendIdGetProc as find;
    #[cfg(pg_ge_17)]
    use pg_sys::ProcNumberGetProc as find;
    // SAFETY: PostgreSQL checks the number, and returns null if no process has it. The entry lies in shared
    // memory, where it remains while the server runs.
    unsafe { find(number).as_ref() }
}
