//! Snapshots by the server: the worker starts a process for each, which connects to the database, takes the snapshot, and ends.
//!
//! Who wants to drop or copy the database, or to drop the extension, waits for it at most [`TIMEOUT_MS`]: only sessions of clients get
//! a statement timeout from PostgreSQL, so the process arms its own. What goes wrong is counted, and logged once. It
//! never starts again by itself.

use super::process::background_worker;
use crate::guc;
use crate::pg::compat;
use crate::pg::server::unguarded;
use crate::pg::server::{self, setting, switch};
use crate::pg::store::{self, SharedSnapshots};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgSqlErrorCode, Spi, pg_guard, pg_sys};
use std::any::Any;
use std::ffi::CStr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const NAME: &CStr = c"pg_rowsource snapshot";
/// The name of [`pg_rowsource_snapshot_main`].
const FUNCTION: &CStr = c"pg_rowsource_snapshot_main";
/// How long a snapshot may take, with what comes before and after it four seconds.
const TIMEOUT_MS: i32 = 3_500;
/// How the process measures, waits and commits.
const SETTINGS: [(&CStr, &CStr); 4] = [
    (c"search_path", c"pg_catalog"),
    (c"lock_timeout", c"1s"),
    (c"synchronous_commit", c"off"),
    (c"pg_rowsource.statistics_level", c"basic"),
];
/// Finds the function by its extension: who may create functions in a schema may also create one of this name.
const FIND: &str = "SELECT (SELECT p.oid::regprocedure::text
      FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
           JOIN pg_proc p ON p.oid = d.objid
     WHERE e.extname = 'pg_rowsource' AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
           AND p.proname = 'rowsource_snapshot' AND p.pronargs = 0)";

/// How far the process has come.
const STARTED: u32 = 1;
const CONNECTED: u32 = 2;
const DONE: u32 = 3;

/// When the worker starts the next one, and the one that runs.
pub struct Schedule {
    interval: Option<i64>,
    next: i64,
    running: *mut pg_sys::BackgroundWorkerHandle,
    /// The registered database for which that one was started; 0 if a setting named it.
    database: u32,
}

impl Schedule {
    pub fn new() -> Schedule {
        Schedule {
            interval: None,
            next: 0,
            running: std::ptr::null_mut(),
            database: 0,
        }
    }

    /// Starts a snapshot if one is due. Returns when the next one is. Only the worker may call this.
    pub fn tick(&mut self, now: i64) -> Option<i64> {
        let shared = store::shared_snapshots()?;
        self.look(shared);
        let interval = guc::snapshot_interval_us().filter(|_| switch::is_on());
        if interval != self.interval {
            self.interval = interval;
            self.next = now + interval.unwrap_or(0);
        }
        let interval = interval?;
        if now >= self.next {
            self.next = now + interval;
            if self.running.is_null() && !server::is_in_recovery() {
                self.start(shared);
            }
        }
        Some(self.next)
    }

    fn start(&mut self, shared: &SharedSnapshots) {
        self.database = match guc::snapshot_database() {
            Some(_) => 0,
            None => match shared.database.load(Relaxed) {
                0 => return,
                database => database,
            },
        };
        let mut worker = background_worker(NAME, FUNCTION);
        worker.bgw_start_time = pg_sys::BgWorkerStartTime::BgWorkerStart_RecoveryFinished;
        worker.bgw_restart_time = pg_sys::BGW_NEVER_RESTART;
        worker.bgw_main_arg = pg_sys::Datum::from(self.database);
        worker.bgw_notify_pid = server::pid();
        shared.phase.store(STARTED, Release);
        // SAFETY: the worker is outside of any boundary. PostgreSQL copies the description.
        if !unsafe { pg_sys::RegisterDynamicBackgroundWorker(&mut worker, &mut self.running) } {
            self.running = std::ptr::null_mut();
            shared.refused.fetch_add(1, Relaxed);
            note(shared, PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED);
        }
    }

    /// Looks whether the process that runs has ended, and how.
    fn look(&mut self, shared: &SharedSnapshots) {
        if self.running.is_null() {
            return;
        }
        let mut pid = 0;
        // SAFETY: the handle is that which PostgreSQL made, and is freed once.
        unsafe {
            if pg_sys::GetBackgroundWorkerPid(self.running, &mut pid) != pg_sys::BgwHandleStatus::BGWH_STOPPED
            {
                return;
            }
            pg_sys::pfree(self.running.cast());
        }
        self.running = std::ptr::null_mut();
        match shared.phase.load(Acquire) {
            STARTED => {
                forget(shared, self.database);
                fail(shared, PgSqlErrorCode::ERRCODE_INVALID_CATALOG_NAME);
            }
            CONNECTED => fail(shared, PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN),
            _ => {}
        }
    }
}

/// Takes the registration of a database away. The next use of the extension in it, or in another one, registers.
fn forget(shared: &SharedSnapshots, database: u32) {
    if database != 0 {
        let _ = shared.database.compare_exchange(database, 0, Relaxed, Relaxed);
    }
}

fn fail(shared: &SharedSnapshots, code: PgSqlErrorCode) {
    shared.failed.fetch_add(1, Relaxed);
    note(shared, code);
}

/// Notes an error, and logs it if the last one was another one.
fn note(shared: &SharedSnapshots, code: PgSqlErrorCode) {
    let code = code as u32;
    if shared.last_error.swap(code, Relaxed) != code {
        server::log_alone(&format!("pg_rowsource took no snapshot: {}", explained(code)));
    }
}

/// Says what an error means, without data of users.
pub fn explained(code: u32) -> String {
    const KNOWN: [(PgSqlErrorCode, &str); 8] = [
        (
            PgSqlErrorCode::ERRCODE_INVALID_CATALOG_NAME,
            "the database could not be connected to",
        ),
        (
            PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN,
            "its process was terminated",
        ),
        (
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "no place for another process: raise max_worker_processes",
        ),
        (
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            "the extension is not in the database",
        ),
        (
            PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
            "a lock on its tables was not granted within a second",
        ),
        (
            PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
            "it took too long, or was cancelled",
        ),
        (PgSqlErrorCode::ERRCODE_DISK_FULL, "the disk is full"),
        (
            PgSqlErrorCode::ERRCODE_READ_ONLY_SQL_TRANSACTION,
            "the database is read-only",
        ),
    ];
    let state: String = (0..5)
        .map(|place| char::from((code >> (6 * place) & 0x3f) as u8 + b'0'))
        .collect();
    match KNOWN.iter().find(|(known, _)| *known as u32 == code) {
        Some((_, meaning)) => format!("{meaning} (SQLSTATE {state})"),
        None => format!("an error with SQLSTATE {state}"),
    }
}

/// Returns the code of an error that was caught.
fn code_of(error: &(dyn Any + Send)) -> PgSqlErrorCode {
    match error.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => {
            report.sql_error_code()
        }
        _ => PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
    }
}

/// The main function of the process that takes a snapshot.
///
/// # Safety
/// Only PostgreSQL may call this, as the main function of a background worker.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_rowsource_snapshot_main(argument: pg_sys::Datum) {
    let database = argument.value() as u32;
    // SAFETY: PostgreSQL has just started this background worker, with its signals blocked. It connects as the
    // bootstrap superuser.
    unsafe {
        compat::handle_signal(libc::SIGTERM, Some(unguarded::die));
        pg_sys::BackgroundWorkerUnblockSignals();
        match guc::snapshot_database().filter(|_| database == 0) {
            Some(name) => pg_sys::BackgroundWorkerInitializeConnection(
                name.as_ptr(),
                std::ptr::null(),
                pg_sys::BGWORKER_BYPASS_ALLOWCONN,
            ),
            None => pg_sys::BackgroundWorkerInitializeConnectionByOid(
                pg_sys::Oid::from(database),
                pg_sys::InvalidOid,
                pg_sys::BGWORKER_BYPASS_ALLOWCONN,
            ),
        }
    }
    let Some(shared) = store::shared_snapshots() else {
        return;
    };
    // Never two at a time: a worker that was started again does not know this one.
    let Some(_guard) = shared.worker.hold_or_inherit(server::pid(), server::is_alive) else {
        return;
    };
    shared.phase.store(CONNECTED, Release);
    // SAFETY: the process has connected, and runs no transaction.
    match server::caught(|| unsafe { take() }) {
        Ok(true) => {
            shared.taken.fetch_add(1, Relaxed);
            shared.last_at.store(server::now(), Relaxed);
        }
        Ok(false) => {
            forget(shared, database);
            fail(shared, PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT);
        }
        Err(error) => {
            // SAFETY: the transaction has failed, and nothing of it is used any more.
            unsafe {
                unguarded::disable_timeout(compat::STATEMENT_TIMEOUT, false);
                pg_sys::AbortCurrentTransaction();
            }
            fail(shared, code_of(&*error));
        }
    }
    shared.phase.store(DONE, Release);
}

/// Takes a snapshot in a transaction. Returns false if the extension is not there.
///
/// # Safety
/// The process must be connected, and run no transaction. Raises PostgreSQL's errors.
unsafe fn take() -> bool {
    for (name, value) in SETTINGS {
        setting::set_in_session(name, value);
    }
    // SAFETY: the caller runs no transaction. This one ends here, or the caller aborts it.
    unsafe {
        unguarded::enable_timeout_after(compat::STATEMENT_TIMEOUT, TIMEOUT_MS);
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        pg_sys::pgstat_report_activity(
            pg_sys::BackendState::STATE_RUNNING,
            c"rowsource_snapshot()".as_ptr(),
        );
        let function = Spi::get_one::<String>(FIND).ok().flatten();
        if let Some(function) = &function {
            let _ = Spi::get_one::<i64>(&format!("SELECT {function}"));
        }
        pg_sys::PopActiveSnapshot();
        pg_sys::CommitTransactionCommand();
        unguarded::disable_timeout(compat::STATEMENT_TIMEOUT, false);
        function.is_some()
    }
}
