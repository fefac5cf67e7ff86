//! The file that carries the plans across a clean restart: see [`crate::pg::statfile`].
//!
//! The postmaster writes it when the server stops cleanly, plan by plan. The first backend that needs the store reads it in
//! the same way.

use super::access::Store;
use super::control::Control;
use super::entry::{self, NewPlan};
use crate::guc;
use crate::pg::server::{self, memory, statfile};
use rowsource_core::model::{Batch, NodeTotals, Plan, PlanDescription, PlanKey, PlanStats};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

pub(super) const NAME: &str = "pg_stat/pg_rowsource.stat";

/// What the file begins with.
#[derive(Serialize, Deserialize)]
struct Head {
    reset_at: i64,
}

#[derive(Serialize)]
struct PlanOut<'a> {
    key: &'a PlanKey,
    statistics: &'a PlanStats,
    description: &'a PlanDescription,
    nodes: &'a [NodeTotals],
}

/// As [`PlanOut`].
#[derive(Deserialize)]
struct PlanIn {
    key: PlanKey,
    statistics: PlanStats,
    description: PlanDescription,
    nodes: Vec<NodeTotals>,
}

/// Removes what an earlier run saved: it is not to come back later.
pub(super) fn forget() {
    statfile::forget(NAME);
}

/// Writes plans to the file.
pub(super) fn write(reset_at: i64, plans: impl Iterator<Item = Plan>) -> io::Result<()> {
    let mut file = statfile::Writer::create(NAME)?;
    file.record(&Head { reset_at })?;
    for plan in plans {
        file.record(&PlanOut {
            key: &plan.key,
            statistics: &plan.statistics,
            description: &plan.description,
            nodes: &plan.nodes,
        })?;
    }
    file.finish()
}

/// Reads the file into the store, if there is one, and removes it; once in a server's life. Plans that others run
/// meanwhile are not overwritten.
///
/// # Safety
/// Holding no lock, not inside a boundary.
pub(super) unsafe fn load(store: &Store) {
    /// What a record of the longest takes while it is read.
    const ROOM: usize = 16 << 20;
    // SAFETY: the caller holds no lock; the store's control block stays.
    unsafe {
        let control: &Control = &*store.control;
        if control.loaded.load(Relaxed) {
            return;
        }
        let Some(_maker) = control.become_maker() else {
            return;
        };
        if control.loaded.swap(true, Relaxed) {
            return;
        }
        if !guc::save() {
            return forget();
        }
        // Plans that have no room here are left out; but a file that no store has written is not read through.
        let longest = (4 * guc::max_memory()).max(256 << 20) as u64;
        let Some(mut file) = statfile::take(NAME, longest) else {
            return;
        };
        let Some(head) = file.next::<Head>() else { return };
        control.reset_at.store(head.reset_at.min(server::now()), Relaxed);
        for _ in 0..guc::max_plans() {
            if !memory::can_map(ROOM) {
                break;
            }
            let Some(plan) = file.next::<PlanIn>() else { break };
            let batch = Batch::Sum(&plan.statistics, &plan.nodes);
            control.apply_limit(store.plans);
            let kept = NewPlan::of(&plan.description, &batch).is_some_and(|new| {
                matches!(entry::insert_or_update(store, &plan.key, &new, &batch), Ok(true))
            });
            if !kept {
                break;
            }
        }
    }
}
