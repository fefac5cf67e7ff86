//! The blocks of this session.
//!
//! A statement gets the smallest block that has room for it: one that the session has and does not use, or a
//! new one. New ones have a limit for each session, and one for all sessions (`store::live`). When that is
//! reached, the session claims a block that another session has not used for a while, or else the statement
//! gets the block of one that the session itself keeps for reuse (`pool`).

use super::area::{self, Area, FIRST_SLOT, SLOTS};
use super::block::{self, Block, Need};
use super::cut::CUTS;
use super::header::{Header, Setup};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::node::Node;
use crate::pg::server;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::store::{self, LiveMemory};
use rowsource_core::blocks::{BlockId, Slot};
use rowsource_core::model::LazyDescription;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The blocks that the statements of a session use, its first one apart, take at most so many bytes.
const MAX_BYTES: usize = 1 << 20;
/// After this time without use, other sessions may claim a block: in nanoseconds.
const IDLE_NS: f64 = 1e9;
/// A session that got no memory asks for some again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// This process's area, and what it uses of it.
struct Own {
    area: Cell<Option<&'static Area>>,
    /// A bit for each slot that belongs to an [`OwnBlock`].
    used: Cell<u32>,
    /// For each cut, the number of the statement that had it last.
    cuts: [Cell<u64>; CUTS],
    /// The number of the last statement that got a cut.
    last_cut: Cell<u64>,
    /// The descriptions in the blocks.
    descriptions: [RefCell<Option<Rc<LazyDescription>>>; SLOTS],
    /// There was no memory for an area.
    has_no_area: Shortage,
    /// There was no memory for a statement.
    has_no_block: Shortage,
}

static OWN: BackendLocal<Own> = BackendLocal::new(Own {
    area: Cell::new(None),
    used: Cell::new(0),
    cuts: [const { Cell::new(0) }; CUTS],
    last_cut: Cell::new(0),
    descriptions: [const { RefCell::new(None) }; SLOTS],
    has_no_area: Shortage(Cell::new(None)),
    has_no_block: Shortage(Cell::new(None)),
});

/// When there was no memory.
struct Shortage(Cell<Option<Instant>>);

impl Shortage {
    /// Returns whether that was a short time ago.
    fn is_recent(&self) -> bool {
        self.0.get().is_some_and(|at| at.elapsed() < RETRY_AFTER)
    }

    fn begin(&self) {
        self.0.set(Some(Instant::now()));
    }
}

/// A block of this process, until it is dropped.
pub struct OwnBlock {
    slot: &'static Slot,
    id: BlockId,
    block: &'static Block,
    index: usize,
}

/// Returns this process's area. Takes one if it has none and the process has attached to the store.
fn own(memory: &LiveMemory) -> Option<&'static Area> {
    OWN.area.get().or_else(|| {
        if OWN.has_no_area.is_recent() {
            return None;
        }
        // SAFETY: a statement is being set up, so the process holds no lock and is outside of any boundary.
        // `contained` catches errors.
        let Some(area) = unsafe { contained(&mut Unlocked::promised(), |_| area::take(memory)) }
            .ok()
            .flatten()
        else {
            OWN.has_no_area.begin();
            return None;
        };
        OWN.area.set(Some(area));
        server::before_leaving_memory(at_exit);
        Some(area)
    })
}

/// Notes that the process ends.
fn at_exit(_code: i32) {
    if let Some(area) = OWN.area.get() {
        area.leave();
    }
}

/// Returns whether other processes see this process's hot state.
pub fn is_hot_shared() -> bool {
    OWN.area.get().is_some_and(|area| area.hot().is_some())
}

/// The room for a statement in private memory, until it is dropped. The session takes its cuts in turn, so
/// that a statement that is kept for reuse often finds its own again.
pub struct OwnCut {
    area: &'static Area,
    index: usize,
    number: u64,
    is_held: Cell<bool>,
}

/// Returns the index of the cut that was given back first.
fn free_cut(area: &Area) -> Option<usize> {
    let held = area.held_cuts.load(Relaxed);
    let free = (0..CUTS).filter(|i| held >> i & 1 == 0);
    free.min_by_key(|i| OWN.cuts[*i].get())
}

/// Takes a cut. Returns `None` if statements of this session have all, or if it has no area.
#[cold]
pub fn take_cut() -> Option<OwnCut> {
    let area = own(&store::live_memory()?)?;
    let (index, number) = (free_cut(area)?, OWN.last_cut.get() + 1);
    OWN.last_cut.set(number);
    OWN.cuts[index].set(number);
    let cut = OwnCut {
        area,
        index,
        number,
        is_held: Cell::new(false),
    };
    cut.hold().then_some(cut)
}

/// Returns whether a statement in private memory without a cut could have one now.
#[cold]
pub fn may_have_cut() -> bool {
    OWN.area.get().is_some_and(|area| free_cut(area).is_some())
}

impl OwnCut {
    /// Takes the cut again after [`OwnCut::give_back`]. Returns false if another statement has had it since.
    #[cold]
    pub fn hold(&self) -> bool {
        let is_last = OWN.cuts[self.index].get() == self.number;
        if is_last {
            self.area.held_cuts.fetch_or(1 << self.index, Relaxed);
        }
        self.is_held.set(is_last);
        is_last
    }

    /// Gives the cut back until its statement runs again.
    #[cold]
    pub fn give_back(&self) {
        if self.is_held.replace(false) {
            self.header().end();
            self.area.held_cuts.fetch_and(!(1 << self.index), Relaxed);
        }
    }

    /// Returns the header. It is valid as long as the process runs.
    pub fn header(&self) -> &'static Header {
        &self.area.cuts()[self.index].header
    }

    /// Publishes how the statement is measured, and its text.
    ///
    /// # Safety
    /// The cut must be held, and the statement must not be live.
    pub unsafe fn publish(&self, setup: Setup, text: &str) {
        // SAFETY: the session owns the area, and the caller promises the rest.
        unsafe { self.area.cuts()[self.index].publish(setup, text) }
    }
}

impl Drop for OwnCut {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Returns the header of all statements in private memory that have no cut, if the session has an area.
pub fn private_header() -> Option<&'static Header> {
    OWN.area.get().map(|area| &area.private)
}

/// Returns whether a statement in private memory should ask for a block again.
#[cold]
pub fn may_have_block() -> bool {
    has_slot()
        && store::live_memory().is_some()
        && !OWN.has_no_area.is_recent()
        && !OWN.has_no_block.is_recent()
}

/// Returns whether there is a slot that no statement uses.
fn has_slot() -> bool {
    OWN.used.get() != u32::MAX
}

/// Takes a block for a statement, if need be one without room for its description. Also returns whether it is
/// new, so that its bytes are zero. Returns `None` if there is none: then the statement is in private memory.
pub fn take_block(need: Need) -> Option<(OwnBlock, bool)> {
    if !has_slot() {
        return None;
    }
    let smallest = need.with_names().kind()?;
    let memory = store::live_memory()?;
    let area = own(&memory)?;
    let larger = need.kind().filter(|kind| *kind != smallest);
    let mut kinds = larger.into_iter().chain([smallest]);
    let Some((index, id, is_new)) = kinds.find_map(|kind| found(&memory, area, kind)) else {
        OWN.has_no_block.begin();
        return None;
    };
    // SAFETY: the block is in a slot. A statement is being set up, so the process holds no lock and is
    // outside of any boundary.
    let Some(block) = (unsafe { Block::get(&memory, id) }) else {
        area.slots[index].give_back(id);
        return None;
    };
    OWN.used.set(OWN.used.get() | 1 << index);
    let block = OwnBlock {
        slot: &area.slots[index],
        id,
        block,
        index,
    };
    Some((block, is_new))
}

/// Finds a block of this kind, or else a larger one, and holds it. Returns the index of its slot, and whether
/// it is new.
fn found(memory: &LiveMemory, area: &Area, kind: usize) -> Option<(usize, BlockId, bool)> {
    let is_used = |i: usize| OWN.used.get() >> i & 1 == 1;
    let in_slots =
        |from: usize| (from..SLOTS).filter_map(|i| area.slots[i].found().map(|found| (i, found.block)));
    let used = in_slots(FIRST_SLOT + 1).filter(|(i, _)| is_used(*i));
    let left = MAX_BYTES.saturating_sub(used.map(|(_, id)| block::size(id.kind())).sum());
    let fits = |id: BlockId| block::size(id.kind()) <= left;
    let unused = |is_wanted: &dyn Fn(usize, BlockId) -> bool| {
        in_slots(FIRST_SLOT)
            .filter(|(i, id)| !is_used(*i) && is_wanted(*i, *id))
            .find(|(i, id)| area.slots[*i].hold(*id))
            .map(|(i, id)| (i, id, false))
    };
    let empty = || (0..SLOTS).find(|i| !is_used(*i) && area.slots[*i].found().is_none());
    let put = |i: usize, id: BlockId, is_new| {
        area.slots[i].put(id);
        OWN.descriptions[i].take();
        (i, id, is_new)
    };
    unused(&|i, id| id.kind() == kind && fits(id) || i == FIRST_SLOT && id.kind() >= kind)
        .or_else(|| {
            let i = empty().filter(|_| block::size(kind) <= left)?;
            Some(put(i, made(memory, kind)?, true))
        })
        .or_else(|| unused(&|_, id| id.kind() > kind && fits(id)))
        .or_else(|| Some(put(empty()?, claimed(memory, area, kind, &fits)?, false)))
}

/// Makes a block of this kind, if there is memory for it.
#[cold]
fn made(memory: &LiveMemory, kind: usize) -> Option<BlockId> {
    // SAFETY: a statement is being set up, so the process holds no lock and is outside of any boundary.
    let unlocked = &mut unsafe { Unlocked::promised() };
    let address = contained(unlocked, |_| memory.allocate(kind, block::size(kind))).ok()??;
    BlockId::new(address, kind)
}

/// Claims a block of this kind, or else a larger one, that another session has given back and not used for a
/// while. Looks for one in vain only once in a second.
#[cold]
fn claimed(memory: &LiveMemory, own: &Area, kind: usize, fits: &dyn Fn(BlockId) -> bool) -> Option<BlockId> {
    if OWN.has_no_block.is_recent() {
        return None;
    }
    let claim = |is_wanted: &dyn Fn(BlockId) -> bool| {
        let mut claimed = None;
        // SAFETY: a statement is being set up, so the process holds no lock and is outside of any boundary.
        let unlocked = &mut unsafe { Unlocked::promised() };
        let found = contained(unlocked, |_| {
            area::each(memory, |_, area| {
                if !std::ptr::eq(area, own) {
                    claimed = claimed_from(memory, area, is_wanted);
                }
                claimed.is_some()
            });
        });
        found.ok().and(claimed)
    };
    claim(&|id| id.kind() == kind && fits(id)).or_else(|| claim(&|id| id.kind() > kind && fits(id)))
}

/// Claims such a block from a session, if it has one. Raises if memory cannot be mapped.
fn claimed_from(memory: &LiveMemory, area: &Area, is_wanted: &dyn Fn(BlockId) -> bool) -> Option<BlockId> {
    drop(area.inherit(memory, server::pid()));
    let has_session = area.pid().is_some();
    area.slots[FIRST_SLOT + 1..].iter().find_map(|slot| {
        let found = slot
            .found()
            .filter(|found| !found.is_held && is_wanted(found.block))?;
        // SAFETY: the block is in a slot.
        let block = unsafe { Block::at(memory, found.block) };
        let is_idle = !has_session || block.header.idle_ns() >= IDLE_NS;
        (is_idle && slot.claim(found.block)).then_some(found.block)
    })
}

impl OwnBlock {
    /// Takes the block again after [`OwnBlock::give_back`]. Returns false if another session has claimed it.
    #[inline(always)]
    pub fn hold(&self) -> bool {
        self.slot.hold(self.id)
    }

    /// Gives the block back until its statement runs again. Another session may claim it meanwhile.
    #[inline(always)]
    pub fn give_back(&self) {
        self.slot.give_back(self.id);
    }

    /// Returns the address of its nodes. Each is initialised: its bytes are zero, or what an earlier
    /// statement left.
    #[inline(always)]
    pub fn nodes(&self) -> *mut Node {
        self.block.nodes()
    }

    /// Returns whether there is room for a statement.
    pub fn fits(&self, need: Need) -> bool {
        need.fits(self.id.kind())
    }

    /// Returns for how many nodes there is room.
    pub fn room(&self) -> usize {
        block::room(self.id.kind()) / size_of::<Node>()
    }

    /// Returns the header. It is valid as long as the process runs.
    pub fn header(&self) -> &'static Header {
        &self.block.header
    }

    /// Publishes the description of the plan of a statement with so many nodes, unless the block has it.
    /// Publishes a short one, or none, if there is no room.
    ///
    /// # Safety
    /// The process must hold the block, and no statement may be live in it.
    pub unsafe fn describe(&self, nodes: usize, description: &Rc<LazyDescription>) {
        let kept = &OWN.descriptions[self.index];
        if kept
            .borrow()
            .as_ref()
            .is_some_and(|kept| Rc::ptr_eq(kept, description))
        {
            return;
        }
        kept.replace(Some(description.clone()));
        // SAFETY: the caller promises what the function requires.
        unsafe {
            let _ = self.write(nodes, description) || self.write(nodes, &description.outline());
        }
    }

    /// Publishes that the plan of the statement has no description. The block may still have that of another
    /// statement, which may be another role's.
    ///
    /// # Safety
    /// The same as for [`OwnBlock::describe`].
    pub unsafe fn describe_nothing(&self) {
        OWN.descriptions[self.index].take();
        // SAFETY: the caller promises what the function requires.
        unsafe { self.block.describe_nothing() };
    }

    /// Writes a description. Returns whether there is room for it.
    ///
    /// # Safety
    /// The same as for [`OwnBlock::describe`].
    unsafe fn write(&self, nodes: usize, description: &LazyDescription) -> bool {
        let size = description.published_size();
        let need = |description| Need { nodes, description };
        let Some(size) = size.filter(|size| self.fits(need(*size))) else {
            return false;
        };
        let write = |room: &mut [u8]| description.publish(room) == Some(size);
        // SAFETY: the process holds the block, no statement is live in it, and its nodes leave this room.
        unsafe { self.block.describe(self.id.kind(), size, write) }
    }
}

impl Drop for OwnBlock {
    fn drop(&mut self) {
        if self.slot.holds(self.id) {
            self.header().end();
            self.give_back();
        }
        OWN.used.set(OWN.used.get() & !(1 << self.index));
    }
}
