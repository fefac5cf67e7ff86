//! The protocol of the sessions' buffers. A buffer holds the executions of a session that are not in the
//! store yet.
//!
//! Without buffers, all sessions that run one plan would write to the same memory. So each session has its
//! own [`Buffer`] in shared memory, with a [`Slot`] for each of a few plans. Readers flush the slots of all
//! sessions before they read the store.
//!
//! - A slot has an [`Owner`]: the pid of the process that holds it. A session never waits for its slot: if a
//!   reader holds the slot, the session adds the execution to the store at once. The caller decides how long
//!   a reader waits.
//! - Only the session of a buffer puts a key into a slot, and adds to it. Any process that holds a slot may
//!   flush it.
//! - If a reader's flush fails, the slot stays unchanged.
//! - Three fields are atomics: whether the slot is filled, when it must be flushed, and the tag of its key.
//!   Processes that do not hold the slot read them as hints: they skip a slot that seems empty.
//! - After an eviction, [`Slot::invalidate`] makes the sessions look up the evicted plans again. It waits for
//!   no slot, because the process that evicts may hold one.
//! - Buffers are never freed. When a session ends, another session takes its buffer, with the content that
//!   could not be flushed.
//!
//! Nothing is lost and nothing is counted twice: content stays in its slot until one holder has flushed or
//! discarded it. `tests/pending_loom.rs` runs the protocol through all schedules of a model checker;
//! `tests/pending_threads.rs` runs it on real threads, also under Miri.
//!
//! The caller provides the memory, and adds flushed content to the store. The types contain no pointers, so
//! each process can map the memory to a different address.

mod atomics;
mod buffer;
mod owner;
mod slot;

pub use atomics::{Atomic, Atomics, Native, NativeCell, SharedCell};
pub use buffer::{Buffer, List, OwnBuffer};
pub use owner::{Owner, OwnerGuard};
pub use slot::{Adding, Key, Slot, SlotGuard};
