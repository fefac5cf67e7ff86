//! The time of all statements, as it was at moments of the last hours.

/// How many moments are kept.
const MOMENTS: usize = 512;

/// The time of all statements at moments. Zero bytes know nothing.
#[repr(C)]
pub struct DatabaseTime {
    /// The moments in microseconds since 2000-01-01 UTC, 0 for a free place, and the milliseconds until then.
    all: [(i64, f64); MOMENTS],
    next: u64,
}

impl DatabaseTime {
    /// Notes the milliseconds of all statements until a moment.
    pub fn note(&mut self, at: i64, total_ms: f64) {
        let latest = self.latest();
        // Someone has reset the statistics, or the clock was set back.
        if total_ms < latest.1 || at < latest.0 {
            self.all = [(0, 0.0); MOMENTS];
        }
        self.all[self.next as usize % MOMENTS] = (at, total_ms);
        self.next += 1;
    }

    /// Returns the milliseconds of all statements since a moment, or more: if it is older than what is known,
    /// those that the store knows. It is 0 if nothing is known.
    pub fn since(&self, at: i64) -> f64 {
        let known = self.all.iter().filter(|(known, _)| *known != 0);
        let before = known
            .filter(|(known, _)| *known <= at)
            .max_by_key(|(known, _)| *known);
        self.latest().1 - before.map_or(0.0, |(_, ms)| *ms)
    }

    fn latest(&self) -> (i64, f64) {
        self.all[self.next.wrapping_sub(1) as usize % MOMENTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_a_moment_is_that_since_the_last_known_one_before() {
        let mut time = DatabaseTime {
            all: [(0, 0.0); MOMENTS],
            next: 0,
        };
        assert_eq!(time.since(5), 0.0);
        (1..=10).for_each(|i| time.note(i * 10, i as f64));
        assert_eq!((time.since(100), time.since(35), time.since(30)), (0.0, 7.0, 7.0));
        // Before that, all may have been.
        assert_eq!(time.since(5), 10.0);
        (11..=2_000).for_each(|i| time.note(i * 10, i as f64));
        assert_eq!((time.since(20_000 - 100), time.since(5)), (10.0, 2_000.0));
        // A reset.
        time.note(20_010, 3.0);
        assert_eq!((time.since(20_005), time.since(20_010)), (3.0, 0.0));
    }
}
