//! The file that keeps the plans across a clean restart, see [`crate::pg::server::statfile`].
//!
//! The last process that leaves the store writes it, one plan after the other. The first backend that needs
//! the store reads it in the same way.

use super::access::{Store, locked_by_control};
use super::control;
use super::entry::{self, NewPlan};
use super::evicted::Saved;
use super::flips::Tables;
use super::{exemplars, observe};
use crate::guc;
use crate::pg::server::contained::{self, Unlocked};
use crate::pg::server::{self, memory, statfile};
use rowsource_core::flips::SavedFlips;
use rowsource_core::model::partitions::ListedPartition;
use rowsource_core::model::{Batch, Exemplars, LazyDescription, NodeTotals, Plan, PlanKey, PlanStats};
use rowsource_core::planids;
use rowsource_core::regressions::{SavedDatabaseTime, SavedRegressions};
use rowsource_core::waits::Event;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, Release};

pub(super) const NAME: &str = "pg_stat/pg_rowsource.stat";

/// The first record of the file.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub reset_at: i64,
    pub evicted: Saved,
    pub flips: Option<SavedFlips>,
    pub regressions: Option<SavedRegressions>,
    pub database: Option<SavedDatabaseTime>,
    /// The names of events of extensions.
    pub events: Vec<(Event, String)>,
}

impl Head {
    /// Puts the changes of plans and the regressions back.
    fn restore_changes(&self, all: &mut Tables) {
        self.flips.iter().for_each(|saved| all.flips.restore(saved));
        let regressions = &mut all.regressions;
        self.regressions
            .iter()
            .for_each(|saved| regressions.restore(saved));
        self.database.iter().for_each(|saved| all.database.restore(saved));
    }
}

/// The record of a plan, to be written.
#[derive(Serialize)]
struct PlanOut<'a> {
    key: &'a PlanKey,
    statistics: &'a PlanStats,
    /// Its stored form, so that nobody has to decode it to load it.
    description: &'a Bytes,
    nodes: &'a [NodeTotals],
    exemplars: &'a Exemplars,
    partitions: &'a [ListedPartition],
}

/// The record of a plan that was read. It has the same fields as [`PlanOut`].
#[derive(Deserialize)]
struct PlanIn {
    key: PlanKey,
    statistics: PlanStats,
    description: ByteBuf,
    nodes: Vec<NodeTotals>,
    exemplars: Exemplars,
    partitions: Vec<ListedPartition>,
}

/// Removes the file of an earlier run, so that no later run loads it.
pub(super) fn remove() {
    statfile::forget(NAME);
}

/// Writes plans to the file.
pub(super) fn write(head: &Head, plans: impl Iterator<Item = Plan>) -> io::Result<()> {
    let mut file = statfile::Writer::create(NAME)?;
    file.record(head)?;
    for plan in plans {
        let description = LazyDescription::new(Rc::unwrap_or_clone(plan.description), Vec::new());
        let description = description
            .stored()
            .ok_or_else(|| io::Error::other("a description cannot be stored"))?;
        file.record(&PlanOut {
            key: &plan.key,
            statistics: &plan.statistics,
            description: Bytes::new(&description),
            nodes: &plan.nodes,
            exemplars: &plan.exemplars,
            partitions: &plan.partitions,
        })?;
    }
    file.finish()
}

/// Reads the file into the store, if there is one, and removes it: once while the server runs. If a plan
/// already has an entry, its statistics are added. Plans that do not fit count as evicted.
pub(super) fn load(store: &Store, unlocked: &mut Unlocked) {
    /// The memory that the largest record needs while it is read.
    const MAX_RECORD_MEMORY: usize = 16 << 20;
    let control = store.control();
    if control.loaded.load(Relaxed) {
        return;
    }
    let Some(_maker) = control.become_maker() else {
        return;
    };
    // Who sees this sees that this process is the maker, too.
    if control.loaded.swap(true, Release) {
        return;
    }
    if !guc::save() {
        return remove();
    }
    // This limit rejects files that no store can have written. A store that was larger than this one is
    // accepted, and the plans that do not fit are skipped.
    let max_bytes = (4 * guc::max_memory()).max(256 << 20) as u64;
    let Some(mut file) = statfile::take(NAME, max_bytes) else {
        return;
    };
    let Some(head) = file.next::<Head>() else { return };
    control.reset_at.store(head.reset_at.min(server::now()), Relaxed);
    contained::attempt(unlocked, "load sums", |unlocked| {
        locked_by_control(store, unlocked, |lock| control.evicted.load(lock, &head.evicted));
    });
    contained::attempt(unlocked, "load changes of plans", |_| {
        control.flips.with_all(|all| head.restore_changes(all));
    });
    for (event, name) in &head.events {
        control.event_names.learn(*event, name);
    }
    let mut room = guc::max_plans();
    while memory::can_map(MAX_RECORD_MEMORY) {
        let Some(plan) = file.next::<PlanIn>() else { break };
        let batch = Batch::Sum(&plan.statistics, &plan.nodes, &[]);
        store.apply_limit();
        let mut by_oids = 0;
        let kept = room > 0
            && LazyDescription::from_stored(plan.description.into_vec())
                .and_then(|description| {
                    by_oids = description.ids().by_oids;
                    Some(NewPlan::of(&description, &batch)?.with_partitions(plan.partitions))
                })
                .is_some_and(|new| {
                    matches!(
                        entry::insert_or_update(store, unlocked, &plan.key, &new, &batch),
                        Ok(true)
                    )
                });
        if kept {
            room -= 1;
            let by_oids = plan.key.with_plan(by_oids);
            planids::note(control::planids(), &by_oids, plan.key.planid);
            observe::loaded_plan(store, unlocked, &plan.key);
            if !plan.exemplars.is_empty() {
                exemplars::merge(store, unlocked, &plan.key, &plan.exemplars);
            }
        } else {
            // The rest is worth less.
            room = 0;
            let totals = batch.totals();
            contained::attempt(unlocked, "sum up a plan", |unlocked| {
                let limit = control.reached_limit();
                locked_by_control(store, unlocked, |lock| {
                    control.evicted.add_plan(lock, &plan.key, &totals, limit);
                });
            });
        }
    }
    control.evicted.log_first();
}
