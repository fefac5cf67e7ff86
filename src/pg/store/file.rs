//! The file that keeps the plans across a clean restart, see [`crate::pg::server::statfile`].
//!
//! The postmaster writes it when the server stops cleanly, one plan after the other. The first backend that needs the store
//! reads it in the same way.

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

/// The first record of the file.
#[derive(Serialize, Deserialize)]
struct Head {
    reset_at: i64,
}

/// The record of a plan, to be written.
#[derive(Serialize)]
struct PlanOut<'a> {
    key: &'a PlanKey,
    statistics: &'a PlanStats,
    description: &'a PlanDescription,
    nodes: &'a [NodeTotals],
}

/// The record of a plan that was read. It has the same fields as [`PlanOut`].
#[derive(Deserialize)]
struct PlanIn {
    key: PlanKey,
    statistics: PlanStats,
    description: PlanDescription,
    nodes: Vec<NodeTotals>,
}

/// Removes the file of an earlier run, so that no later run loads it.
pub(super) fn remove() {
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

/// Reads the file into the store, if there is one, and removes it: once while the server runs. If a plan already has an entry,
/// its statistics are added.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock.
pub(super) unsafe fn load(store: &Store) {
    /// The memory that the largest record needs while it is read.
    const MAX_RECORD_MEMORY: usize = 16 << 20;
    // SAFETY: the caller holds no lock and is outside of any boundary. The control block stays mapped until the process ends.
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
            return remove();
        }
        // This limit rejects files that no store can have written. A store that was larger than this one is accepted, and the
        // plans that do not fit are skipped.
        let max_bytes = (4 * guc::max_memory()).max(256 << 20) as u64;
        let Some(mut file) = statfile::take(NAME, max_bytes) else {
            return;
        };
        let Some(head) = file.next::<Head>() else { return };
        control.reset_at.store(head.reset_at.min(server::now()), Relaxed);
        for _ in 0..guc::max_plans() {
            if !memory::can_map(MAX_RECORD_MEMORY) {
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
