//! Finds the statement and the node that a session runs now, and copies nothing else. It allocates nothing
//! after the areas are known.
//!
//! As for the copies of `read`, what was read is used only if the same execution was live before and
//! afterwards.

use super::area::{self, Area};
use super::block::{Block, Need};
use super::header::Setup;
use super::nodes::{Nodes, SharedNode};
use crate::pg::border::shared::load;
use crate::pg::store::LiveMemory;
use rowsource_core::blocks::{BlockId, Slot};
use rowsource_core::model::PlanKey;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// How often it is tried.
const TRIES: usize = 5;

/// What a session runs.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    pub key: PlanKey,
    /// The number of the node that runs, as the views have it.
    pub node: Option<u16>,
    /// The plan node id of this node.
    plan_node_id: i32,
    /// What the session waited for at that moment; 0 if it did not wait.
    pub wait_event: u32,
}

/// What was seen of a session. It is so again while the same account runs in the same execution, as in a
/// session that waits. Then most of what was read need not be read again: each part lies in another page,
/// which is no longer in the processor's caches.
#[derive(Clone, Copy)]
struct Seen {
    id: BlockId,
    block: &'static Block,
    generation: u64,
    account: Option<usize>,
    glance: Glance,
}

/// The areas of all sessions, and which session of PostgreSQL's list of processes has which.
#[derive(Default)]
pub struct Areas {
    newest: u64,
    all: Vec<(&'static Area, Option<Seen>)>,
    /// For each place in the list of processes, the index of its area and one more; 0 if it has none.
    of_process: Vec<u32>,
    /// This was found in the current round.
    is_found: bool,
}

impl Areas {
    /// Makes room for so many processes. Returns `None` if there is no memory.
    pub fn with_room(processes: usize) -> Option<Areas> {
        let mut areas = Areas::default();
        areas.all.try_reserve_exact(processes).ok()?;
        areas.of_process.try_reserve_exact(processes).ok()?;
        areas.of_process.resize(processes, 0);
        Some(areas)
    }

    /// Begins a new round of glances.
    pub fn begin(&mut self) {
        self.is_found = false;
    }

    /// Finds the areas, and which process has which. Raises if memory cannot be mapped.
    fn find(&mut self, memory: &LiveMemory) {
        let newest = memory.newest().load(Acquire);
        if newest != self.newest {
            let (all, known) = (&mut self.all, self.newest);
            area::each(memory, |address, area| {
                // New areas come first, and areas are never freed.
                if address != known && all.try_reserve(1).is_ok() {
                    all.push((area, None));
                }
                address == known
            });
            self.newest = newest;
        }
        self.of_process.fill(0);
        for (i, (area, _)) in self.all.iter().enumerate() {
            let number = area.number.load(Relaxed) as usize;
            if let Some(place) = self.of_process.get_mut(number)
                && area.pid().is_some()
            {
                *place = i as u32 + 1;
            }
        }
    }

    /// Returns the area of a process with this place in the list of processes. An area that the process has
    /// just taken is found at the first time in a round that one is missed. Raises if memory cannot be
    /// mapped.
    fn of(
        &mut self,
        memory: &LiveMemory,
        number: usize,
        pid: i32,
    ) -> Option<&mut (&'static Area, Option<Seen>)> {
        loop {
            let index = self.of_process.get(number)?.checked_sub(1);
            let index = index.map_or(usize::MAX, |index| index as usize);
            if self
                .all
                .get(index)
                .is_some_and(|(area, _)| area.pid() == Some(pid))
            {
                return self.all.get_mut(index);
            }
            if std::mem::replace(&mut self.is_found, true) {
                return None;
            }
            self.find(memory);
        }
    }

    /// Returns what a process runs: the innermost of its measured statements. Returns `None` if none runs, or
    /// if its statements are too short to be seen. The process, and the leader of a parallel worker, are
    /// given by the places in the list of processes and the pids. Raises if memory cannot be mapped.
    pub fn glance(
        &mut self,
        memory: &LiveMemory,
        process: (usize, i32),
        leader: Option<(usize, i32)>,
    ) -> Option<Glance> {
        let (area, last) = self.of(memory, process.0, process.1)?;
        let area = *area;
        let seen = (0..TRIES).find_map(|_| look(memory, area, last)).flatten()?;
        if area.leader().is_none() {
            return Some(seen);
        }
        // A worker runs a part of its leader's plan, which has another number for each node.
        let leader = leader.and_then(|(number, pid)| self.of(memory, number, pid));
        let whole = leader.and_then(|leader| {
            (0..TRIES)
                .find_map(|_| place(memory, leader.0, &seen.key, seen.plan_node_id))
                .flatten()
        });
        Some(match whole {
            Some((key, node)) => Glance {
                key,
                node: node.filter(|_| seen.node.is_some()),
                ..seen
            },
            None => Glance {
                key: seen.key.with_plan(0),
                node: None,
                ..seen
            },
        })
    }
}

/// A statement that runs.
struct Innermost {
    slot: &'static Slot,
    id: BlockId,
    block: &'static Block,
    generation: u64,
}

impl Innermost {
    /// Returns the one of a session. `last` is what was seen the last time. Raises if memory cannot be
    /// mapped.
    fn of(memory: &LiveMemory, area: &'static Area, last: Option<&Seen>) -> Option<Innermost> {
        let running = area.held_blocks().filter_map(|(slot, id)| {
            let block = match last {
                Some(last) if last.id == id => last.block,
                // SAFETY: the block is in a slot.
                _ => unsafe { Block::at(memory, id) },
            };
            let generation = block.header.generation.live()?;
            let state = block.header.state();
            let found = Innermost {
                slot,
                id,
                block,
                generation,
            };
            state.is_running.then_some((state.depth, found))
        });
        running
            .max_by_key(|(depth, _)| *depth)
            .map(|(_, innermost)| innermost)
    }

    /// Returns its nodes, if the block has as many as `setup` says.
    fn nodes(&self, setup: &Setup) -> Option<Nodes> {
        Need::of_nodes(setup.count)
            .fits(self.id.kind())
            .then(|| Nodes::of(self.block, setup))
    }

    /// Returns whether it still runs in that session. Then what was read since is of this execution.
    fn is_still(&self) -> bool {
        self.slot.has(self.id) && self.block.header.generation.is_still(self.generation)
    }
}

/// Returns the key of the innermost statement in private memory that a session runs, if none runs inside of
/// it that is in a block. Its nodes are not known.
fn innermost_private(area: &Area, in_block: Option<&Innermost>) -> Option<PlanKey> {
    let running = area.shown_cuts().filter_map(|cut| {
        let generation = cut.header.generation.live()?;
        let (state, key) = (cut.header.state(), cut.header.setup().key);
        let is_one = state.is_running && cut.header.generation.is_still(generation);
        is_one.then_some((state.depth, key))
    });
    let (depth, key) = running.max_by_key(|(depth, _)| *depth)?;
    let inside = |block: &Innermost| block.block.header.state().depth > depth;
    (!in_block.is_some_and(inside)).then_some(key)
}

/// Looks at a session once. Returns `None` if it must be tried again, and `Some(None)` if no statement runs.
/// `last` is what was seen the last time. Raises if memory cannot be mapped.
fn look(memory: &LiveMemory, area: &'static Area, last: &mut Option<Seen>) -> Option<Option<Glance>> {
    let innermost = Innermost::of(memory, area, last.as_ref());
    if let Some(key) = innermost_private(area, innermost.as_ref()) {
        return Some(Some(Glance {
            key,
            node: None,
            plan_node_id: -1,
            wait_event: area.wait_event(),
        }));
    }
    let Some(innermost) = innermost else {
        return Some(None);
    };
    let (id, block, generation) = (innermost.id, innermost.block, innermost.generation);
    // SAFETY: the hot state is in shared memory that stays mapped.
    let account = area
        .hot()
        .map(|hot| unsafe { load(&raw const (*hot).current).get().usage().addr() });
    let same = |seen: &Seen| (seen.id, seen.generation, seen.account) == (id, generation, account);
    if let Some(Seen { glance, .. }) = last.filter(same) {
        let wait_event = area.wait_event();
        return innermost
            .is_still()
            .then_some(Some(Glance { wait_event, ..glance }));
    }
    let setup = block.header.setup();
    let nodes = innermost.nodes(&setup)?;
    let wait_event = area.wait_event();
    let called = account.and_then(|account| nodes.of_account(account));
    let is_by_core = |node: SharedNode| node.last_by_core() != 0 || node.is_unwrapped();
    let is_by_core = called.and_then(|index| nodes.get(index)).is_some_and(is_by_core);
    let running = called.and_then(|index| {
        let index = nodes.called_by_core(nodes.running(index)?);
        Some((nodes.shown(index)?, nodes.get(index)?.plan_node_id()))
    });
    if !innermost.is_still() {
        return None;
    }
    let (node, plan_node_id) = running.unzip();
    let glance = Glance {
        key: setup.key,
        node,
        plan_node_id: plan_node_id.unwrap_or(-1),
        wait_event,
    };
    // If core may call nodes on behalf of the running one, the account does not tell which of them runs.
    *last = (!is_by_core).then_some(Seen {
        id,
        block,
        generation,
        account,
        glance,
    });
    Some(Some(glance))
}

/// Returns the plan that a leader runs, and the number of the node with this plan node id, if it runs the
/// statement of this key. Returns `None` if it must be tried again. Raises if memory cannot be mapped.
fn place(
    memory: &LiveMemory,
    leader: &'static Area,
    worker: &PlanKey,
    plan_node_id: i32,
) -> Option<Option<(PlanKey, Option<u16>)>> {
    let innermost = Innermost::of(memory, leader, None);
    if let Some(key) = innermost_private(leader, innermost.as_ref()) {
        return Some((key.queryid == worker.queryid).then_some((key, None)));
    }
    let Some(innermost) = innermost else {
        return Some(None);
    };
    let setup = innermost.block.header.setup();
    let nodes = innermost.nodes(&setup)?;
    let is_it = |index: &usize| nodes.get(*index).map(SharedNode::plan_node_id) == Some(plan_node_id);
    let found = (0..setup.count).find(is_it).and_then(|index| nodes.shown(index));
    if !innermost.is_still() {
        return None;
    }
    Some((setup.key.queryid == worker.queryid).then_some((setup.key, found)))
}
