//! Adds up the lines of trace files per statement, and prints that as TKPROF does.
//!
//! A statement is what has the same queryid and the same user, apart for statements that clients sent and
//! those that other statements called.
//!
//! **Time that no line accounts for.** Each call says when it ended and how long it took, and each wait does.
//! Between two calls of the same level, the session either waited, which a line says, or did something that
//! no line says: it ran the code of an extension that hooks into the server before this one, the network
//! protocol, or the code of a function between two of its statements. That time counts for the phase of the
//! call that follows it. So a hidden cost of each execution is seen.
//!
//! **Waits between two calls** belong to the statement that the session works on: to the next one, if a
//! message of the client has come, and if not, to the one before. The lines cannot tell that when they are
//! written.
//!
//! * `totals` adds up the lines of files, `statement` those of one statement, `executions` their times,
//!   `waits` their waits;
//! * `objects` adds up waits per object;
//! * `stored` takes the same sums from the plans of the store, as far as it knows them;
//! * `sort` orders the statements, `text` prints them.

mod executions;
mod objects;
mod sort;
mod statement;
mod stored;
mod text;
mod totals;
mod waits;

pub use executions::Executions;
pub use objects::Object;
pub use sort::{
    Key, never_known, parse as parse_sort, value as sort_value, value_of_user as sort_value_of_user,
    words as sort_words,
};
pub use statement::{Calls, PlanSums, RowSource, Statement, Sums};
pub use stored::{StoredTotals, calls as stored_calls, calls_of_others, never_stored};
pub use text::stored_head;
pub use totals::Report;
pub use waits::{Waited, Waits};
