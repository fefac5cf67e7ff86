//! The state of one measured statement, from ExecutorStart until its statistics are on record.
//!
//! It belongs to the QueryDesc, because cursors overlap, statements nest, and some never reach ExecutorEnd. A callback on
//! the statement's query context takes it back in every case, also when its nodes are about to go. The same callback is
//! how the statement of a query is found.
//!
//! A statement belongs to its [`Box`] until it is handed to its query's context, and again once that context has gone. In
//! between it is reached in several ways: by its context, by the list of running statements, by a run on the stack. So
//! all of them use shared references only, and what changes lies in cells.
//!
//! * `state` holds the state itself;
//! * `setup` makes a statement, or prepares one of the `pool` for another execution;
//! * `owner` hands it to its query's context, finds it there, and takes it back;
//! * `install` puts the wrappers into its plan states;
//! * `lifecycle` enters and leaves its runs, and records it;
//! * `sampling` holds what the sampler must know.

mod install;
mod lifecycle;
mod owner;
mod pool;
mod sampling;
mod setup;
mod state;

pub use lifecycle::exclude_running_from_last;
pub use owner::find;
pub use setup::attach;
pub use state::{INSTRUMENT_ROWS, INSTRUMENT_ROWSOURCE};
