//! The time of all statements, as it was at moments. Of older ones fewer are kept: so the time since a moment
//! weeks ago is known to some percent.

use serde::{Deserialize, Serialize};

/// How many moments are kept.
const MOMENTS: usize = 512;
/// How often the time of all statements is read, if plans are evicted meanwhile.
const TRIES: usize = 3;

/// A moment in microseconds since 2000-01-01 UTC, and the milliseconds until then.
type Moment = (i64, f64);

/// The time of all statements at moments. Zero bytes know nothing.
#[repr(C)]
pub struct DatabaseTime {
    /// The moments in their order: the first `count` ones.
    all: [Moment; MOMENTS],
    count: u64,
}

/// The same in a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SavedDatabaseTime(Vec<Moment>);

/// Returns the milliseconds of all statements. `evicted` returns how many plans have been evicted so far, and
/// the milliseconds of all executions that are not stored with their plan; `stored` returns those of the
/// plans. A plan that is evicted between both would count twice, or not at all: then they are read again.
/// Returns `None` if that happens each time.
pub fn total_ms(mut evicted: impl FnMut() -> (u64, f64), mut stored: impl FnMut() -> f64) -> Option<f64> {
    let (mut count, mut others_ms) = evicted();
    for _ in 0..TRIES {
        let stored_ms = stored();
        let (count_after, ms_after) = evicted();
        if count_after == count {
            return Some(stored_ms + others_ms);
        }
        (count, others_ms) = (count_after, ms_after);
    }
    None
}

impl DatabaseTime {
    /// Notes the milliseconds of all statements until a moment.
    pub fn note(&mut self, at: i64, total_ms: f64) {
        // Someone has reset the statistics of some statements. What others took since a moment stays.
        let lost = self.latest().1 - total_ms;
        if lost > 0.0 {
            self.known_mut().iter_mut().for_each(|(_, ms)| *ms -= lost);
        }
        // If the clock was set back, what it showed later says nothing.
        self.count = self.known().partition_point(|(known, _)| *known < at) as u64;
        if self.count as usize == MOMENTS {
            self.thin(at);
        }
        self.all[self.count as usize] = (at, total_ms);
        self.count += 1;
    }

    /// Forgets the moment that is missed least: behind which the others are the nearest, for their age.
    fn thin(&mut self, now: i64) {
        let gap = |neighbours: &[Moment]| {
            let [before, after] = [neighbours[0].0, neighbours[2].0];
            (after - before) as f64 / (now - before) as f64
        };
        let gaps = self.known().windows(3).map(gap).enumerate();
        if let Some((least, _)) = gaps.min_by(|(_, one), (_, other)| one.total_cmp(other)) {
            self.known_mut()[least + 1..].rotate_left(1);
            self.count -= 1;
        }
    }

    /// Returns the milliseconds of all statements since a moment, or some more: since the last known one
    /// before it. If it is older than all that is known, these are those that the store knows. It is 0 if
    /// nothing is known.
    pub fn since(&self, at: i64) -> f64 {
        let older = self.known().partition_point(|(known, _)| *known <= at);
        let before = older.checked_sub(1).and_then(|last| self.known().get(last));
        self.latest().1 - before.map_or(0.0, |(_, ms)| *ms)
    }

    /// Forgets all: the statistics of all statements were reset.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Returns what a file keeps. Returns `None` if there is no memory.
    pub fn saved(&self) -> Option<SavedDatabaseTime> {
        let mut all = Vec::new();
        all.try_reserve_exact(MOMENTS).ok()?;
        all.extend_from_slice(self.known());
        Some(SavedDatabaseTime(all))
    }

    /// Takes over what a file kept. A table that is in use stays as it is.
    pub fn restore(&mut self, SavedDatabaseTime(saved): &SavedDatabaseTime) {
        if self.count == 0 {
            let places = self.all.iter_mut().zip(saved);
            self.count = places.map(|(place, kept)| *place = *kept).count() as u64;
        }
    }

    fn known(&self) -> &[Moment] {
        &self.all[..self.count as usize]
    }

    fn known_mut(&mut self) -> &mut [Moment] {
        &mut self.all[..self.count as usize]
    }

    fn latest(&self) -> Moment {
        self.known().last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_US: i64 = 60_000_000;

    fn empty() -> Box<DatabaseTime> {
        Box::new(DatabaseTime {
            all: [(0, 0.0); MOMENTS],
            count: 0,
        })
    }

    #[test]
    fn time_since_a_moment_is_that_since_the_last_known_one_before() {
        let mut time = empty();
        assert_eq!(time.since(5), 0.0);
        (1..=10).for_each(|i| time.note(i * 10, i as f64));
        assert_eq!((time.since(100), time.since(35), time.since(30)), (0.0, 7.0, 7.0));
        // Before that, all may have been.
        assert_eq!(time.since(5), 10.0);
    }

    #[test]
    fn a_file_keeps_what_is_known() {
        let mut time = empty();
        (1..=10).for_each(|i| time.note(i * 10, i as f64));
        let bytes = postcard::to_stdvec(&time.saved().expect("memory")).expect("bytes");
        let saved: SavedDatabaseTime = postcard::from_bytes(&bytes).expect("the same");
        let mut other = empty();
        other.restore(&saved);
        assert_eq!(other.since(35), 7.0);
        // A table in use stays.
        other.note(110, 11.0);
        other.restore(&saved);
        assert_eq!(other.since(35), 8.0);
        other.clear();
        assert_eq!(other.since(35), 0.0);
    }

    /// Ten plans of 100 ms each, and one of them is evicted while the others are read, before it or after it
    /// was.
    #[test]
    fn a_plan_that_is_evicted_meanwhile_counts_once() {
        for has_read in [true, false] {
            for evictions in 0..5 {
                let evicted = std::cell::Cell::new(0_u32);
                let left = || f64::from(10 - evicted.get()) * 100.0;
                let stored = || {
                    let before = left();
                    evicted.set((evicted.get() + 1).min(evictions));
                    if has_read { before } else { left() }
                };
                let others = || (u64::from(evicted.get()), f64::from(evicted.get()) * 100.0);
                let expected = (evictions < TRIES as u32).then_some(1_000.0);
                assert_eq!(total_ms(others, stored), expected, "{evictions}, {has_read}");
            }
        }
    }

    /// A finding may be weeks old. What it must have cost is a part of the time since.
    #[test]
    fn the_time_since_a_moment_weeks_ago_is_known() {
        const WEEK: i64 = 7 * 24 * 60;
        let mut time = empty();
        // Before it looked for the first time, statements took 5,000 ms.
        let at = |minute: i64| 1_000_000_000 + minute * MINUTE_US;
        for minute in 0..=4 * WEEK {
            time.note(at(minute), (5_000 + minute) as f64);
        }
        for ago in [1, 10, 511, 513, 1_000, WEEK, 2 * WEEK, 4 * WEEK - 1] {
            let found = time.since(at(4 * WEEK - ago));
            let wanted = ago as f64;
            assert!((wanted..wanted * 1.06 + 1.0).contains(&found), "{ago}: {found}");
        }
    }

    /// Somebody resets the statistics of one statement, or the clock is set back.
    #[test]
    fn what_is_known_survives_a_reset_of_some_statements() {
        let mut time = empty();
        (1..=10).for_each(|i| time.note(i * 10, 100.0 * i as f64));
        // 300 of 1,000 ms are gone.
        time.note(110, 700.0);
        time.note(120, 750.0);
        assert_eq!(
            (time.since(90), time.since(50), time.since(115)),
            (150.0, 550.0, 50.0)
        );
        time.note(75, 760.0);
        assert_eq!((time.since(50), time.since(75)), (560.0, 0.0));
    }
}
