//! Regressions: plans that are slower than what their statement ran with before, and statements that became
//! slower without a change of plan. One predicate for all views.
//!
//! A change of plan is a regression only if all of this holds. "Measured" means that the simulation in this
//! folder counts wrong verdicts with the threshold; few other values were tried. The others are judgement,
//! and say "unmeasured".
//!
//! - size: busy time at least [`SIZE`] times as long, or wall time [`WALL_SIZE`] times with busy time
//!   [`WALL_BUSY`] times. Below twice, the load of the machine and other parameters explain as much (`flips`
//!   asks for 1.5 and tells five of 200 unchanged plans slower); unmeasured.
//! - spend: [`SPEND_MS`] or [`SPEND_SHARE`] of the database time since, as `(mean after - mean before) *
//!   executions`. What nobody would act on is no finding; unmeasured.
//! - count: [`MIN_EXECUTIONS`] executions on each side; before the change always. Welch's test has little
//!   power below; unmeasured.
//! - chance: Welch's test against [`LEAST_RATIO`] on logarithms of busy time or on wall times (if the size is
//!   of wall time, on these only), Benjamini and Hochberg (1995) at [`FALSE_RATE`] over all candidates.
//!   Measured.
//! - control: all ratios are divided by the median ratio of plans that did not change ([`median_ratio`]). A
//!   slow machine is no slow plan; measured.
//! - errors: executions that failed or were cancelled, more than before, count as [`FAILED_AS`] times the
//!   mean before. A statement that a timeout ends took at least that long; unmeasured.
//! - few: with fewer executions: the longest one is [`FEW_SIZE`] times the longest before, takes
//!   [`FEW_EXTRA_MS`] more, and lies outside of the spread before ([`FEW_CHANCE`]). Rare statements; not
//!   corrected for other candidates, and the finding says so; measured.
//!
//! Without a change of plan, busy time must be at least [`STEADY_SIZE`] times as long in three of four
//! consecutive intervals too. The reference is the newest baseline, else the same hour a week ago, else
//! yesterday ([`Kept`]), else the interval before those four.
//!
//! A plan that runs at most once in the time of four intervals, and that [`Kept`] has nothing of, cannot be
//! slow in three of them. Its executions of the newest interval are judged as few ones after a change are,
//! against all before.
//!
//! Of 20,000 unchanged plans of the simulation, split at a random moment, 20 are called regressions (seeds
//! that no threshold was chosen with), and 88 without the control: one in a thousand. That excludes none by
//! its spend. A thousand splits can thus have two and more. The experiment `regressions` of the bench splits
//! recorded executions of a real server.
//!
//! A plan without a change that is a regression keeps its reference, which the history may not have any
//! more. Then the control is what it was when it was found, times what all plans took longer in each interval
//! since.
//!
//! A regression is open when it is found. It is confirmed if it still holds five minutes and ten executions
//! later, or three periods of a statement that comes less than once in five minutes. It is over when it does
//! not hold any more, or when the statement has not run for a day; if it comes seldom, for up to eight days
//! ([`Regressions`]). A change of plan does not hold any more if the executions of the last quarter of an
//! hour take less than three quarters of what makes it one: a million slow ones would hide the fast ones for
//! long. If all of it holds but the spend, it is over, too, and says so: it is as slow as it was. A plan
//! without a change that runs in fewer than three of the four intervals, or less than [`MIN_EXECUTIONS`]
//! times in all of them, is over when three executions take less than [`SIZE`] times the time before.
//!
//! Busy time is what an execution took without its waits for locks, LWLocks, clients and timeouts.

mod chance;
mod database;
mod judge;
mod kept;
mod recent;
mod steady;
mod sums;
mod table;

pub use database::{DatabaseTime, SavedDatabaseTime, total_ms};
pub use judge::{
    Basis, Candidate, FAILED_AS, FALSE_RATE, FEW_CHANCE, FEW_EXTRA_MS, FEW_SIZE, Finding, Found, Interval,
    LEAST_RATIO, MIN_EXECUTIONS, MIN_PAIRS, Reference, SIZE, SPEND_MS, SPEND_SHARE, STEADY_SIZE, WALL_BUSY,
    WALL_SIZE, judge, median_ratio,
};
pub use kept::{Against, Kept};
pub use recent::Done;
pub use steady::{Known, PlanNow, Steady};
pub use sums::Sums;
pub use table::{Active, Closing, Look, Regression, Regressions, SavedRegressions, State};

#[cfg(test)]
mod simulation;
