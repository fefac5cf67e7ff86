//! What the store knows of executions that are not stored with their plan: how many plans were evicted and executions refused,
//! their sums, and the keys of evicted plans for a while.

use super::room;
use crate::guc;
use crate::pg::server;
use rowsource_core::eviction::Doorkeeper;
use rowsource_core::model::{DatabaseSum, Others, PlanKey, PlanTotals};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::cell::UnsafeCell;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// A part of the control block. Zero bytes say that nothing was evicted.
#[repr(C)]
pub(super) struct Evicted {
    /// The number of evicted plans since the last reset.
    count: AtomicU64,
    /// The number of refused executions since the last reset.
    refused: AtomicU64,
    /// When an execution was first not stored with its plan since the last reset, or 0.
    since: AtomicI64,
    /// The first eviction must be logged.
    unlogged: AtomicBool,
    doorkeeper: Doorkeeper,
    sums: UnsafeCell<Others>,
}

/// What the file keeps of it.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Saved {
    count: u64,
    refused: u64,
    since: i64,
    sums: Vec<DatabaseSum>,
}

fn hash(key: &PlanKey) -> u64 {
    FxBuildHasher.hash_one(key)
}

impl Evicted {
    /// Returns the number of evicted plans.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Returns the number of refused executions.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Counts executions that cannot be stored.
    pub fn refuse(&self, executions: u64) {
        self.refused.fetch_add(executions, Relaxed);
    }

    /// Returns since when the stored plans do not contain all executions.
    pub fn since(&self) -> Option<i64> {
        Some(self.since.load(Relaxed)).filter(|since| *since != 0)
    }

    /// Returns whether the plan was evicted lately. It may be wrong for a plan that was not.
    pub fn knows(&self, key: &PlanKey) -> bool {
        self.doorkeeper.knows(hash(key))
    }

    /// Adds the statistics of an evicted plan.
    ///
    /// # Safety
    /// The caller must hold the control lock exclusively.
    pub unsafe fn add_plan(&self, key: &PlanKey, totals: &PlanTotals) {
        if self.count.fetch_add(1, Relaxed) == 0 {
            self.unlogged.store(true, Relaxed);
        }
        self.doorkeeper.add(hash(key));
        // SAFETY: the caller holds the control lock exclusively.
        unsafe { self.add_executions(key, totals) };
    }

    /// Adds executions whose plan is not stored.
    ///
    /// # Safety
    /// The caller must hold the control lock exclusively.
    pub unsafe fn add_executions(&self, key: &PlanKey, totals: &PlanTotals) {
        if self.since.load(Relaxed) == 0 {
            self.since.store(server::now(), Relaxed);
        }
        // SAFETY: the control lock guards the sums, and the caller holds it exclusively.
        unsafe { (*self.sums.get()).add(key.dbid, key.toplevel(), totals) };
    }

    /// Copies the sums to a list with room for [`Others::MAX`].
    ///
    /// # Safety
    /// The caller must hold the control lock.
    pub unsafe fn copy_sums(&self, sums: &mut Vec<DatabaseSum>) {
        // SAFETY: the control lock guards the sums, and the caller holds it.
        let all = unsafe { (*self.sums.get()).sums() };
        let room = sums.capacity() - sums.len();
        sums.extend(all.take(room));
    }

    /// Clears the sum of a database. If `dbid` is 0, clears everything.
    ///
    /// # Safety
    /// The caller must hold the control lock exclusively.
    pub unsafe fn clear(&self, dbid: u32) {
        // SAFETY: the control lock guards the sums, and the caller holds it exclusively.
        unsafe { (*self.sums.get()).clear(dbid) };
        if dbid == 0 {
            self.count.store(0, Relaxed);
            self.refused.store(0, Relaxed);
            self.since.store(0, Relaxed);
            self.unlogged.store(false, Relaxed);
            self.doorkeeper.clear();
        }
    }

    /// Returns what the file must keep. `sums` are the copied sums.
    pub fn saved(&self, sums: Vec<DatabaseSum>) -> Saved {
        Saved {
            count: self.count(),
            refused: self.refused(),
            since: self.since().unwrap_or(0),
            sums,
        }
    }

    /// Adds what the file kept.
    ///
    /// # Safety
    /// The caller must hold the control lock exclusively.
    pub unsafe fn load(&self, saved: &Saved) {
        self.count.fetch_add(saved.count, Relaxed);
        self.refuse(saved.refused);
        if saved.since != 0 {
            self.since.store(saved.since.min(server::now()), Relaxed);
        }
        for sum in &saved.sums {
            // SAFETY: the control lock guards the sums, and the caller holds it exclusively.
            unsafe { (*self.sums.get()).add(sum.dbid, sum.toplevel, &sum.totals) };
        }
    }

    /// Writes to the server's log that plans are evicted: once after a reset. The caller must hold no lock.
    #[inline(always)]
    pub fn log_first(&self) {
        if self.unlogged.load(Relaxed) {
            self.log();
        }
    }

    #[cold]
    #[inline(never)]
    fn log(&self) {
        if self.unlogged.swap(false, Relaxed) {
            let (plans, mb) = (guc::max_plans(), room::limit() >> 20);
            let advice = match room::is_narrow() {
                true => format!(
                    "to keep more plans, enlarge /dev/shm, of which they take at most a quarter together with what sessions need ({mb}MB are left for plans)"
                ),
                false => format!(
                    "to keep more plans, raise pg_rowsource.max_plans ({plans}) or pg_rowsource.max_memory ({mb}MB)"
                ),
            };
            server::log_alone(&format!(
                "pg_rowsource has no room for all plans, and evicts those that cost least; their executions are summed up in the rows \"others\" of pg_stat_rowsource_plans; {advice}"
            ));
        }
    }
}
