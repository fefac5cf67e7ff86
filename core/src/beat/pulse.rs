//! When the heart looks at a session, and whether it then makes a beat.

use super::words::Wish;

/// For each period: up to which age of the statement's wish it is used, and its length, in microseconds.
const PERIODS: [(i64, i64); 4] = [
    (128_000, 1_500),
    (512_000, 3_000),
    (2_000_000, 12_000),
    (i64::MAX, 48_000),
];
/// What the beats of a young statement stand for on average, in nanoseconds.
pub const YOUNG_NS: f64 = PERIODS[0].1 as f64 * 1e3;
/// How many microseconds each session that wishes for beats adds to all periods. So the heart's work is
/// limited.
const PERIOD_PER_SESSION_US: i64 = 50;
/// A session that has not taken its last beat, because it waits or computes in one call, or that does not
/// wish for beats yet, is looked at again after this part of the time that this has lasted for.
const IDLE_PART: i64 = 8;
/// It is looked at again after this time at the latest, in microseconds.
const MAX_IDLE_US: i64 = 1_000_000;
/// Sessions that are due within this number of microseconds are looked at too, or within this part of the
/// period: the worker is awake now, for another session or for a sample, and waking up costs most.
const EARLY_US: i64 = 200;
const EARLY_PART: i64 = 4;
/// The most microseconds that a beat stands for. A heart that is later was stopped.
const MAX_GAP_US: i64 = 1_000_000;

/// What the heart sees when it looks at a session.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// What it wishes.
    pub wish: Wish,
    /// It has taken the beats so far.
    pub has_taken: bool,
}

/// What the heart remembers of a session. All times are microseconds of a clock that never steps back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pulse {
    /// The statement whose wish was seen last.
    statement: u64,
    /// When it was first seen.
    since: i64,
    /// When the heart last looked.
    looked_at: i64,
    /// When it looks again.
    due_at: i64,
    /// Since when it needs no beat; 0 if it needs some.
    idle_since: i64,
    /// It wished for beats when the heart looked before, in this statement.
    is_watched: bool,
    is_wishing: bool,
}

impl Pulse {
    /// Looks at the session. Returns the time that a beat stands for, in nanoseconds, if it needs a beat now.
    /// It is 0 for the first one, if the session did not wish for it when the heart looked before: its wish
    /// is younger than that. `sessions` is how many sessions wish for beats, `random` a random number.
    pub fn look(&mut self, session: Session, now: i64, sessions: usize, random: u64) -> Option<u64> {
        self.is_wishing = session.wish.is_any();
        if !self.is_wishing {
            return None;
        }
        let is_new = self.statement != session.wish.statement();
        if is_new {
            *self = Pulse {
                statement: session.wish.statement(),
                since: now,
                is_wishing: true,
                ..Pulse::default()
            };
        }
        let period = self.period(now, sessions);
        if !is_new && now + EARLY_US.max(period / EARLY_PART) < self.due_at {
            return None;
        }
        let before = std::mem::replace(&mut self.looked_at, now);
        if is_new {
            self.is_watched = session.wish.is_for_beats();
            self.due_at = now + around(period, random);
            return None;
        }
        if !session.has_taken || !session.wish.is_for_beats() {
            if self.idle_since == 0 {
                self.idle_since = now;
            }
            let lasted = (now - self.idle_since) / IDLE_PART;
            self.due_at = now + around(lasted.clamp(period, MAX_IDLE_US.max(period)), random);
            return None;
        }
        let was_idle = std::mem::take(&mut self.idle_since) != 0;
        self.due_at = now + around(period, random);
        if !std::mem::replace(&mut self.is_watched, true) {
            return Some(0);
        }
        // The last looks were far apart, and it was out of that call for a part of the last distance only.
        let longest = if was_idle { period } else { MAX_GAP_US };
        Some((now - before).clamp(1, longest) as u64 * 1000)
    }

    /// Returns when the heart must look again; `None` if the session had no wish.
    pub fn due_at(&self) -> Option<i64> {
        self.is_wishing.then_some(self.due_at)
    }

    /// Returns whether the session needs beats.
    pub fn is_beating(&self) -> bool {
        self.is_wishing && self.idle_since == 0
    }

    fn period(&self, now: i64, sessions: usize) -> i64 {
        let age = now - self.since;
        let found = PERIODS.iter().find(|(until, _)| age < *until);
        let period = found.map_or(PERIODS[PERIODS.len() - 1].1, |(_, period)| *period);
        period + PERIOD_PER_SESSION_US * sessions as i64
    }
}

/// Returns about how many beats come in a statement that lasts this many microseconds, if no other session
/// wishes for beats.
pub fn beats_in(us: i64) -> f64 {
    let mut since = 0;
    let of_period = |(until, period): &(i64, i64)| {
        let lasts = us.min(*until) - since;
        since = *until;
        lasts.max(0) as f64 / *period as f64
    };
    PERIODS.iter().map(of_period).sum()
}

/// Returns a random time between half and one and a half of this one.
fn around(time: i64, random: u64) -> i64 {
    time / 2 + ((u128::from(random) * time as u128) >> 64) as i64
}

#[cfg(test)]
mod tests {
    use super::super::words::Beats;
    use super::*;
    use rand_core::{RngCore, SeedableRng};
    use rand_xoshiro::Xoroshiro128PlusPlus;

    /// Lets a heart look at a session that is late by up to `late` microseconds. Returns when it made beats,
    /// and their gaps.
    fn beats_until(end: i64, late: i64, session: impl Fn(i64) -> Session) -> Vec<(i64, u64)> {
        beats_beside(1, end, late, session)
    }

    /// Does the same while so many sessions wish for beats.
    fn beats_beside(
        sessions: usize,
        end: i64,
        late: i64,
        session: impl Fn(i64) -> Session,
    ) -> Vec<(i64, u64)> {
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(1);
        let (mut pulse, mut now, mut found) = (Pulse::default(), 1_000_000, Vec::new());
        let start = now;
        while now - start < end {
            if let Some(gap) = pulse.look(session(now - start), now, sessions, random.next_u64()) {
                found.push((now - start, gap / 1000));
            }
            let late = if late > 0 {
                (random.next_u64() % late as u64) as i64
            } else {
                0
            };
            now = pulse.due_at().expect("it wishes") + late;
        }
        found
    }

    fn wishing(beats: &Beats) -> Session {
        Session {
            wish: beats.wished(),
            has_taken: true,
        }
    }

    #[test]
    fn beats_come_at_random_and_slow_down_with_age() {
        let words = Beats::new();
        words.wish();
        let beats = beats_until(10_000_000, 0, |_| wishing(&words));
        let between = |from: i64, to: i64| beats.iter().filter(|(at, _)| (from..to).contains(at)).count();
        assert!((70..95).contains(&between(0, 128_000)), "{}", between(0, 128_000));
        assert!((110..140).contains(&between(128_000, 512_000)));
        assert!((150..185).contains(&between(2_000_000, 10_000_000)));
        // At 50 us for each, which it takes to wake up on an idle virtual machine, that is 0.26 % of a
        // processor.
        assert!(beats.len() < 540, "{}", beats.len());
        assert_eq!(
            beats[0].0, beats[0].1 as i64,
            "the first one, for that since the first look"
        );
        for pair in beats.windows(2) {
            assert_eq!(
                pair[1].0 - pair[0].0,
                pair[1].1 as i64,
                "it stands for the time between two"
            );
        }
        assert!((beats_in(10_000_000) - 504.0).abs() < 1.0);
        let young: Vec<_> = beats[1..60].iter().map(|(_, gap)| *gap).collect();
        assert!(young.iter().any(|gap| *gap < 1000) && young.iter().any(|gap| *gap > 2000));
    }

    #[test]
    fn a_late_beat_stands_for_the_time_since_the_one_before() {
        let words = Beats::new();
        words.wish();
        for late in [40_000, 3_000_000] {
            let beats = beats_until(20_000_000, late, |_| wishing(&words));
            assert!(beats.len() > 5);
            for pair in beats.windows(2) {
                assert_eq!((pair[1].0 - pair[0].0).min(MAX_GAP_US), pair[1].1 as i64);
            }
        }
    }

    #[test]
    fn a_session_that_waits_gets_no_more_beats() {
        let words = Beats::new();
        words.wish();
        let beats = beats_until(20_000_000, 0, |at| Session {
            has_taken: !(1_000_000..9_000_000).contains(&at),
            ..wishing(&words)
        });
        assert!(beats.iter().all(|(at, _)| !(1_000_000..9_000_000).contains(at)));
        let next = beats.iter().find(|(at, _)| *at > 9_000_000).expect("it goes on");
        assert!(next.0 < 10_600_000, "{next:?}");
        assert!(next.1 <= 48_050, "the wait does not count: {next:?}");
    }

    #[test]
    fn a_statement_that_may_wish_gets_none_yet() {
        let words = Beats::new();
        words.may_wish();
        let mut pulse = Pulse::default();
        let (mut now, mut looks) = (0, 0);
        while now < 1_000_000 {
            assert_eq!(pulse.look(wishing(&words), now, 1, u64::MAX / 2), None);
            now = pulse.due_at().expect("it may wish");
            looks += 1;
        }
        assert!(looks < 60, "{looks}");
        words.wish();
        assert_eq!(
            pulse.look(wishing(&words), now, 1, 0),
            Some(0),
            "its wish is younger"
        );
        let due = pulse.due_at().expect("it wishes");
        assert_eq!(
            pulse.look(wishing(&words), due, 1, 0),
            Some((due - now) as u64 * 1000)
        );
        now = due;
        words.end_wish();
        assert_eq!(pulse.look(wishing(&words), now, 1, 0), None);
        assert_eq!(pulse.due_at(), None);
        assert!(!pulse.is_beating());
    }

    #[test]
    fn many_sessions_get_fewer_beats() {
        let words = Beats::new();
        words.wish();
        let mut all_before = 0;
        for (sessions, beats_of_each) in [(1, 75..95), (10, 58..72), (100, 17..23), (1000, 1..4)] {
            let beats = beats_beside(sessions, 128_000, 0, |_| wishing(&words)).len();
            assert!(beats_of_each.contains(&beats), "{sessions}: {beats}");
            // 100 us of each are 5 % of a processor for all.
            let all = beats * sessions;
            assert!(all > all_before && all < 4000, "{sessions}: {all}");
            all_before = all;
        }
    }
}
