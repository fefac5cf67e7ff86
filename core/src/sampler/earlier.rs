//! What earlier executions of a plan tell about the calls of a node.

use super::gaps::Gaps;
use super::timer::{FIRST_CALLS, NodeTimer};

/// After this number of executions in a session, not all of the first calls are timed any more. Few people
/// look at that many executions one by one, and the errors of their times cancel out in their sum.
const ENOUGH: u32 = 16;

/// Only nodes with at least this number of calls get larger gaps. With fewer, a sample costs as much as the
/// calls that are not timed for it.
const MANY: u64 = 2 * FIRST_CALLS;

/// The calls of a node in earlier executions. Zero bytes are none.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct EarlierCalls {
    /// The number of executions in which the node made many calls.
    executions: u32,
    /// The number of calls in the last of them.
    calls: f64,
    /// Their usual ticks.
    usual_ticks: f64,
}

impl EarlierCalls {
    /// Notes the calls of another execution, and clears the gaps of its timer.
    #[cold]
    #[inline(never)]
    pub fn note(&mut self, timer: &mut NodeTimer) {
        if timer.calls() >= MANY {
            self.executions = self.executions.saturating_add(1);
            self.calls = timer.calls() as f64;
            self.usual_ticks = timer.recent;
        } else {
            // It makes fewer calls now.
            self.executions = 0;
        }
        timer.gaps = Gaps::default();
    }

    /// Returns whether they tell something.
    #[inline(always)]
    pub fn are_known(&self) -> bool {
        self.executions >= ENOUGH
    }

    /// Starts the timer for the next execution, if they tell something.
    #[cold]
    #[inline(never)]
    pub fn start(&self, timer: &mut NodeTimer) {
        if self.are_known() {
            timer.start_known(self.calls, self.usual_ticks);
        }
    }
}
