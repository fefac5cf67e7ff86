//! The shared memory of a session in which it measures its statements.
//!
//! A session takes its area with its first measured statement, and grows it when its statements need more nodes, up to a limit.
//! When the session has ended, another one takes the area over. Areas are never freed, so readers can visit them without a lock.

use super::alias::{self, MIN_PAGE};
use super::header::Header;
use crate::pg::compat;
use crate::pg::hot::node::Node;
use crate::pg::hot::state::{HOT, Hot};
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::contained::contained;
use crate::pg::{server, store};
use pgrx::{pg_guard, pg_sys};
use rowsource_core::beat::Beats;
use rowsource_core::model::LazyDescription;
use rowsource_core::pending::Owner;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// How many statements of a session can be in its area at the same time, those that it keeps for reuse included.
const BLOCKS: usize = 32;
/// The numbers of nodes for which a block can have room. Larger statements are in private memory.
const ROOMS: [usize; 5] = [2, 8, 16, 64, 256];
/// All blocks of a session take at most so many bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The longest description that is published.
const MAX_DESCRIPTION: usize = 16 << 10;
const SMALL_DESCRIPTION: usize = 2 << 10;
/// It lies in one page of any size.
const _: () = assert!(size_of::<Hot>() == MIN_PAGE && align_of::<Hot>() == MIN_PAGE);

/// Room for a statement.
#[repr(C)]
pub struct Block {
    /// The address of the nodes in the store's area; 0 if there is no room yet.
    nodes: AtomicU64,
    /// For how many nodes there is room.
    room: AtomicU32,
    /// For how many bytes of a description there is room.
    description_room: AtomicU32,
    /// The address of the description.
    description: AtomicU64,
    /// Its bytes; 0 if there is none.
    description_size: AtomicU32,
    pub header: Header,
}

/// The area of a session.
#[repr(C)]
pub struct Area {
    /// The address of the area that was listed before this one; 0 in the first one.
    next: AtomicU64,
    owner: Owner,
    /// The owner is about to end.
    is_leaving: AtomicBool,
    /// Whether the hot state is in the first page, and where in it.
    is_hot_shared: AtomicBool,
    hot_at: AtomicU32,
    /// Where in the next pages PostgreSQL's counters of blocks and of WAL are; 0 if others cannot see them.
    counters: [AtomicU32; 2],
    /// The number of the owner in PostgreSQL's list of processes.
    pub number: AtomicU32,
    /// If the owner is a parallel worker, the pid of its leader; else 0.
    leader: AtomicI32,
    /// Its state says whether a statement in private memory runs. It is never live.
    pub private: Header,
    /// The bytes of its blocks.
    bytes: AtomicU64,
    pub blocks: [Block; BLOCKS],
}

/// The counters of blocks and of WAL can lie in so many pages.
const COUNTER_PAGES: usize = 3;
const _: () = assert!(MIN_PAGE + size_of::<Area>() > store::MAX_PART_OF_PAGE);

/// Returns the addresses of the pages of PostgreSQL's own variables that have its counters of blocks and of WAL.
/// They are the same in all processes of a server. Returns an empty range if the counters lie far from each other.
fn counter_pages() -> Range<usize> {
    let page = alias::page();
    let (buffers, wal) = (compat::buffer_usage().addr(), compat::wal_usage().addr());
    let ends = [
        buffers + size_of::<pg_sys::BufferUsage>(),
        wal + size_of::<pg_sys::WalUsage>(),
    ];
    let first = buffers.min(wal) / page * page;
    let end = ends[0].max(ends[1]).next_multiple_of(page);
    if end - first <= COUNTER_PAGES * page {
        first..end
    } else {
        first..first
    }
}

/// An area follows the page that has the hot state, and those that have the counters. Returns their bytes.
fn before() -> usize {
    alias::page() + counter_pages().len()
}

/// This process's area.
struct Own {
    area: Cell<Option<&'static Area>>,
    /// A bit for each block that is in use.
    used: Cell<u32>,
    /// The addresses of the blocks' nodes in this process.
    nodes: [Cell<*mut Node>; BLOCKS],
    /// The descriptions in the blocks.
    descriptions: [RefCell<Option<Rc<LazyDescription>>>; BLOCKS],
    /// Where the blocks' room for descriptions is in this process. Null if that is not known yet.
    rooms: [Cell<*mut u8>; BLOCKS],
    /// There was no memory for an area.
    refused: Cell<bool>,
}

static OWN: BackendLocal<Own> = BackendLocal::new(Own {
    area: Cell::new(None),
    used: Cell::new(0),
    nodes: [const { Cell::new(std::ptr::null_mut()) }; BLOCKS],
    descriptions: [const { RefCell::new(None) }; BLOCKS],
    rooms: [const { Cell::new(std::ptr::null_mut()) }; BLOCKS],
    refused: Cell::new(false),
});

/// A block of this process, until it is dropped.
pub struct OwnBlock {
    area: &'static Area,
    index: usize,
    nodes: *mut Node,
    room: usize,
}

/// Returns this process's area. Takes one if it has none and the process has attached to the store.
fn own() -> Option<&'static Area> {
    OWN.area.get().or_else(|| {
        let memory = store::live_memory().filter(|_| !OWN.refused.get())?;
        // SAFETY: a statement is being set up, so the process holds no lock and is outside of any boundary. `contained` catches
        // errors.
        let area = contained(|| unsafe { take(&memory) }).ok().flatten();
        OWN.refused.set(area.is_none());
        OWN.area.set(area);
        area
    })
}

/// Takes an area that no session has, or makes one.
///
/// # Safety
/// The caller must be in `contained`, outside of any FFI boundary, and hold no lock. Raises if memory cannot be mapped.
unsafe fn take(memory: &store::LiveMemory) -> Option<&'static Area> {
    let pid = server::pid();
    let mut found = None;
    // SAFETY: the caller promises what the function requires.
    unsafe {
        each(memory, |_, area| {
            let is_in_use = |holder| !area.is_leaving.load(Acquire) || server::is_alive(holder);
            if let Some(guard) = area.owner.hold_or_inherit(pid, is_in_use) {
                // It is the owner until it has ended.
                std::mem::forget(guard);
                found = Some(area);
            }
            found.is_some()
        });
    }
    if found.is_none() {
        let page = alias::page();
        // SAFETY: the caller promises what the function requires.
        let (address, place) =
            unsafe { memory.allocate(size_of::<Area>() + before() + 2 * page - MIN_PAGE)? };
        // PostgreSQL aligns memory to its own pages.
        let mut skipped = place.align_offset(page);
        // The linker may have put the hot state where a huge page could begin. Then its shared page must not be such a place, too.
        if (place.addr() + skipped).is_multiple_of(alias::huge_page(page)) {
            skipped += page;
        }
        // SAFETY: there is room for so much more than the area needs.
        let (address, place) = unsafe { (address + skipped as u64, place.add(skipped)) };
        // SAFETY: there is room for the area behind the page, and zero bytes are a valid one.
        let area = unsafe { &*place.add(before()).cast::<Area>() };
        std::mem::forget(area.owner.try_hold(pid)?);
        // Until it is complete, another session can take it over if this one ends.
        area.is_leaving.store(true, Relaxed);
        found = Some(area);
        let mut newest = memory.newest.load(Relaxed);
        loop {
            area.next.store(newest, Relaxed);
            match memory.newest.compare_exchange(newest, address, Release, Relaxed) {
                Ok(_) => break,
                Err(newer) => newest = newer,
            }
        }
    }
    let area = found?;
    area.blocks.iter().for_each(|block| block.header.end());
    area.private.leave(0.0);
    // SAFETY: these are globals of this process. A backend has its place in the list, and so has its leader.
    let leader = unsafe {
        let leader = (*pg_sys::MyProc).lockGroupLeader;
        let is_worker = server::is_parallel_worker() && !leader.is_null();
        if is_worker { (*leader).pid } else { 0 }
    };
    area.number.store(server::process_number(), Relaxed);
    area.leader.store(leader, Relaxed);
    // SAFETY: this process owns the area, which is never freed. A statement is being set up, so no reference to the hot state is in
    // use.
    unsafe { area.share_statics() };
    area.is_leaving.store(false, Release);
    // SAFETY: the callback has the type that PostgreSQL calls.
    unsafe { pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0)) };
    Some(area)
}

/// Notes that the process ends. Its area can be taken over when it has ended: until then, it uses the hot state.
///
/// # Safety
/// Only PostgreSQL may call this, before this process detaches from shared memory.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: i32, _arg: pg_sys::Datum) {
    if let Some(area) = OWN.area.get() {
        area.is_leaving.store(true, Release);
    }
}

/// Takes a block with room for so many nodes. Also returns whether the room is new, so that its bytes are zero. Returns `None` if
/// there is none: then the statement is in private memory.
pub fn take_block(count: usize) -> Option<(OwnBlock, bool)> {
    let room = ROOMS.into_iter().find(|room| *room >= count)?;
    let area = own()?;
    let room_of = |i: usize| area.blocks[i].room.load(Relaxed) as usize;
    let find = |fits: &dyn Fn(usize) -> bool| {
        (0..BLOCKS).find(|&i| OWN.used.get() >> i & 1 == 0 && fits(room_of(i)))
    };
    let (index, is_new) = match find(&|other| other == room) {
        Some(index) => (index, false),
        None => match find(&|other| other == 0).filter(|&empty| grow(area, empty, room)) {
            Some(index) => (index, true),
            None => (find(&|other| other > room)?, false),
        },
    };
    let block = &area.blocks[index];
    if OWN.nodes[index].get().is_null() {
        // An earlier owner has allocated the nodes, or `grow`.
        let (memory, address) = (store::live_memory()?, block.nodes.load(Relaxed));
        // SAFETY: the block has this memory, which is never freed. A statement is being set up, so the process is outside of any
        // boundary.
        let nodes = contained(|| unsafe { memory.at(address) }).ok()?;
        OWN.nodes[index].set(nodes.cast());
    }
    OWN.used.set(OWN.used.get() | 1 << index);
    let block = OwnBlock {
        area,
        index,
        nodes: OWN.nodes[index].get(),
        room: room_of(index),
    };
    Some((block, is_new))
}

/// Gives a block that has no room yet room for nodes. Returns whether there is memory for it.
#[cold]
fn grow(area: &Area, index: usize, room: usize) -> bool {
    let bytes = room * size_of::<Node>();
    let Some(memory) = store::live_memory() else {
        return false;
    };
    if area.bytes.load(Relaxed) + bytes as u64 > MAX_BYTES {
        return false;
    }
    // SAFETY: a statement is being set up, so the process holds no lock and is outside of any boundary.
    let Ok(Some((address, _))) = contained(|| unsafe { memory.allocate(bytes) }) else {
        return false;
    };
    area.bytes.fetch_add(bytes as u64, Relaxed);
    area.blocks[index].nodes.store(address, Relaxed);
    area.blocks[index].room.store(room as u32, Release);
    true
}

/// Returns whether other processes see this process's hot state.
pub fn is_hot_shared() -> bool {
    OWN.area
        .get()
        .is_some_and(|area| area.is_hot_shared.load(Relaxed))
}

/// Returns the header of all statements in private memory, if the session has an area.
pub fn private_header() -> Option<&'static Header> {
    OWN.area.get().map(|area| &area.private)
}

impl OwnBlock {
    /// Returns the address of its nodes. Each is initialised: its bytes are zero, or what an earlier statement left.
    #[inline(always)]
    pub fn nodes(&self) -> *mut Node {
        self.nodes
    }

    /// Returns for how many nodes there is room.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Returns the header. It is valid as long as the process runs.
    pub fn header(&self) -> &'static Header {
        &self.area.blocks[self.index].header
    }

    /// Publishes the description of the statement's plan, unless the block has it. Publishes none if there is no memory.
    pub fn describe(&self, description: &Rc<LazyDescription>) {
        let kept = &OWN.descriptions[self.index];
        if kept
            .borrow()
            .as_ref()
            .is_some_and(|kept| Rc::ptr_eq(kept, description))
        {
            return;
        }
        kept.replace(Some(description.clone()));
        let block = &self.area.blocks[self.index];
        block.description_size.store(0, Relaxed);
        let size = self
            .write(description)
            .or_else(|| self.write(&description.outline()));
        block.description_size.store(size.unwrap_or(0) as u32, Relaxed);
    }

    /// Writes a description to shared memory. Returns its size; `None` if there is no room for it.
    fn write(&self, description: &LazyDescription) -> Option<usize> {
        if let Some(size) = self.write_to_room(description) {
            return Some(size);
        }
        let block = &self.area.blocks[self.index];
        let size = description
            .published_size()
            .filter(|size| *size <= MAX_DESCRIPTION)?;
        // A block has at most two in its life: a small one, which is then lost, and the largest.
        let room = match block.description_room.load(Relaxed) as usize {
            0 if size <= SMALL_DESCRIPTION => SMALL_DESCRIPTION,
            MAX_DESCRIPTION => return None,
            _ => MAX_DESCRIPTION,
        };
        let memory = store::live_memory()?;
        // SAFETY: a statement is being set up, so the process holds no lock and is outside of any boundary.
        let (address, place) = contained(|| unsafe { memory.allocate(room) }).ok()??;
        OWN.rooms[self.index].set(place);
        block.description.store(address, Relaxed);
        block.description_room.store(room as u32, Release);
        self.write_to_room(description)
    }

    /// Does that if the room that the block has is large enough.
    fn write_to_room(&self, description: &LazyDescription) -> Option<usize> {
        let block = &self.area.blocks[self.index];
        let size = block.description_room.load(Relaxed) as usize;
        let room = &OWN.rooms[self.index];
        if size == 0 {
            return None;
        }
        if room.get().is_null() {
            // An earlier owner has allocated it.
            let memory = store::live_memory()?;
            let address = block.description.load(Relaxed);
            // SAFETY: the block has this memory, which is never freed. A statement is being set up, so the process is outside of any
            // boundary.
            room.set(contained(|| unsafe { memory.at(address) }).ok()?);
        }
        // SAFETY: the block has so much memory there, which is never freed, and which only this process writes. Readers use a copy only
        // if the statement was live, so that the description did not change meanwhile.
        let room = unsafe { std::slice::from_raw_parts_mut(room.get(), size) };
        description.publish(room)
    }
}

impl Drop for OwnBlock {
    fn drop(&mut self) {
        self.header().end();
        OWN.used.set(OWN.used.get() & !(1 << self.index));
    }
}

impl Block {
    /// Returns the addresses in the store's area of the nodes, and of the description with its size. Returns `None` if there is no
    /// room for so many nodes.
    pub fn addresses(&self, count: usize) -> Option<(u64, (u64, usize))> {
        if (self.room.load(Acquire) as usize) < count {
            return None;
        }
        let size = self
            .description_size
            .load(Relaxed)
            .min(self.description_room.load(Acquire));
        Some((
            self.nodes.load(Relaxed),
            (self.description.load(Relaxed), size as usize),
        ))
    }
}

impl Area {
    /// Returns the first of the pages before the area.
    fn pages(&self) -> *mut u8 {
        // SAFETY: the pages lie before the area.
        unsafe { std::ptr::from_ref(self).cast_mut().cast::<u8>().sub(before()) }
    }

    /// Makes the hot state and PostgreSQL's counters visible to others, if the system allows it.
    ///
    /// # Safety
    /// This process must own the area, and no reference to the hot state may be in use.
    unsafe fn share_statics(&self) {
        let page = alias::page();
        let hot: *mut u8 = (&raw const *HOT).cast_mut().cast();
        let hot_at = hot.addr() % page;
        // SAFETY: the hot state lies in one page. Where pages are larger, other variables of this library are there
        // too. The area's pages are this process's, and never freed. A backend has one thread.
        let is_shared = unsafe { alias::map_onto(hot.wrapping_sub(hot_at), self.pages(), page) };
        self.hot_at.store(hot_at as u32, Relaxed);
        self.is_hot_shared.store(is_shared, Relaxed);
        let pages = counter_pages();
        // SAFETY: these pages are of PostgreSQL's own variables, which are used as before: they keep their addresses and values.
        let is_shared = is_shared
            && !pages.is_empty()
            && unsafe {
                let place = compat::buffer_usage().cast::<u8>().with_addr(pages.start);
                alias::map_onto(place, self.pages().add(page), pages.len())
            };
        let counters = [compat::buffer_usage().addr(), compat::wal_usage().addr()];
        for (at, counter) in self.counters.iter().zip(counters) {
            let offset = if is_shared {
                page + counter - pages.start
            } else {
                0
            };
            at.store(offset as u32, Relaxed);
        }
    }

    /// Returns the addresses of PostgreSQL's counters of blocks and of WAL of the session, if others can see them. Only their fields
    /// may be read, each as one word.
    pub fn counters(&self) -> Option<(*const pg_sys::BufferUsage, *const pg_sys::WalUsage)> {
        let [buffers, wal] = [0, 1].map(|i| self.counters[i].load(Relaxed) as usize);
        let is_inside = |at: usize| (alias::page()..before()).contains(&at);
        // SAFETY: the offsets are in the pages.
        (is_inside(buffers) && is_inside(wal)).then(|| unsafe {
            (
                self.pages().add(buffers).cast_const().cast(),
                self.pages().add(wal).cast_const().cast(),
            )
        })
    }

    /// Returns the pid of the session, unless it is about to end.
    pub fn pid(&self) -> Option<i32> {
        let pid = self.owner.pid();
        (pid != 0 && !self.is_leaving.load(Relaxed)).then_some(pid)
    }

    /// Returns the pid of the leader, if the session is a parallel worker.
    pub fn leader(&self) -> Option<i32> {
        Some(self.leader.load(Relaxed)).filter(|leader| *leader != 0)
    }

    /// Returns the blocks that have room. A session gives its blocks room in their order.
    pub fn used_blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks
            .iter()
            .take_while(|block| block.room.load(Acquire) > 0)
    }

    /// Returns the address of the hot state of the session, if others can see it. Only its fields may be read, each as one word.
    pub fn hot(&self) -> Option<*const Hot> {
        let is_shared = self.is_hot_shared.load(Relaxed);
        let at = self.hot_at.load(Relaxed) as usize;
        is_shared.then(|| self.pages().cast_const().wrapping_add(at).cast())
    }

    /// Returns the words that the session shares with the heart, if others can see its hot state.
    pub fn beats(&self) -> Option<&Beats> {
        // SAFETY: the words are atomics in shared memory that stays mapped.
        self.hot().map(|hot| unsafe { &(*hot).beats })
    }

    /// Returns the wait event of the session; 0 if it does not wait.
    pub fn wait_event(&self) -> u32 {
        let number = self.number.load(Relaxed) as usize;
        // SAFETY: the list of processes has a place with this number, and stays mapped. The event is read as one word.
        unsafe {
            let process = (*pg_sys::ProcGlobal).allProcs.add(number);
            let is_same = self.owner.pid() == (*process).pid;
            if is_same {
                (&raw const (*process).wait_event_info).read_volatile()
            } else {
                0
            }
        }
    }
}

/// Visits the areas of all sessions, until `visit` returns true. It gets the address of the area in the store's memory, too.
///
/// # Safety
/// The caller must be outside of any FFI boundary. Raises if memory cannot be mapped.
pub unsafe fn each(memory: &store::LiveMemory, mut visit: impl FnMut(u64, &'static Area) -> bool) {
    let mut address = memory.newest.load(Acquire);
    while address != 0 {
        // SAFETY: the list contains only addresses of areas, which are never freed. An area follows its page.
        let area = unsafe { &*memory.at(address).add(before()).cast::<Area>() };
        if visit(address, area) {
            return;
        }
        address = area.next.load(Relaxed);
    }
}
