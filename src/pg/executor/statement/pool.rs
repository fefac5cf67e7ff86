//! Keeps ended statements for reuse. Most statements are short, and setting one up costs more than measuring
//! it. If the same plan runs again with the same settings, its statement is reused as it is. Otherwise only
//! its memory is reused.
//!
//! A statement that is kept gives its memory back, so that other sessions can claim it (`pg::live::own`).
//! Then it is lost.

use super::state::Statement;
use crate::instrumentation::InstrumentationPlan;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::handles::StartedQuery;
use crate::pg::live::Need;
use crate::pg::live::memory::NodeMemory;
use crate::pg::plan::tree::Found;
use rowsource_core::model::PlanKey;
use std::cell::{Cell, UnsafeCell};

/// The number of statements that are kept.
const POOL_SIZE: usize = 8;
/// Statements with more nodes are not kept.
const MAX_NODES: usize = 16;

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static POOL: BackendLocal<UnsafeCell<[Option<Box<Statement>>; POOL_SIZE]>> =
    BackendLocal::new(UnsafeCell::new([const { None }; POOL_SIZE]));
/// The place that is used next if the pool is full.
static NEXT: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));

/// A statement from the pool. The plan states of its last execution are gone.
pub struct Idle(Box<Statement>);

impl Idle {
    /// Prepares the statement for another execution of its plan.
    ///
    /// # Safety
    /// As for `Statement::reset_for_reexecution`.
    #[inline(always)]
    pub unsafe fn revive<'q>(mut self, query: StartedQuery<'q>, found: &[Found<'q>]) -> Box<Statement> {
        // SAFETY: the caller promises the same.
        unsafe { self.0.reset_for_reexecution(query, found) };
        self.0
    }
}

/// Runs a body with the pool.
///
/// A `RefCell` would do the same, but would cost some instructions per statement.
///
/// # Safety
/// `body` must not call this function again.
#[inline(always)]
unsafe fn with_pool<T>(body: impl FnOnce(&mut [Option<Box<Statement>>; POOL_SIZE]) -> T) -> T {
    // SAFETY: this is the only reference, because only this function makes one, and the body does not call it
    // again.
    body(unsafe { &mut *POOL.get() })
}

/// Keeps a closed statement.
pub fn recycle(mut statement: Box<Statement>) {
    if statement.nodes.count() > MAX_NODES {
        return;
    }
    if !statement.reusable.get() {
        statement.target = None;
    }
    statement.channel.set(None);
    statement.nodes.memory().give_back();
    // SAFETY: the body calls no function of this file but `next`, which does not use the pool. The caller
    // drops the statement that is replaced.
    let _replaced = unsafe {
        with_pool(|pool| {
            let free = pool.iter().position(Option::is_none);
            pool[free.unwrap_or_else(next)].replace(statement)
        })
    };
}

/// Takes a statement of the plan that has this key before it is folded, if it was set up with the same
/// settings.
/// `planned_as` is the queryid with which the statement was planned: only if it is the same too, the
/// expressions are the same.
pub fn take_matching(
    key: &PlanKey,
    planned_as: i64,
    setting: &InstrumentationPlan,
    count: usize,
) -> Option<Idle> {
    let matches = |statement: &Statement| {
        let target = statement.target.as_ref().filter(|_| statement.reusable.get());
        target.is_some_and(|target| target.found_as == *key && target.planned_as == planned_as)
            && statement.nodes.count() == count
            && (statement.level, statement.sampfreq, statement.clock)
                == (setting.level, setting.sampfreq, setting.clock)
    };
    // SAFETY: the body only compares and takes statements.
    let taken = unsafe {
        with_pool(|pool| {
            let at = pool
                .iter()
                .position(|kept| kept.as_deref().is_some_and(matches))?;
            pool[at].take()
        })
    };
    taken
        .filter(|statement| statement.nodes.memory().hold())
        .map(Idle)
}

/// Takes memory for nodes and a box for a new statement, if the pool has one to give away: one that has no
/// target, or any one if the pool is full.
pub fn take_any() -> (NodeMemory, Option<Idle>) {
    let is_usable = |statement: &Statement| statement.target.is_some();
    // SAFETY: the body calls no function of this file but `next`, which does not use the pool.
    let taken = unsafe {
        with_pool(|pool| {
            let useless = pool
                .iter()
                .position(|kept| kept.as_deref().is_some_and(|statement| !is_usable(statement)));
            let is_full = pool.iter().all(Option::is_some);
            useless
                .or_else(|| is_full.then(next))
                .and_then(|at| pool[at].take())
        })
    };
    match taken {
        Some(mut statement) => {
            let memory = statement.nodes.take_memory();
            let is_held = memory.hold();
            (
                if is_held { memory } else { NodeMemory::default() },
                Some(Idle(statement)),
            )
        }
        None => (NodeMemory::default(), None),
    }
}

/// Takes shared memory of a statement in the pool that has room for another one, if there is any. The session
/// asks for it if it gets none elsewhere.
#[cold]
pub fn take_shared(need: Need) -> Option<NodeMemory> {
    // SAFETY: the body only compares and takes statements.
    let taken = unsafe {
        with_pool(|pool| {
            let has_room = |kept: &&mut Option<Box<Statement>>| {
                let memory = kept.as_deref().map(|statement| statement.nodes.memory());
                memory.is_some_and(|memory| memory.is_shared_with_room(need.with_names()))
            };
            let smallest = pool
                .iter_mut()
                .filter(has_room)
                .min_by_key(|kept| kept.as_deref().map_or(0, |statement| statement.nodes.capacity()))?;
            smallest.take()
        })
    };
    let memory = taken?.nodes.take_memory();
    memory.hold().then_some(memory)
}

/// Returns the places of the pool in turn.
fn next() -> usize {
    let at = NEXT.get();
    NEXT.set((at + 1) % POOL_SIZE);
    at
}

/// Puts a statement into the given box, or into a new one. Returns `None` if there is no memory.
pub fn into_box(statement: Statement, place: Option<Idle>) -> Option<Box<Statement>> {
    if let Some(Idle(mut place)) = place {
        *place = statement;
        return Some(place);
    }
    let mut room = Vec::new();
    room.try_reserve_exact(1).ok()?;
    room.push(statement);
    let one: Box<[Statement; 1]> = room.into_boxed_slice().try_into().ok()?;
    // SAFETY: an array of one element has the layout of the element.
    Some(unsafe { Box::from_raw(Box::into_raw(one).cast()) })
}
