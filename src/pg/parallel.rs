//! What parallel workers report beyond core's own instrumentation: how much was sampled, and how well.
//!
//! Rows, loops, times and buffers come back in core's struct. The rest goes through a small shared memory segment
//! of the leader's; workers learn of it by a setting (`pg_rowsource.worker_channel`), because PostgreSQL hands a
//! leader's settings to its workers, and hands extensions nothing else. Only the leader's own announcement can set it.
//! Slots are added to atomically, one per plan node id.

use super::backend_local::BackendLocal;
use super::contained::contained;
use super::server;
use super::statement::Statement;
use crate::guc;
use pgrx::pg_sys;
use rowsource_core::histogram::{BUCKETS, Histogram, SharedCounts};
use rowsource_core::model::NodeStats;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MAGIC: u64 = 0x726f_7773_7263_0001;

/// Larger plans have no channel: it would take more than about a megabyte of shared memory.
const MOST_SLOTS: usize = 2000;

#[repr(C)]
struct Header {
    magic: u64,
    leader: i32,
    slots: u32,
}

#[repr(C)]
struct Slot {
    /// Bits of an f64: the sum of squared standard errors, in ns^2.
    error_square: AtomicU64,
    timed_calls: AtomicU64,
    timer_calls: AtomicU64,
    clock_backsteps: AtomicU64,
    plain: SharedCounts<BUCKETS>,
    reading: SharedCounts<BUCKETS>,
}

/// The workers' part of one node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub error_ns: f64,
    pub timed_calls: u64,
    pub timer_calls: u64,
    pub clock_backsteps: u64,
}

/// The leader's end. The segment belongs to the resource owner of the run that made it: an abort, also that of a
/// subtransaction, takes it away while the statement may live on. So each is known by a number while it is mapped.
#[derive(Clone, Copy)]
pub struct Channel {
    number: u64,
    segment: *mut pg_sys::dsm_segment,
    slots: *const Slot,
    count: usize,
}

/// The numbers of the channels that are mapped.
static MAPPED: BackendLocal<RefCell<Vec<u64>>> = BackendLocal::new(RefCell::new(Vec::new()));

/// PostgreSQL unmaps a segment, whoever asked for it.
///
/// # Safety
/// To be called by PostgreSQL only, with the number of a channel whose segment goes.
unsafe extern "C-unwind" fn unmapped(_segment: *mut pg_sys::dsm_segment, number: pg_sys::Datum) {
    MAPPED
        .borrow_mut()
        .retain(|&known| known != number.value() as u64);
}

impl Channel {
    /// A channel to be opened at the first run.
    pub fn wanted() -> Channel {
        Channel {
            number: 0,
            segment: std::ptr::null_mut(),
            slots: std::ptr::null(),
            count: 0,
        }
    }

    /// Opens the channel for `count` plan nodes and tells future workers of it. Without shared memory to be had, and
    /// for very large plans, the workers' sampling counts are missing, and nothing else.
    ///
    /// # Safety
    /// In ExecutorRun, before the plan starts its workers.
    pub unsafe fn announce(&mut self, count: usize) {
        if server::is_parallel_mode() || count > MOST_SLOTS {
            return;
        }
        // SAFETY: plain PostgreSQL calls; the new segment is at least as large as asked for.
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
                // From here on it is the run's.
                pg_sys::dsm_unpin_mapping(segment);
                let base: *mut u8 = pg_sys::dsm_segment_address(segment).cast();
                base.write_bytes(0, size);
                base.cast::<Header>().write(Header {
                    magic: MAGIC,
                    leader: pg_sys::MyProcPid,
                    slots: count as u32,
                });
                static NUMBER: BackendLocal<Cell<u64>> = BackendLocal::new(Cell::new(0));
                self.number = NUMBER.get() + 1;
                NUMBER.set(self.number);
                MAPPED.borrow_mut().push(self.number);
                pg_sys::on_dsm_detach(segment, Some(unmapped), pg_sys::Datum::from(self.number));
                self.segment = segment;
                self.slots = base.add(size_of::<Header>()).cast();
                self.count = count;
            }
            guc::announce_worker_channel(pg_sys::dsm_segment_handle(self.segment));
        }
    }

    /// What the workers reported for a plan node id.
    pub fn read(&self, plan_node_id: i32) -> Report {
        let Ok(id) = usize::try_from(plan_node_id) else {
            return Report::default();
        };
        if !self.is_mapped() || id >= self.count {
            return Report::default();
        }
        // SAFETY: within the segment, which is attached.
        let slot = unsafe { &*self.slots.add(id) };
        Report {
            error_ns: f64::from_bits(slot.error_square.load(Relaxed)).sqrt(),
            timed_calls: slot.timed_calls.load(Relaxed),
            timer_calls: slot.timer_calls.load(Relaxed),
            clock_backsteps: slot.clock_backsteps.load(Relaxed),
        }
    }

    /// The workers' part of the histogram of a plan node id.
    pub fn histogram(&self, plan_node_id: i32) -> Option<Histogram> {
        let id = usize::try_from(plan_node_id)
            .ok()
            .filter(|&id| self.is_mapped() && id < self.count)?;
        // SAFETY: within the segment, which is attached.
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

    fn is_mapped(&self) -> bool {
        MAPPED.borrow().contains(&self.number)
    }

    /// Gives the segment back, at the statement's regular end.
    pub fn close(self) {
        if self.is_mapped() {
            // SAFETY: mapped by `announce`, and not unmapped since.
            unsafe { pg_sys::dsm_detach(self.segment) }
        }
    }
}

/// A worker's end: adds its figures to the leader's slots.
///
/// # Safety
/// In a parallel worker, with the statement's nodes live.
pub unsafe fn report(figures: &[NodeStats], histograms: &[&Histogram], statement: &Statement) {
    let handle = guc::worker_channel();
    if handle == 0 {
        return;
    }
    // SAFETY: the segment is checked to be the leader's channel before any slot is touched.
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
        let ours = length >= size_of::<Header>()
            && (*header).magic == MAGIC
            && !leader.is_null()
            && (*header).leader == (*leader).pid
            && length >= size_of::<Header>() + (*header).slots as usize * size_of::<Slot>();
        if ours {
            let slots: *const Slot = base.add(size_of::<Header>()).cast();
            for (i, (figures, histogram)) in figures.iter().zip(histograms).enumerate() {
                let id = statement.plan_node_id(i);
                if let Ok(id) = usize::try_from(id)
                    && id < (*header).slots as usize
                {
                    add(&*slots.add(id), figures, histogram);
                }
            }
        }
        if known.is_null() {
            pg_sys::dsm_detach(segment);
        }
    }
}

fn add(slot: &Slot, figures: &NodeStats, histogram: &Histogram) {
    for (read, i, calls) in histogram.counts() {
        let counts = if read { &slot.reading } else { &slot.plain };
        counts.add(i, calls);
    }
    let error_ns = figures.time.get().map_or(0.0, |time| time.error_ms * 1e6);
    let _ = slot.error_square.fetch_update(Relaxed, Relaxed, |bits| {
        Some((f64::from_bits(bits) + error_ns * error_ns).to_bits())
    });
    slot.timed_calls.fetch_add(figures.timed_calls, Relaxed);
    slot.timer_calls.fetch_add(figures.timer_calls, Relaxed);
    slot.clock_backsteps.fetch_add(figures.clock_backsteps, Relaxed);
}
