//! The times of samples, and the moments at which they are taken.

/// Gives samples times that never step back, from a clock that may.
///
/// After the clock stepped back, the times go on at half the speed until the clock has caught up.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleTimes {
    /// The last time, and the reading of the clock that never steps back.
    last: Option<(i64, i64)>,
}

impl SampleTimes {
    /// Continues after a sample that was taken before.
    pub fn after(at: Option<i64>, monotonic_us: i64) -> SampleTimes {
        SampleTimes {
            last: at.map(|at| (at, monotonic_us)),
        }
    }

    /// Returns the time of the next sample, which is later than the last. `clock` is the time of day,
    /// `monotonic_us` the reading of a clock that never steps back.
    pub fn next(&mut self, clock: i64, monotonic_us: i64) -> i64 {
        let at = match self.last {
            Some((last, then)) if clock <= last => last + (monotonic_us.saturating_sub(then) / 2).max(1),
            _ => clock,
        };
        self.last = Some((at, monotonic_us));
        at
    }
}

/// Chooses the moments of the samples: a random one in each period. So work that repeats in step with the
/// samples is neither missed nor seen too often, and the number of samples in a long time is exact.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    period_us: i64,
    /// The beginning of the next period.
    next_period: i64,
}

impl Moments {
    /// Begins at a reading of a clock, with `frequency` samples a second.
    pub fn new(frequency: u32, now_us: i64) -> Moments {
        Moments {
            period_us: 1_000_000 / i64::from(frequency.clamp(1, 1_000_000)),
            next_period: now_us,
        }
    }

    /// Returns when to take the next sample, from a random number. Periods that have passed are left out:
    /// missed samples are not made up for.
    pub fn next(&mut self, now_us: i64, random: u64) -> i64 {
        if now_us - self.next_period >= self.period_us {
            self.next_period = now_us;
        }
        let at = self.next_period + (random % self.period_us as u64) as i64;
        self.next_period += self.period_us;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};
    use rand_xoshiro::Xoroshiro128PlusPlus;

    #[test]
    fn times_never_step_back() {
        let mut times = SampleTimes::default();
        let mut last = i64::MIN;
        let (mut clock, mut monotonic) = (1_000_000, 0);
        for i in 0..10_000 {
            clock += 10_000;
            monotonic += 10_000;
            if i == 1000 {
                clock -= 20_000_000;
            }
            if i == 8000 {
                clock += 3_600_000_000;
            }
            let at = times.next(clock, monotonic);
            assert!(at >= last, "{i}: {at} after {last}");
            last = at;
            // 20 s are caught up in 40 s.
            if !(4990..5010).contains(&i) {
                assert_eq!(at == clock, !(1000..5000).contains(&i), "{i}");
            }
        }
        // Another process continues.
        let mut next = SampleTimes::after(Some(last), 5);
        assert_eq!(next.next(last - 100, 25), last + 10);
        assert_eq!(SampleTimes::after(None, 5).next(7, 5), 7);
    }

    #[test]
    fn there_is_one_moment_in_each_period() {
        let mut moments = Moments::new(100, 0);
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(42);
        let mut now = 0;
        let mut phases = [0; 10];
        for i in 0..10_000 {
            let at = moments.next(now, random.next_u64());
            assert!((i * 10_000..(i + 1) * 10_000).contains(&at), "{i}: {at}");
            phases[(at % 10_000 / 1_000) as usize] += 1;
            now = at.max(now);
        }
        assert!(
            phases.iter().all(|count| (850..1150).contains(count)),
            "{phases:?}"
        );
        // After a pause of a second, one sample is taken, not a hundred.
        now += 1_000_000;
        let at = moments.next(now, random.next_u64());
        assert!((now..now + 10_000).contains(&at));
    }
}
