//! Estimates a node's time from a few clock readings.
//!
//! A call is timed or detected in one of three ways. Its weight is then the inverse of the probability of
//! that:
//!
//! * **Sampled.** Calls are divided into blocks of g. One call of each block is timed, each with the same
//!   probability. The size of a block is chosen before it begins, from what is known then. So the sum is
//!   unbiased, however the costs change and however g follows them. (A random distance from one timed call to
//!   the next would be biased: if the costs rise, fewer calls than its gap precede the first expensive
//!   sample.) The first calls of each node are blocks of one, and so are all calls of a slow node, at least
//!   until thousands were timed. Their time is known, not estimated.
//! * **Certain.** A call that did I/O, or that contains a certain call that was not short. If it is not timed
//!   anyway, the clock is read at its end. Its weight is 1.
//! * **By a beat.** A call in which a beat came ([`crate::beat`]), and which ended long after the last
//!   reading before it. A beat that stands for the time T falls into a call of length t with a probability of
//!   t/T. Together with sampling, the probability is 1 - (1 - t/T)(1 - 1/g), and no single call contributes
//!   more than T. So a stall that happens to be sampled does not get the weight g, and beats detect rare long
//!   calls, not chance. T is the time since the beat before it, so it does not matter how regularly they
//!   come.
//!
//! All other calls are short. Their time is their exact number times the mean of the short samples.
//!
//! The start of a call that is not timed is unknown: it is between the last reading before the call and the
//! one at its end. The usual distance from a reading to a call of this node is known from the timed calls,
//! and is subtracted. If the last reading was the node's own, that is the number of its calls since then
//! times the usual time from one call to the next. This distance can be large if the caller works long
//! between its calls. So the time since the last reading alone does not prove that a call was long, and a
//! beat counts only if the call ended much later than usual.
//!
//! The beats alone are also a second estimate, and decide if the first one missed something: see `watch`.
//!
//! If a session has executed a plan many times, the gaps of a node that makes more than a few calls grow at
//! once ([`EarlierCalls`]). A few calls then tell as much as all of the first ones.
//!
//! A detected call much longer than a gap ends its block, and the call after it is timed, so that g follows a
//! change at once.
//!
//! This code only computes with numbers that the caller provides: no allocation, no panic, no clock. All
//! times are raw ticks of the clock in use.

mod bookkeeping;
mod config;
mod distance;
mod earlier;
mod elapsed;
mod estimate;
mod every_call;
mod evidence;
mod gaps;
#[cfg(test)]
mod tests;
mod timer;
mod watch;

pub use bookkeeping::measure_bookkeeping;
pub use config::{BOOKKEEPING_NS, Config};
pub use earlier::EarlierCalls;
pub use estimate::Estimate;
pub use every_call::EveryCall;
pub use evidence::{Detected, LongCallEvidence};
pub use gaps::Gaps;
pub use timer::{MANY_BUFFERS, NodeTimer, TimedCall};
