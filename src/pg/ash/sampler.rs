//! Takes the samples.

use super::blockers::{self, Blockers};
use super::excluded::Excluded;
use crate::pg::compat::{Entries, Entry};
use crate::pg::live::{Areas, Glance};
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::processes::Processes;
use crate::pg::waits::lasting::lasting;
use crate::pg::waits::slots;
use crate::pg::{server, store};
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
    activity: Entries,
    /// For each entry of pg_stat_activity.
    known: Vec<Known>,
    areas: Areas,
    blockers: Blockers,
    attach_at: i64,
    has_failed: bool,
}

impl Sampler {
    /// Prepares to write to a ring. `now` is in microseconds, of a clock that never steps back. Returns
    /// `None` if there is no memory, or if this process is not in pg_stat_activity.
    pub fn new(ring: Ring<'static>, now: i64) -> Option<Sampler> {
        let activity = Entries::all()?;
        let (entries, processes) = (activity.count(), Processes::all().count());
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
            activity,
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
    pub fn sample(&mut self, now: i64, excluded: &Excluded, random: &mut impl RngCore) {
        let at = self.times.next(server::now(), now);
        // SAFETY: the worker holds no lock, and is outside of any boundary.
        let unlocked = &mut unsafe { Unlocked::promised() };
        let result = contained(unlocked, |_| self.sample_at(at, now, excluded));
        self.writer.end_moment(at, random);
        if let Err(message) = result
            && !std::mem::replace(&mut self.has_failed, true)
        {
            server::log_alone(&format!("pg_rowsource could not sample all sessions: {message}"));
        }
    }

    /// Samples all active sessions. May raise.
    fn sample_at(&mut self, at: i64, now: i64, excluded: &Excluded) {
        if store::live_memory().is_none() && now >= self.attach_at {
            self.attach_at = now + ATTACH_AGAIN_US;
            store::attach_worker();
        }
        let memory = store::live_memory();
        self.areas.begin();
        self.blockers.begin(now);
        for i in 0..self.known.len() {
            let entry = self.activity.get(i);
            if !is_active(entry, &mut self.known[i].activity, is_working) {
                continue;
            }
            let activity = self.known[i].activity;
            if excluded.has(activity.userid, activity.datid) {
                continue;
            }
            let Some(number) = self.number(i, activity.pid) else {
                continue;
            };
            let Some(process) = Processes::all().get(number) else {
                continue;
            };
            let leader = process
                .leader()
                .map(|leader| (Processes::all().number(leader), leader.pid()));
            let mut wait_event = process.wait_event();
            let mut seen = None;
            if let Some(memory) = &memory {
                seen = self.areas.glance(memory, (number, activity.pid), leader);
            }
            if let Some(seen) = &seen {
                // After SET ROLE, or in a function of another role.
                if excluded.has(seen.key.userid, activity.datid) {
                    continue;
                }
                wait_event = seen.wait_event;
            }
            let is_running = activity.state != pg_sys::BackendState::STATE_DISABLED || seen.is_some();
            // A process that waits in its main loop has nothing to do.
            if !is_running || wait_event & CLASS == pg_sys::PG_WAIT_ACTIVITY {
                continue;
            }
            let (wanted, blocker) = if wait_event & CLASS == pg_sys::PG_WAIT_LOCK {
                let leader = leader.map(|leader| leader.1);
                (
                    blockers::wanted(process),
                    self.blockers.of(process, number, activity.pid, leader, now),
                )
            } else {
                (None, None)
            };
            if let Some(pid) = blocker.filter(|pid| *pid > 0 && self.blockers.is_new()) {
                self.sample_blocker(pid, at, excluded);
            }
            let leader = leader.map(|(_, pid)| pid);
            let mut sample = self.made(i, at, &activity, leader, seen);
            if sample.key.planid == 0 {
                let locked = wanted.and_then(|wanted| wanted.relation());
                sample.command = (command(entry), locked.unwrap_or_else(|| worked_on(entry)));
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
    fn sample_blocker(&mut self, pid: i32, at: i64, excluded: &Excluded) {
        let Some(i) = self.activity.iter().position(|entry| entry.pid() == pid) else {
            return;
        };
        let (entry, mut activity) = (self.activity.get(i), Activity::NOTHING);
        if is_active(entry, &mut activity, |_| true) && !excluded.has(activity.userid, activity.datid) {
            let sample = self.made(i, at, &activity, None, None);
            self.writer.add(&Sample {
                is_blocker: true,
                command: (command(entry), 0),
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
        let processes = Processes::all();
        let is_there = |number: usize| processes.get(number).is_some_and(|process| process.pid() == pid);
        let known = &mut self.known[i].number;
        if !is_there(*known) {
            *known = (0..processes.count()).find(|number| is_there(*number))?;
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
fn command(entry: Entry) -> u32 {
    let mut text = [0; COMMAND_BYTES];
    // Several commands may follow in a text that is not read to its end.
    let length = entry.copy_text(&mut text);
    let names = command_names(&text[..length]).into_iter();
    let mut tags = names.filter_map(|name| CString::new(name).ok()).map(|name| {
        // SAFETY: the function compares a C string with its own names.
        unsafe { pg_sys::GetCommandTagEnum(name.as_ptr()) }
    });
    tags.find(|tag| *tag != pg_sys::CommandTag::CMDTAG_UNKNOWN)
        .unwrap_or(0)
}

/// Returns the relation on which a process reports progress: of VACUUM, CREATE INDEX, COPY and others; 0 if
/// there is none.
fn worked_on(entry: Entry) -> u32 {
    match entry.progress_command() {
        pg_sys::ProgressCommandType::PROGRESS_COMMAND_INVALID => 0,
        _ => entry.progress_target().to_u32(),
    }
}

/// Returns whether the process of an entry is in a state that is wanted. Then `known` is what
/// pg_stat_activity knows of it. It is copied only if the entry has changed since.
fn is_active(
    entry: Entry,
    known: &mut Activity,
    is_wanted: impl Fn(pg_sys::BackendState::Type) -> bool,
) -> bool {
    // As PostgreSQL's own readers do, the copy is used only if the count of changes was the same even number
    // before and after.
    for _ in 0..TRIES {
        // Most processes are idle, and this looks at little of them.
        if !is_wanted(entry.state()) || entry.pid() == 0 {
            return false;
        }
        let before = entry.changes();
        fence(Acquire);
        if (before, entry.pid()) == (known.changes, known.pid) {
            return true;
        }
        let mut activity = Activity {
            changes: before,
            pid: entry.pid(),
            backend_type: entry.backend_type(),
            userid: entry.user().to_u32(),
            datid: entry.database().to_u32(),
            state: entry.state(),
            query_id: entry.queryid(),
            application: [0; NAME_BYTES],
        };
        entry.copy_application(&mut activity.application);
        fence(Acquire);
        if before & 1 == 0 && entry.changes() == before {
            *known = activity;
            return activity.pid != 0 && is_wanted(activity.state);
        }
        std::hint::spin_loop();
    }
    false
}
