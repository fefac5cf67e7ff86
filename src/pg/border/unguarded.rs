//! PostgreSQL functions that are called without pgrx's guard, because their caller is a plain frame that a
//! longjmp may cross (the hot path), or because pgrx has no binding for them (timeouts).

use pgrx::pg_sys;
use std::ffi::{c_char, c_int, c_void};

/// Declares functions of PostgreSQL. Each is checked against pgrx's guarded binding of the same name: if a
/// type differs, the code does not compile. An argument that some majors lack has a `cfg` attribute.
macro_rules! declare {
    ("C", safe: $(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {
        // SAFETY: a function that is declared so may be called at any time with any arguments, and raises
        // nothing.
        unsafe extern "C" {
            $($(#[$attribute])* $visibility safe fn $name($($argument: $type),*) $(-> $result)?;)*
        }
        $(const _: unsafe fn($($type),*) $(-> $result)? = pgrx::pg_sys::$name;)*
    };
    ($abi:literal: $(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($(#[$condition:meta])* $argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {
        unsafe extern $abi {
            $($(#[$attribute])* $visibility fn $name($($(#[$condition])* $argument: $type),*) $(-> $result)?;)*
        }
        $($(#[$attribute])* const _: unsafe fn($($(#[$condition])* $type),*) $(-> $result)? = pgrx::pg_sys::$name;)*
    };
}
pub(in crate::pg) use declare;

declare! { "C", safe:
    /// Returns whether the stack is nearly full.
    pub fn stack_is_too_deep() -> bool;
    /// Opens a nest level of the settings.
    pub fn NewGUCNestLevel() -> c_int;
    pub fn GetCurrentTransactionNestLevel() -> c_int;
    pub fn ActiveSnapshotSet() -> bool;
    pub fn IsAbortedTransactionBlockState() -> bool;
    pub fn IsTransactionBlock() -> bool;
    pub fn GetTopTransactionIdIfAny() -> pg_sys::TransactionId;
    pub fn RecoveryInProgress() -> bool;
    pub fn GetCurrentTimestamp() -> pg_sys::TimestampTz;
    pub fn GetCurrentStatementStartTimestamp() -> pg_sys::TimestampTz;
    pub fn GetUserId() -> pg_sys::Oid;
    pub fn GetOuterUserId() -> pg_sys::Oid;
    pub fn GetSessionUserId() -> pg_sys::Oid;
    pub fn GetDatabaseEncoding() -> c_int;
    pub fn IsInParallelMode() -> bool;
    pub fn IsTransactionState() -> bool;
}

declare! { "C":
    pub fn GetUserIdAndSecContext(user: *mut pg_sys::Oid, security_context: *mut c_int);
    /// Returns the code of the error that is being handled.
    pub fn geterrcode() -> c_int;
    /// Return or set what is known of the error that is being raised.
    pub fn geterrposition() -> c_int;
    pub fn errposition(position: c_int) -> c_int;
    pub fn internalerrposition(position: c_int) -> c_int;
    pub fn FlushErrorState();
    /// Adds a callback.
    pub fn MemoryContextRegisterResetCallback(
        context: pg_sys::MemoryContext,
        callback: *mut pg_sys::MemoryContextCallback,
    );
    pub fn BufferUsageAccumDiff(
        dst: *mut pg_sys::BufferUsage,
        add: *const pg_sys::BufferUsage,
        sub: *const pg_sys::BufferUsage,
    );
    pub fn WalUsageAccumDiff(
        dst: *mut pg_sys::WalUsage,
        add: *const pg_sys::WalUsage,
        sub: *const pg_sys::WalUsage,
    );
    /// Returns the kind of a utility statement.
    pub fn CreateCommandTag(statement: *mut pg_sys::Node) -> pg_sys::CommandTag::Type;
    /// Closes a nest level of the settings.
    pub fn AtEOXact_GUC(is_commit: bool, nest_level: c_int);
    /// Returns a cursor, or null.
    pub fn GetPortalByName(name: *const c_char) -> pg_sys::Portal;
    pub fn LWLockRelease(lock: *mut pg_sys::LWLock);
    pub fn dshash_release_lock(table: *mut pg_sys::dshash_table, entry: *mut c_void);
    pub fn SetLatch(latch: *mut pg_sys::Latch);
}

declare! { "C-unwind":
    /// Raises an error if the stack is nearly full. Core calls this at a node's first call.
    pub fn check_stack_depth();
    /// Returns the newest active snapshot. Raises an error if there is none.
    pub fn GetActiveSnapshot() -> pg_sys::Snapshot;
    pub fn standard_ExecutorStart(query: *mut pg_sys::QueryDesc, eflags: c_int);
    pub fn standard_ExecutorFinish(query: *mut pg_sys::QueryDesc);
    pub fn standard_ExecutorEnd(query: *mut pg_sys::QueryDesc);
    pub fn standard_ProcessUtility(
        statement: *mut pg_sys::PlannedStmt,
        query_string: *const c_char,
        read_only_tree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        query_env: *mut pg_sys::QueryEnvironment,
        dest: *mut pg_sys::DestReceiver,
        qc: *mut pg_sys::QueryCompletion,
    );
    pub fn internalerrquery(query: *const c_char) -> c_int;
    pub fn CopyErrorData() -> *mut pg_sys::ErrorData;
    /// Returns a prepared statement, or null. Raises nothing if it must not.
    pub fn FetchPreparedStatement(name: *const c_char, must_exist: bool) -> *mut pg_sys::PreparedStatement;
    pub fn LWLockAcquire(lock: *mut pg_sys::LWLock, mode: pg_sys::LWLockMode::Type) -> bool;
    pub fn dshash_find(table: *mut pg_sys::dshash_table, key: *const c_void, exclusive: bool) -> *mut c_void;
    pub fn dsa_get_address(area: *mut pg_sys::dsa_area, pointer: pg_sys::dsa_pointer) -> *mut c_void;
    pub fn dshash_memcmp(a: *const c_void, b: *const c_void, size: usize, arg: *mut c_void) -> c_int;
    pub fn dshash_memhash(key: *const c_void, size: usize, arg: *mut c_void) -> u32;
    /// Returns a block in a pinned buffer. Raises PostgreSQL's errors.
    pub fn ReadBufferExtended(
        relation: pg_sys::Relation,
        fork: pg_sys::ForkNumber::Type,
        block: pg_sys::BlockNumber,
        mode: pg_sys::ReadBufferMode::Type,
        strategy: pg_sys::BufferAccessStrategy,
    ) -> pg_sys::Buffer;
    pub fn ReleaseBuffer(buffer: pg_sys::Buffer);
    /// Handlers of signals.
    pub fn SignalHandlerForConfigReload(signal: c_int, #[cfg(pg_ge_19)] info: *const pg_sys::pg_signal_info);
    pub fn die(signal: c_int, #[cfg(pg_ge_19)] info: *const pg_sys::pg_signal_info);
    pub fn SignalHandlerForShutdownRequest(signal: c_int, #[cfg(pg_ge_19)] info: *const pg_sys::pg_signal_info);
}

// pgrx has no binding for these functions, so their types are not checked.
unsafe extern "C-unwind" {
    pub fn pg_re_throw() -> !;
}
unsafe extern "C" {
    /// Arms and disarms a timeout. `STATEMENT_TIMEOUT` cancels what runs. These raise nothing: an error of
    /// the timer is FATAL.
    pub fn enable_timeout_after(id: c_int, delay_ms: c_int);
    pub fn disable_timeout(id: c_int, keep_indicator: bool);
    /// Returns when a timeout was last set, whether it is still active or not. Does nothing else.
    pub fn get_timeout_start_time(id: c_int) -> pg_sys::TimestampTz;
}

// From 18 on, pgrx's binding does not declare that it never returns, so only its argument is checked.
unsafe extern "C-unwind" {
    pub fn ReThrowError(error: *mut pg_sys::ErrorData) -> !;
}
const _: () = {
    let _: unsafe fn(*mut pg_sys::ErrorData) -> _ = pg_sys::ReThrowError;
};
