//! What shows that a call was long, though it was not sampled.

use super::elapsed;

/// What shows to a node that a call was long. There is one for the process: every reading of the clock counts,
/// whoever made it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongCallEvidence {
    /// The last reading, by anyone.
    pub last: u64,
    /// The last reading by the tick.
    pub ticked: u64,
    /// The tick's period, in ticks of the clock; 0 if it does not run.
    pub period: f64,
    /// The end of the last call that was certain to be detected, and long enough to be worth a reading in each node
    /// above.
    pub detected: u64,
}

/// How a call was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// It did I/O, or contains such a call that was not short.
    Certain,
    /// By the tick alone.
    ByTick,
}

impl LongCallEvidence {
    /// Nothing was detected, and no tick runs.
    pub const NONE: LongCallEvidence = LongCallEvidence {
        last: 0,
        ticked: 0,
        period: 0.0,
        detected: 0,
    };

    /// Returns how a call is detected that began after the reading `since`, if it is. The tick must have read the clock
    /// at least `far()` ticks after `before`, the last reading before the call.
    #[inline(always)]
    pub(super) fn of_call(
        &self,
        since: u64,
        before: u64,
        far: impl FnOnce() -> f64,
        did_io: bool,
    ) -> Option<Detected> {
        if did_io || is_within(self.detected, since, self.last) {
            Some(Detected::Certain)
        } else if is_within(self.ticked, since, self.last) && elapsed(before, self.ticked).0 >= far() {
            Some(Detected::ByTick)
        } else {
            None
        }
    }
}

/// Returns whether a reading was made after `since`. A reading after the last one is left over from before the clock
/// stepped back.
#[inline]
pub(super) fn is_within(reading: u64, since: u64, last: u64) -> bool {
    reading > since && reading <= last
}
