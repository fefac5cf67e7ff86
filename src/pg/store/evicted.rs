//! What the store knows of executions that are not stored with their plan: how many plans were evicted and
//! executions refused, their sums, and the keys of evicted plans for a while.

use crate::pg::server;
use rowsource_core::eviction::Doorkeeper;
use rowsource_core::model::{DatabaseSum, Others, PlanKey, PlanTotals};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::cell::UnsafeCell;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Shows that this process holds the control lock exclusively.
pub(super) struct Controlled(());

impl Controlled {
    /// Makes the promise.
    ///
    /// # Safety
    /// It must hold as long as the result lives.
    pub const unsafe fn promised() -> Controlled {
        Controlled(())
    }
}

/// A part of the control block. Zero bytes say that nothing was evicted.
#[repr(C)]
pub(super) struct Evicted {
    /// The number of evicted plans since the last reset.
    count: AtomicU64,
    /// The number of refused executions since the last reset.
    refused: AtomicU64,
    /// When an execution was first not stored with its plan since the last reset, or 0.
    since: AtomicI64,
    /// The limit for which plans were evicted last, as a word; 0 if none were.
    reached: AtomicU64,
    /// For each kind of limit, the one that the log named last.
    logged: [AtomicU64; Limit::KINDS],
    doorkeeper: Doorkeeper,
    sums: UnsafeCell<Others>,
}

/// Why plans are evicted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// `max_plans` is reached.
    Plans(usize),
    /// `max_memory` is reached, which is so many bytes.
    Memory(usize),
    /// The folder of dynamic shared memory leaves so many bytes for plans.
    Folder(usize),
}

impl Limit {
    const KINDS: usize = 3;
    const KIND_BITS: u32 = 2;

    /// Returns it as a word that is not 0, with the index of its kind in its low bits.
    fn word(self) -> u64 {
        let (kind, value) = match self {
            Limit::Plans(plans) => (0, plans),
            Limit::Memory(bytes) => (1, bytes),
            Limit::Folder(bytes) => (2, bytes),
        };
        (value.max(1) as u64) << Limit::KIND_BITS | kind
    }

    fn of_word(word: u64) -> Limit {
        let value = (word >> Limit::KIND_BITS) as usize;
        match Limit::kind(word) {
            0 => Limit::Plans(value),
            1 => Limit::Memory(value),
            _ => Limit::Folder(value),
        }
    }

    fn kind(word: u64) -> usize {
        (word & ((1 << Limit::KIND_BITS) - 1)) as usize
    }

    /// Returns what to do against it.
    fn advice(self) -> String {
        match self {
            Limit::Plans(plans) => format!("raise pg_rowsource.max_plans ({plans})"),
            Limit::Memory(bytes) => format!("raise pg_rowsource.max_memory ({}MB)", bytes >> 20),
            Limit::Folder(bytes) => format!(
                "enlarge /dev/shm, of which they take at most a quarter together with what sessions need ({}MB are left for plans)",
                bytes >> 20
            ),
        }
    }
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
    /// Runs a body with the sums. It must not ask for them itself.
    fn sums<T>(&self, _: &Controlled, body: impl FnOnce(&mut Others) -> T) -> T {
        // SAFETY: the control lock guards the sums, and this process holds it. The bodies, all in this file,
        // make no other reference to them.
        body(unsafe { &mut *self.sums.get() })
    }

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

    /// Adds the statistics of a plan that was evicted because of a limit.
    pub fn add_plan(&self, lock: &Controlled, key: &PlanKey, totals: &PlanTotals, limit: Limit) {
        self.count.fetch_add(1, Relaxed);
        self.reached.store(limit.word(), Relaxed);
        self.doorkeeper.add(hash(key));
        self.add_executions(lock, key, totals);
    }

    /// Adds executions whose plan is not stored.
    pub fn add_executions(&self, lock: &Controlled, key: &PlanKey, totals: &PlanTotals) {
        if self.since.load(Relaxed) == 0 {
            self.since.store(server::now(), Relaxed);
        }
        self.sums(lock, |sums| sums.add(key.datid, key.toplevel(), totals));
    }

    /// Copies the sums to a list with room for [`Others::MAX`].
    pub fn copy_sums(&self, lock: &Controlled, sums: &mut Vec<DatabaseSum>) {
        let room = sums.capacity() - sums.len();
        self.sums(lock, |all| sums.extend(all.sums().take(room)));
    }

    /// Clears the sum of a database. If `datid` is 0, clears everything.
    pub fn clear(&self, lock: &Controlled, datid: u32) {
        self.sums(lock, |sums| sums.clear(datid));
        if datid == 0 {
            self.count.store(0, Relaxed);
            self.refused.store(0, Relaxed);
            self.since.store(0, Relaxed);
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
    pub fn load(&self, lock: &Controlled, saved: &Saved) {
        self.count.fetch_add(saved.count, Relaxed);
        self.refuse(saved.refused);
        if saved.since != 0 {
            self.since.store(saved.since.min(server::now()), Relaxed);
        }
        for sum in &saved.sums {
            self.sums(lock, |sums| sums.add(sum.datid, sum.toplevel, &sum.totals));
        }
    }

    /// Writes to the server's log that plans are evicted: once for each limit, until that changes. The caller
    /// must hold no lock.
    #[inline(always)]
    pub fn log_first(&self) {
        let reached = self.reached.load(Relaxed);
        if reached != 0 && self.reached.swap(0, Relaxed) == reached {
            self.log(reached);
        }
    }

    #[cold]
    #[inline(never)]
    fn log(&self, reached: u64) {
        if self.logged[Limit::kind(reached)].swap(reached, Relaxed) == reached {
            return;
        }
        let advice = Limit::of_word(reached).advice();
        server::log_alone(&format!(
            "pg_rowsource has no room for all plans, and evicts those that cost least; their executions are summed up in the rows \"others\" of pg_stat_rowsource_plans; to keep more plans, {advice}"
        ));
    }
}
