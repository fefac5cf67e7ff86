//! Two plans of a statement, or the same plan in two intervals: which nodes are the same, and why the mean
//! execution takes longer.
//!
//! For each node, the difference of its own time is divided into parts that add up to it ([`parts`] has the
//! formulas and their order). The largest part is the cause. If it is less than [`LEAST_SHARE`] of the
//! difference, the cause is not known. If the mean execution takes about as long, or if chance explains the
//! difference, or the load of the machine, there is no cause ([`Verdict`]).

mod cause;
mod gone;
mod matching;
mod parts;
mod side;

pub use crate::regressions::{LEAST_RATIO, SIZE};
pub use cause::{Cause, LEAST_ERRORS, LEAST_SHARE, Verdict};
pub use gone::{Gone, UsedIndex};
pub use matching::{Pairs, do_the_same, pairs};
pub use parts::{Difference, MISESTIMATE, NodeParts, difference};
pub use side::{Blocker, Node, Side, SideError, TableStatistics};
