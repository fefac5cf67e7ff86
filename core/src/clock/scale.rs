//! Converts raw ticks to time.

/// Nanoseconds in a second.
const NS_PER_SECOND: f64 = 1e9;
/// Nanoseconds in a millisecond.
const NS_PER_MS: f64 = 1e6;

/// The length of one raw tick of a clock.
///
/// A double holds 53 bits. Intervals of up to a month of TSC ticks convert without loss, and sums of any
/// length to 16 digits. The conversion is one multiplication. It is done when statistics are computed, not
/// per call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    ns_per_tick: f64,
}

impl Scale {
    /// The scale of a clock whose raw tick is a nanosecond.
    pub const NANOSECOND: Scale = Scale { ns_per_tick: 1.0 };

    /// Returns the scale of a counter with a frequency of `hz`. If that is not a positive number, the scale
    /// is a nanosecond.
    pub fn of_frequency(hz: f64) -> Scale {
        if hz.is_finite() && hz > 0.0 {
            Scale {
                ns_per_tick: NS_PER_SECOND / hz,
            }
        } else {
            Scale::NANOSECOND
        }
    }

    /// Returns the nanoseconds per raw tick.
    pub const fn ns_per_tick(self) -> f64 {
        self.ns_per_tick
    }

    /// Returns the length of `ticks` in nanoseconds.
    #[inline]
    pub const fn nanoseconds(self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// Returns the length of `ticks` in milliseconds, the unit of every `*_time` column.
    #[inline]
    pub const fn milliseconds(self, ticks: u64) -> f64 {
        self.nanoseconds(ticks) / NS_PER_MS
    }

    /// Returns the number of ticks in `ns` nanoseconds, rounded; 0 for a negative time.
    pub fn ticks(self, ns: f64) -> u64 {
        (ns / self.ns_per_tick).round() as u64
    }
}

/// Returns the ticks from `start` to `end`, or `None` if the clock stepped back between the two readings.
///
/// All readings are subtracted here. The subtraction cannot wrap, so a step back never becomes a huge time.
/// Callers count `None` as zero time and as one backward step.
#[inline(always)]
pub const fn elapsed(start: u64, end: u64) -> Option<u64> {
    end.checked_sub(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_never_wraps() {
        assert_eq!(elapsed(5, 9), Some(4));
        assert_eq!(elapsed(9, 9), Some(0));
        assert_eq!(elapsed(9, 5), None);
        assert_eq!(elapsed(u64::MAX, 0), None);
    }

    #[test]
    fn ticks_and_time_convert_both_ways() {
        let scale = Scale::of_frequency(2.5e9);
        assert_eq!(scale.ns_per_tick(), 0.4);
        assert_eq!(scale.nanoseconds(5), 2.0);
        assert_eq!(scale.milliseconds(2_500_000), 1.0);
        assert_eq!(scale.ticks(1000.0), 2500);
        assert_eq!(scale.ticks(-1.0), 0);
        assert_eq!(Scale::NANOSECOND.milliseconds(1_500_000), 1.5);
    }

    #[test]
    fn an_invalid_frequency_makes_a_tick_a_nanosecond() {
        for hz in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Scale::of_frequency(hz), Scale::NANOSECOND);
        }
    }
}
