//! Sends what parallel workers report in addition to core's instrumentation: sampling counts, sampling error, histograms and
//! waits.
//!
//! Core's struct carries rows, loops, times and buffers. A small shared memory segment of the leader carries the rest.
//! Workers get its handle from a setting (`pg_rowsource.worker_channel`), because a leader's settings are all that
//! PostgreSQL passes to its workers for extensions. Only the leader's own announcement can set it. Each plan node id has a
//! slot, and workers add to it atomically.

use crate::guc;
use crate::pg::server;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::contained::contained;
use pgrx::pg_sys;
use rowsource_core::histogram::{BUCKETS, Histogram, SharedCounts};
use rowsource_core::model::{CALLED_WORDS, Called, NodeStats};
use rowsource_core::results::WorkerReport;
use rowsource_core::waits::plan::{EventWaits, RunWaits};
use rowsource_core::waits::team::TeamWaits;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MAGIC: u64 = 0x726f_7773_7263_0003;

/// Plans with more nodes have no channel, because a channel would take more than about a megabyte of shared memory.
const MAX_SLOTS: usize = 2000;

#[repr(C)]
struct Header {
    magic: u64,
    leader: i32,
    slots: u32,
    /// The workers' waits, by plan node id.
    waits: TeamWaits,
}

#[repr(C)]
struct Slot {
    /// The sum of squared standard errors in ns^2, as the bits of an f64.
    error_square: AtomicU64,
    timed_calls: AtomicU64,
    timer_calls: AtomicU64,
    clock_backsteps: AtomicU64,
    waited_ns: AtomicU64,
    /// What the subplans used that the node called: see [`Called::to_words`].
    called: [AtomicU64; CALLED_WORDS],
    plain: SharedCounts<BUCKETS>,
    reading: SharedCounts<BUCKETS>,
}

/// The leader's end. The segment belongs to the resource owner of the run that made it. An abort, also of a subtransaction,
/// unmaps it, although the statement may still be live. So each segment has a number, which is in a list while the segment
/// is mapped.
#[derive(Clone, Copy)]
pub struct Channel {
    number: u64,
    segment: *mut pg_sys::dsm_segment,
    slots: *const Slot,
    count: usize,
}

/// The numbers of the channels that are mapped.
static MAPPED: BackendLocal<RefCell<Vec<u64>>> = BackendLocal::new(RefCell::new(Vec::new()));

/// Removes a channel from the list when PostgreSQL unmaps its segment.
///
/// # Safety
/// Only PostgreSQL may call this, with the number of a channel whose segment is unmapped.
unsafe extern "C-unwind" fn on_unmapped(_segment: *mut pg_sys::dsm_segment, number: pg_sys::Datum) {
    MAPPED
        .borrow_mut()
        .retain(|&known| known != number.value() as u64);
}

impl Channel {
    /// Returns a channel that is not opened yet. The first run opens it.
    pub fn unopened() -> Channel {
        Channel {
            number: 0,
            segment: std::ptr::null_mut(),
            slots: std::ptr::null(),
            count: 0,
        }
    }

    /// Opens the channel for `count` plan nodes, and tells future workers of it. If there is no shared memory, or the plan
    /// is very large, only the workers' sampling counts are missing.
    ///
    /// # Safety
    /// The caller must be in ExecutorRun, and the plan must not have started its workers yet.
    pub unsafe fn announce(&mut self, count: usize) {
        if server::is_parallel_mode() || count > MAX_SLOTS {
            return;
        }
        // SAFETY: the caller is in ExecutorRun, where PostgreSQL's functions may be called. The new segment has at least
        // the requested size, and no other process knows it yet.
        unsafe {
            if !self.is_mapped() {
                let size = size_of::<Header>() + count * size_of::<Slot>();
                let segment = contained(|| {
                    let segment = pg_sys::dsm_create(size, pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS as i32);
                    if !segment.is_null() {
                        pg_sys::dsm_pin_mapping(segment);
                    }
                    segment
                })
                .unwrap_or(std::ptr::null_mut());
                if segment.is_null() {
                    return;
                }
                // From here on the run's resource owner owns it.
                pg_sys::dsm_unpin_mapping(segment);
                let base: *mut u8 = pg_sys::dsm_segment_address(segment).cast();
                base.write_bytes(0, size);
                base.cast::<Header>().write(Header {
                    magic: MAGIC,
                    leader: pg_sys::MyProcPid,
                    slots: count as u32,
                    waits: TeamWaits::default(),
                });
                static NUMBER: BackendLocal<Cell<u64>> = BackendLocal::new(Cell::new(0));
                self.number = NUMBER.get() + 1;
                NUMBER.set(self.number);
                MAPPED.borrow_mut().push(self.number);
                pg_sys::on_dsm_detach(segment, Some(on_unmapped), pg_sys::Datum::from(self.number));
                self.segment = segment;
                self.slots = base.add(size_of::<Header>()).cast();
                self.count = count;
            }
            guc::announce_worker_channel(pg_sys::dsm_segment_handle(self.segment));
        }
    }

    /// Returns what the workers reported for a plan node id.
    pub fn read(&self, plan_node_id: i32) -> WorkerReport {
        let Ok(id) = usize::try_from(plan_node_id) else {
            return WorkerReport::default();
        };
        if !self.is_mapped() || id >= self.count {
            return WorkerReport::default();
        }
        // SAFETY: the segment is mapped, and has `count` slots, and `id` is less than that.
        let slot = unsafe { &*self.slots.add(id) };
        WorkerReport {
            error_ns: f64::from_bits(slot.error_square.load(Relaxed)).sqrt(),
            timed_calls: slot.timed_calls.load(Relaxed),
            timer_calls: slot.timer_calls.load(Relaxed),
            clock_backsteps: slot.clock_backsteps.load(Relaxed),
            called: Called::from_words(std::array::from_fn(|i| slot.called[i].load(Relaxed))),
        }
    }

    /// Returns the workers' histogram of a plan node id.
    pub fn histogram(&self, plan_node_id: i32) -> Option<Histogram> {
        let id = usize::try_from(plan_node_id)
            .ok()
            .filter(|&id| self.is_mapped() && id < self.count)?;
        // SAFETY: the segment is mapped, and has `count` slots, and `id` is less than that.
        let slot = unsafe { &*self.slots.add(id) };
        let mut histogram = Histogram::default();
        for (read, counts) in [(false, &slot.plain), (true, &slot.reading)] {
            for (bucket, calls) in counts.copy().into_iter().enumerate() {
                if calls > 0 {
                    histogram.add_to(bucket, read, calls);
                }
            }
        }
        Some(histogram)
    }

    /// Returns how long the workers waited in the node with this plan node id.
    pub fn waited_ns(&self, plan_node_id: i32) -> u64 {
        match usize::try_from(plan_node_id) {
            // SAFETY: the segment is mapped, and has `count` slots, and `id` is less than that.
            Ok(id) if self.is_mapped() && id < self.count => unsafe {
                (*self.slots.add(id)).waited_ns.load(Relaxed)
            },
            _ => 0,
        }
    }

    /// Visits the workers' waits. Their nodes are plan node ids.
    pub fn each_wait(&self, visit: impl FnMut(EventWaits)) {
        if self.is_mapped() {
            // SAFETY: the segment is mapped, and begins with its header, which lies before the slots.
            let header = unsafe { &*self.slots.cast::<Header>().sub(1) };
            header.waits.waits().for_each(visit);
        }
    }

    /// Returns whether its segment is mapped.
    fn is_mapped(&self) -> bool {
        MAPPED.borrow().contains(&self.number)
    }

    /// Unmaps the segment. This is called if the statement ends without an error.
    pub fn close(self) {
        if self.is_mapped() {
            // SAFETY: `announce` mapped the segment, and it is still mapped, because its number is in the list.
            unsafe { pg_sys::dsm_detach(self.segment) }
        }
    }
}

/// Adds a worker's statistics to the leader's slots. `plan_node_ids` has the nodes' ids in the same order. What the worker
/// waited outside of its nodes, to send rows to the leader say, stays outside of them.
///
/// # Safety
/// This process must be a parallel worker, in a state in which PostgreSQL's functions may be called.
pub unsafe fn report(
    stats: &[NodeStats],
    called: &[(usize, Called)],
    histograms: &[&Histogram],
    waits: Option<&RunWaits>,
    plan_node_ids: impl Iterator<Item = i32> + Clone,
) {
    let handle = guc::worker_channel();
    if handle == 0 {
        return;
    }
    // SAFETY: this is a parallel worker by the caller's promise, so `MyProc` is valid. Before any slot is used, the segment
    // is checked to be the leader's channel and large enough for its slots.
    unsafe {
        let known = pg_sys::dsm_find_mapping(handle);
        let segment = if known.is_null() {
            pg_sys::dsm_attach(handle)
        } else {
            known
        };
        if segment.is_null() {
            return;
        }
        let base: *mut u8 = pg_sys::dsm_segment_address(segment).cast();
        let length = pg_sys::dsm_segment_map_length(segment) as usize;
        let header = base.cast::<Header>();
        let leader = (*pg_sys::MyProc).lockGroupLeader;
        let is_leaders = length >= size_of::<Header>()
            && (*header).magic == MAGIC
            && !leader.is_null()
            && (*header).leader == (*leader).pid
            && length >= size_of::<Header>() + (*header).slots as usize * size_of::<Slot>();
        if is_leaders {
            let slots: *const Slot = base.add(size_of::<Header>()).cast();
            for waits in waits.into_iter().flat_map(RunWaits::events) {
                let id = waits.node().and_then(|node| plan_node_ids.clone().nth(node));
                let node = id.map_or(EventWaits::OUTSIDE, |id| id as u32);
                (*header).waits.add(&EventWaits { node, ..waits });
            }
            for ((stats, histogram), id) in stats.iter().zip(histograms).zip(plan_node_ids.clone()) {
                if let Ok(id) = usize::try_from(id)
                    && id < (*header).slots as usize
                {
                    add(&*slots.add(id), stats, histogram);
                }
            }
            for (node, called) in called {
                let id = plan_node_ids
                    .clone()
                    .nth(*node)
                    .and_then(|id| usize::try_from(id).ok());
                if let Some(id) = id.filter(|id| *id < (*header).slots as usize) {
                    for (sum, add) in (*slots.add(id)).called.iter().zip(called.to_words()) {
                        sum.fetch_add(add, Relaxed);
                    }
                }
            }
        }
        if known.is_null() {
            pg_sys::dsm_detach(segment);
        }
    }
}

/// Adds the statistics of one node to its slot.
fn add(slot: &Slot, stats: &NodeStats, histogram: &Histogram) {
    for (read, i, calls) in histogram.counts() {
        let counts = if read { &slot.reading } else { &slot.plain };
        counts.add(i, calls);
    }
    let error_ns = stats.time.get().map_or(0.0, |time| time.error_ms * 1e6);
    let _ = slot.error_square.fetch_update(Relaxed, Relaxed, |bits| {
        Some((f64::from_bits(bits) + error_ns * error_ns).to_bits())
    });
    slot.timed_calls.fetch_add(stats.timed_calls, Relaxed);
    slot.timer_calls.fetch_add(stats.timer_calls, Relaxed);
    slot.clock_backsteps.fetch_add(stats.clock_backsteps, Relaxed);
    slot.waited_ns
        .fetch_add((stats.wait_ms * 1e6).round() as u64, Relaxed);
}
