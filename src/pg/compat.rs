//! Every difference between PostgreSQL's major versions, as functions with one signature; the larger ones in the
//! folder beside.

pub mod executor_run;
pub mod explain_option;
pub mod expression;

use super::raw;
use pgrx::pg_sys;
use rowsource_core::clock;
use rowsource_core::figures::{Buffers, Wal};
use rowsource_core::tempfile::{FileType, Operation};
use std::ffi::CStr;

/// The first timeout id that an extension may register (`USER_TIMEOUT` of timeout.h).
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub const USER_TIMEOUT: i32 = 12;
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub const USER_TIMEOUT: i32 = 13;

/// What `PlanState.instrument` points to.
#[cfg(not(feature = "pg19"))]
pub type NodeInstrumentation = pg_sys::Instrumentation;
#[cfg(feature = "pg19")]
pub type NodeInstrumentation = pg_sys::NodeInstrumentation;

/// Its part that 19 shares with other instrumentation: what is measured, and time, buffers and WAL.
#[cfg(not(feature = "pg19"))]
pub fn base(instr: &mut NodeInstrumentation) -> &mut pg_sys::Instrumentation {
    instr
}
#[cfg(feature = "pg19")]
pub fn base(instr: &mut NodeInstrumentation) -> &mut pg_sys::Instrumentation {
    &mut instr.instr
}

const NS_PER_MS: f64 = 1e6;
#[cfg(not(feature = "pg19"))]
const NS_PER_S: f64 = 1e9;

/// Nanoseconds of one tick of core's own clock: 19 may count in ticks of the time stamp counter.
#[cfg(not(any(feature = "pg15", feature = "pg19")))]
fn core_tick_ns() -> f64 {
    1.0
}
#[cfg(feature = "pg19")]
fn core_tick_ns() -> f64 {
    const TICKS_TO_NS_SHIFT: u32 = 14;
    // SAFETY: a plain global, set before the first query.
    match unsafe { pg_sys::ticks_per_ns_scaled } {
        0 => 1.0,
        scaled => scaled as f64 / f64::from(1 << TICKS_TO_NS_SHIFT),
    }
}

/// Now by core's own clock, in nanoseconds.
#[cfg(not(feature = "pg19"))]
fn core_now_ns() -> f64 {
    clock::system::monotonic() as f64
}
#[cfg(feature = "pg19")]
fn core_now_ns() -> f64 {
    // SAFETY: a plain global.
    match unsafe { pg_sys::timing_tsc_enabled } {
        true => clock::tsc::read() as f64 * core_tick_ns(),
        false => clock::system::monotonic() as f64,
    }
}

/// An interval in nanoseconds.
#[cfg(feature = "pg15")]
fn instr_time_ns(t: pg_sys::instr_time) -> f64 {
    // Mostly zero, and there are many.
    if t.tv_sec | t.tv_nsec == 0 {
        return 0.0;
    }
    t.tv_sec as f64 * NS_PER_S + t.tv_nsec as f64
}
#[cfg(not(feature = "pg15"))]
fn instr_time_ns(t: pg_sys::instr_time) -> f64 {
    t.ticks as f64 * core_tick_ns()
}

#[cfg(feature = "pg15")]
fn instr_time_from_ns(ns: f64) -> pg_sys::instr_time {
    let seconds = (ns / NS_PER_S).floor();
    pg_sys::instr_time {
        tv_sec: seconds as i64,
        tv_nsec: (ns - seconds * NS_PER_S) as i64,
    }
}
#[cfg(not(feature = "pg15"))]
fn instr_time_from_ns(ns: f64) -> pg_sys::instr_time {
    pg_sys::instr_time {
        ticks: (ns / core_tick_ns()) as i64,
    }
}

/// The type of a node's total and startup times: seconds as a number, from 19 on an interval.
#[cfg(not(feature = "pg19"))]
fn total_ns(total: f64) -> f64 {
    total * NS_PER_S
}
#[cfg(feature = "pg19")]
fn total_ns(total: pg_sys::instr_time) -> f64 {
    instr_time_ns(total)
}
#[cfg(not(feature = "pg19"))]
fn total_from_ns(ns: f64) -> f64 {
    ns / NS_PER_S
}
#[cfg(feature = "pg19")]
fn total_from_ns(ns: f64) -> pg_sys::instr_time {
    instr_time_from_ns(ns)
}

/// Nanoseconds since the beginning of a call that core is timing now; after an error, of the interrupted one.
pub fn core_interrupted_ns(instr: &mut NodeInstrumentation) -> Option<f64> {
    let start = instr_time_ns(base(instr).starttime);
    (start > 0.0).then(|| (core_now_ns() - start).max(0.0))
}

/// Buffers and WAL since the beginning of a call of core's that an error interrupted.
pub fn core_interrupted_usage(instr: &mut NodeInstrumentation) -> (Buffers, Wal) {
    // SAFETY: PostgreSQL's own counters, written by this thread only.
    let (mut now, mut wal_now) =
        unsafe { (buffers(&{ pg_sys::pgBufferUsage }), wal(&{ pg_sys::pgWalUsage })) };
    now -= buffers(&base(instr).bufusage_start);
    wal_now -= wal(&base(instr).walusage_start);
    (now, wal_now)
}

/// Nanoseconds that core itself timed: finished cycles, and the one still running.
pub fn core_total_ns(instr: &mut NodeInstrumentation) -> f64 {
    let running = if instr.running {
        instr_time_ns(instr.counter)
    } else {
        0.0
    };
    total_ns(base(instr).total) + running
}

/// Nanoseconds to the first row as core timed it.
pub fn core_startup_ns(instr: &mut NodeInstrumentation) -> f64 {
    let running = if instr.running {
        total_ns(instr.firsttuple)
    } else {
        0.0
    };
    total_ns(instr.startup) + running
}

/// Writes a node's finished totals where EXPLAIN and the way back from parallel workers read them.
pub fn set_core_totals(
    instr: &mut NodeInstrumentation,
    total_ns: f64,
    startup_ns: f64,
    rows: f64,
    loops: f64,
) {
    instr.running = false;
    instr.counter = instr_time_from_ns(0.0);
    instr.firsttuple = total_from_ns(0.0);
    instr.tuplecount = 0.0;
    instr.startup = total_from_ns(startup_ns);
    instr.ntuples = rows;
    instr.nloops = loops;
    let base = base(instr);
    base.starttime = instr_time_from_ns(0.0);
    base.total = total_from_ns(total_ns);
}

/// The I/O times of a `BufferUsage`, in the order shared read, shared write, local read, local write, temp read,
/// temp write. Before 17 core counts those of temporary tables with the shared ones; where core does not time I/O, they
/// are only ours: see [`add_io_time`].
#[cfg(any(feature = "pg15", feature = "pg16"))]
fn io_times(u: &pg_sys::BufferUsage) -> [pg_sys::instr_time; 6] {
    let zero = instr_time_from_ns(0.0);
    let (shared, local) = match super::server::core_times_io() {
        true => ([u.blk_read_time, u.blk_write_time], [zero; 2]),
        false => ([zero; 2], [u.blk_read_time, u.blk_write_time]),
    };
    [
        shared[0],
        shared[1],
        local[0],
        local[1],
        u.temp_blk_read_time,
        u.temp_blk_write_time,
    ]
}
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
fn io_times(u: &pg_sys::BufferUsage) -> [pg_sys::instr_time; 6] {
    [
        u.shared_blk_read_time,
        u.shared_blk_write_time,
        u.local_blk_read_time,
        u.local_blk_write_time,
        u.temp_blk_read_time,
        u.temp_blk_write_time,
    ]
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
fn set_io_times(u: &mut pg_sys::BufferUsage, b: &Buffers) {
    u.blk_read_time = instr_time_from_ns((b.shared_read_ms + b.local_read_ms) * NS_PER_MS);
    u.blk_write_time = instr_time_from_ns((b.shared_write_ms + b.local_write_ms) * NS_PER_MS);
    u.temp_blk_read_time = instr_time_from_ns(b.temp_read_ms * NS_PER_MS);
    u.temp_blk_write_time = instr_time_from_ns(b.temp_write_ms * NS_PER_MS);
}
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
fn set_io_times(u: &mut pg_sys::BufferUsage, b: &Buffers) {
    u.shared_blk_read_time = instr_time_from_ns(b.shared_read_ms * NS_PER_MS);
    u.shared_blk_write_time = instr_time_from_ns(b.shared_write_ms * NS_PER_MS);
    u.local_blk_read_time = instr_time_from_ns(b.local_read_ms * NS_PER_MS);
    u.local_blk_write_time = instr_time_from_ns(b.local_write_ms * NS_PER_MS);
    u.temp_blk_read_time = instr_time_from_ns(b.temp_read_ms * NS_PER_MS);
    u.temp_blk_write_time = instr_time_from_ns(b.temp_write_ms * NS_PER_MS);
}

/// Adds the time of a request to a temporary file to core's counters, as core itself would if it timed I/O.
///
/// # Safety
/// `u` must be valid. Plain: nothing here raises.
#[inline(always)]
pub unsafe fn add_io_time(u: *mut pg_sys::BufferUsage, filetype: FileType, operation: Operation, ns: u64) {
    // SAFETY: `u` is valid by the caller's promise, and references to its fields are not made.
    unsafe {
        let time = match (filetype, operation) {
            (FileType::WorkFile, Operation::Read) => &raw mut (*u).temp_blk_read_time,
            (FileType::WorkFile, Operation::Write) => &raw mut (*u).temp_blk_write_time,
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            (FileType::TempTable, Operation::Read) => &raw mut (*u).blk_read_time,
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            (FileType::TempTable, Operation::Write) => &raw mut (*u).blk_write_time,
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            (FileType::TempTable, Operation::Read) => &raw mut (*u).local_blk_read_time,
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            (FileType::TempTable, Operation::Write) => &raw mut (*u).local_blk_write_time,
        };
        *time = instr_time_from_ns(instr_time_ns(*time) + ns as f64);
    }
}

/// Nanoseconds that core timed reads and writes of a kind of temporary files; zero where it does not tell them from
/// those of other files (temporary tables before 17).
pub fn temp_ns(u: &pg_sys::BufferUsage, filetype: FileType) -> [f64; 2] {
    match filetype {
        FileType::WorkFile => [u.temp_blk_read_time, u.temp_blk_write_time].map(instr_time_ns),
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        FileType::TempTable => [0.0; 2],
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        FileType::TempTable => [u.local_blk_read_time, u.local_blk_write_time].map(instr_time_ns),
    }
}

/// Whether temporary tables are read by other ways than system calls of the backend's own: with io_uring, from 18 on.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
#[inline(always)]
pub fn temp_tables_pass_by() -> bool {
    false
}
#[cfg(any(feature = "pg18", feature = "pg19"))]
#[inline(always)]
pub fn temp_tables_pass_by() -> bool {
    const IO_URING: i32 = 2;
    // SAFETY: a plain global, set at server start.
    unsafe { pg_sys::io_method == IO_URING }
}

/// The process that owns temporary tables of a database whose files bear this number; `None` where it has ended.
pub fn pid_of_temp_tables(number: i32, database: u32) -> Option<i32> {
    // SAFETY: null, or an entry of the array of processes, which stays in shared memory.
    let process = unsafe { process_of_temp_tables(number).as_ref() }?;
    (process.pid != 0 && process.databaseId.to_u32() == database).then_some(process.pid)
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
fn process_of_temp_tables(number: i32) -> *mut pg_sys::PGPROC {
    // SAFETY: null for a number that nobody has.
    unsafe { pg_sys::BackendIdGetProc(number) }
}
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
fn process_of_temp_tables(number: i32) -> *mut pg_sys::PGPROC {
    // SAFETY: null for a number that nobody has.
    unsafe { pg_sys::ProcNumberGetProc(number) }
}

pub fn buffers(u: &pg_sys::BufferUsage) -> Buffers {
    let reads = u.shared_blks_read | u.local_blks_read | u.temp_blks_read;
    let writes = u.shared_blks_written | u.local_blks_written | u.temp_blks_written;
    // Without I/O it took no time.
    let times = if reads | writes == 0 {
        [0.0; 6]
    } else {
        io_times(u).map(|t| instr_time_ns(t) / NS_PER_MS)
    };
    Buffers {
        shared_hit: u.shared_blks_hit,
        shared_read: u.shared_blks_read,
        shared_dirtied: u.shared_blks_dirtied,
        shared_written: u.shared_blks_written,
        local_hit: u.local_blks_hit,
        local_read: u.local_blks_read,
        local_dirtied: u.local_blks_dirtied,
        local_written: u.local_blks_written,
        temp_read: u.temp_blks_read,
        temp_written: u.temp_blks_written,
        shared_read_ms: times[0],
        shared_write_ms: times[1],
        local_read_ms: times[2],
        local_write_ms: times[3],
        temp_read_ms: times[4],
        temp_write_ms: times[5],
    }
}

pub fn set_buffers(u: &mut pg_sys::BufferUsage, b: &Buffers) {
    u.shared_blks_hit = b.shared_hit;
    u.shared_blks_read = b.shared_read;
    u.shared_blks_dirtied = b.shared_dirtied;
    u.shared_blks_written = b.shared_written;
    u.local_blks_hit = b.local_hit;
    u.local_blks_read = b.local_read;
    u.local_blks_dirtied = b.local_dirtied;
    u.local_blks_written = b.local_written;
    u.temp_blks_read = b.temp_read;
    u.temp_blks_written = b.temp_written;
    set_io_times(u, b);
}

pub fn wal(u: &pg_sys::WalUsage) -> Wal {
    Wal {
        records: u.wal_records,
        fpi: u.wal_fpi,
        bytes: u.wal_bytes,
    }
}

pub fn set_wal(u: &mut pg_sys::WalUsage, w: &Wal) {
    u.wal_records = w.records;
    u.wal_fpi = w.fpi;
    u.wal_bytes = w.bytes;
}

/// Memory for a setting's extra data, which PostgreSQL frees.
#[cfg(feature = "pg15")]
pub fn guc_malloc(size: usize) -> *mut std::ffi::c_void {
    // SAFETY: any size may be asked for. 15 frees it with free().
    unsafe { libc::malloc(size) }
}
#[cfg(not(feature = "pg15"))]
pub fn guc_malloc(size: usize) -> *mut std::ffi::c_void {
    // SAFETY: 16 and newer have their own memory context for settings.
    unsafe { pg_sys::guc_malloc(pg_sys::LOG as i32, size) }
}

#[cfg(feature = "pg15")]
pub const MAJOR_VERSION: u32 = 15;
#[cfg(feature = "pg16")]
pub const MAJOR_VERSION: u32 = 16;
#[cfg(feature = "pg17")]
pub const MAJOR_VERSION: u32 = 17;
#[cfg(feature = "pg18")]
pub const MAJOR_VERSION: u32 = 18;
#[cfg(feature = "pg19")]
pub const MAJOR_VERSION: u32 = 19;

/// A number for our locks; from 19 on their name goes with it.
#[cfg(not(feature = "pg19"))]
pub fn new_tranche(_name: &'static CStr) -> i32 {
    // SAFETY: no arguments.
    unsafe { pg_sys::LWLockNewTrancheId() }
}
#[cfg(feature = "pg19")]
pub fn new_tranche(name: &'static CStr) -> i32 {
    // SAFETY: a static C string, which PostgreSQL copies.
    unsafe { pg_sys::LWLockNewTrancheId(name.as_ptr()) }
}

/// Tells this backend the name of our locks.
#[cfg(not(feature = "pg19"))]
pub fn register_tranche(tranche: i32, name: &'static CStr) {
    // SAFETY: the name is static, so PostgreSQL may keep its address.
    unsafe { pg_sys::LWLockRegisterTranche(tranche, name.as_ptr()) }
}
#[cfg(feature = "pg19")]
pub fn register_tranche(_tranche: i32, _name: &'static CStr) {}

/// Makes an area of dynamic shared memory. From 17 on the segments' sizes are arguments; these are its own defaults.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn dsa_create(tranche: i32) -> *mut pg_sys::dsa_area {
    // SAFETY: a tranche is a number that locks bear; any is allowed. An error leaves nothing behind.
    unsafe { pg_sys::dsa_create(tranche) }
}
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn dsa_create(tranche: i32) -> *mut pg_sys::dsa_area {
    const INITIAL: usize = 1 << 20;
    const LARGEST: usize = 1 << 40;
    // SAFETY: a tranche is a number that locks bear; any is allowed. An error leaves nothing behind.
    unsafe { pg_sys::dsa_create_ext(tranche, INITIAL, LARGEST) }
}

/// Whether the server hands out shared memory by name, to libraries that it did not preload.
pub const HAS_REGISTRY: bool = cfg!(not(any(feature = "pg15", feature = "pg16")));

/// What begins a block that the registry has just made.
pub type BeginBlock = unsafe extern "C-unwind" fn(*mut std::ffi::c_void);

/// A block of shared memory by its name; who is first makes it, and begins it.
///
/// # Safety
/// * Inside a transaction or at the start of one, not inside a boundary: it may raise.
/// * `begin` must be sound to call with a new block of `size` bytes.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn registered(_name: &CStr, _size: usize, _begin: BeginBlock) -> *mut std::ffi::c_void {
    std::ptr::null_mut()
}
/// # Safety
/// * Inside a transaction or at the start of one, not inside a boundary: it may raise.
/// * `begin` must be sound to call with a new block of `size` bytes.
#[cfg(any(feature = "pg17", feature = "pg18"))]
pub unsafe fn registered(name: &CStr, size: usize, begin: BeginBlock) -> *mut std::ffi::c_void {
    let mut found = false;
    // SAFETY: a valid name; in a backend, outside of any boundary.
    unsafe { pg_sys::GetNamedDSMSegment(name.as_ptr(), size, Some(begin), &mut found) }
}
/// # Safety
/// * Inside a transaction or at the start of one, not inside a boundary: it may raise.
/// * `begin` must be sound to call with a new block of `size` bytes.
#[cfg(feature = "pg19")]
pub unsafe fn registered(name: &CStr, size: usize, begin: BeginBlock) -> *mut std::ffi::c_void {
    /// # Safety
    /// To be called by the registry only, with the address of a [`BeginBlock`] as `begin` and a new block that it may
    /// begin.
    unsafe extern "C-unwind" fn begin_as(block: *mut std::ffi::c_void, begin: *mut std::ffi::c_void) {
        // SAFETY: the address of the variable below, while it lives.
        unsafe { (*begin.cast::<BeginBlock>())(block) }
    }
    let (mut found, mut begin) = (false, begin);
    // SAFETY: a valid name; in a backend, outside of any boundary.
    unsafe {
        let argument = (&raw mut begin).cast();
        pg_sys::GetNamedDSMSegment(name.as_ptr(), size, Some(begin_as), &mut found, argument)
    }
}

/// A table whose keys are compared byte by byte.
pub fn dshash_parameters(key_size: usize, entry_size: usize, tranche: i32) -> pg_sys::dshash_parameters {
    pg_sys::dshash_parameters {
        key_size,
        entry_size,
        compare_function: Some(raw::dshash_memcmp),
        hash_function: Some(raw::dshash_memhash),
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        copy_function: Some(raw::dshash_memcpy),
        tranche_id: tranche,
    }
}

/// Finds or makes an entry, whose partition is locked exclusively then.
///
/// # Safety
/// * `table` must be attached, and this process must hold none of its partition locks.
/// * `key` must point to a key of the table.
/// * The entry must be released with `dshash_release_lock`.
#[cfg(not(feature = "pg19"))]
pub unsafe fn dshash_find_or_insert(
    table: *mut pg_sys::dshash_table,
    key: *const std::ffi::c_void,
    found: &mut bool,
) -> *mut std::ffi::c_void {
    // SAFETY: the caller's table is attached, its key is one of that table, and no partition lock is held.
    unsafe { pg_sys::dshash_find_or_insert(table, key, found) }
}
/// # Safety
/// * `table` must be attached, and this process must hold none of its partition locks.
/// * `key` must point to a key of the table.
/// * The entry must be released with `dshash_release_lock`.
#[cfg(feature = "pg19")]
pub unsafe fn dshash_find_or_insert(
    table: *mut pg_sys::dshash_table,
    key: *const std::ffi::c_void,
    found: &mut bool,
) -> *mut std::ffi::c_void {
    // SAFETY: the caller's table is attached, its key is one of that table, and no partition lock is held.
    unsafe { pg_sys::dshash_find_or_insert_extended(table, key, found, 0) }
}

/// The number of a statement's text.
#[cfg(not(any(feature = "pg18", feature = "pg19")))]
pub fn query_id(statement: &pg_sys::PlannedStmt) -> i64 {
    statement.queryId as i64
}
#[cfg(any(feature = "pg18", feature = "pg19"))]
pub fn query_id(statement: &pg_sys::PlannedStmt) -> i64 {
    statement.queryId
}

/// The number of a plan, where core or another extension gave it one; 0: none.
#[cfg(not(any(feature = "pg18", feature = "pg19")))]
pub fn plan_id(_statement: &pg_sys::PlannedStmt) -> i64 {
    0
}
#[cfg(any(feature = "pg18", feature = "pg19"))]
pub fn plan_id(statement: &pg_sys::PlannedStmt) -> i64 {
    statement.planId
}

/// Whether the server was told to time by the system's clock.
#[cfg(not(feature = "pg19"))]
pub fn system_clock_wanted() -> bool {
    false
}
#[cfg(feature = "pg19")]
pub fn system_clock_wanted() -> bool {
    // SAFETY: the variable of a setting.
    let chosen = unsafe { pg_sys::timing_clock_source };
    chosen == pg_sys::TimingClockSourceType::TIMING_CLOCK_SOURCE_SYSTEM as i32
}
