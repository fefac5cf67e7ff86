//! Measures statements while the executor runs them: `hooks` decide what is measured, and count `nesting`; `planning` times
//! the planner; `statement` holds the state of one running statement; `explain` implements EXPLAIN's option SAMPFREQ (18 and
//! newer).

pub mod explain;
pub mod hooks;
pub mod nesting;
mod planning;
pub mod statement;
