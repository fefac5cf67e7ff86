//! The protocol of the blocks: shared memory in which sessions measure their statements.
//!
//! A block has one of a few sizes. It is never freed or divided, so readers look at it without a lock. It
//! lies in a [`Slot`] of one session. The word of the slot says which block it is, and whether the session
//! holds it.
//!
//! - A session *holds* a block while one of its statements may use it: from the set-up of the statement until
//!   it goes to the session's pool. Only the session that holds a block writes to it. An open cursor holds
//!   its block.
//! - A block that its session does not hold is *given back*. It keeps the statement that was set up in it.
//!   The session can take it again ([`Slot::hold`]), or another session takes it away ([`Slot::claim`]). Both
//!   replace the word of the slot with one compare-exchange, so only one of them succeeds. A session that
//!   finds its block gone sets its statement up anew. The session that loses a block need not run for that.
//! - The session that claims a block takes over what it holds. It sees all that other sessions have written
//!   to it.
//! - A session that ends may leave blocks that it holds. Who takes its slots over gives them back
//!   ([`Slot::inherit`]). If a session is killed, PostgreSQL makes all shared memory again.
//!
//! A reader finds a block in a slot, and copies what it needs. The copy is of one execution of that session
//! if the block was still in that slot afterwards, and if the execution had not ended ([`Generation`]).
//!
//! `tests/blocks_loom.rs` runs all of this through all schedules of a model checker.

mod generation;
mod room;
mod slot;

pub use generation::Generation;
pub use room::{Charge, Room};
pub use slot::{BlockId, Found, Slot};
