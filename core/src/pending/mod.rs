//! The protocol of the sessions' buffers: what a session has done and the store does not know yet.
//!
//! Many sessions that run one plan would otherwise write to the same memory all the time. So each session has a [`Buffer`] of
//! its own in shared memory, with a [`Slot`] for each of a few plans. Readers flush the slots of all sessions before they read
//! the store.
//!
//! - A slot has an [`Owner`]: the number of the process that holds it. A session never waits for its slot: where a reader holds
//!   it, the session's execution goes to the store at once. A reader waits as long as its caller likes.
//! - Only the session of a buffer puts a key into a slot, and adds to it. Anyone who holds a slot may flush it.
//! - A reader whose flush fails leaves the slot as it was: the plan was evicted, and only its session can describe it.
//! - Whether a slot is filled, when it is to be flushed and the tag of its key are atomics. Who does not hold the slot reads
//!   them as hints: a slot that seems empty is passed over.
//! - After an eviction, [`Slot::invalidate`] lets the sessions look up the plans that went. It waits for nobody, for who evicts
//!   may hold a slot.
//! - Buffers are never freed. A session that ends leaves its buffer to the next, with what could not be flushed.
//!
//! Nothing is lost and nothing is counted twice: what is added stays in its slot until one holder has handed it on, or has
//! discarded it. `tests/pending_loom.rs` runs the protocol through all schedules of a model checker;
//! `tests/pending_threads.rs` runs it on real threads, also under Miri.
//!
//! The caller places the memory, and hands what is flushed to the store. The types have no pointers, so that they can lie in
//! memory that each process maps to another address.

mod atomics;
mod buffer;
mod owner;
mod slot;

pub use atomics::{Atomic, Atomics, Native, NativeCell, SharedCell};
pub use buffer::{Buffer, List, OwnBuffer};
pub use owner::{Owner, OwnerGuard};
pub use slot::{Adding, Key, Slot, SlotGuard};
