//! The state of one measured statement, from ExecutorStart until its statistics are recorded.
//!
//! There is one statement per QueryDesc, because cursors overlap, statements nest, and some never reach
//! ExecutorEnd. A reset callback of the query's memory context always takes the statement back before its
//! plan states are freed. The same callback is used to find the statement of a query.
//!
//! A statement is owned by a [`Box`] until it is handed to its query's context, and again after that context
//! is reset. In between, it can be reached in several ways: from its context, from the list of running
//! statements, and from a run on the stack. So all of them use shared references only, and fields that change
//! are cells.
//!
//! * `state` holds the state itself;
//! * `setup` creates a statement, or prepares one from the `pool` for another execution;
//! * `outside` takes what it did outside of its nodes, `facts` what PostgreSQL knows of that;
//! * `owner` hands it to its query's context, finds it there, and takes it back;
//! * `install` puts the wrappers into its plan states;
//! * `lifecycle` enters and leaves its runs;
//! * `record` takes its counts, or has `compute` compute its statistics, and has them stored;
//! * `publish` shows it to other sessions;
//! * `sampling` configures the sampler;
//! * `team` has it and its parallel workers find each other, and keeps what these did if it fails;
//! * `text` finds its text;
//! * `waits` takes its waits.

mod compute;
mod ending;
mod facts;
mod install;
mod lifecycle;
mod outside;
mod owner;
mod pool;
mod publish;
mod record;
mod sampling;
mod setup;
mod state;
mod team;
mod text;
mod waits;

pub use ending::Ending;
pub use lifecycle::{
    caller, enter_planner, enter_utility, exclude_running_from_last, in_utility, leave_utility,
    nested_recorded,
};
pub use owner::find;
pub use setup::attach;
pub use state::{INSTRUMENT_ROWS, INSTRUMENT_ROWSOURCE, Statement};
pub use waits::at_end_of_transaction;
