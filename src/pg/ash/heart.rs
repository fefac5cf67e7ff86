//! The heart: makes beats for the sessions that wish for them ([`rowsource_core::beat`]).

use crate::pg::live::area::{self, Area};
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::store::{self, SharedHistory};
use rand_core::RngCore;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::beat::{Pulse, Session};
use std::sync::atomic::Ordering::Acquire;

/// How long the heart stays awake after a session has woken it up, or wished for a beat, in microseconds. So
/// it is woken up at most once in this time.
const AWAKE_US: i64 = 10_000;
/// How often it looks meanwhile, if no session wishes.
const LOOK_EACH_US: i64 = 5_000;
/// How often a sleeping heart looks, in microseconds: a statement of which the planner expected little does
/// not wake it up.
const LOOK_ASLEEP_EACH_US: i64 = 1_000_000;
/// How long to wait before attaching to the sessions' memory is tried again, in microseconds.
const ATTACH_AGAIN_US: i64 = 100_000;

/// Makes the beats. All times are microseconds of a clock that never steps back.
pub struct Heart {
    history: &'static SharedHistory,
    /// The areas of all sessions, the pids of the sessions, and what is known of them.
    areas: Vec<(&'static Area, i32, Pulse)>,
    newest: u64,
    attach_at: i64,
    /// How many sessions needed beats when it last looked.
    beating: usize,
    is_asleep: bool,
    awake_until: i64,
}

impl Heart {
    /// Returns a heart that is awake.
    pub fn new(history: &'static SharedHistory) -> Heart {
        history.sleep.end();
        Heart {
            history,
            areas: Vec::new(),
            newest: 0,
            attach_at: 0,
            beating: 0,
            is_asleep: false,
            awake_until: 0,
        }
    }

    /// Makes the beats that are due. Returns when to call this again. Until then, a session that needs beats
    /// wakes up this process if the planner expects that.
    pub fn beat(&mut self, now: i64, random: &mut Xoroshiro128PlusPlus) -> i64 {
        if self.is_asleep && !self.history.sleep.has_begun() {
            self.is_asleep = false;
            self.awake_until = now + AWAKE_US;
        }
        let mut due = self.look(now, random);
        if due.is_none() && !self.is_asleep {
            if now < self.awake_until {
                return (now + LOOK_EACH_US).min(self.awake_until);
            }
            self.history.sleep.begin();
            self.is_asleep = true;
            due = self.look(now, random);
        }
        if due.is_some() {
            self.awake_until = now + AWAKE_US;
            if std::mem::replace(&mut self.is_asleep, false) {
                self.history.sleep.end();
            }
        }
        due.unwrap_or(now + LOOK_ASLEEP_EACH_US)
    }

    /// Looks at all sessions. Returns when to look again at the first of those that wish for something.
    fn look(&mut self, now: i64, random: &mut Xoroshiro128PlusPlus) -> Option<i64> {
        self.find(now);
        let (mut due, mut beating) = (None, 0);
        for (area, known, pulse) in &mut self.areas {
            let (Some(pid), Some(beats)) = (area.pid(), area.beats()) else {
                continue;
            };
            if std::mem::replace(known, pid) != pid {
                *pulse = Pulse::default();
            }
            let session = Session {
                wish: beats.wished(),
                has_taken: beats.are_taken(),
            };
            if let Some(gap_ns) = pulse.look(session, now, self.beating, random.next_u64()) {
                beats.beat(gap_ns);
            }
            beating += usize::from(pulse.is_beating());
            due = due.into_iter().chain(pulse.due_at()).min();
        }
        self.beating = beating;
        due
    }

    /// Finds areas that are new.
    fn find(&mut self, now: i64) {
        if store::live_memory().is_none() && now >= self.attach_at {
            self.attach_at = now + ATTACH_AGAIN_US;
            store::attach_worker();
        }
        let Some(memory) = store::live_memory() else {
            return;
        };
        let newest = memory.newest().load(Acquire);
        if newest == self.newest {
            return;
        }
        let (all, known) = (&mut self.areas, self.newest);
        let (before, mut is_whole) = (all.len(), true);
        // SAFETY: the worker holds no lock, and is outside of any boundary.
        let unlocked = &mut unsafe { Unlocked::promised() };
        let found = {
            contained(unlocked, |_| {
                area::each(&memory, |address, area| {
                    // New areas come first, and areas are never freed.
                    if address == known {
                        return true;
                    }
                    is_whole &= all.try_reserve(1).is_ok();
                    if is_whole {
                        all.push((area, 0, Pulse::default()));
                    }
                    !is_whole
                });
            })
        };
        if found.is_ok() && is_whole {
            self.newest = newest;
        } else {
            // It looks again, and must not find one twice.
            self.areas.truncate(before);
        }
    }
}

impl Drop for Heart {
    /// Nobody needs to wake up a heart that has ended.
    fn drop(&mut self) {
        self.history.sleep.end();
    }
}
