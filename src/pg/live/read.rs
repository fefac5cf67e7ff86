//! Copies the statements that run in all sessions.
//!
//! The copy of a statement is checked: if the statement ended meanwhile, or another one took its place, the
//! copy is made again, and after some tries the statement is left out. Each word of a copy is one that the
//! session has written. Addresses in it are those of the session, so they are only compared and turned into
//! indices.

use super::area::{self, Area};
use super::block::{Block, Need};
use super::cut::Cut;
use super::header::{Setup, State};
use super::nodes::{Nodes, copy_words};
use super::settled;
use super::wish;
use crate::pg::border::shared::load;
use crate::pg::compat;
use crate::pg::hot::account::Usage;
use crate::pg::hot::node::Node;
use crate::pg::hot::wrapper::Timed;
use crate::pg::server;
use crate::pg::server::memory;
use crate::pg::store::{self, LiveMemory};
use pgrx::pg_sys;
use rowsource_core::blocks::{BlockId, Slot};
use rowsource_core::clock::{Source, elapsed};
use rowsource_core::model::{Buffers, LazyDescription, NameOf, PlanDescription, Published, Wal};
use rowsource_core::progress::{Furthest, Progress};
use rowsource_core::results::Scratch;
use std::mem::MaybeUninit;

/// How often a copy is tried.
const TRIES: usize = 50;

/// A copy of a statement that runs.
pub struct Running {
    pub pid: i32,
    /// If the session is a parallel worker, the pid of its leader.
    pub leader: Option<i32>,
    /// What the session waits for; 0 if it does not wait.
    pub wait_event: u32,
    pub setup: Setup,
    pub state: State,
    /// The clock's reading when it was copied.
    pub now: u64,
    pub nodes: Vec<Node>,
    /// It is in private memory: its nodes are not seen, and of its description only the text.
    pub is_private: bool,
    /// The description of its plan. A parallel worker has none.
    pub published: Option<Published>,
    /// What runs now.
    pub hot: Option<HotCopy>,
    /// The session gets beats.
    pub has_beats: bool,
    /// How far readers have seen it, and the number of its execution there; `None` in private memory.
    furthest: Option<(&'static Furthest, u64)>,
}

/// What a session knows only while its nodes run.
#[derive(Clone, Copy)]
pub struct HotCopy {
    /// The address of the account that is charged next.
    pub account: usize,
    /// The last clock reading before the call of the innermost node, if its wrapper does not note that.
    pub before: u64,
    /// PostgreSQL's counters at the last charge. If the session charges all the time, that may be later than
    /// what the copy of the nodes has.
    pub charged: (Buffers, Wal),
    /// PostgreSQL's counters now, if they can be seen and belong to the copy.
    pub counters: Option<(Buffers, Wal)>,
}

/// Visits all statements that run, the outermost of a session first. Returns false if they are not shared.
///
/// # Errors
/// Raises "out of memory". The user can cancel this.
pub fn each_running(mut visit: impl FnMut(Running)) -> bool {
    store::attach();
    let Some(memory) = store::live_memory() else {
        return false;
    };
    let mut areas = memory::with_room(1_000);
    area::each(&memory, |_, area| {
        areas.push(area);
        false
    });
    for area in areas {
        server::check_for_interrupts();
        for running in of_session(&memory, area) {
            visit(running);
        }
    }
    true
}

/// Returns a copy of what a parallel worker runs for its leader, with the statistics of its nodes. Returns
/// `None` if it runs nothing, or if its nodes cannot be seen.
///
/// # Errors
/// Raises "out of memory", or if memory cannot be mapped. The caller must be outside of any FFI boundary, and
/// hold no lock.
pub fn copy_of(pid: i32) -> Option<(Running, Scratch)> {
    let memory = store::live_memory()?;
    let mut found = None;
    area::each(&memory, |_, area| {
        found = (area.pid() == Some(pid)).then_some(area);
        found.is_some()
    });
    let mut outermost = of_session(&memory, found?).into_iter().next()?;
    if outermost.state.depth > 0 || outermost.is_private {
        return None;
    }
    let (scratch, _) = outermost.assemble()?;
    Some((outermost, scratch))
}

/// Returns the pids of the sessions that run a measured statement in private memory of which nothing is
/// known: the sessions have too many of them.
///
/// # Errors
/// Raises "out of memory".
pub fn private_pids() -> Vec<i32> {
    let mut pids = memory::with_room(1_000);
    if let Some(memory) = store::live_memory() {
        area::each(&memory, |_, area| {
            pids.extend(area.pid().filter(|_| area.private.state().is_running));
            false
        });
    }
    pids
}

/// Returns how many sessions get no beats, and why one of them gets none: there is no heart, or it cannot see
/// their hot state.
pub fn sessions_without_beats() -> (usize, Option<String>) {
    let (mut count, mut reason) = (0, None);
    if let Some(memory) = store::live_memory() {
        let has_heart = wish::has_heart();
        area::each(&memory, |_, area| {
            let has_beats = has_heart && area.hot().is_some();
            if area.pid().is_some() && !has_beats {
                count += 1;
                reason.get_or_insert_with(|| why_no_beats(area, has_heart));
            }
            false
        });
    }
    (count, reason)
}

fn why_no_beats(area: &Area, has_heart: bool) -> String {
    if has_heart {
        let refusal = area.refusal();
        format!(
            "the system refuses to share a page of the session ({refusal}), as with huge_pages = on and min_dynamic_shared_memory"
        )
    } else {
        "the background worker does not run: see shared_preload_libraries and max_worker_processes".to_owned()
    }
}

/// Returns copies of the statements of a session, the outermost first.
fn of_session(memory: &LiveMemory, area: &'static Area) -> Vec<Running> {
    let Some(pid) = area.pid() else { return Vec::new() };
    let mut all: Vec<Running> = area
        .held_blocks()
        .filter_map(|(slot, id)| {
            (0..TRIES)
                .find_map(|i| copy(memory, area, slot, id, pid, i))
                .flatten()
        })
        .collect();
    all.extend(
        area.shown_cuts()
            .filter_map(|cut| (0..TRIES).find_map(|_| copy_cut(area, cut, pid)).flatten()),
    );
    if area.pid() != Some(pid) {
        return Vec::new();
    }
    all.sort_by_key(|running| {
        (
            running.state.depth,
            !running.state.is_running,
            running.state.began,
        )
    });
    // The session's account is that of the innermost statement. For the others it is the one that called for
    // the next inner one.
    let mut caller = None;
    for running in all.iter_mut().rev().filter(|running| running.state.is_running) {
        if let (Some(hot), Some((account, began, clock))) = (&mut running.hot, caller) {
            hot.account = account;
            // When the inner statement began is known by its own clock only.
            hot.before = if clock == running.setup.clock {
                began
            } else {
                running.now
            };
            hot.counters = None;
        }
        caller = Some((running.state.caller, running.state.run_began, running.setup.clock));
    }
    all
}

/// Copies a statement. Returns `None` if it must be tried again, and `Some(None)` if no statement is live.
fn copy(
    memory: &LiveMemory,
    area: &'static Area,
    slot: &'static Slot,
    id: BlockId,
    pid: i32,
    tries: usize,
) -> Option<Option<Running>> {
    // SAFETY: SQL functions are outside of any boundary. The block is in a slot.
    let block = unsafe { Block::at(memory, id) };
    let Some(generation) = block.header.generation.live() else {
        return Some(None);
    };
    let setup = block.header.setup();
    if !Need::of_nodes(setup.count).fits(id.kind()) {
        return None;
    }
    let clock = *Source::ALL.get(usize::from(setup.clock))?;
    // The clock is read before anything is copied. If this process is interrupted after it, calls that were
    // copied have ended later. Read after it, the clock would make a call last that has ended meanwhile, and
    // the next copy would show less.
    let now = clock.read();
    let state = block.header.state();
    let before = hot(area);
    // SAFETY: a block of this kind has so many nodes. It is never freed.
    let nodes = unsafe { copy_nodes(block.nodes(), setup.count) };
    let after = hot(area);
    let (place, size) = block.description(id.kind());
    let mut bytes: Vec<u8> = memory::with_room(size);
    // SAFETY: the description is in the block.
    bytes.extend((0..size).map(|i| unsafe { load(place.add(i)) }));
    if !slot.has(id) || !block.header.generation.is_still(generation) {
        return None;
    }
    // SAFETY: the copies are of initialised nodes, because the statement was live.
    let nodes = unsafe { initialised(nodes) };
    let shared = Nodes::of(block, &setup);
    // If the session charged an account meanwhile, the counters do not belong to the copy.
    let is_same = matches!((&before, &after), (Some(before), Some(after)) if before.charged == after.charged && before.account == after.account)
        && settled::is_core_settled(shared, &nodes);
    let is_settled = is_same
        && matches!((&before, &after), (Some(before), Some(after)) if settled::are_calls_settled(shared, &nodes, after.account, after.before == before.before));
    if before.is_some() && !is_settled && tries + 1 < TRIES {
        return None;
    }
    let hot = after.map(|after| HotCopy {
        counters: after.counters.filter(|_| is_same),
        ..after
    });
    // The names of another database's relations cannot be read.
    let name_of: NameOf = match setup.key.datid == server::database_id() {
        true => server::relation_alone,
        false => |_| None,
    };
    let published = LazyDescription::published(&bytes, name_of);
    Some(Some(Running {
        pid,
        leader: area.leader(),
        wait_event: area.wait_event(),
        setup,
        state,
        now,
        nodes,
        is_private: false,
        published,
        hot,
        has_beats: area.hot().is_some() && wish::has_heart(),
        furthest: Some((&block.furthest, generation)),
    }))
}

/// Copies a statement in private memory, as [`copy`] does.
fn copy_cut(area: &'static Area, cut: &'static Cut, pid: i32) -> Option<Option<Running>> {
    let Some(generation) = cut.header.generation.live() else {
        return Some(None);
    };
    let setup = cut.header.setup();
    let now = Source::ALL.get(usize::from(setup.clock))?.read();
    let (state, text) = (cut.header.state(), cut.text());
    if !cut.header.generation.is_still(generation) {
        return None;
    }
    Some(Some(Running {
        pid,
        leader: area.leader(),
        wait_event: area.wait_event(),
        setup,
        state,
        now,
        nodes: Vec::new(),
        is_private: true,
        published: (!text.is_empty()).then(|| Published::of_text(text)),
        hot: None,
        has_beats: area.hot().is_some() && wish::has_heart(),
        furthest: None,
    }))
}

/// Copies nodes word by word. Another session may have the block by now, and something else there.
///
/// # Safety
/// There must be memory for so many nodes. Others may change it meanwhile, each word as a whole.
unsafe fn copy_nodes(from: *const Node, count: usize) -> Vec<MaybeUninit<Node>> {
    const WORDS: usize = size_of::<Node>() / 8;
    const _: () = assert!(size_of::<Node>() == WORDS * 8 && align_of::<Node>() == 8);
    let mut nodes: Vec<MaybeUninit<Node>> = memory::with_room(count);
    for i in 0..count {
        let mut node = MaybeUninit::<Node>::uninit();
        // SAFETY: the caller promises that there are so many words.
        unsafe {
            let (from, to) = (from.add(i).cast::<u64>(), node.as_mut_ptr().cast::<u64>());
            for word in 0..WORDS {
                to.add(word).write(load(from.add(word)));
            }
        }
        nodes.push(node);
    }
    nodes
}

/// Returns copies of nodes.
///
/// # Safety
/// Their statement must have been live while they were copied. Then nobody wrote anything but values of a
/// node's fields there, and fields of more than one word have values for all combinations of their words.
unsafe fn initialised(nodes: Vec<MaybeUninit<Node>>) -> Vec<Node> {
    let mut nodes = std::mem::ManuallyDrop::new(nodes);
    // SAFETY: the layout is the same, and all nodes are initialised by the caller's promise.
    unsafe { Vec::from_raw_parts(nodes.as_mut_ptr().cast(), nodes.len(), nodes.capacity()) }
}

/// Copies the hot state of a session, if it can be seen.
fn hot(area: &Area) -> Option<HotCopy> {
    let hot = area.hot()?;
    // SAFETY: the addresses are those of initialised values in shared memory that stays mapped.
    unsafe {
        let charged: Usage = copy_words((&raw const (*hot).last_charged).cast());
        let counters = area.counters().map(|(buffers, wal)| {
            let (buffers, wal): (pg_sys::BufferUsage, pg_sys::WalUsage) =
                (copy_words(buffers), copy_words(wal));
            (compat::buffers(&buffers), compat::wal(&wal))
        });
        let last = load((&raw const (*hot).last).cast::<u64>());
        let before = match load((&raw const (*hot).before_mark).cast::<u64>()) {
            0 => last,
            before => before,
        };
        Some(HotCopy {
            before,
            account: load(&raw const (*hot).current).get().usage().addr(),
            charged: (compat::buffers(&charged.buffers), compat::wal(&charged.wal)),
            counters,
        })
    }
}

impl Running {
    /// Returns the description of its plan.
    pub fn description(&self) -> Option<&PlanDescription> {
        self.published.as_ref().map(|published| &published.description)
    }

    /// Returns the clock that its nodes read; `None` if they are not timed.
    pub fn clock(&self) -> Option<Source> {
        let clock = Source::ALL.get(usize::from(self.setup.clock)).copied();
        clock.filter(|_| self.setup.timed != Timed::Never as u8)
    }

    /// Returns the nanoseconds that the statement has run, in all its runs.
    pub fn elapsed_ns(&self) -> f64 {
        let running = if self.state.is_running {
            elapsed(self.state.run_began, self.now).unwrap_or(0) as i64 as f64 * self.setup.tick_ns
        } else {
            0.0
        };
        self.state.elapsed_ns + running
    }

    /// Notes its progress for all readers. Returns it with no less done than any of them has noted.
    pub fn note_progress(&self, progress: Progress) -> Progress {
        match self.furthest {
            Some((furthest, execution)) => progress.at_least(furthest.note(execution, progress.done)),
            None => progress,
        }
    }

    /// Returns the nanoseconds since the statement began to run.
    pub fn age_ns(&self) -> f64 {
        elapsed(self.state.began, self.now).unwrap_or(0) as i64 as f64 * self.setup.tick_ns
    }

    /// Returns the index of the node with an account of the session.
    pub(super) fn of_account(&self, account: usize) -> Option<usize> {
        let index = account.checked_sub(self.setup.first)? / size_of::<Node>();
        (index < self.nodes.len()).then_some(index)
    }
}
