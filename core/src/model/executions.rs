//! The ring of executions: those of all sessions that took long, failed or were cancelled. What is here
//! works on shared memory under a lock.
//!
//! * Few enter. An execution that completed enters if it took longer than the threshold of its role. The
//!   threshold rises with each that enters, the faster the more there are, and falls again with time. At most
//!   [`MAX_IN_MINUTE`] enter in a minute, of each role.
//! * It is fair. If the ring is full, the role that has most executions in it loses its oldest one. So a role
//!   that has no more than its share loses none because of others.
//!
//! Roles are told apart by their OIDs modulo [`ROLES`]: two that agree share a threshold and a part of the
//! ring.

use super::execution::{Outcome, Run};
use super::exemplar::MIN_SLOWEST_MS;
use super::key::PlanKey;
use super::node::NodeStats;
use super::packed::{append, take};
use super::parameters::Parameters;
use serde::{Deserialize, Serialize};

/// How many executions of a role enter in a minute at most: completed ones, and as many others.
pub const MAX_IN_MINUTE: u32 = 30;
const ROLES: usize = 64;
const MINUTE_US: i64 = 60_000_000;
/// How the threshold rises with each of the first executions in a minute, and with each of the others.
const RISE: f64 = 1.1;
const FIRST: u32 = 15;
const STEEP_RISE: f64 = 1.5;
/// How it falls in a minute.
const FALL: f64 = 4.0;
/// The bytes of an execution: with those of its slot, 4 kB.
const MAX_BYTES: usize = 4096 - 48;

/// What is known of the executions of a role. Zero bytes are one that has none.
#[repr(C)]
struct Role {
    /// When the minute began, and how many executions entered in it: completed ones, and others.
    since: i64,
    entered: [u32; 2],
    threshold_ms: f64,
    /// How many it has in the ring.
    held: u64,
}

/// What lies before the slots. Zero bytes are that of an empty ring.
#[repr(C)]
pub struct Head {
    roles: [Role; ROLES],
}

/// A slot for an execution. Zero bytes are a free one.
#[repr(C)]
pub struct Slot {
    key: PlanKey,
    /// When it ended.
    at: i64,
    /// The bytes that are used; 0 if it is free.
    size: u32,
    _unused: u32,
    bytes: [u8; MAX_BYTES],
}

/// The ring, for who has its lock.
pub struct Ring<'a> {
    /// What lies before the slots.
    pub head: &'a mut Head,
    /// The slots.
    pub slots: &'a mut [Slot],
}

/// What a node of a plan did in an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSums {
    /// How often it was started.
    pub starts: Option<u64>,
    /// Rows that it returned.
    pub rows: u64,
    /// Nanoseconds in the node and those below it, and in itself.
    pub ns: Option<[u64; 2]>,
    /// Blocks of tables and indexes that were found in buffers and that were read, and blocks of work files.
    pub blocks: Option<[u64; 3]>,
}

/// An execution in the ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingExecution {
    /// The execution as a whole.
    pub run: Run,
    /// The session.
    pub pid: i32,
    /// The session's application_name.
    pub application_name: String,
    /// The first nodes, as many as have room.
    pub nodes: Vec<NodeSums>,
    /// Its parameters, if they are kept and have room.
    pub parameters: Option<Parameters>,
}

impl From<&NodeStats> for NodeSums {
    fn from(stats: &NodeStats) -> Self {
        let ns = |ms: f64| (ms * 1e6).round() as u64;
        let blocks = |blocks: i64| blocks.max(0) as u64;
        NodeSums {
            starts: stats.starts.get(),
            rows: stats.rows,
            ns: stats.time.get().map(|time| [ns(time.total_ms), ns(time.self_ms)]),
            blocks: stats.buffers.get().map(|used| {
                [
                    blocks(used.shared_hit + used.local_hit),
                    blocks(used.shared_read + used.local_read),
                    blocks(used.temp_read + used.temp_written),
                ]
            }),
        }
    }
}

impl RingExecution {
    /// Leaves out what has no room. Returns the bytes; `None` if there is no memory.
    fn bytes(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut bytes = Vec::new();
            append(&mut bytes, self).ok()?;
            if bytes.len() <= MAX_BYTES {
                return Some(bytes);
            }
            if self.parameters.take().is_none() {
                self.nodes.truncate(self.nodes.len() / 2);
            }
        }
    }
}

impl Role {
    /// Returns what an execution must exceed to enter.
    fn threshold_ms(&self) -> f64 {
        self.threshold_ms.max(MIN_SLOWEST_MS)
    }

    /// Returns whether an execution enters, and counts it.
    fn lets_in(&mut self, run: &Run) -> bool {
        let minutes = (run.at - self.since) / MINUTE_US;
        // The clock may have been set back.
        if minutes != 0 {
            self.since = run.at;
            self.entered = [0; 2];
            self.threshold_ms /= FALL.powi(minutes.unsigned_abs().min(100) as i32);
        }
        let (ms, is_completed) = (run.response_ms(), run.outcome == Outcome::Completed);
        let entered = self.entered[usize::from(!is_completed)];
        if entered >= MAX_IN_MINUTE || is_completed && ms <= self.threshold_ms() {
            return false;
        }
        self.entered[usize::from(!is_completed)] += 1;
        if is_completed {
            let rise = if entered < FIRST { RISE } else { STEEP_RISE };
            self.threshold_ms = (self.threshold_ms() * rise).min(ms);
        }
        true
    }
}

impl Slot {
    fn role(&self) -> usize {
        role(self.key.userid)
    }

    fn is_used(&self) -> bool {
        self.size > 0
    }

    fn execution(&self) -> Option<RingExecution> {
        let (execution, _) = take(self.bytes.get(..self.size as usize)?).ok()?;
        Some(execution)
    }
}

fn role(userid: u32) -> usize {
    userid as usize % ROLES
}

impl Ring<'_> {
    /// Returns the milliseconds that an execution of a role must exceed to enter.
    pub fn threshold_ms(&self, userid: u32) -> f64 {
        self.head.roles[role(userid)].threshold_ms()
    }

    /// Returns whether an execution enters. If so, it must be put into the ring, and counts. One that is
    /// there already enters when its commit is known.
    pub fn lets_in(&mut self, key: &PlanKey, run: &Run) -> bool {
        run.commit_ms > 0.0 && self.position(key, run.at).is_some()
            || self.head.roles[role(key.userid)].lets_in(run)
    }

    fn position(&self, key: &PlanKey, at: i64) -> Option<usize> {
        let is_same = |slot: &Slot| slot.is_used() && slot.at == at && slot.key == *key;
        self.slots.iter().position(is_same)
    }

    /// Puts an execution into the ring. If it is there already, and its commit is known now, its
    /// parameters are those that were known at its end.
    pub fn put(&mut self, key: &PlanKey, mut execution: RingExecution) {
        let at = execution.run.at;
        let slot = match self.position(key, at) {
            Some(index) => {
                if execution.parameters.is_none() {
                    let before = self.slots[index].execution();
                    execution.parameters = before.and_then(|before| before.parameters);
                }
                index
            }
            None => match self.free(role(key.userid)) {
                Some(index) => index,
                None => return,
            },
        };
        let (Some(bytes), Some(slot)) = (execution.bytes(), self.slots.get_mut(slot)) else {
            return;
        };
        if !slot.is_used() {
            self.head.roles[role(key.userid)].held += 1;
        }
        (slot.key, slot.at, slot.size) = (*key, at, bytes.len() as u32);
        slot.bytes[..bytes.len()].copy_from_slice(&bytes);
    }

    /// Returns a free slot for a role. If there is none, makes one free. Returns `None` if the ring has no
    /// slots.
    fn free(&mut self, new: usize) -> Option<usize> {
        if let Some(free) = self.slots.iter().position(|slot| !slot.is_used()) {
            return Some(free);
        }
        // Of those that have as many, it is the role of the new one.
        let held = |role: &usize| {
            let is_new = *role == new;
            (self.head.roles[*role].held + u64::from(is_new), is_new)
        };
        let has_some = |role: &usize| self.head.roles[*role].held > 0;
        let most = (0..ROLES).filter(has_some).max_by_key(held)?;
        let slots = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.role() == most);
        let (oldest, _) = slots.min_by_key(|(_, slot)| slot.at)?;
        self.remove(oldest);
        Some(oldest)
    }

    fn remove(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.size = 0;
        let held = &mut self.head.roles[slot.role()].held;
        *held = held.saturating_sub(1);
    }

    /// Removes executions.
    pub fn remove_all(&mut self, is_chosen: impl Fn(&PlanKey) -> bool) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_used() && is_chosen(&self.slots[index].key) {
                self.remove(index);
            }
        }
    }

    /// Returns the execution in a slot; `None` if there is none.
    pub fn get(&self, index: usize) -> Option<(PlanKey, RingExecution)> {
        let slot = self.slots.get(index).filter(|slot| slot.is_used())?;
        Some((slot.key, slot.execution()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::parameters::Bytes;
    use crate::model::sample;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    struct Memory {
        head: Box<Head>,
        slots: Vec<Slot>,
    }

    impl Memory {
        fn new(slots: usize) -> Memory {
            let role = || Role {
                since: 0,
                entered: [0; 2],
                threshold_ms: 0.0,
                held: 0,
            };
            let slot = || Slot {
                key: PlanKey::default(),
                at: 0,
                size: 0,
                _unused: 0,
                bytes: [0; MAX_BYTES],
            };
            Memory {
                head: Box::new(Head {
                    roles: std::array::from_fn(|_| role()),
                }),
                slots: (0..slots).map(|_| slot()).collect(),
            }
        }

        fn ring(&mut self) -> Ring<'_> {
            Ring {
                head: &mut self.head,
                slots: &mut self.slots,
            }
        }

        /// Returns the times of the executions of a role, in microseconds.
        fn of(&mut self, userid: u32) -> Vec<i64> {
            let ring = self.ring();
            let all = (0..ring.slots.len()).filter_map(|index| ring.get(index));
            let mut times: Vec<i64> = all
                .filter(|(key, _)| key.userid == userid)
                .map(|(_, execution)| execution.run.at)
                .collect();
            times.sort_unstable();
            times
        }
    }

    fn run(outcome: Outcome, elapsed_ms: f64, at: i64) -> Run {
        Run {
            outcome,
            elapsed_ms,
            at,
            before_ms: 0.0,
            ..sample::plan(1)
                .exemplars
                .get(crate::model::Exemplar::Cancelled)
                .expect("one")
                .expect("a record")
                .run
        }
    }

    fn execution(at: i64) -> RingExecution {
        RingExecution {
            run: run(Outcome::Completed, 5.0, at),
            pid: 7,
            application_name: "test".to_owned(),
            nodes: sample::plan(3)
                .nodes
                .iter()
                .map(|node| NodeSums::from(&node.last))
                .collect(),
            parameters: None,
        }
    }

    fn key(userid: u32) -> PlanKey {
        PlanKey::new(userid, 1, 2, 3, true)
    }

    #[test]
    fn slots_have_no_gaps() {
        assert_eq!(size_of::<Slot>(), 4096);
    }

    #[test]
    fn few_enter_and_the_slowest_are_among_them() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut memory = Memory::new(10);
        let mut ring = memory.ring();
        // A hundred a second, for ten minutes; one in a thousand is a hundred times as slow.
        let (mut entered, mut slow, mut slow_entered) = ([0; 10], 0, 0);
        for i in 0..60_000_i64 {
            let is_slow = random.random_range(0..1_000) == 0;
            let ms = random.random_range(2.0..4.0) * if is_slow { 100.0 } else { 1.0 };
            let enters = ring.lets_in(&key(10), &run(Outcome::Completed, ms, 1 + i * 10_000));
            entered[(i / 6_000) as usize] += u32::from(enters);
            slow += u32::from(is_slow);
            slow_entered += u32::from(is_slow && enters);
        }
        assert!(
            entered.iter().all(|entered| *entered <= MAX_IN_MINUTE),
            "{entered:?}"
        );
        assert!(slow_entered * 10 >= slow * 5, "{slow_entered} of {slow}");
        // Times that rise as fast as can be, and errors.
        for outcome in [Outcome::Completed, Outcome::Failed] {
            let start = 1_000 * MINUTE_US;
            let runs = (0..10_000).map(|i| run(outcome, 2_f64.powi(i.min(1000)), start + i64::from(i)));
            let entered = runs.filter(|run| ring.lets_in(&key(11), run)).count();
            assert!(entered <= MAX_IN_MINUTE as usize, "{entered}");
        }
        assert!(ring.threshold_ms(10) > MIN_SLOWEST_MS);
        assert_eq!(ring.threshold_ms(12), MIN_SLOWEST_MS);
        let later = run(Outcome::Completed, 1.5, 10_000 * MINUTE_US);
        assert!(ring.lets_in(&key(10), &later), "it falls with time");
    }

    #[test]
    fn a_role_does_not_push_out_another_one() {
        let mut memory = Memory::new(12);
        for at in 1..=3 {
            memory.ring().put(&key(1), execution(at));
        }
        for at in 4..=100 {
            memory.ring().put(&key(2), execution(at));
        }
        assert_eq!(memory.of(1), [1, 2, 3]);
        assert_eq!(memory.of(2), (92..=100).collect::<Vec<i64>>());
        // A third one takes from the largest.
        for at in 101..=200 {
            memory.ring().put(&key(3), execution(at));
        }
        assert_eq!(memory.of(1), [1, 2, 3]);
        assert_eq!([memory.of(2).len(), memory.of(3).len()], [5, 4]);
        memory.ring().remove_all(|key| key.userid == 2);
        assert!(memory.of(2).is_empty());
        for at in 201..=300 {
            memory.ring().put(&key(1), execution(at));
        }
        assert_eq!([memory.of(1).len(), memory.of(3).len()], [8, 4]);
        // One that has no executions gets a place.
        let mut memory = Memory::new(2);
        for userid in 1..=3 {
            memory.ring().put(&key(userid), execution(i64::from(userid)));
        }
        assert_eq!(
            [memory.of(1).len() + memory.of(2).len(), memory.of(3).len()],
            [1, 1]
        );
        Memory::new(0).ring().put(&key(1), execution(1));
    }

    #[test]
    fn an_execution_comes_back_as_far_as_it_has_room() {
        let mut memory = Memory::new(2);
        let parameters = Parameters::keep([(25, Some(Bytes::Text(b"a")))].into_iter());
        let whole = RingExecution {
            parameters,
            ..execution(5)
        };
        memory.ring().put(&key(1), whole.clone());
        assert_eq!(memory.ring().get(0), Some((key(1), whole.clone())));
        // Its commit is known now.
        let mut committed = execution(5);
        committed.run.commit_ms = 2.5;
        for role in [role(1), role(2)] {
            memory.head.roles[role].threshold_ms = 100.0;
        }
        assert!(
            memory.ring().lets_in(&key(1), &committed.run) && !memory.ring().lets_in(&key(2), &committed.run)
        );
        memory.ring().put(&key(1), committed.clone());
        committed.parameters.clone_from(&whole.parameters);
        assert_eq!(memory.ring().get(0), Some((key(1), committed)));
        assert_eq!(memory.ring().get(1), None);
        let mut large = RingExecution {
            parameters: whole.parameters,
            ..execution(6)
        };
        large.nodes = vec![large.nodes[0]; 10_000];
        memory.ring().put(&key(1), large);
        let (_, kept) = memory.ring().get(1).expect("an execution");
        assert!(
            (100..1_000).contains(&kept.nodes.len()) && kept.parameters.is_none(),
            "{}",
            kept.nodes.len()
        );
        assert_eq!(memory.ring().get(2), None);
    }
}
