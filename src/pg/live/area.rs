//! The shared memory of a session in which it measures its statements.
//!
//! A session takes its area with its first measured statement. Behind the area lies what the session always
//! has: its first block, and the room for statements in private memory (`cut`). Other blocks come and go
//! (`own`). When the session has ended, another one takes the area over. Areas are never freed, so readers
//! can visit them without a lock.

use super::alias;
use super::block::{self, Block};
use super::cut::{CUTS, Cut};
use super::header::Header;
use crate::pg::compat::{self, MIN_PAGE};
use crate::pg::hot::state::{HOT, Hot};
use crate::pg::server;
use crate::pg::server::processes::{Process, Processes};
use crate::pg::store::LiveMemory;
use pgrx::pg_sys;
use rowsource_core::beat::Beats;
use rowsource_core::blocks::{BlockId, Slot};
use rowsource_core::pending::{Owner, OwnerGuard};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// How many blocks a session can have: for its statements that run, and for those that it keeps for reuse.
pub const SLOTS: usize = u32::BITS as usize;
/// The slot of the first block, which no other session claims.
pub const FIRST_SLOT: usize = 0;
/// It lies in one page of any size.
const _: () = assert!(size_of::<Hot>() == MIN_PAGE && align_of::<Hot>() == MIN_PAGE);

/// The area of a session.
#[repr(C, align(64))]
pub struct Area {
    /// The address of the area that was listed before this one; 0 in the first one.
    next: AtomicU64,
    owner: Owner,
    /// The owner is about to end.
    is_leaving: AtomicBool,
    /// The number of the owner in PostgreSQL's list of processes.
    pub number: AtomicU32,
    /// If the owner is a parallel worker, the pid of its leader; else 0.
    leader: AtomicI32,
    /// How many bytes before the area the hot state lies; 0 if others cannot see it.
    hot: AtomicU32,
    /// The same of PostgreSQL's counters of blocks and of WAL.
    counters: [AtomicU32; 2],
    /// The system's error number, if it refused that others see the hot state.
    refusal: AtomicI32,
    /// Its state says whether one of the statements in private memory runs for which there is no [`Cut`].
    pub private: Header,
    /// A bit for each cut that a statement has.
    pub held_cuts: AtomicU32,
    pub slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Area>() <= block::BEFORE_FIRST);

/// Returns how many bytes lie before the area in the first part of a session's memory: the pages for the hot
/// state and the counters.
fn before() -> usize {
    compat::page() + compat::pages_of_counters().1
}

/// Takes an area that no session has, or makes one.
///
/// # Safety
/// No reference to the hot state may be in use. Raises if memory cannot be mapped.
pub unsafe fn take(memory: &LiveMemory) -> Option<&'static Area> {
    let pid = server::pid();
    let mut found = None;
    each(memory, |address, area| {
        if let Some(guard) = area.inherit(memory, pid) {
            // It is the owner until it has ended.
            std::mem::forget(guard);
            found = Some((address, area));
        }
        found.is_some()
    });
    if found.is_none() {
        let (address, place) = memory.first_part()?;
        // SAFETY: there is room for the area behind the pages, and zero bytes are a valid one.
        let area = unsafe { &*place.add(before()).cast::<Area>() };
        std::mem::forget(area.owner.try_hold(pid)?);
        // Until it is complete, another session can take it over if this one ends.
        area.is_leaving.store(true, Relaxed);
        found = Some((address, area));
        let mut newest = memory.newest().load(Relaxed);
        loop {
            area.next.store(newest, Relaxed);
            match memory
                .newest()
                .compare_exchange(newest, address, Release, Relaxed)
            {
                Ok(_) => break,
                Err(newer) => newest = newer,
            }
        }
    }
    let (address, area) = found?;
    if area.slots[FIRST_SLOT].found().is_none() {
        let first = BlockId::new(address + (before() + block::BEFORE_FIRST) as u64, block::FIRST)?;
        area.slots[FIRST_SLOT].put(first);
        area.slots[FIRST_SLOT].give_back(first);
    }
    area.private.leave(0.0);
    area.cuts().iter().for_each(|cut| cut.header.end());
    area.held_cuts.store(0, Relaxed);
    // SAFETY: these are globals of this process. A backend has its place in the list, and so has its leader.
    let leader = unsafe {
        let leader = (*pg_sys::MyProc).lockGroupLeader;
        let is_worker = server::is_parallel_worker() && !leader.is_null();
        if is_worker { (*leader).pid } else { 0 }
    };
    area.number.store(server::process_number(), Relaxed);
    area.leader.store(leader, Relaxed);
    // SAFETY: this process owns the area, which is never freed. A statement is being set up, so no reference
    // to the hot state is in use.
    unsafe { area.share_statics() };
    area.is_leaving.store(false, Release);
    Some(area)
}

impl Area {
    /// Becomes the owner if no session has the area, and gives back the blocks that the one before held.
    /// Keeps the area until the guard is dropped. Raises if memory cannot be mapped.
    pub fn inherit(&self, memory: &LiveMemory, pid: i32) -> Option<OwnerGuard<'_>> {
        if self.pid().is_some() {
            return None;
        }
        let is_in_use = |holder| !self.is_leaving.load(Acquire) || server::is_alive(holder);
        let guard = self.owner.hold_or_inherit(pid, is_in_use)?;
        for slot in &self.slots {
            // SAFETY: the block is in a slot.
            slot.inherit(|block| unsafe { Block::at(memory, block).header.end() });
        }
        Some(guard)
    }

    /// Notes that the session ends. The area can be taken over when its process has ended: until then, it
    /// uses the hot state.
    pub fn leave(&self) {
        self.is_leaving.store(true, Release);
    }

    /// Returns what others see of the session's statements in private memory.
    pub fn shown_cuts(&self) -> impl Iterator<Item = &Cut> {
        let held = self.held_cuts.load(Relaxed);
        let cuts = self.cuts().iter().enumerate();
        cuts.filter(move |(i, _)| held >> i & 1 == 1).map(|(_, cut)| cut)
    }

    /// Returns the room for statements in private memory.
    pub fn cuts(&self) -> &[Cut; CUTS] {
        // SAFETY: in the first part of the session's memory, it follows the first block. Zero bytes are
        // valid.
        unsafe { &*std::ptr::from_ref(self).cast::<u8>().add(2 * MIN_PAGE).cast() }
    }

    /// Returns the place that lies so many bytes before the area, in its pages.
    fn back(&self, bytes: usize) -> *mut u8 {
        std::ptr::from_ref(self)
            .cast_mut()
            .cast::<u8>()
            .wrapping_sub(bytes)
    }

    /// Makes the hot state and PostgreSQL's counters visible to others, if the system allows it.
    ///
    /// # Safety
    /// This process must own the area, and no reference to the hot state may be in use.
    unsafe fn share_statics(&self) {
        let page = compat::page();
        let hot: *mut u8 = (&raw const *HOT).cast_mut().cast();
        let hot_at = hot.addr() % page;
        let hot = hot.wrapping_sub(hot_at);
        let (first, bytes) = compat::pages_of_counters();
        // The hot state comes first, unless it or the counters cannot lie there. The hot state matters more.
        let may_lie = |hot_back: usize| alias::may_map(hot.addr(), self.back(hot_back));
        let may_both =
            |places: &[usize; 2]| may_lie(places[0]) && alias::may_map(first, self.back(places[1]));
        let (hot_first, counters_first) = ([before(), bytes], [page, before()]);
        let both = [hot_first, counters_first].into_iter().find(may_both);
        let places = both.unwrap_or(match may_lie(hot_first[0]) {
            true => hot_first,
            false => counters_first,
        });
        // SAFETY: the hot state lies in one page. Where pages are larger, other variables of this library are
        // there too. The area's pages are this process's, and never freed. A backend has one thread. The
        // other pages are of PostgreSQL's own variables, which are used as before: they keep their addresses
        // and values.
        let (mapped, are_counters_shared) = unsafe {
            let mapped = alias::map_onto(hot, self.back(places[0]), page);
            let counters = compat::buffer_usage().cast::<u8>().with_addr(first);
            let can_be = mapped.is_ok() && bytes > 0;
            let are_shared = can_be && alias::map_onto(counters, self.back(places[1]), bytes).is_ok();
            (mapped, are_shared)
        };
        self.refusal.store(mapped.err().unwrap_or(0), Relaxed);
        let distance = |is_shared, bytes: usize| if is_shared { bytes as u32 } else { 0 };
        self.hot
            .store(distance(mapped.is_ok(), places[0] - hot_at), Relaxed);
        let counters = [compat::buffer_usage().addr(), compat::wal_usage().addr()];
        for (at, counter) in self.counters.iter().zip(counters) {
            let bytes = places[1].wrapping_sub(counter - first);
            at.store(distance(are_counters_shared, bytes), Relaxed);
        }
    }

    /// Returns the addresses of PostgreSQL's counters of blocks and of WAL of the session, if others can see
    /// them. Only their fields may be read, each as one word.
    pub fn counters(&self) -> Option<(*const pg_sys::BufferUsage, *const pg_sys::WalUsage)> {
        let [buffers, wal] = [0, 1].map(|i| self.counters[i].load(Relaxed) as usize);
        let are_shared = buffers > 0 && wal > 0;
        are_shared.then(|| {
            (
                self.back(buffers).cast_const().cast(),
                self.back(wal).cast_const().cast(),
            )
        })
    }

    /// Returns the address of the hot state of the session, if others can see it. Only its fields may be
    /// read, each as one word.
    pub fn hot(&self) -> Option<*const Hot> {
        let bytes = self.hot.load(Relaxed) as usize;
        (bytes > 0).then(|| self.back(bytes).cast_const().cast())
    }

    /// Returns why others cannot see the hot state.
    pub fn refusal(&self) -> std::io::Error {
        std::io::Error::from_raw_os_error(self.refusal.load(Relaxed))
    }

    /// Returns the words that the session shares with the heart, if others can see its hot state.
    pub fn beats(&self) -> Option<&Beats> {
        // SAFETY: the words are atomics in shared memory that stays mapped.
        self.hot().map(|hot| unsafe { &(*hot).beats })
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

    /// Returns the blocks that the session holds, with their slots: only in these a statement can run.
    pub fn held_blocks(&self) -> impl Iterator<Item = (&Slot, BlockId)> {
        self.slots.iter().filter_map(|slot| {
            let found = slot.found().filter(|found| found.is_held)?;
            Some((slot, found.block))
        })
    }

    /// Returns the wait event of the session; 0 if it does not wait.
    pub fn wait_event(&self) -> u32 {
        let process = Processes::all().get(self.number.load(Relaxed) as usize);
        let process = process.filter(|process| process.pid() == self.owner.pid());
        process.map_or(0, Process::wait_event)
    }
}

/// Visits the areas of all sessions, until `visit` returns true. It gets the address of the area in the
/// store's memory, too. Raises if memory cannot be mapped.
pub fn each(memory: &LiveMemory, mut visit: impl FnMut(u64, &'static Area) -> bool) {
    let mut address = memory.newest().load(Acquire);
    while address != 0 {
        // SAFETY: the list contains only addresses of first parts, which are never freed. An area follows its
        // pages.
        let area = unsafe { &*memory.at(address).add(before()).cast::<Area>() };
        if visit(address, area) {
            return;
        }
        address = area.next.load(Relaxed);
    }
}
