//! Reads and writes core's counters and times of a node, whose fields and units differ by version.

use super::counters::{buffers_now, wal_now};
use crate::pg::handles::counted;
use pgrx::pg_sys;
use rowsource_core::clock;
use rowsource_core::model::{Buffers, Wal};
use rowsource_core::tempfile::{FileType, Operation};

/// The type of `*PlanState.instrument`.
#[cfg(pg_ge_19)]
pub type NodeInstrumentation = pg_sys::NodeInstrumentation;
#[cfg(not(pg_ge_19))]
pub type NodeInstrumentation = pg_sys::Instrumentation;

/// Returns the part with the options, time, buffers and WAL. From 19 on, this is a struct of its own.
#[cfg(pg_ge_19)]
#[inline(always)]
pub fn common_instrumentation(instr: &mut NodeInstrumentation) -> &mut pg_sys::Instrumentation {
    &mut instr.instr
}
#[cfg(not(pg_ge_19))]
#[inline(always)]
pub fn common_instrumentation(instr: &mut NodeInstrumentation) -> &mut pg_sys::Instrumentation {
    instr
}

/// Has core add blocks and WAL where it adds counts of a node to these.
pub fn measure_usage(instr: &mut NodeInstrumentation) {
    let base = common_instrumentation(instr);
    (base.need_bufusage, base.need_walusage) = (true, true);
}

#[cfg(pg_ge_19)]
type WorkerInstrumentation = pg_sys::WorkerNodeInstrumentation;
#[cfg(not(pg_ge_19))]
type WorkerInstrumentation = pg_sys::WorkerInstrumentation;

counted! {
    #[cfg(pg_ge_19)]
    WorkerNodeInstrumentation: instrument, NodeInstrumentation;
    #[cfg(not(pg_ge_19))]
    WorkerInstrumentation: instrument, Instrumentation;
}

/// Returns where core keeps the parts of so many workers, and makes room if there is none. Returns `None` if
/// there is no memory.
///
/// # Safety
/// The plan state and its query's memory context must be live.
pub unsafe fn worker_parts<'a>(
    ps: *mut pg_sys::PlanState,
    workers: usize,
) -> Option<&'a mut [NodeInstrumentation]> {
    // SAFETY: both are live by the caller's promise. What core has put there has as many entries as it says.
    // Zero bytes are valid.
    unsafe {
        if (*ps).worker_instrument.is_null() {
            let bytes = size_of::<WorkerInstrumentation>() + workers * size_of::<NodeInstrumentation>();
            let flags = pg_sys::MCXT_ALLOC_NO_OOM | pg_sys::MCXT_ALLOC_ZERO;
            let context = (*(*ps).state).es_query_cxt;
            let made: *mut WorkerInstrumentation =
                pg_sys::MemoryContextAllocExtended(context, bytes, flags as i32).cast();
            made.as_mut()?.num_workers = workers as i32;
            (*ps).worker_instrument = made;
        }
        let all = &mut *(*ps).worker_instrument;
        (all.num_workers == workers as i32).then(|| all.instrument.as_mut_slice(workers))
    }
}

/// Clears the counts of an execution. Core charges blocks and WAL to a node only where it is told to, so they
/// are cleared only there. Else the root of a subplan keeps the counters at entry there, which are read only
/// in the call that wrote them.
///
/// # Safety
/// `instr` must be live, and no reference to it may exist.
#[cfg(not(pg_ge_19))]
#[inline(always)]
pub unsafe fn reset_instrumentation(instr: *mut NodeInstrumentation) {
    const STARTED: usize = std::mem::offset_of!(NodeInstrumentation, bufusage_start);
    const SUMS: usize = std::mem::offset_of!(NodeInstrumentation, startup);
    const USED: usize = std::mem::offset_of!(NodeInstrumentation, bufusage);
    // Nothing else lies between or behind the parts that stay.
    const USAGE: usize = size_of::<pg_sys::BufferUsage>() + size_of::<pg_sys::WalUsage>();
    const _: () = assert!(STARTED + USAGE == SUMS && USED + USAGE == size_of::<NodeInstrumentation>());
    // SAFETY: the struct is live and nobody else uses it, by the caller's promise. Zero bytes are a valid
    // value.
    unsafe {
        if (*instr).need_bufusage || (*instr).need_walusage {
            return instr.write_bytes(0, 1);
        }
        let bytes = instr.cast::<u8>();
        bytes.write_bytes(0, STARTED);
        bytes.add(SUMS).write_bytes(0, USED - SUMS);
    }
}
/// Clears the counts of an execution.
///
/// # Safety
/// `instr` must be live, and no reference to it may exist.
#[cfg(pg_ge_19)]
#[inline(always)]
pub unsafe fn reset_instrumentation(instr: *mut NodeInstrumentation) {
    // SAFETY: the struct is live and nobody else uses it, by the caller's promise. Zero bytes are a valid
    // value.
    unsafe { instr.write_bytes(0, 1) };
}

const NS_PER_MS: f64 = 1e6;
#[cfg(not(pg_ge_19))]
const NS_PER_S: f64 = 1e9;

/// Returns the nanoseconds of one tick of core's own clock: 19 may count in ticks of the time stamp counter.
#[cfg(pg_ge_19)]
fn core_tick_ns() -> f64 {
    match super::globals::GLOBALS.ticks_per_ns_scaled.get() {
        0 => 1.0,
        scaled => scaled as f64 / f64::from(1 << pg_sys::TICKS_TO_NS_SHIFT),
    }
}
#[cfg(all(pg_ge_16, not(pg_ge_19)))]
fn core_tick_ns() -> f64 {
    1.0
}

/// Returns the current time of core's own clock, in nanoseconds.
#[cfg(pg_ge_19)]
fn core_now_ns() -> f64 {
    match super::globals::GLOBALS.timing_tsc_enabled.get() {
        true => clock::tsc::read() as f64 * core_tick_ns(),
        false => clock::system::monotonic() as f64,
    }
}
#[cfg(not(pg_ge_19))]
fn core_now_ns() -> f64 {
    clock::system::monotonic() as f64
}

#[cfg(pg_ge_19)]
type TriggerInstrumentation = pg_sys::TriggerInstrumentation;
#[cfg(not(pg_ge_19))]
type TriggerInstrumentation = pg_sys::Instrumentation;

/// Allocates instrumentation for triggers in the current memory context. Raises "out of memory".
pub fn alloc_trigger_instrumentation(count: i32, options: i32) -> *mut TriggerInstrumentation {
    // SAFETY: it may be called in any memory context.
    unsafe {
        #[cfg(pg_ge_19)]
        return pg_sys::InstrAllocTrigger(count, options);
        #[cfg(not(pg_ge_19))]
        return pg_sys::InstrAlloc(count, options, false);
    }
}

/// Returns how often a trigger was called, and the nanoseconds of that.
#[cfg(pg_ge_19)]
pub fn trigger_calls(instr: &mut pg_sys::TriggerInstrumentation) -> (u64, f64) {
    (instr.firings.max(0) as u64, instr_time_ns(instr.instr.total))
}
#[cfg(not(pg_ge_19))]
pub fn trigger_calls(instr: &mut pg_sys::Instrumentation) -> (u64, f64) {
    (
        (instr.ntuples + instr.tuplecount) as i64 as u64,
        core_total_ns(instr),
    )
}

/// Returns an interval in nanoseconds.
#[cfg(pg_ge_16)]
pub fn instr_time_ns(t: pg_sys::instr_time) -> f64 {
    t.ticks as f64 * core_tick_ns()
}
#[cfg(not(pg_ge_16))]
pub fn instr_time_ns(t: pg_sys::instr_time) -> f64 {
    // Most intervals are zero, so this saves time.
    if t.tv_sec | t.tv_nsec == 0 {
        return 0.0;
    }
    t.tv_sec as f64 * NS_PER_S + t.tv_nsec as f64
}

/// Returns the nanoseconds of generating code that reads the columns of rows; 0 before 17, which does not
/// time that by itself.
#[cfg(pg_ge_17)]
pub fn jit_deform_ns(instr: &pg_sys::JitInstrumentation) -> f64 {
    instr_time_ns(instr.deform_counter)
}
#[cfg(not(pg_ge_17))]
pub fn jit_deform_ns(_instr: &pg_sys::JitInstrumentation) -> f64 {
    0.0
}

#[cfg(pg_ge_16)]
fn instr_time_from_ns(ns: f64) -> pg_sys::instr_time {
    pg_sys::instr_time {
        ticks: (ns / core_tick_ns()) as i64,
    }
}
#[cfg(not(pg_ge_16))]
fn instr_time_from_ns(ns: f64) -> pg_sys::instr_time {
    let seconds = (ns / NS_PER_S).floor();
    pg_sys::instr_time {
        tv_sec: seconds as i64,
        tv_nsec: (ns - seconds * NS_PER_S) as i64,
    }
}

/// Returns a node's total or startup time in nanoseconds. Core stores it as an interval from 19 on, and as
/// seconds before.
#[cfg(pg_ge_19)]
fn total_ns(total: pg_sys::instr_time) -> f64 {
    instr_time_ns(total)
}
#[cfg(not(pg_ge_19))]
fn total_ns(total: f64) -> f64 {
    total * NS_PER_S
}

#[cfg(pg_ge_19)]
fn total_from_ns(ns: f64) -> pg_sys::instr_time {
    instr_time_from_ns(ns)
}
#[cfg(not(pg_ge_19))]
fn total_from_ns(ns: f64) -> f64 {
    ns / NS_PER_S
}

/// Returns the nanoseconds since the beginning of the call that core is timing. After an error, this is the
/// interrupted call.
pub fn core_interrupted_ns(instr: &mut NodeInstrumentation) -> Option<f64> {
    let start = instr_time_ns(common_instrumentation(instr).starttime);
    (start > 0.0).then(|| (core_now_ns() - start).max(0.0))
}

/// Returns whether core is timing a call now. It is a plain frame.
#[inline(always)]
pub fn is_timing(instr: &NodeInstrumentation) -> bool {
    #[cfg(pg_ge_19)]
    let start = instr.instr.starttime;
    #[cfg(not(pg_ge_19))]
    let start = instr.starttime;
    #[cfg(pg_ge_16)]
    let is_timing = start.ticks != 0;
    #[cfg(not(pg_ge_16))]
    let is_timing = start.tv_sec | start.tv_nsec != 0;
    is_timing
}

/// Returns whether core itself has called a node for a row, or does so now. Core also times how it shuts a
/// node down, but only if the node has been called before. So that is never its first call.
pub fn is_called_by_core(instr: &mut NodeInstrumentation) -> bool {
    core_startup_ns(instr) > 0.0 || !instr.running && is_timing(instr)
}

/// Returns the buffers and WAL that were used since the beginning of the call that core measures.
pub fn core_interrupted_usage(instr: &mut NodeInstrumentation) -> (Buffers, Wal) {
    let (mut now, mut wal_now) = (buffers(&buffers_now()), wal(&wal_now()));
    now -= buffers(&common_instrumentation(instr).bufusage_start);
    wal_now -= wal(&common_instrumentation(instr).walusage_start);
    (now, wal_now)
}

/// Takes blocks and WAL from what core counted in its own calls of a node. In the call that an error
/// interrupted, core has not counted yet: then its counts may be negative until [`core_interrupted_usage`] is
/// added.
pub fn uncount(instr: &mut NodeInstrumentation, counted: &Buffers, wal_counted: &Wal) {
    let core = common_instrumentation(instr);
    let (mut blocks, mut records) = (buffers(&core.bufusage), wal(&core.walusage));
    blocks -= *counted;
    records -= *wal_counted;
    set_buffers(&mut core.bufusage, &blocks);
    set_wal(&mut core.walusage, &records);
}

/// Returns the nanoseconds that core itself timed: finished cycles and the running one.
pub fn core_total_ns(instr: &mut NodeInstrumentation) -> f64 {
    let running = if instr.running {
        instr_time_ns(instr.counter)
    } else {
        0.0
    };
    total_ns(common_instrumentation(instr).total) + running
}

/// Returns the nanoseconds to the first row, as core timed them.
pub fn core_startup_ns(instr: &mut NodeInstrumentation) -> f64 {
    let running = if instr.running {
        total_ns(instr.firsttuple)
    } else {
        0.0
    };
    total_ns(instr.startup) + running
}

/// Writes a node's final totals to the fields that EXPLAIN and a parallel leader read.
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
    let base = common_instrumentation(instr);
    base.starttime = instr_time_from_ns(0.0);
    base.total = total_from_ns(total_ns);
}

/// Returns the I/O times of a `BufferUsage`, in the order shared read, shared write, local read, local write,
/// temp read, temp write.
#[cfg(pg_ge_17)]
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
/// Returns the same. Before 17 core adds the I/O times of temporary tables to the shared ones. If core does
/// not time I/O, all these times come from the extension and belong to temporary tables: see [`add_io_time`].
#[cfg(not(pg_ge_17))]
fn io_times(u: &pg_sys::BufferUsage) -> [pg_sys::instr_time; 6] {
    let zero = instr_time_from_ns(0.0);
    let (shared, local) = match crate::pg::border::globals::GLOBALS.track_io_timing.get() {
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

#[cfg(pg_ge_17)]
fn set_io_times(u: &mut pg_sys::BufferUsage, b: &Buffers) {
    u.shared_blk_read_time = instr_time_from_ns(b.shared_read_ms * NS_PER_MS);
    u.shared_blk_write_time = instr_time_from_ns(b.shared_write_ms * NS_PER_MS);
    u.local_blk_read_time = instr_time_from_ns(b.local_read_ms * NS_PER_MS);
    u.local_blk_write_time = instr_time_from_ns(b.local_write_ms * NS_PER_MS);
    u.temp_blk_read_time = instr_time_from_ns(b.temp_read_ms * NS_PER_MS);
    u.temp_blk_write_time = instr_time_from_ns(b.temp_write_ms * NS_PER_MS);
}
#[cfg(not(pg_ge_17))]
fn set_io_times(u: &mut pg_sys::BufferUsage, b: &Buffers) {
    u.blk_read_time = instr_time_from_ns((b.shared_read_ms + b.local_read_ms) * NS_PER_MS);
    u.blk_write_time = instr_time_from_ns((b.shared_write_ms + b.local_write_ms) * NS_PER_MS);
    u.temp_blk_read_time = instr_time_from_ns(b.temp_read_ms * NS_PER_MS);
    u.temp_blk_write_time = instr_time_from_ns(b.temp_write_ms * NS_PER_MS);
}

/// Adds the time of a request to a temporary file to core's counters, as core does if it times I/O. It is a
/// plain frame, and nothing in it raises.
///
/// # Safety
/// `u` must be valid, and no other thread may use it.
#[inline(always)]
pub unsafe fn add_io_time(u: *mut pg_sys::BufferUsage, filetype: FileType, operation: Operation, ns: u64) {
    // SAFETY: `u` is valid, and no other thread uses it, by the caller's promise.
    unsafe {
        let time = match (filetype, operation) {
            (FileType::WorkFile, Operation::Read) => &raw mut (*u).temp_blk_read_time,
            (FileType::WorkFile, Operation::Write) => &raw mut (*u).temp_blk_write_time,
            #[cfg(pg_ge_17)]
            (FileType::TempTable, Operation::Read) => &raw mut (*u).local_blk_read_time,
            #[cfg(pg_ge_17)]
            (FileType::TempTable, Operation::Write) => &raw mut (*u).local_blk_write_time,
            #[cfg(not(pg_ge_17))]
            (FileType::TempTable, Operation::Read) => &raw mut (*u).blk_read_time,
            #[cfg(not(pg_ge_17))]
            (FileType::TempTable, Operation::Write) => &raw mut (*u).blk_write_time,
        };
        *time = instr_time_from_ns(instr_time_ns(*time) + ns as f64);
    }
}

/// Returns the nanoseconds of core's reads and writes of a type of temporary files. They are zero if core
/// does not time these files separately (temporary tables before 17).
pub fn temp_ns(u: &pg_sys::BufferUsage, filetype: FileType) -> [f64; 2] {
    match filetype {
        FileType::WorkFile => [u.temp_blk_read_time, u.temp_blk_write_time].map(instr_time_ns),
        #[cfg(pg_ge_17)]
        FileType::TempTable => [u.local_blk_read_time, u.local_blk_write_time].map(instr_time_ns),
        #[cfg(not(pg_ge_17))]
        FileType::TempTable => [0.0; 2],
    }
}

/// Returns core's counters of blocks.
pub fn buffers(u: &pg_sys::BufferUsage) -> Buffers {
    let reads = u.shared_blks_read | u.local_blks_read | u.temp_blks_read;
    let writes = u.shared_blks_written | u.local_blks_written | u.temp_blks_written;
    // Without I/O there are no times.
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

/// Sets core's counters of blocks.
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

/// Returns core's counters of WAL.
pub fn wal(u: &pg_sys::WalUsage) -> Wal {
    Wal {
        records: u.wal_records,
        fpi: u.wal_fpi,
        bytes: u.wal_bytes,
        #[cfg(pg_ge_19)]
        fpi_bytes: u.wal_fpi_bytes,
        #[cfg(not(pg_ge_19))]
        fpi_bytes: 0,
        #[cfg(pg_ge_18)]
        buffers_full: u.wal_buffers_full,
        #[cfg(not(pg_ge_18))]
        buffers_full: 0,
    }
}

/// Sets core's counters of WAL.
pub fn set_wal(u: &mut pg_sys::WalUsage, w: &Wal) {
    u.wal_records = w.records;
    u.wal_fpi = w.fpi;
    u.wal_bytes = w.bytes;
    #[cfg(pg_ge_19)]
    {
        u.wal_fpi_bytes = w.fpi_bytes;
    }
    #[cfg(pg_ge_18)]
    {
        u.wal_buffers_full = w.buffers_full;
    }
}

/// Cleans up the buffer manager after an error, as the abort of a subtransaction does. From 16 on, resource
/// owners do this for reads and writes in progress.
///
/// # Safety
/// An error must have been caught just before.
pub unsafe fn abort_io() {
    // SAFETY: an error was caught, by the caller's promise. The functions do nothing if nothing is in
    // progress.
    unsafe {
        #[cfg(pg_ge_18)]
        pg_sys::pgaio_error_cleanup();
        #[cfg(not(pg_ge_16))]
        pg_sys::AbortBufferIO();
        pg_sys::UnlockBuffers();
    }
}
