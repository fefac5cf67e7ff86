//! Detects that a call was long, although it was not sampled.

use crate::float::at_least;

/// The evidence from which a node detects that a call was long. There is one for the process, because the
/// readings of all nodes count.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongCallEvidence {
    /// The last reading.
    pub last: u64,
    /// The reading when the last beat was taken: after the beat, at the next check.
    pub ticked: u64,
    /// The time that the last beat stands for, in ticks of the clock; 0 if that is not known, or if there was
    /// none.
    pub period: f64,
    /// What the last beats stood for, on average.
    pub(super) usual: f64,
    /// The sum of what all beats stood for, and 1: it is never 0.
    pub(super) watched: f64,
    /// The time beyond what is usual between two readings of the clock, summed up where a beat was due in it
    /// and none came. It is a part of `watched`. Nobody knows in which node's calls it was.
    pub(super) missed: f64,
    /// The last of these times.
    pub(super) last_missed: f64,
    /// The last beat came long after it was due. Meanwhile, others would have found calls.
    pub(super) is_late: bool,
    /// The end of the last call whose detection was certain, and which was long enough to justify a reading
    /// in each node above.
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

/// The time since the last beat in which one is certain to come, as many times what is usual. Beats stand for
/// at most one and a half times of what they do on average.
const CERTAIN: f64 = 2.0;

/// The most times of what is usual that the first beat of a longer period stands for: periods grow at most
/// fourfold, and a beat stands for one and a half of them at most.
const MOST_GROWN: f64 = 6.0;

impl LongCallEvidence {
    /// No evidence: nothing was detected, and there was no beat.
    pub const NONE: LongCallEvidence = LongCallEvidence {
        last: 0,
        ticked: 0,
        period: 0.0,
        usual: 0.0,
        watched: 1.0,
        missed: 0.0,
        last_missed: 0.0,
        is_late: false,
        detected: 0,
    };

    /// Notes that a beat was taken at this reading, and how many ticks it stands for: 0 if that is not known.
    pub fn take_beat(&mut self, now: u64, period: f64) {
        self.ticked = now;
        self.period = period;
        if period == 0.0 {
            return;
        }
        self.watched += period;
        let is_late = self.usual > 0.0 && period > MOST_GROWN * self.usual;
        if is_late && !std::mem::replace(&mut self.is_late, is_late) {
            // Once, the heart was stopped. If that lasts, it is usual.
            return;
        }
        self.is_late = is_late;
        let usual = self.usual + (period - self.usual) / if self.usual > 0.0 { 8.0 } else { 1.0 };
        // A beat stands for at most one and a half times of what is usual. So where the period has grown,
        // what is usual grows with the first beat. After a longer time, the heart was stopped.
        let grown = if period <= MOST_GROWN * self.usual {
            period / 1.5
        } else {
            0.0
        };
        self.usual = at_least(usual, grown);
    }

    /// Notes that beats are expected from now on, which stand for so many ticks, and that none has come.
    pub fn begin_beats(&mut self, usual: f64) {
        (self.period, self.usual, self.is_late) = (0.0, usual, false);
    }

    /// Returns the chance with which the beats of these times find a call of this length, on average over
    /// what they stand for, which is half to one and a half of what is usual. Beside samples of the history
    /// it can be a quarter; `core/tests/simulator` shows that errors hold there too. A beat that came early
    /// would seem to be a certain one.
    pub(super) fn usual_chance(&self, ticks: f64) -> f64 {
        let part = ticks / at_least(self.usual, 1.0);
        if part >= 1.5 {
            1.0
        } else {
            let early = at_least(part - 0.5, 0.0);
            at_least(part, 0.0) - early * early / 2.0
        }
    }

    /// Converts the times of beats to another clock, which makes `factor` times as many ticks.
    pub fn convert(&mut self, factor: f64) {
        self.period *= factor;
        self.usual *= factor;
        self.watched *= factor;
        self.missed *= factor;
        self.last_missed *= factor;
    }

    /// Notes that between two readings, of which the last one was `now`, this many ticks more than usual have
    /// passed. No beat was taken there. If one was certain to come by now, the heart is late or stopped, and
    /// no beat could find the calls that took that time.
    #[cold]
    pub(super) fn note_gap(&mut self, now: u64, ticks: f64) {
        let since = now.saturating_sub(self.ticked) as i64 as f64;
        if since >= CERTAIN * self.usual {
            self.missed += ticks;
            self.watched += ticks;
            self.last_missed = ticks;
        }
    }

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
        let expected = if self.is_late { self.usual } else { self.period };
        if since <= MISSED * expected { expected } else { 0.0 }
    }
}

/// Returns whether a reading was made after `since`. A reading later than `last` was made before the clock
/// stepped back.
#[inline]
pub(super) fn is_within(reading: u64, since: u64, last: u64) -> bool {
    reading > since && reading <= last
}
