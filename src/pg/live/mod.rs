//! Statements that run now, as other sessions see them.
//!
//! A session measures its statements in shared memory. Another session copies what it finds there, and
//! computes the statistics from the copy as the session itself would if an error ended the statement now. It
//! sends no signal and takes no lock, so it works also if the session waits or is stopped, and the session
//! pays nothing for it.
//!
//! * `alias` makes a page of this process's statics visible to others, so that they see which node runs;
//! * `header` is what a statement publishes beside its nodes;
//! * `block` is the shared memory of a statement: its header, its nodes and its description;
//! * `area` is what a session always has: the pages with its hot state, its first block, and slots for more;
//! * `own` finds a block for a statement of this session;
//! * `cut` is what is shown of a statement in private memory;
//! * `memory` provides the nodes of a statement, in a block, or in private memory if there is none;
//! * `read` copies the statements of all sessions;
//! * `nodes` has the nodes of a statement as others see them;
//! * `settled` tells whether a copy is of one moment;
//! * `glance` finds the statement and the node that a session runs, and copies nothing else;
//! * `compute` computes the statistics of a copy;
//! * `wish` tells the worker that a statement may need beats.

mod alias;
pub mod area;
mod block;
mod compute;
mod cut;
mod glance;
mod header;
pub mod memory;
mod nodes;
mod own;
mod read;
mod settled;
mod wish;

pub use block::Need;
pub use compute::Computed;
pub use glance::{Areas, Glance};
pub use header::{Header, Setup};
pub use read::{Running, copy_of, each_running, private_pids, sessions_without_beats};
pub use wish::{lacks_beats, may_need_beats};
