//! Snapshots by the server: the worker starts a process for each, which connects to the database, takes the
//! snapshot, and ends.
//!
//! Who wants to drop or copy the database, or to drop the extension, waits for it at most [`TIMEOUT_MS`]:
//! only sessions of clients get a statement timeout from PostgreSQL, so the process arms its own. What goes
//! wrong is counted, and logged once until a snapshot succeeds. The process never starts again by itself.

use super::process::background_worker;
use crate::guc;
use crate::pg::border::unguarded;
use crate::pg::compat;
use crate::pg::server::{self, setting, switch};
use crate::pg::store::{self, SharedSnapshots};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgSqlErrorCode, Spi, pg_guard, pg_sys, spi};
use std::any::Any;
use std::ffi::CStr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const NAME: &CStr = c"pg_rowsource snapshot";
/// The name of [`pg_rowsource_snapshot_main`].
const FUNCTION: &CStr = c"pg_rowsource_snapshot_main";
/// How long a snapshot may take, with what comes before and after it four seconds.
const TIMEOUT_MS: i32 = 3_500;
/// How the process measures, waits and commits.
const SETTINGS: [(&CStr, &CStr); 5] = [
    (c"default_transaction_isolation", c"read committed"),
    (c"search_path", c"pg_catalog"),
    (c"lock_timeout", c"1s"),
    (c"synchronous_commit", c"off"),
    (c"pg_rowsource.statistics_level", c"basic"),
];
/// Finds the function by its extension: who may create functions in a schema may also create one of this
/// name.
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
}

impl Schedule {
    pub fn new() -> Schedule {
        Schedule {
            interval: None,
            next: 0,
            running: std::ptr::null_mut(),
        }
    }

    /// Starts a snapshot if one is due. Returns when the next one is. Only the worker may call this.
    pub fn tick(&mut self, now: i64) -> Option<i64> {
        let shared = store::shared_snapshots()?;
        store::keep_registration();
        self.look(shared);
        let interval = guc::snapshot_interval_us().filter(|_| switch::is_on());
        if interval != self.interval {
            self.interval = interval;
            self.next = now + interval.unwrap_or(0);
        }
        let interval = interval?;
        if now >= self.next {
            self.next = now + interval;
            // A worker that was started again does not know the process of the one before.
            let is_taking = !self.running.is_null() || is_held(shared);
            if !is_taking && !server::is_in_recovery() {
                self.start(shared);
            }
        }
        Some(self.next)
    }

    fn start(&mut self, shared: &SharedSnapshots) {
        let database = match find(shared) {
            Ok(Some(database)) => database,
            Ok(None) => return,
            Err(code) => return fail(shared, code),
        };
        let mut worker = background_worker(NAME, FUNCTION);
        worker.bgw_start_time = pg_sys::BgWorkerStartTime::BgWorkerStart_RecoveryFinished;
        worker.bgw_restart_time = pg_sys::BGW_NEVER_RESTART;
        worker.bgw_flags |= compat::INTERRUPTIBLE as i32;
        worker.bgw_main_arg = pg_sys::Datum::from(database);
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
            STARTED => fail(shared, PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE),
            CONNECTED => fail(shared, PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN),
            _ => {}
        }
    }
}

/// Returns whether a process takes a snapshot.
fn is_held(shared: &SharedSnapshots) -> bool {
    let pid = shared.worker.pid();
    pid != 0 && server::is_alive(pid)
}

/// Returns the OID of the database in which snapshots are taken: the one that a setting names, or the one
/// that has registered. Returns `None` if there is none, and an error if it does not exist. If it does not,
/// or is a template now, its registration is taken away.
fn find(shared: &SharedSnapshots) -> Result<Option<u32>, PgSqlErrorCode> {
    let name = guc::snapshot_database();
    let registered = shared.database.load(Relaxed);
    if name.is_none() && registered == 0 {
        return Ok(None);
    }
    let found = found(|| {
        server::find_database(|oid, datname, is_template| match name.as_deref() {
            Some(name) => datname == name,
            None => oid == registered && !is_template,
        })
    })?;
    if found.is_none() && name.is_none() {
        forget(shared, registered);
    }
    found
        .map(Some)
        .ok_or(PgSqlErrorCode::ERRCODE_INVALID_CATALOG_NAME)
}

/// Looks for a role or a database. Only the worker may call this, outside of transactions.
pub(super) fn found(find: impl FnOnce() -> Option<u32>) -> Result<Option<u32>, PgSqlErrorCode> {
    // SAFETY: the worker is connected to no database, which lets it read the shared catalogs, and runs no
    // transaction.
    unsafe { transaction(find) }
}

/// Runs a body in a transaction. Returns the code of its error, after which the transaction is aborted.
///
/// # Safety
/// The process must be able to run one, and run none.
unsafe fn transaction<T>(body: impl FnOnce() -> T) -> Result<T, PgSqlErrorCode> {
    // SAFETY: the caller runs no transaction. This one ends here.
    unsafe {
        let done = server::caught(|| {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            let result = body();
            pg_sys::CommitTransactionCommand();
            result
        });
        done.map_err(|error| {
            pg_sys::AbortCurrentTransaction();
            code_of(&*error)
        })
    }
}

/// Takes the registration of a database away. The next use of the extension in it, or in another one,
/// registers.
fn forget(shared: &SharedSnapshots, database: u32) {
    if database != 0 {
        let _ = shared.database.compare_exchange(database, 0, Relaxed, Relaxed);
    }
}

fn fail(shared: &SharedSnapshots, code: PgSqlErrorCode) {
    shared.failed.fetch_add(1, Relaxed);
    note(shared, code);
}

/// Notes an error, and logs it if it was not the last one that was logged, or if a snapshot has succeeded
/// since.
fn note(shared: &SharedSnapshots, code: PgSqlErrorCode) {
    let code = code as u32;
    shared.last_error.store(code, Relaxed);
    if shared.logged.swap(code, Relaxed) != code {
        server::log_alone(&format!("pg_rowsource took no snapshot: {}", explained(code)));
    }
}

/// Says what an error means, without data of users.
pub fn explained(code: u32) -> String {
    const KNOWN: [(PgSqlErrorCode, &str); 10] = [
        (
            PgSqlErrorCode::ERRCODE_INVALID_CATALOG_NAME,
            "the database does not exist, or has become a template",
        ),
        (
            PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE,
            "its process ended before it had connected to the database: the server's log says why",
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
        (
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "somebody has made a trigger for its tables, or a foreign key to them: call rowsource_snapshot() to see its name",
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
    let Some(shared) = store::shared_snapshots() else {
        return;
    };
    // Never two at a time. A process that could not connect leaves its number, and is not alive.
    let Some(_guard) = shared.worker.hold_or_inherit(server::pid(), server::is_alive) else {
        return;
    };
    shared.phase.store(STARTED, Release);
    // SAFETY: PostgreSQL has just started this background worker, with its signals blocked. It connects as
    // the bootstrap superuser.
    unsafe {
        compat::handle_signal(libc::SIGTERM, Some(unguarded::die));
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(
            pg_sys::Oid::from(database),
            pg_sys::InvalidOid,
            pg_sys::BGWORKER_BYPASS_ALLOWCONN,
        );
    }
    shared.phase.store(CONNECTED, Release);
    // SAFETY: the process has connected, and runs no transaction.
    match unsafe { take() } {
        Ok(true) => {
            shared.last_at.store(server::now(), Relaxed);
            shared.logged.store(0, Relaxed);
            shared.taken.fetch_add(1, Relaxed);
        }
        Ok(false) => {
            forget(shared, database);
            fail(shared, PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT);
        }
        Err(code) => fail(shared, code),
    }
    shared.phase.store(DONE, Release);
}

/// Takes a snapshot in a transaction. Returns whether the extension is there, or the code of the error.
///
/// # Safety
/// The process must be connected, and run no transaction.
unsafe fn take() -> Result<bool, PgSqlErrorCode> {
    // The isolation counts when the transaction begins.
    for (name, value) in SETTINGS {
        setting::set_in_session(name, value);
    }
    // SAFETY: the caller promises what the functions require. PostgreSQL's own code in a background worker
    // does the same.
    unsafe {
        unguarded::enable_timeout_after(compat::STATEMENT_TIMEOUT, TIMEOUT_MS);
        let taken = transaction(|| {
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            pg_sys::pgstat_report_activity(
                pg_sys::BackendState::STATE_RUNNING,
                c"rowsource_snapshot()".as_ptr(),
            );
            let function = succeeded(Spi::get_one::<String>(FIND));
            if let Some(function) = &function {
                succeeded(Spi::get_one::<i64>(&format!("SELECT {function}")));
            }
            pg_sys::PopActiveSnapshot();
            function.is_some()
        });
        unguarded::disable_timeout(compat::STATEMENT_TIMEOUT, false);
        taken
    }
}

/// Returns what SPI returned. Raises an error if it could not run the statement.
fn succeeded<T>(result: Result<T, spi::Error>) -> T {
    result.unwrap_or_else(|error| {
        let code = PgSqlErrorCode::ERRCODE_INTERNAL_ERROR;
        server::fail(code, &error.to_string(), "This is a bug in pg_rowsource.")
    })
}
