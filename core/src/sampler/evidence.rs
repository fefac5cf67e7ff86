//! Detects that a call was long, although it was not sampled.

/// The evidence from which a node detects that a call was long. There is one for the process, because the readings of all
/// nodes count.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongCallEvidence {
    /// The last reading.
    pub last: u64,
    /// The reading when the last beat was taken: after the beat, at the next check.
    pub ticked: u64,
    /// The time that the last beat stands for, in ticks of the clock; 0 if that is not known, or if there was
    /// none.
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
    /// Only a beat detected it, if it was long.
    ByBeat,
}

/// If no beat came for this many times as long as the last one stands for, calls are not detected by beats
/// now.
const MISSED: f64 = 4.0;

impl LongCallEvidence {
    /// No evidence: nothing was detected, and there was no beat.
    pub const NONE: LongCallEvidence = LongCallEvidence {
        last: 0,
        ticked: 0,
        period: 0.0,
        detected: 0,
    };

    /// Returns how a call that began after the reading `since` is detected, or `None`. By a beat, it is only
    /// if it was long too.
    #[inline(always)]
    pub(super) fn of_call(&self, since: u64, did_io: bool) -> Option<Detected> {
        if did_io || is_within(self.detected, since, self.last) {
            Some(Detected::Certain)
        } else if is_within(self.ticked, since, self.last) {
            Some(Detected::ByBeat)
        } else {
            None
        }
    }

    /// Returns the time that a beat stands for now; 0 if none is expected.
    #[inline]
    pub(super) fn period_at(&self, now: u64) -> f64 {
        let since = now.saturating_sub(self.ticked) as i64 as f64;
        if since <= MISSED * self.period {
            self.period
        } else {
            0.0
        }
    }
}

/// Returns whether a reading was made after `since`. A reading later than `last` was made before the clock stepped back.
#[inline]
pub(super) fn is_within(reading: u64, since: u64, last: u64) -> bool {
    reading > since && reading <= last
}
