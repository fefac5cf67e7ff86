//! Statements that have ended, for the next ones. Most statements are short, and setting one up costs more than
//! measuring it: where the same plan is run again in the same way, all that was found out about it still holds, and
//! else at least the memory serves.

use super::Statement;
use crate::instrumentation::InstrumentationPlan;
use crate::pg::backend_local::BackendLocal;
use crate::pg::node::Node;
use rowsource_core::model::PlanKey;
use std::cell::{Cell, UnsafeCell};

/// So many are kept.
const KEPT: usize = 8;
/// Larger ones are not.
const MOST_NODES: usize = 16;

static SPARE: BackendLocal<UnsafeCell<[Option<Box<Statement>>; KEPT]>> =
    BackendLocal::new(UnsafeCell::new([const { None }; KEPT]));
/// The one that goes next, where none is free.
static NEXT: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));

/// Runs a body with the statements that are kept.
///
/// A `RefCell` would do the same, but its count costs each statement some instructions.
///
/// # Safety
/// `body` must not come back here.
#[inline(always)]
unsafe fn with_spare<T>(body: impl FnOnce(&mut [Option<Box<Statement>>; KEPT]) -> T) -> T {
    // SAFETY: this is the only reference: only here is one made, and the body does not come back.
    body(unsafe { &mut *SPARE.get() })
}

/// Keeps what a closed statement leaves.
pub fn keep(mut statement: Box<Statement>) {
    if statement.place.capacity() > MOST_NODES {
        return;
    }
    if !statement.renewable {
        statement.plan = None;
    }
    statement.channel.set(None);
    // SAFETY: the body calls nothing but this file's `next`. What it replaces is dropped by the caller.
    let _replaced = unsafe {
        with_spare(|spare| {
            let free = spare.iter().position(Option::is_none);
            spare[free.unwrap_or_else(next)].replace(statement)
        })
    };
}

/// A statement of the same plan that was set up in the same way.
pub fn same(key: &PlanKey, setting: &InstrumentationPlan, count: usize) -> Option<Box<Statement>> {
    let same = |statement: &Statement| {
        let plan = statement.plan.as_ref().filter(|_| statement.renewable);
        plan.is_some_and(|(plan, _)| plan.key == *key)
            && statement.count == count
            && (statement.level, statement.sampfreq, statement.clock)
                == (setting.level, setting.sampfreq, setting.clock)
    };
    // SAFETY: the body looks at statements, and calls nothing that could come back.
    unsafe {
        with_spare(|spare| {
            let at = spare
                .iter()
                .position(|spare| spare.as_deref().is_some_and(same))?;
            spare[at].take()
        })
    }
}

/// A place for nodes, and the box that a statement is to be put into, if one is to be had: one that nobody can take up
/// again, or, where no more can be kept, the one that was made longest ago.
pub fn any() -> (Vec<Node>, Option<Box<Statement>>) {
    let renewable = |statement: &Statement| statement.plan.is_some();
    // SAFETY: the body looks at statements, and calls nothing but this file's `next`.
    let taken = unsafe {
        with_spare(|all| {
            let useless = all
                .iter()
                .position(|spare| spare.as_deref().is_some_and(|statement| !renewable(statement)));
            let full = all.iter().all(Option::is_some);
            useless.or_else(|| full.then(next)).and_then(|at| all[at].take())
        })
    };
    match taken {
        Some(mut statement) => (std::mem::take(&mut statement.place), Some(statement)),
        None => (Vec::new(), None),
    }
}

/// The place that has its turn.
fn next() -> usize {
    let at = NEXT.get();
    NEXT.set((at + 1) % KEPT);
    at
}

/// Puts a statement into its box; `None` without memory for one.
pub fn put(statement: Statement, place: Option<Box<Statement>>) -> Option<Box<Statement>> {
    if let Some(mut place) = place {
        *place = statement;
        return Some(place);
    }
    let mut room = Vec::new();
    room.try_reserve_exact(1).ok()?;
    room.push(statement);
    let one: Box<[Statement; 1]> = room.into_boxed_slice().try_into().ok()?;
    // SAFETY: an array of one is laid out as the one.
    Some(unsafe { Box::from_raw(Box::into_raw(one).cast()) })
}
