//! Rows of counters from refresh to refresh: the last ones, and what was added between two refreshes.

use std::collections::BTreeMap;

use crate::delta::{Counted, Difference, MARGIN_SECONDS, difference};
use crate::title::Title;

/// After so many seconds all rows are read again, so that those are forgotten that are not stored any more.
const ALL_ROWS_SECONDS: f64 = 300.0;
/// At most this many rows are kept, or twice as many as the last list of all had. A server that has no time
/// for that list never says which rows are gone: those that changed last stay.
const MOST_ROWS: usize = 20_000;

/// A row, and when it came.
#[derive(Clone, Debug)]
struct Kept<T> {
    at: f64,
    row: T,
}

/// Rows of counters: the last ones, and what was added.
#[derive(Clone, Debug)]
pub struct Series<T: Counted> {
    before: Option<f64>,
    rows: BTreeMap<T::Key, Kept<T>>,
    /// When all rows were read, and how many these were.
    all_at: f64,
    all: usize,
    /// What was added. Before the second refresh: all since the beginning.
    pub added: Difference<T>,
    /// The seconds in which it was; nothing before the second refresh.
    pub seconds: Option<f64>,
    /// Whether it is the first interval, which is shorter than the others.
    is_first: bool,
}

impl<T: Counted> Default for Series<T> {
    fn default() -> Self {
        Self {
            before: None,
            rows: BTreeMap::new(),
            all_at: 0.0,
            all: 0,
            added: Difference {
                rows: Vec::new(),
                gone: 0,
                anew: 0,
            },
            seconds: None,
            is_first: false,
        }
    }
}

impl<T: Counted> Series<T> {
    /// Takes over all rows.
    pub fn update(&mut self, at: f64, rows: Vec<T>) {
        let before = std::mem::take(&mut self.rows);
        self.add(at, before.values().map(|kept| &kept.row), &rows);
        (self.all_at, self.all) = (at, rows.len());
        self.rows = rows
            .into_iter()
            .map(|row| (row.key(), Kept { at, row }))
            .collect();
    }

    /// Takes over rows of which some have changed; the others are as before.
    pub fn update_some(&mut self, at: f64, mut rows: Vec<T>) {
        rows.sort_by_cached_key(T::key);
        let before: Vec<T> = { rows.iter() }
            .filter_map(|row| self.rows.get(&row.key()))
            .map(|kept| kept.row.clone())
            .collect();
        self.add(at, &before, &rows);
        self.rows
            .extend(rows.into_iter().map(|row| (row.key(), Kept { at, row })));
        self.forget();
    }

    /// Notes what rows have more than before.
    fn add<'a>(&mut self, at: f64, before: impl IntoIterator<Item = &'a T>, rows: &[T])
    where
        T: 'a,
    {
        self.added = difference(before, rows, self.before.unwrap_or(0.0));
        if let Some(then) = self.before {
            self.is_first = self.seconds.is_none();
            // Two refreshes of one moment: of no length, so that no rate is absurd.
            self.seconds = Some((at - then).max(0.001));
        }
        self.before = Some(at);
    }

    /// Forgets the rows that have not changed for the longest time, if there are too many. A quarter goes at
    /// once, so that this is seldom done.
    fn forget(&mut self) {
        let most = MOST_ROWS.max(2 * self.all);
        if self.rows.len() <= most {
            return;
        }
        let mut times: Vec<(f64, &T::Key)> = { self.rows.iter() }.map(|(key, kept)| (kept.at, key)).collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let more = self.rows.len() - most / 4 * 3;
        let old: Vec<T::Key> = times.iter().take(more).map(|(_, key)| (*key).clone()).collect();
        for key in old {
            self.rows.remove(&key);
        }
    }

    /// The server had no time for all rows. From now on those are read that change.
    pub fn begin_without(&mut self, at: f64) {
        self.all_at = at;
        self.before.get_or_insert(at);
    }

    /// Returns whether rows have come, or none are to be awaited.
    pub fn is_begun(&self) -> bool {
        self.before.is_some()
    }

    /// Returns since when rows are wanted; nothing if all are.
    pub fn since(&self) -> Option<i64> {
        let last = self
            .before
            .filter(|at| (0.0..ALL_ROWS_SECONDS).contains(&(at - self.all_at)));
        last.map(|at| at as i64 - MARGIN_SECONDS as i64)
    }

    /// Returns the last rows.
    pub fn last(&self) -> impl Iterator<Item = &T> {
        self.rows.values().map(|kept| &kept.row)
    }

    /// Forgets the rows that are not wanted.
    pub fn keep(&mut self, is_wanted: impl Fn(&T) -> bool) {
        self.rows.retain(|_, kept| is_wanted(&kept.row));
    }

    /// Says of which interval figures are. A name that has no room becomes the next one.
    pub fn title(&self, names: &[&str]) -> Title {
        let says = match self.seconds {
            Some(seconds) if self.is_first && seconds < 1.0 => {
                let first = format!("what was added in the first {seconds:.1} s");
                vec![format!("{first}; a whole interval follows"), first]
            }
            Some(seconds) => vec![format!("what was added in the last {seconds:.1} s")],
            None => vec!["sums so far, an interval follows".to_owned()],
        };
        let titles = { names.iter() }.flat_map(|name| says.iter().map(move |says| format!("{name}: {says}")));
        Title::new(titles)
    }

    /// After a reset, the counters began at zero.
    pub fn reset(&mut self) {
        self.rows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Plan;

    fn plan(queryid: i64, calls: f64) -> Plan {
        Plan {
            queryid: Some(queryid),
            planid: Some(queryid),
            calls,
            time: calls,
            first_seen: 1.0,
            ..Plan::default()
        }
    }

    /// Where the list of all always takes too long, nothing says which plans were evicted.
    #[test]
    fn plans_that_are_gone_are_forgotten_although_the_list_of_all_never_comes() {
        let mut plans = Series::default();
        let mut at = 1_000.0;
        for minute in 0..200 {
            plans.begin_without(at);
            // One of them runs all the time; the others come and go.
            let first = 1_000 * minute;
            let mut rows: Vec<Plan> = (first..first + 1_000).map(|id| plan(1 + id, 1.0)).collect();
            rows.push(plan(-1, minute as f64 + 1.0));
            at += 60.0;
            plans.update_some(at, rows);
            assert!(plans.last().count() <= MOST_ROWS);
            let row = plans.added.rows.iter().find(|plan| plan.queryid == Some(-1));
            assert_eq!(row.map(|plan| plan.calls), (minute > 0).then_some(1.0));
        }
        assert!(plans.last().count() > MOST_ROWS / 2);
    }

    /// What came with the list of all stays, however many these are.
    #[test]
    fn many_plans_that_are_stored_are_all_kept() {
        let mut plans = Series::default();
        plans.update(1_000.0, (0..30_000).map(|id| plan(id, 5.0)).collect());
        plans.update_some(1_002.0, vec![plan(29_999, 7.0), plan(30_000, 1.0)]);
        assert_eq!(plans.last().count(), 30_001);
        assert_eq!(plans.added.rows, [plan(29_999, 2.0)]);
        assert_eq!(plans.since(), Some(1_000));
    }
}
