//! A sample of a session, and the words in which the ring stores it.

use crate::model::PlanKey;
use crate::waits::CLASS;

/// A sample of an active session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Microseconds since 2000-01-01 UTC.
    pub at: i64,
    /// The process.
    pub pid: i32,
    /// If the process is a parallel worker, the pid of its leader.
    pub leader: Option<i32>,
    /// The type of the process, at most [`MAX_BACKEND_TYPE`].
    pub backend_type: u8,
    /// The user of the statement, its database, its queryid and its plan. What is not known is 0.
    pub key: PlanKey,
    /// Another role than the statement's user has logged in.
    pub is_other_role: bool,
    /// The number of the application's name, see [`super::Ring::name`]; 0 if it is not known.
    pub application: u16,
    /// The node that runs.
    pub node: Option<u16>,
    /// The event that the process waits for; 0 if it does not wait.
    pub wait_event: u32,
    /// The mode in which it waits to lock, if it waits for a heavyweight lock; 0 if that is not known.
    pub lock_mode: u8,
    /// The process that it waits for, if it waits for a heavyweight lock. 0 is a prepared transaction.
    pub blocker: Option<i32>,
    /// It is not active, or that does not matter: another process waits for it. The queryid is that of its
    /// last statement.
    pub is_blocker: bool,
    /// The number of the kind of command, and the relation that it works on or whose lock it waits for; 0 if
    /// that is not known. Samples with a plan do not have them.
    pub command: (u32, u32),
}

/// The highest number of a type of processes.
pub const MAX_BACKEND_TYPE: u8 = 0x1F;
/// The highest number of a node. Samples of later ones do not have it.
pub const MAX_NODE: u16 = 0xFFE;
const NO_NODE: u64 = 0xFFF;
const NO_BLOCKER: i32 = -1;
/// The class of waits for heavyweight locks. Their numbers have room for the mode.
const LOCK: u32 = 0x0300_0000;
const MODE_SHIFT: u32 = 16;
const MODE: u32 = 0xFF << MODE_SHIFT;

/// The words of a sample.
pub(super) const WORDS: usize = 7;

/// Returns two numbers as one word.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Sample {
    /// Returns the words. What does not fit is left out.
    pub(super) fn words(&self) -> [u64; WORDS] {
        let node = self
            .node
            .filter(|node| *node <= MAX_NODE)
            .map_or(NO_NODE, u64::from);
        let rest = node << 32
            | u64::from(self.application & 0x3FF) << 44
            | u64::from(self.backend_type.min(MAX_BACKEND_TYPE)) << 54
            | u64::from(self.key.toplevel()) << 59
            | u64::from(self.is_other_role) << 60
            | u64::from(self.is_blocker) << 61;
        // The command takes the place of the plan, and its number says so.
        let plan = match self.key.planid {
            0 => pair(self.command.1, self.command.0),
            planid => planid as u64,
        };
        let rest = rest | u64::from(self.key.planid == 0) << 62;
        let wait_event = match self.wait_event & CLASS {
            LOCK => self.wait_event & !MODE | u32::from(self.lock_mode) << MODE_SHIFT,
            _ => self.wait_event,
        };
        [
            self.at as u64,
            pair(self.pid as u32, self.leader.unwrap_or(0) as u32),
            pair(self.key.userid, self.key.datid),
            self.key.queryid as u64,
            plan,
            pair(wait_event, self.blocker.unwrap_or(NO_BLOCKER) as u32),
            rest,
        ]
    }

    /// Returns the sample with these words.
    pub(super) fn of(words: [u64; WORDS]) -> Sample {
        let [at, pids, owner, queryid, plan, wait, rest] = words;
        let (planid, command) = match rest >> 62 & 1 {
            0 => (plan, (0, 0)),
            _ => (0, ((plan >> 32) as u32, plan as u32)),
        };
        let (wait_event, lock_mode) = match wait as u32 {
            event if event & CLASS == LOCK => (event & !MODE, (event >> MODE_SHIFT) as u8),
            event => (event, 0),
        };
        let (leader, blocker) = ((pids >> 32) as i32, (wait >> 32) as i32);
        let node = rest >> 32 & 0xFFF;
        Sample {
            at: at as i64,
            pid: pids as i32,
            leader: (leader != 0).then_some(leader),
            backend_type: (rest >> 54) as u8 & MAX_BACKEND_TYPE,
            key: PlanKey::new(
                owner as u32,
                (owner >> 32) as u32,
                queryid as i64,
                planid as i64,
                rest >> 59 & 1 == 1,
            ),
            is_other_role: rest >> 60 & 1 == 1,
            application: (rest >> 44) as u16 & 0x3FF,
            node: (node != NO_NODE).then_some(node as u16),
            wait_event,
            lock_mode,
            blocker: (blocker != NO_BLOCKER).then_some(blocker),
            is_blocker: rest >> 61 & 1 == 1,
            command,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sample(i: u64) -> Sample {
        let n = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Sample {
            at: i as i64,
            pid: (n as i32).max(1),
            leader: i.is_multiple_of(3).then_some(n as i32 | 1),
            backend_type: (n >> 8) as u8 & MAX_BACKEND_TYPE,
            key: PlanKey::new(
                n as u32,
                (n >> 9) as u32,
                n as i64,
                !n as i64,
                i.is_multiple_of(2),
            ),
            is_other_role: i.is_multiple_of(5),
            application: n as u16 & 0x3FF,
            node: (!i.is_multiple_of(4)).then_some((n >> 20) as u16 % (MAX_NODE + 1)),
            wait_event: ((n >> 5) as u32 & !CLASS) | 0x0500_0000,
            lock_mode: 0,
            blocker: i.is_multiple_of(7).then_some((n >> 33) as i32),
            is_blocker: i.is_multiple_of(11),
            command: (0, 0),
        }
    }

    #[test]
    fn words_are_the_sample() {
        for i in 0..10_000 {
            let sample = sample(i);
            assert_eq!(Sample::of(sample.words()), sample);
        }
        let without_plan = Sample {
            key: sample(3).key.with_plan(0),
            command: (193, u32::MAX),
            ..sample(3)
        };
        assert_eq!(Sample::of(without_plan.words()), without_plan);
        let locking = Sample {
            wait_event: LOCK | 9,
            lock_mode: 8,
            ..sample(3)
        };
        assert_eq!(Sample::of(locking.words()), locking);
        // A node of a higher number is left out, and damages nothing else.
        let high = Sample {
            node: Some(MAX_NODE + 1),
            ..sample(1)
        };
        assert_eq!(Sample::of(high.words()), Sample { node: None, ..high });
    }
}
