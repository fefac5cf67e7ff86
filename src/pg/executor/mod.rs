//! Measures statements while the executor runs them: `hooks` call each `listener`, and count `nesting`;
//! `starting` decides what is measured; `planning` times the planner, and `outermost_planner` knows whether
//! it runs at top level; `statement` holds the state of one running statement; `explain` implements EXPLAIN's
//! option SAMPFREQ (18 and newer), `untimed_explain` the setting `sampfreq` 0 and 3 for EXPLAIN; `parsed`
//! knows where the constants of statements are; `hinted` remembers which have the hint; `unnamed` gives
//! queryids to plans that have none; `own` finds the statements that use this extension, which are not
//! measured; `own_waits` drops the waits of utility statements; `unmeasured` remembers the last statement
//! that was not measured; `breaker` ends measuring in a session where it costs too much; `inner_query` tells
//! the query of a utility statement from what runs beside it; `call_trace` runs a statement and lists the
//! calls of its nodes; `response` knows how long clients wait beside the executor; `transactions` ends what
//! belongs to a transaction; `utility` records utility statements that run others; `traced` writes the
//! session's SQL trace.

pub mod breaker;
pub mod call_trace;
pub mod explain;
mod hinted;
pub mod hooks;
mod inner_query;
mod listener;
pub mod nesting;
mod outermost_planner;
mod own;
mod own_waits;
mod parsed;
mod planning;
mod response;
mod starting;
pub mod statement;
mod traced;
mod transactions;
pub mod unmeasured;
mod unnamed;
mod untimed_explain;
mod utility;

pub use crate::pg::plan::describe::unended::forget as describe_all_again;
