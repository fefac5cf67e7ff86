//! Sends what parallel workers report in addition to core's instrumentation: sampling counts, sampling error,
//! histograms and waits. If the statement fails, core sends nothing, and the rest comes from here too
//! (`parts`).
//!
//! Core's struct carries rows, loops, times and buffers. A small shared memory segment of the leader carries
//! the rest. Workers get its handle from a setting (`pg_rowsource.worker_channel`), because a leader's
//! settings are all that PostgreSQL passes to its workers for extensions. Only the leader's own announcement
//! can set it. Each plan node id has a slot, and workers add to it atomically.

use super::node_table::NodeTable;
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat::{self, NodeInstrumentation};
use crate::pg::server;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::processes::Process;
use pgrx::pg_sys;
use rowsource_core::gate::Gate;
use rowsource_core::histogram::{BUCKETS, Histogram, SharedCounts};
use rowsource_core::model::{CALLED_WORDS, Called, NodeStats, PlanKey};
use rowsource_core::results::WorkerReport;
use rowsource_core::waits::plan::{EventWaits, RunWaits};
use rowsource_core::waits::team::TeamWaits;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

const MAGIC: u64 = 0x726f_7773_7263_0005;

/// Plans with more nodes have no channel, because a channel would take more than about a megabyte of shared
/// memory.
const MAX_SLOTS: usize = 2000;
/// With more parts of workers, there is no room for any of them, for the same reason.
const MAX_PARTS: usize = 4000;

/// The slots follow, one for each plan node id, and then the parts: as many for each worker.
#[repr(C)]
struct Header {
    magic: u64,
    leader: i32,
    slots: u32,
    /// How many workers of a Gather have parts.
    workers: u32,
    /// The leader's statement and plan. PostgreSQL tells its workers the queryid of what the client sent,
    /// also of a statement in a function.
    key: PlanKey,
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
    /// If the plan is folded: the first node that is one with this one, as [`EventWaits::FOLDED`] and its
    /// plan node id. 0 if it is not folded.
    folded: AtomicU32,
    /// What the subplans used that the node called: see [`Called::to_words`].
    called: [AtomicU64; CALLED_WORDS],
    plain: SharedCounts<BUCKETS>,
    reading: SharedCounts<BUCKETS>,
}

/// What the workers of one number did of a node. Zero bytes are nothing. Core starts the workers of a Gather
/// again only when those before have ended.
#[repr(C)]
pub struct Part {
    /// Who counts the worker that runs. It is used in the part of the node at the top of what the worker
    /// runs.
    pub gate: Gate,
    /// The sums of all workers that have ended.
    pub instr: NodeInstrumentation,
    /// The part of the blocks and the WAL that core has added to the leader's: that of the workers before the
    /// last one. It is used where the gate is.
    pub in_leader: (pg_sys::BufferUsage, pg_sys::WalUsage),
}

impl Part {
    /// Adds core's counts of a node.
    ///
    /// # Safety
    /// The part must be mapped, and nobody else may write it. `instr` must be null or live.
    pub unsafe fn add(part: *mut Part, instr: *mut NodeInstrumentation) {
        // SAFETY: the caller promises it.
        unsafe {
            if !instr.is_null() {
                compat::measure_usage(&mut (*part).instr);
                pg_sys::InstrAggNode(&raw mut (*part).instr, instr);
            }
        }
    }
}

/// A channel that this process has mapped for `'m`, or longer.
#[derive(Clone, Copy)]
struct Mapped<'m>(*mut Header, PhantomData<&'m Header>);

/// The leader's end. The segment belongs to the resource owner of the run that made it. An abort, also of a
/// subtransaction, unmaps it, although the statement may still be live. So each segment has a number, which
/// is in a list while the segment is mapped.
#[derive(Clone, Copy)]
pub struct Channel {
    number: u64,
    segment: *mut pg_sys::dsm_segment,
    header: *mut Header,
    /// The channel of the statement that is running its workers, if the current run is nested in it.
    outer: Option<u32>,
}

/// A worker's end. The segment stays mapped until the worker ends.
static JOINED: BackendLocal<Cell<Option<Mapped<'static>>>> = BackendLocal::new(Cell::new(None));

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

impl<'m> Mapped<'m> {
    /// Describes a channel.
    ///
    /// # Safety
    /// The header must be that of a channel, which stays mapped for `'m`.
    const unsafe fn new(header: *mut Header) -> Mapped<'m> {
        Mapped(header, PhantomData)
    }

    /// Returns its header.
    fn header(self) -> &'m Header {
        // SAFETY: it is mapped, as who made this has promised. Others change only what is atomic.
        unsafe { &*self.0 }
    }

    /// Returns the bytes of a channel.
    fn size(count: usize, workers: usize) -> usize {
        size_of::<Header>() + count * (size_of::<Slot>() + workers * size_of::<Part>())
    }

    /// Returns the slot of a plan node id.
    fn slot(self, plan_node_id: i32) -> Option<&'m Slot> {
        let id = usize::try_from(plan_node_id).ok();
        let id = id.filter(|id| *id < self.header().slots as usize)?;
        // SAFETY: the segment is mapped, and has so many slots behind its header.
        Some(unsafe { &*self.0.add(1).cast::<Slot>().add(id) })
    }

    /// Returns the part of a worker for a plan node id.
    fn part(self, worker: usize, plan_node_id: i32) -> Option<*mut Part> {
        let (slots, workers) = (self.header().slots as usize, self.header().workers as usize);
        let id = usize::try_from(plan_node_id).ok().filter(|id| *id < slots)?;
        // SAFETY: the segment is mapped, and has so many parts behind its slots.
        (worker < workers).then(|| unsafe {
            let parts = self.0.add(1).cast::<Slot>().add(slots).cast::<Part>();
            parts.add(worker * slots + id)
        })
    }
}

impl Channel {
    /// Returns a channel that is not opened yet. The first run opens it.
    pub fn unopened() -> Channel {
        Channel {
            number: 0,
            segment: std::ptr::null_mut(),
            header: std::ptr::null_mut(),
            outer: None,
        }
    }

    /// Opens the channel for a plan with `count` nodes and so many workers of each Gather, and tells future
    /// workers of it. If there is no shared memory, or the plan is very large, the workers' sampling counts
    /// are missing, and what they did if it fails. The plan must not have started its workers yet.
    pub fn announce(&mut self, unlocked: &mut Unlocked, key: PlanKey, count: usize, workers: usize) {
        self.outer = server::is_parallel_mode().then(guc::worker_channel);
        let handle = self.open(unlocked, key, count, workers);
        guc::announce_worker_channel(handle.unwrap_or(0));
    }

    /// Tells future workers of the outer statement's channel again, when a run that is nested in it has
    /// ended. It does not raise.
    pub fn withdraw(&self) {
        if let Some(outer) = self.outer {
            guc::announce_worker_channel(outer);
        }
    }

    /// Opens the channel. Returns its handle.
    fn open(&mut self, unlocked: &mut Unlocked, key: PlanKey, count: usize, workers: usize) -> Option<u32> {
        if count > MAX_SLOTS {
            return None;
        }
        let workers = if count * workers > MAX_PARTS { 0 } else { workers };
        // SAFETY: the new segment has at least the requested size, and no other process knows it yet. It
        // belongs to a resource owner, if there is one.
        unsafe {
            if pg_sys::CurrentResourceOwner.is_null() {
                return None;
            }
            if !self.is_mapped() {
                let size = Mapped::size(count, workers);
                let segment = contained(unlocked, |_| {
                    let segment = pg_sys::dsm_create(size, pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS as i32);
                    if !segment.is_null() {
                        pg_sys::dsm_pin_mapping(segment);
                    }
                    segment
                })
                .unwrap_or(std::ptr::null_mut());
                if segment.is_null() {
                    return None;
                }
                // From here on the run's resource owner owns it.
                pg_sys::dsm_unpin_mapping(segment);
                let base: *mut u8 = pg_sys::dsm_segment_address(segment).cast();
                base.write_bytes(0, size);
                base.cast::<Header>().write(Header {
                    magic: MAGIC,
                    leader: pg_sys::MyProcPid,
                    slots: count as u32,
                    workers: workers as u32,
                    key,
                    waits: TeamWaits::default(),
                });
                static NUMBER: BackendLocal<Cell<u64>> = BackendLocal::new(Cell::new(0));
                self.number = NUMBER.get() + 1;
                NUMBER.set(self.number);
                MAPPED.borrow_mut().push(self.number);
                pg_sys::on_dsm_detach(segment, Some(on_unmapped), pg_sys::Datum::from(self.number));
                self.segment = segment;
                self.header = base.cast();
            }
            Some(pg_sys::dsm_segment_handle(self.segment))
        }
    }

    /// Notes the first node that is one with a node, for workers that will start.
    pub fn note_folded(&self, plan_node_id: i32, first: i32) {
        if let Some(slot) = self.slot(plan_node_id) {
            slot.folded.store(EventWaits::FOLDED | first as u32, Relaxed);
        }
    }

    /// Returns what the workers reported for a plan node id.
    pub fn read(&self, plan_node_id: i32) -> WorkerReport {
        let Some(slot) = self.slot(plan_node_id) else {
            return WorkerReport::default();
        };
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
        let slot = self.slot(plan_node_id)?;
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
        self.slot(plan_node_id)
            .map_or(0, |slot| slot.waited_ns.load(Relaxed))
    }

    /// Visits the workers' waits. Their nodes are plan node ids.
    pub fn each_wait(&self, visit: impl FnMut(EventWaits)) {
        if let Some(mapped) = self.mapped() {
            mapped.header().waits.waits().for_each(visit);
        }
    }

    /// Returns the part of a worker for a plan node id, while the segment is mapped.
    pub fn part(&self, worker: usize, plan_node_id: i32) -> Option<*mut Part> {
        self.mapped()?.part(worker, plan_node_id)
    }

    /// Adds the statistics of one node of a worker, as the worker itself would.
    pub fn add(&self, plan_node_id: i32, stats: &NodeStats, histogram: &Histogram) {
        if let Some(slot) = self.slot(plan_node_id) {
            add(slot, stats, histogram);
        }
    }

    /// Returns the slot of a plan node id.
    fn slot(&self, plan_node_id: i32) -> Option<&Slot> {
        self.mapped()?.slot(plan_node_id)
    }

    /// Returns the segment, if it is mapped.
    fn mapped(&self) -> Option<Mapped<'_>> {
        // SAFETY: the segment is mapped, and the statement that owns it unmaps it at its end.
        self.is_mapped().then(|| unsafe { Mapped::new(self.header) })
    }

    /// Returns whether its segment is mapped.
    pub fn is_mapped(&self) -> bool {
        MAPPED.borrow().contains(&self.number)
    }

    /// Unmaps the segment. This is called if the statement ends without an error.
    pub fn close(self) {
        if self.is_mapped() {
            // SAFETY: `announce` mapped the segment, and it is still mapped, because its number is in the
            // list.
            unsafe { pg_sys::dsm_detach(self.segment) }
        }
    }
}

/// Finds the leader's channel, in a parallel worker. Returns the leader's plan.
pub fn find_leader(unlocked: &mut Unlocked) -> Option<PlanKey> {
    JOINED.set(leaders_channel(unlocked));
    JOINED.get().map(|joined| joined.header().key)
}

/// Maps the leader's channel, if it has one.
fn leaders_channel(unlocked: &mut Unlocked) -> Option<Mapped<'static>> {
    let handle = Some(guc::worker_channel()).filter(|handle| *handle != 0)?;
    let leader = Process::own()?.leader()?;
    // SAFETY: before anything else is used, the segment is checked to be the leader's channel, and large
    // enough. It stays mapped until the worker ends.
    unsafe {
        let attached = contained(unlocked, |_| {
            let segment = match pg_sys::dsm_find_mapping(handle) {
                segment if segment.is_null() => pg_sys::dsm_attach(handle),
                segment => segment,
            };
            if !segment.is_null() {
                pg_sys::dsm_pin_mapping(segment);
            }
            segment
        });
        let segment = attached.ok().filter(|segment| !segment.is_null())?;
        let base: *mut u8 = pg_sys::dsm_segment_address(segment).cast();
        let length = pg_sys::dsm_segment_map_length(segment) as usize;
        let header = base.cast::<Header>();
        let is_leaders = length >= size_of::<Header>()
            && (*header).magic == MAGIC
            && (*header).leader == leader.pid()
            && length >= Mapped::size((*header).slots as usize, (*header).workers as usize);
        is_leaders.then(|| Mapped::new(header))
    }
}

/// Begins the worker's part, if [`find_leader`] found its leader. `is_seen` says that others can see what its
/// nodes count.
///
/// # Safety
/// This process must be a parallel worker, in ExecutorStart. The nodes must be those of the statement that it
/// starts.
pub unsafe fn join(nodes: &NodeTable, is_seen: bool) {
    let (Some(joined), Some(top)) = (JOINED.get(), nodes.iter().next()) else {
        return;
    };
    // SAFETY: the segment is the leader's channel, and stays mapped. The node is live by the caller's
    // promise.
    unsafe {
        if let Some(top) = joined.part(pg_sys::ParallelWorkerNumber as usize, top.plan_node_id()) {
            let core = compat::common_instrumentation(&mut (*top).instr);
            (*top).in_leader = (core.bufusage, core.walusage);
            (*top).gate.open(server::pid(), is_seen);
        }
    }
}

/// Returns the leader's numbers for the folded nodes of a worker, if the leader's plan is folded.
pub fn folded(nodes: &NodeTable) -> Option<Rc<Vec<u32>>> {
    let joined = JOINED.get()?;
    let number = |id: i32| joined.slot(id).map_or(0, |slot| slot.folded.load(Relaxed));
    let is_folded = nodes.iter().any(|node| number(node.plan_node_id()) != 0);
    let mut numbers = Vec::new();
    if !is_folded || numbers.try_reserve_exact(nodes.count()).is_err() {
        return None;
    }
    numbers.extend(
        nodes
            .iter()
            .enumerate()
            .map(|(at, node)| match number(node.plan_node_id()) {
                0 => at as u32,
                folded => folded,
            }),
    );
    Some(Rc::new(numbers))
}

/// Adds a worker's statistics to the leader's channel, unless its leader has. What the worker waited outside
/// of its nodes, to send rows to the leader say, stays outside of them. Core's counts of the nodes must have
/// been written before.
///
/// # Safety
/// This process must be a parallel worker, and these its nodes. Their plan states must be live.
pub unsafe fn report(
    nodes: &NodeTable,
    stats: &[NodeStats],
    called: &[(usize, Called)],
    histograms: &[&Histogram],
    waits: Option<&RunWaits>,
) {
    let (Some(joined), Some(first)) = (JOINED.take(), nodes.iter().next()) else {
        return;
    };
    // SAFETY: this is a parallel worker, so it has a number. The segment is mapped until the worker ends. The
    // plan states are live by the caller's promise.
    unsafe {
        let part = |id| joined.part(pg_sys::ParallelWorkerNumber as usize, id);
        let top = part(first.plan_node_id());
        if top.is_some_and(|top| !(*top).gate.begin_counting(server::pid())) {
            return;
        }
        for waits in waits.into_iter().flat_map(RunWaits::events) {
            let id = waits
                .node()
                .filter(|node| *node < nodes.count())
                .map(|node| nodes.get(node).plan_node_id());
            let (node, folded) = match id {
                Some(id) => {
                    let folded = joined.slot(id).map_or(0, |slot| slot.folded.load(Relaxed));
                    (id as u32, if folded == 0 { id as u32 } else { folded })
                }
                // It was folded while it ran, or is outside of the nodes.
                None => (waits.node, waits.node),
            };
            joined.header().waits.add(&EventWaits { node, ..waits }, folded);
        }
        for ((stats, histogram), node) in stats.iter().zip(histograms).zip(nodes.iter()) {
            if let Some(slot) = joined.slot(node.plan_node_id()) {
                add(slot, stats, histogram);
            }
            if let Some(part) = part(node.plan_node_id()) {
                Part::add(part, (*node.plan_state()).instrument);
            }
        }
        for (node, called) in called.iter().filter(|(node, _)| *node < nodes.count()) {
            if let Some(slot) = joined.slot(nodes.get(*node).plan_node_id()) {
                for (sum, add) in slot.called.iter().zip(called.to_words()) {
                    sum.fetch_add(add, Relaxed);
                }
            }
        }
        if let Some(top) = top {
            (*top).gate.end_counting(server::pid());
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
