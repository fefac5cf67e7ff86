//! Takes the samples.

use super::blockers::{self, Blockers};
use crate::pg::border::shared::load;
use crate::pg::live::{Areas, Glance};
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::waits::lasting::lasting;
use crate::pg::waits::slots;
use crate::pg::{compat, server, store};
use pgrx::pg_sys;
use rand_core::RngCore;
use rowsource_core::ash::{MAX_BACKEND_TYPE, NAME_BYTES, Ring, Sample, SampleTimes, Writer, command_names};
use rowsource_core::model::PlanKey;
use rowsource_core::waits::CLASS;
use std::ffi::CString;
use std::sync::atomic::{Ordering::Acquire, fence};

/// The type of parallel workers. PostgreSQL counts them among the background workers.
const PARALLEL_WORKER: u8 = slots::PARALLEL_WORKER as u8;
const _: () = assert!(PARALLEL_WORKER == MAX_BACKEND_TYPE);
/// How often a copy of an entry of pg_stat_activity is tried.
const TRIES: usize = 20;
/// How long to wait before attaching to the sessions' memory is tried again, in microseconds.
const ATTACH_AGAIN_US: i64 = 100_000;
/// How much is read of a text to find out what kind of command it is.
const COMMAND_BYTES: usize = 1024;

/// What pg_stat_activity knows of a process.
#[derive(Clone, Copy)]
struct Activity {
    /// The count of changes of the entry.
    changes: i32,
    pid: i32,
    backend_type: u32,
    userid: u32,
    datid: u32,
    state: pg_sys::BackendState::Type,
    query_id: i64,
    application: [u8; NAME_BYTES],
}

impl Activity {
    /// Nothing is known yet.
    const NOTHING: Activity = Activity {
        changes: 0,
        pid: 0,
        backend_type: 0,
        userid: 0,
        datid: 0,
        state: pg_sys::BackendState::STATE_UNDEFINED,
        query_id: 0,
        application: [0; NAME_BYTES],
    };
}

/// What was found out about an entry of pg_stat_activity at the last sample.
#[derive(Clone, Copy)]
struct Known {
    /// Its process, when it was last active.
    activity: Activity,
    /// The place of its process in PostgreSQL's list of processes.
    number: usize,
    /// The number of its application's name.
    application: u16,
}

/// Takes the samples, and knows what makes the next one cheap.
pub struct Sampler {
    writer: Writer<'static>,
    times: SampleTimes,
    activity: *const pg_sys::PgBackendStatus,
    /// For each entry of pg_stat_activity.
    known: Vec<Known>,
    areas: Areas,
    blockers: Blockers,
    attach_at: i64,
    has_failed: bool,
}

/// Returns the list of processes. Its entries stay mapped.
fn processes() -> (*const pg_sys::PGPROC, usize) {
    // SAFETY: the header of the list lies in shared memory, and is complete before the server starts any
    // process.
    unsafe {
        let header = pg_sys::ProcGlobal;
        ((*header).allProcs.cast_const(), (*header).allProcCount as usize)
    }
}

impl Sampler {
    /// Prepares to write to a ring. `now` is in microseconds, of a clock that never steps back. Returns
    /// `None` if there is no memory, or if this process is not in pg_stat_activity.
    pub fn new(ring: Ring<'static>, now: i64) -> Option<Sampler> {
        // SAFETY: this is a global of a plain type, which PostgreSQL sets before it starts any process.
        let entries = usize::try_from(unsafe { pg_sys::MaxBackends }).ok()?;
        let (_, processes) = processes();
        let mut known = Vec::new();
        known.try_reserve_exact(entries).ok()?;
        // From 17 on, an entry has the number of its process. The others are corrected when they are first
        // seen.
        known.extend((0..entries).map(|number| Known {
            activity: Activity::NOTHING,
            number,
            application: 0,
        }));
        Some(Sampler {
            writer: Writer::new(ring, entries)?,
            times: SampleTimes::after(ring.last_at(), now),
            activity: compat::first_activity_entry()?,
            known,
            areas: Areas::with_room(processes)?,
            blockers: Blockers::with_room(processes)?,
            attach_at: 0,
            has_failed: false,
        })
    }

    /// Notes that sampling is off, or that the worker ends.
    pub fn pause(&mut self, random: &mut impl RngCore) {
        self.writer.pause(random);
    }

    /// Samples all active sessions. `now` is in microseconds, of a clock that never steps back.
    pub fn sample(&mut self, now: i64, random: &mut impl RngCore) {
        let at = self.times.next(server::now(), now);
        // SAFETY: the worker holds no lock, and is outside of any boundary. `contained` catches errors.
        let result = unsafe { contained(Unlocked::promised(), || self.sample_at(at, now)) };
        self.writer.end_moment(at, random);
        if let Err(message) = result
            && !std::mem::replace(&mut self.has_failed, true)
        {
            server::log_alone(&format!("pg_rowsource could not sample all sessions: {message}"));
        }
    }

    /// Samples all active sessions.
    ///
    /// # Safety
    /// The caller must be in `contained`, outside of any FFI boundary. May raise.
    unsafe fn sample_at(&mut self, at: i64, now: i64) {
        if store::live_memory().is_none() && now >= self.attach_at {
            self.attach_at = now + ATTACH_AGAIN_US;
            store::attach_worker();
        }
        let memory = store::live_memory();
        self.areas.begin();
        self.blockers.begin(now);
        for i in 0..self.known.len() {
            // SAFETY: there are so many entries.
            if !unsafe { is_active(self.activity.add(i), &mut self.known[i].activity, is_working) } {
                continue;
            }
            let activity = self.known[i].activity;
            let Some(number) = self.number(i, activity.pid) else {
                continue;
            };
            // SAFETY: the list has a place with this number. Each field is read as one word.
            let (process, mut wait_event, leader) = unsafe {
                let process = processes().0.add(number);
                let leader = load(&raw const (*process).lockGroupLeader);
                let leader = (!leader.is_null() && !std::ptr::eq(leader, process)).then(|| {
                    let number =
                        leader.addr().wrapping_sub(processes().0.addr()) / size_of::<pg_sys::PGPROC>();
                    (number, load(&raw const (*leader).pid))
                });
                let wait_event = load(&raw const (*process).wait_event_info);
                (process, wait_event, leader)
            };
            let mut seen = None;
            if let Some(memory) = &memory {
                // SAFETY: the caller promises what the function requires.
                seen = unsafe { self.areas.glance(memory, (number, activity.pid), leader) };
            }
            if let Some(seen) = &seen {
                wait_event = seen.wait_event;
            }
            let is_running = activity.state != pg_sys::BackendState::STATE_DISABLED || seen.is_some();
            // A process that waits in its main loop has nothing to do.
            if !is_running || wait_event & CLASS == pg_sys::PG_WAIT_ACTIVITY {
                continue;
            }
            let (wanted, blocker) = if wait_event & CLASS == pg_sys::PG_WAIT_LOCK {
                // SAFETY: the caller promises what the functions require.
                unsafe {
                    let blockers = &mut self.blockers;
                    (
                        blockers::wanted(process),
                        blockers.of(process, number, activity.pid, leader.map(|leader| leader.1), now),
                    )
                }
            } else {
                (None, None)
            };
            if let Some(pid) = blocker.filter(|pid| *pid > 0 && self.blockers.is_new()) {
                self.sample_blocker(pid, at);
            }
            let leader = leader.map(|(_, pid)| pid);
            let mut sample = self.made(i, at, &activity, leader, seen);
            if sample.key.planid == 0 {
                // SAFETY: there are so many entries.
                sample.command = unsafe {
                    let entry = self.activity.add(i);
                    let locked = wanted.and_then(|wanted| wanted.relation());
                    (command(entry), locked.unwrap_or_else(|| worked_on(entry)))
                };
            }
            self.writer.add(&Sample {
                wait_event: lasting(wait_event),
                lock_mode: wanted.map_or(0, |wanted| wanted.mode()),
                blocker,
                ..sample
            });
        }
    }

    /// Adds a sample of a process that blocks others, which may be idle in a transaction.
    fn sample_blocker(&mut self, pid: i32, at: i64) {
        // SAFETY: there are so many entries. The field is read as one word.
        let is_of = |i: &usize| unsafe { load(&raw const (*self.activity.add(*i)).st_procpid) == pid };
        let Some(i) = (0..self.known.len()).find(is_of) else {
            return;
        };
        // SAFETY: there are so many entries.
        let entry = unsafe { self.activity.add(i) };
        let mut activity = Activity::NOTHING;
        // SAFETY: the entry is one of pg_stat_activity.
        if unsafe { is_active(entry, &mut activity, |_| true) } {
            let sample = self.made(i, at, &activity, None, None);
            self.writer.add(&Sample {
                is_blocker: true,
                // SAFETY: the entry is one of pg_stat_activity.
                command: unsafe { (command(entry), 0) },
                ..sample
            });
        }
    }

    /// Returns the sample of a process, without what it waits for.
    fn made(
        &mut self,
        i: usize,
        at: i64,
        activity: &Activity,
        leader: Option<i32>,
        seen: Option<Glance>,
    ) -> Sample {
        let hint = self.known[i].application;
        let ring = self.writer.ring();
        let application = ring.number_of(hint, activity.userid, &activity.application, at);
        self.known[i].application = application;
        // Only background workers can be workers of a leader.
        let is_background = activity.backend_type == pg_sys::BackendType::B_BG_WORKER;
        let leader = leader.filter(|_| is_background);
        let of_session = || PlanKey::new(activity.userid, activity.datid, activity.query_id, 0, true);
        let key = seen.map_or_else(of_session, |seen| seen.key);
        Sample {
            at,
            pid: activity.pid,
            leader,
            backend_type: match leader {
                Some(_) => PARALLEL_WORKER,
                None => u8::try_from(activity.backend_type).unwrap_or(0),
            },
            key,
            is_other_role: key.userid != activity.userid,
            application,
            node: seen.and_then(|seen| seen.node),
            wait_event: 0,
            lock_mode: 0,
            blocker: None,
            is_blocker: false,
            command: (0, 0),
        }
    }

    /// Returns the place of the process of an entry in PostgreSQL's list of processes.
    fn number(&mut self, i: usize, pid: i32) -> Option<usize> {
        let (first, count) = processes();
        let is_there = |number: usize| {
            // SAFETY: the list has so many places. The field is read as one word.
            number < count && unsafe { load(&raw const (*first.add(number)).pid) == pid }
        };
        let known = &mut self.known[i].number;
        if !is_there(*known) {
            *known = (0..count).find(|number| is_there(*number))?;
        }
        Some(*known)
    }
}

/// Returns whether a process in this state is active, or whether that is not known.
fn is_working(state: pg_sys::BackendState::Type) -> bool {
    use pg_sys::BackendState::{STATE_DISABLED, STATE_FASTPATH, STATE_RUNNING};
    matches!(state, STATE_RUNNING | STATE_FASTPATH | STATE_DISABLED)
}

/// Returns the number of the kind of command that a process runs, or has run last; 0 if that is not known.
///
/// # Safety
/// `entry` must be one of pg_stat_activity. The caller must be outside of any FFI boundary.
unsafe fn command(entry: *const pg_sys::PgBackendStatus) -> u32 {
    let mut text = [0; COMMAND_BYTES];
    // SAFETY: the entry is mapped by the caller's promise, and so is the text, which always ends with a zero
    // byte. Its process may change it meanwhile: then it has no command's name, or that of the one or the
    // other.
    let length = unsafe {
        let first = load(&raw const (*entry).st_activity_raw).cast::<u8>();
        let next = |i: usize| {
            if first.is_null() { 0 } else { load(first.add(i)) }
        };
        let mut bytes = text.iter_mut().enumerate();
        bytes.position(|(i, byte)| {
            *byte = next(i);
            *byte == 0
        })
    };
    // Several commands may follow in a text that is not read to its end.
    let text = &text[..length.unwrap_or(0)];
    let names = command_names(text).into_iter();
    let mut tags = names.filter_map(|name| CString::new(name).ok()).map(|name| {
        // SAFETY: the function compares a C string with its own names.
        unsafe { pg_sys::GetCommandTagEnum(name.as_ptr()) }
    });
    tags.find(|tag| *tag != pg_sys::CommandTag::CMDTAG_UNKNOWN)
        .unwrap_or(0)
}

/// Returns the relation on which a process reports progress: of VACUUM, CREATE INDEX, COPY and others; 0 if
/// there is none.
///
/// # Safety
/// `entry` must be one of pg_stat_activity.
unsafe fn worked_on(entry: *const pg_sys::PgBackendStatus) -> u32 {
    // SAFETY: the entry is mapped by the caller's promise. Each field is read as one word.
    unsafe {
        match load(&raw const (*entry).st_progress_command) {
            pg_sys::ProgressCommandType::PROGRESS_COMMAND_INVALID => 0,
            _ => load(&raw const (*entry).st_progress_command_target).to_u32(),
        }
    }
}

/// Returns whether the process of an entry is in a state that is wanted. Then `known` is what
/// pg_stat_activity knows of it. It is copied only if the entry has changed since.
///
/// # Safety
/// `entry` must be one of pg_stat_activity.
unsafe fn is_active(
    entry: *const pg_sys::PgBackendStatus,
    known: &mut Activity,
    is_wanted: impl Fn(pg_sys::BackendState::Type) -> bool,
) -> bool {
    // SAFETY: the entry is mapped by the caller's promise. Its process may change each field meanwhile, as
    // one word. As PostgreSQL's own readers do, the copy is used only if the count of changes was the same
    // even number before and after. The name has so many bytes, in shared memory.
    unsafe {
        let state = || load(&raw const (*entry).st_state);
        let pid = || load(&raw const (*entry).st_procpid);
        let changes = || load(&raw const (*entry).st_changecount);
        for _ in 0..TRIES {
            // Most processes are idle, and this looks at little of them.
            if !is_wanted(state()) || pid() == 0 {
                return false;
            }
            let before = changes();
            fence(Acquire);
            if (before, pid()) == (known.changes, known.pid) {
                return true;
            }
            let name = load(&raw const (*entry).st_appname).cast::<u8>();
            let mut activity = Activity {
                changes: before,
                pid: pid(),
                backend_type: load(&raw const (*entry).st_backendType),
                userid: load(&raw const (*entry).st_userid).to_u32(),
                datid: load(&raw const (*entry).st_databaseid).to_u32(),
                state: state(),
                query_id: compat::activity_query_id(entry),
                application: [0; NAME_BYTES],
            };
            if !name.is_null() {
                for (i, byte) in activity.application.iter_mut().enumerate() {
                    *byte = load(name.add(i));
                    if *byte == 0 {
                        break;
                    }
                }
            }
            fence(Acquire);
            if before & 1 == 0 && changes() == before {
                *known = activity;
                return activity.pid != 0 && is_wanted(activity.state);
            }
            std::hint::spin_loop();
        }
    }
    false
}
