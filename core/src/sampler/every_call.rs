//! The statistics of a node of which every call is timed. They need no estimate.

/// Sums over all calls of a node. Zeroed memory is a valid initial value.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct EveryCall {
    /// The number of calls.
    pub calls: u64,
    /// Their time.
    pub ticks: u64,
    /// The time to the first row of each start.
    pub startup_ticks: u64,
    /// The number of readings smaller than the one before.
    pub clock_backsteps: u64,
}

impl EveryCall {
    /// Counts a call. Returns its time, or `None` if the clock stepped back.
    #[inline(always)]
    pub fn record(&mut self, start: u64, end: u64, first_of_start: bool) -> Option<u64> {
        self.calls += 1;
        if end < start {
            self.clock_backsteps += 1;
            return None;
        }
        let ticks = end - start;
        self.ticks += ticks;
        if first_of_start {
            self.startup_ticks += ticks;
        }
        Some(ticks)
    }
}
