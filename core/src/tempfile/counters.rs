//! Counters of requests per database and kind, for memory that many processes share.
//!
//! The counters are atomic, and there are no locks. A request takes microseconds and is counted as soon as it
//! ends, so none is lost when its process dies. A fixed number of databases have separate counters. Further
//! databases share one set, so that totals are right. Zeroed memory is a valid, empty area.

use super::{KINDS, RequestTimes, Requests};
use crate::histogram::SharedCounts;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The number that represents the databases that share one set.
pub const OTHERS: u32 = u32::MAX;

/// The requests of one kind.
#[repr(C)]
#[derive(Default)]
pub struct Cell {
    count: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
    max_ns: AtomicU64,
    histogram: SharedCounts<{ RequestTimes::BUCKETS }>,
}

/// The counters of one database.
#[repr(C)]
#[derive(Default)]
pub struct Database {
    /// 0 means free, except for the first entry of an area, which is for processes without a database.
    oid: AtomicU32,
    reset_at: AtomicI64,
    cells: [Cell; KINDS],
}

/// The counters of `N` databases, including number 0, and of all others.
#[repr(C)]
pub struct Area<const N: usize> {
    databases: [Database; N],
    others: Database,
}

/// A copy of one database's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The database's number.
    pub oid: u32,
    /// When they were last reset, by the caller's clock.
    pub reset_at: i64,
    /// The requests of each kind, at its index.
    pub kinds: [Requests; KINDS],
}

impl Cell {
    /// Counts a request.
    #[inline(always)]
    pub fn add(&self, bytes: u64, ns: u64) {
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.fetch_max(ns, Relaxed);
        }
        self.histogram.add(RequestTimes::bucket(ns as f64), 1);
    }

    /// Adds requests that were counted by another counter.
    pub fn add_all(&self, requests: &Requests) {
        self.count.fetch_add(requests.count, Relaxed);
        self.bytes.fetch_add(requests.bytes, Relaxed);
        self.ns.fetch_add(requests.ns, Relaxed);
        self.max_ns.fetch_max(requests.max_ns, Relaxed);
        self.histogram.add_all(&requests.histogram);
    }

    fn copy(&self) -> Requests {
        Requests {
            count: self.count.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            ns: self.ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
            histogram: self.histogram.copy(),
        }
    }

    fn reset(&self) {
        for number in [&self.count, &self.bytes, &self.ns, &self.max_ns] {
            number.store(0, Relaxed);
        }
        self.histogram.reset();
    }
}

impl Database {
    /// Returns the counters of a kind by its index. For an invalid index, returns the counters of the first
    /// kind.
    #[inline(always)]
    pub fn cell(&self, kind: usize) -> &Cell {
        // This is called inside system calls, so it must not panic.
        self.cells.get(kind).unwrap_or(&self.cells[0])
    }

    /// Returns a copy of the counters for the database `oid`.
    pub fn copy(&self, oid: u32) -> Copied {
        Copied {
            oid,
            reset_at: self.reset_at.load(Relaxed),
            kinds: std::array::from_fn(|i| self.cells[i].copy()),
        }
    }

    /// Resets the counters.
    pub fn reset(&self, now: i64) {
        self.cells.iter().for_each(Cell::reset);
        self.reset_at.store(now, Relaxed);
    }
}

impl<const N: usize> Area<N> {
    /// Returns the counters of a database. If it has none, it gets free ones. If none are free, it uses the
    /// shared ones.
    pub fn of(&self, oid: u32) -> &Database {
        if oid == OTHERS {
            return &self.others;
        }
        let databases = self.databases.iter();
        if let Some(database) = databases.clone().find(|d| d.oid.load(Relaxed) == oid) {
            return database;
        }
        databases
            .skip(1)
            .find(|d| match d.oid.compare_exchange(0, oid, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(taken_by) => taken_by == oid,
            })
            .unwrap_or(&self.others)
    }

    /// Returns copies of all counters in use. Empty counters that belong to no database are left out.
    pub fn copies(&self) -> impl Iterator<Item = Copied> + '_ {
        let own = self
            .databases
            .iter()
            .enumerate()
            .map(|(i, database)| (i, database.oid.load(Relaxed), database))
            .filter(|(i, oid, _)| *i == 0 || *oid != 0)
            .map(|(_, oid, database)| database.copy(oid));
        let idle = |copy: &Copied| copy.kinds.iter().all(|requests| requests.count == 0);
        own.chain(std::iter::once(self.others.copy(OTHERS)))
            .filter(move |copy| !([0, OTHERS].contains(&copy.oid) && idle(copy)))
    }

    /// Returns whether a further database would have to use the shared counters.
    pub fn is_full(&self) -> bool {
        self.databases
            .iter()
            .skip(1)
            .all(|database| database.oid.load(Relaxed) != 0)
    }

    /// Frees the counters of databases that do not exist any more. No session may be connected to them.
    pub fn forget(&self, exists: impl Fn(u32) -> bool) {
        for database in self.databases.iter().skip(1) {
            let oid = database.oid.load(Relaxed);
            if oid != 0 && !exists(oid) {
                database.reset(self.others.reset_at.load(Relaxed));
                database.oid.store(0, Relaxed);
            }
        }
    }

    /// Resets the counters of all databases.
    pub fn reset(&self, now: i64) {
        self.databases.iter().for_each(|database| database.reset(now));
        self.others.reset(now);
    }

    /// Adds counters that were copied from another area.
    pub fn restore(&self, copy: &Copied) {
        let database = self.of(copy.oid);
        database.reset_at.store(copy.reset_at, Relaxed);
        for (cell, requests) in database.cells.iter().zip(&copy.kinds) {
            cell.add_all(requests);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area<const N: usize>() -> Area<N> {
        Area {
            databases: std::array::from_fn(|_| Database::default()),
            others: Database::default(),
        }
    }

    fn count<const N: usize>(area: &Area<N>, oid: u32) -> Option<u64> {
        area.copies()
            .find(|copy| copy.oid == oid)
            .map(|copy| copy.kinds.iter().map(|requests| requests.count).sum())
    }

    #[test]
    fn a_request_is_counted_once_in_each_counter() {
        let area = area::<4>();
        let cell = area.of(5).cell(3);
        cell.add(8192, 1_500);
        cell.add(0, 900);
        let copies = area.copies().collect::<Vec<_>>();
        assert_eq!(copies.len(), 1);
        let requests = copies[0].kinds[3];
        assert_eq!(
            (requests.count, requests.bytes, requests.ns, requests.max_ns),
            (2, 8192, 2_400, 1_500)
        );
        assert_eq!(requests.histogram[..2], [1, 1]);
        assert_eq!(requests.histogram.iter().sum::<u64>(), 2);
        assert!(
            copies[0]
                .kinds
                .iter()
                .enumerate()
                .all(|(i, r)| i == 3 || r.count == 0)
        );
    }

    #[test]
    fn further_databases_share_counters_and_no_request_is_lost() {
        let area = area::<4>();
        for oid in [0, 11, 12, 13, 14, 15, 11, 15] {
            area.of(oid).cell(0).add(1, 1);
        }
        let counts = [0, 11, 12, 13, 14, 15, OTHERS].map(|oid| count(&area, oid));
        assert_eq!(counts, [Some(1), Some(2), Some(1), Some(1), None, None, Some(3)]);
        assert!(area.is_full());
        // A dropped database frees its counters.
        area.forget(|oid| oid != 12);
        assert_eq!((count(&area, 12), area.is_full()), (None, false));
        area.of(16).cell(0).add(1, 1);
        assert_eq!(count(&area, 16), Some(1));
        area.reset(77);
        assert_eq!(
            (count(&area, 0), count(&area, 11), count(&area, OTHERS)),
            (None, Some(0), None)
        );
        assert!(area.copies().all(|copy| copy.reset_at == 77));
    }

    #[test]
    fn concurrent_requests_are_all_counted() {
        const THREADS: u32 = 8;
        const EACH: u64 = 20_000;
        let area = area::<6>();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let area = &area;
                scope.spawn(move || {
                    for i in 0..EACH {
                        area.of(1 + thread % 4).cell((i % 8) as usize).add(3, i);
                    }
                });
            }
        });
        let copies = area.copies().collect::<Vec<_>>();
        assert_eq!(copies.len(), 4, "one set for each database");
        for copy in copies {
            let sum = |of: fn(&Requests) -> u64| copy.kinds.iter().map(of).sum::<u64>();
            assert_eq!(sum(|r| r.count), 2 * EACH);
            assert_eq!(sum(|r| r.bytes), 6 * EACH);
            assert_eq!(sum(|r| r.histogram.iter().sum()), 2 * EACH);
            assert_eq!(sum(|r| r.ns), EACH * (EACH - 1));
            assert_eq!(copy.kinds.iter().map(|r| r.max_ns).max(), Some(EACH - 1));
        }
    }

    #[test]
    fn saved_counters_add_to_new_ones() {
        let before = area::<4>();
        before.of(7).cell(2).add(10, 20);
        before.of(OTHERS).cell(1).add(1, 1);
        before.reset(0);
        before.of(7).cell(2).add(10, 20);
        let after = area::<4>();
        after.reset(100);
        after.of(7).cell(2).add(1, 50);
        for copy in before.copies() {
            after.restore(&copy);
        }
        let copies = after.copies().collect::<Vec<_>>();
        assert_eq!((copies[0].oid, copies[0].reset_at), (7, 0));
        let requests = copies[0].kinds[2];
        assert_eq!(
            (requests.count, requests.bytes, requests.ns, requests.max_ns),
            (2, 11, 70, 50)
        );
    }
}
