//! The memory of the last statement that ended, for the next one: most are short, and allocating costs more than
//! measuring them.

use super::Statement;
use crate::pg::node::Node;

/// More nodes than these are given back.
const MOST_NODES: usize = 64;

static mut SPARE: Option<Box<Statement>> = None;

/// Keeps what a closed statement leaves.
pub fn keep(mut statement: Box<Statement>) {
    if statement.place.capacity() > MOST_NODES {
        statement.place = Vec::new();
    }
    // SAFETY: a backend has one thread.
    unsafe { SPARE = Some(statement) }
}

/// A place for nodes, and the box that a statement is to be put into, if one is there.
pub fn take() -> (Vec<Node>, Option<Box<Statement>>) {
    #[allow(static_mut_refs, reason = "one thread; the reference ends here")]
    // SAFETY: a backend has one thread.
    let spare = unsafe { SPARE.take() };
    match spare {
        Some(mut statement) => (std::mem::take(&mut statement.place), Some(statement)),
        None => (Vec::new(), None),
    }
}

/// Puts a statement into its box.
pub fn put(statement: Statement, place: Option<Box<Statement>>) -> Box<Statement> {
    match place {
        Some(mut place) => {
            *place = statement;
            place
        }
        None => Box::new(statement),
    }
}
