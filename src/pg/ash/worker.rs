//! The background worker: how it is started, and its main loop.
//!
//! It has no database, as PostgreSQL's launcher of logical replication has none, so it is no obstacle for
//! DROP DATABASE. It is in pg_stat_activity, because from there it finds the entries of the others. While the
//! sampling frequency is 0, it only makes beats, and while the library is turned off, it sleeps. When the
//! server stops, it saves the plans of the store.

use super::excluded::Excluded;
use super::file;
use super::heart::Heart;
use super::judge::Judge;
use super::memory;
use super::process::background_worker;
use super::sampler::Sampler;
use super::snapshots::Schedule;
use crate::guc;
use crate::pg::border::unguarded::{SignalHandlerForConfigReload, SignalHandlerForShutdownRequest};
use crate::pg::server::switch;
use crate::pg::{compat, server, store};
use pgrx::{pg_guard, pg_sys};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::ash::Moments;
use rowsource_core::clock::system::monotonic;
use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

const NAME: &CStr = c"pg_rowsource history";
/// The name of [`pg_rowsource_history_main`].
const FUNCTION: &CStr = c"pg_rowsource_history_main";
/// If at least this number of microseconds is left, the worker waits with the resolution of the system.
const MAX_NAP_US: i64 = 5_000;
/// After how many seconds PostgreSQL starts it again, if it has ended.
const RESTART_AFTER_S: i32 = 5;

/// Why there is no worker.
pub enum Missing {
    /// The processes share no memory: the library was not preloaded, and the server is too old to share
    /// memory without that, or there is no room for it.
    Memory,
    /// PostgreSQL has no place for another background worker.
    NoPlace,
    /// It was started, and ended at once. The server's log says why.
    Ended,
}

/// Returns the description of the worker.
fn description() -> pg_sys::BackgroundWorker {
    let mut worker = background_worker(NAME, FUNCTION);
    worker.bgw_start_time = pg_sys::BgWorkerStartTime::BgWorkerStart_ConsistentState;
    worker.bgw_restart_time = RESTART_AFTER_S;
    worker
}

/// Sets up the memory and registers the worker, if the server preloads the library. Only `_PG_init` may call
/// this.
pub fn init() {
    if !server::preloading() {
        return;
    }
    memory::init();
    file::init();
    if !server::is_upgrading() {
        // SAFETY: the server is loading libraries, which may register workers then. PostgreSQL copies the
        // description.
        unsafe { pg_sys::RegisterBackgroundWorker(&mut description()) }
    }
}

/// Returns the pid of the worker that samples, if there is one.
pub fn pid() -> Option<i32> {
    let pid = store::shared_history()?.worker.pid();
    (pid != 0 && server::is_alive(pid)).then_some(pid)
}

/// Starts the worker, if the server has not preloaded the library. Returns its pid, or that of the one that
/// runs.
///
/// # Errors
/// Raises an error if the user cancels this.
pub fn start() -> Result<i32, Missing> {
    if let Some(pid) = pid() {
        return Ok(pid);
    }
    if memory::is_main() {
        return Err(Missing::Ended);
    }
    if store::shared_history().is_none() {
        return Err(Missing::Memory);
    }
    let mut worker = description();
    worker.bgw_notify_pid = server::pid();
    let mut handle = std::ptr::null_mut();
    let mut pid = 0;
    // SAFETY: an SQL function calls this, outside of any boundary. PostgreSQL copies the description.
    unsafe {
        if !pg_sys::RegisterDynamicBackgroundWorker(&mut worker, &mut handle) {
            return Err(Missing::NoPlace);
        }
        let status = pg_sys::WaitForBackgroundWorkerStartup(handle, &mut pid);
        if status != pg_sys::BgwHandleStatus::BGWH_STARTED {
            // Another session may have started one at the same time.
            return self::pid().ok_or(Missing::Ended);
        }
    }
    // It has started when it has its ring.
    while self::pid().is_none() || memory::ring().is_none() {
        server::check_for_interrupts();
        if !server::is_alive(pid) {
            return self::pid().ok_or(Missing::Ended);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    self::pid().ok_or(Missing::Ended)
}

/// Returns microseconds of a clock that never steps back.
fn now() -> i64 {
    (monotonic() / 1000) as i64
}

/// The worker's main function. PostgreSQL reports an error of it, and starts the worker again after some
/// seconds.
///
/// # Safety
/// Only PostgreSQL may call this, as the main function of a background worker.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_rowsource_history_main(_argument: pg_sys::Datum) {
    // SAFETY: PostgreSQL has just started this background worker, with its signals blocked. It may connect to
    // no database.
    unsafe {
        compat::handle_signal(libc::SIGHUP, Some(SignalHandlerForConfigReload));
        compat::handle_signal(libc::SIGTERM, Some(SignalHandlerForShutdownRequest));
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
    }
    store::worker_arrives();
    let end = run();
    store::worker_leaves();
    // PostgreSQL starts a worker again that ended with 1, and forgets one that ended with 0. Who started this
    // one can start another.
    let is_final = end == End::Useless && !memory::is_main();
    // SAFETY: the worker holds nothing.
    unsafe { pg_sys::proc_exit(i32::from(!is_final)) }
}

/// Why the worker ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It was told to.
    Told,
    /// Another worker writes to the ring, or there is no memory.
    Useless,
}

/// Samples until the worker is told to end.
fn run() -> End {
    let Some(history) = store::shared_history() else {
        return End::Useless;
    };
    // Only one process may write to the ring.
    let Some(_guard) = history.worker.hold_or_inherit(server::pid(), server::is_alive) else {
        return End::Useless;
    };
    let ring = memory::ring_or_new().inspect(file::begin);
    let Some(mut sampler) = ring.and_then(|ring| Sampler::new(ring, now())) else {
        server::log_alone("pg_rowsource has no memory for the active session history");
        return End::Useless;
    };
    history.number.store(server::process_number(), Relaxed);
    let mut heart = Heart::new(history);
    let mut snapshots = Schedule::new();
    let mut judge = Judge::new(history, now());
    let mut excluded = Excluded::default();
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(monotonic());
    // The frequency, the moments, and the next of these.
    let mut plan: Option<(u32, Moments, i64)> = None;
    loop {
        let frequency = guc::history_frequency().filter(|_| switch::is_on());
        if plan.map(|(frequency, ..)| frequency) != frequency {
            plan = frequency.map(|frequency| {
                let mut moments = Moments::new(frequency, now());
                let next = moments.next(now(), random.next_u64());
                (frequency, moments, next)
            });
            if plan.is_none() {
                sampler.pause(&mut random);
            }
        }
        // When it is turned on again, a signal comes.
        let beat_at = Some(heart.beat(now(), &mut random)).filter(|_| switch::is_on());
        let sample_at = plan.map(|(.., next)| next);
        let snapshot_at = snapshots.tick(now());
        let judge_at = Some(judge.tick(now())).filter(|_| switch::is_on());
        let next = [beat_at, sample_at, snapshot_at, judge_at];
        if !wait_until(next.into_iter().flatten().min()) {
            sampler.pause(&mut random);
            return End::Told;
        }
        if let Some((_, moments, next)) = &mut plan
            && now() >= *next
        {
            excluded.refresh(now());
            sampler.sample(now(), &excluded, &mut random);
            *next = moments.next(now(), random.next_u64());
        }
    }
}

/// Sleeps until a time, or until a signal comes. PostgreSQL's own function has a resolution of a millisecond,
/// and beats must come at random times. The worker is not woken up for others meanwhile.
fn nap_until(time: i64) {
    let us = (time - now()).clamp(0, MAX_NAP_US);
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: us * 1000,
    };
    // SAFETY: the wait event is this process's own, and PostgreSQL keeps its address valid. The time is a
    // valid one.
    unsafe {
        pg_sys::my_wait_event_info.write_volatile(pg_sys::PG_WAIT_EXTENSION);
        libc::nanosleep(&raw const time, std::ptr::null_mut());
        pg_sys::my_wait_event_info.write_volatile(0);
    }
}

/// Waits until a time, or until something happens. `None` waits for the latter only. Returns false if the
/// worker must end.
fn wait_until(time: Option<i64>) -> bool {
    if let Some(time) = time
        && time - now() <= MAX_NAP_US
    {
        nap_until(time);
    }
    let mut events = pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH;
    let mut timeout = -1;
    if let Some(time) = time {
        events |= pg_sys::WL_TIMEOUT;
        timeout = (time - now()).max(0).saturating_add(999) / 1000;
    }
    // SAFETY: these are globals of this process, and functions that any background worker may call outside of
    // any boundary. Its latch stays valid. An error ends the worker.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, timeout, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::ResetLatch(pg_sys::MyLatch);
        server::check_for_interrupts();
        // First, because `pg_rowsource.save` may have changed.
        if (&raw const pg_sys::ConfigReloadPending).read_volatile() != 0 {
            (&raw mut pg_sys::ConfigReloadPending).write_volatile(0);
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
        (&raw const pg_sys::ShutdownRequestPending).read_volatile() == 0
    }
}
