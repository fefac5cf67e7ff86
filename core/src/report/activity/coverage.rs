//! Which parts of an interval have samples, how many moments are kept, and from where.

use super::{Activity, SHOWN};

/// If less than these microseconds are missing at an end of an interval, nobody says so: how often the
/// sessions were sampled is known only for about each second.
pub const TOLERANCE_US: i64 = 5_000_000;

impl Activity {
    /// Adds a part of the interval of which snapshots have the samples. They leave out moments at which no
    /// session was active, so the moments are added here, and not by [`Activity::add_moment`].
    pub fn add_stored(&mut self, first: i64, last: i64, moments: u64) {
        self.cover(first, last);
        self.stored_until = Some(last);
        self.moments += moments;
        let length = last.saturating_sub(first).saturating_add(1) as f64;
        let mut at = first;
        while at <= last {
            let bar = self.bar_of(at);
            let next = bar.saturating_add(self.step).min(last.saturating_add(1));
            self.bars.entry(bar).or_default().1 += moments as f64 * (next - at) as f64 / length;
            at = next;
        }
    }

    /// Notes that the sessions were sampled in a part of the interval. Parts come in their order.
    pub(super) fn cover(&mut self, first: i64, last: i64) {
        match self.covered.last_mut() {
            Some(before) if first.saturating_sub(before.1) <= TOLERANCE_US => before.1 = before.1.max(last),
            _ => self.covered.push((first, last)),
        }
    }

    /// Returns lines that say which parts of the interval have samples, and where these come from; none if
    /// all of it has samples from memory.
    pub(super) fn coverage(&self, shown: &dyn Fn(i64) -> String) -> Vec<String> {
        let crash_in = |first: i64, last: i64| match first < self.begun_at && self.begun_at <= last {
            true => format!(
                "; the server crashed, or began to sample, at {}",
                shown(self.begun_at)
            ),
            false => String::new(),
        };
        let (Some((first, _)), Some((_, last))) = (self.covered.first(), self.covered.last()) else {
            let crash = crash_in(self.from, i64::MAX);
            return vec![format!(
                "no samples are kept of this interval{crash}; {}",
                self.older
            )];
        };
        let is_late = first.saturating_sub(self.from) > TOLERANCE_US;
        let is_early = self.to.saturating_sub(*last) > TOLERANCE_US;
        let mut lines = Vec::new();
        if is_late || is_early {
            let mut line = format!("samples from {} to {}", shown(*first), shown(*last));
            if is_late {
                line.push_str(&crash_in(self.from, *first));
                line.push_str("; ");
                line.push_str(&self.older);
            }
            lines.push(line);
        }
        let gaps = self.covered.windows(2).map(|parts| (parts[0].1, parts[1].0));
        lines.extend(gaps.clone().take(SHOWN).map(|(first, last)| {
            let crash = crash_in(first, last);
            format!("no samples from {} to {}{crash}", shown(first), shown(last))
        }));
        if let Some(more) = gaps.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            lines.push(format!("and no samples of {more} more parts of the interval"));
        }
        lines.extend(self.stored_until.map(|until| {
            let later = if until < *last {
                ", later ones from memory"
            } else {
                ""
            };
            format!("samples until {} are from snapshots{later}", shown(until))
        }));
        lines
    }

    /// Returns a line that says which moments are kept and what that means, unless all are.
    pub(super) fn resolution(&self, shown: &dyn Fn(i64) -> String) -> Option<String> {
        let slots = self.slots.iter().rev().filter(|(slot_us, _)| **slot_us > 1);
        let slots =
            slots.map(|(slot_us, last)| format!("one in {} s until {}", *slot_us as f64 / 1e6, shown(*last)));
        let stored = self.stored_until.map(|until| {
            format!(
                "of snapshots one in 0.1 s until {}, or in 10 s after a day",
                shown(until)
            )
        });
        let slots: Vec<String> = stored.into_iter().chain(slots).collect();
        (!slots.is_empty()).then(|| {
            format!(
                "{} of them are kept: {}; twice the standard error of the average is {:.2}",
                self.kept,
                slots.join(", "),
                // Moments that follow each other are from neighbouring slots. What they differ by is at least
                // what the choice of a moment in a slot changes.
                2.0 * (self.differences / 2.0).sqrt() / self.moments.max(1) as f64
            )
        })
    }
}
