//! Detects that a call was long, although it was not sampled.

use super::elapsed::elapsed;

/// The evidence from which a node detects that a call was long. There is one for the process, because the readings of all
/// nodes and of the tick count.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongCallEvidence {
    /// The last reading, by any node or by the tick.
    pub last: u64,
    /// The last reading by the tick.
    pub ticked: u64,
    /// The tick's period, in ticks of the clock; 0 if it does not run.
    pub period: f64,
    /// The end of the last call whose detection was certain, and which was long enough to justify a reading in each node
    /// above.
    pub detected: u64,
}

/// How a call was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// The call did I/O, or contains such a call that was not short.
    Certain,
    /// Only the tick detected it.
    ByTick,
}

impl LongCallEvidence {
    /// No evidence: nothing was detected, and no tick runs.
    pub const NONE: LongCallEvidence = LongCallEvidence {
        last: 0,
        ticked: 0,
        period: 0.0,
        detected: 0,
    };

    /// Returns how a call that began after the reading `since` is detected, or `None`. The tick detects it only if it read
    /// the clock at least `far()` ticks after `before`, the last reading before the call.
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

/// Returns whether a reading was made after `since`. A reading later than `last` was made before the clock stepped back.
#[inline]
pub(super) fn is_within(reading: u64, since: u64, last: u64) -> bool {
    reading > since && reading <= last
}
