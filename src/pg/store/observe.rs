//! Observes queries with several plans from the moment on when the second one is stored.

use super::access::Store;
use super::{control, entry};
use crate::pg::server::contained::{self, Unlocked};
use rowsource_core::flips::Executions;
use rowsource_core::model::{Batch, PlanKey};

/// Notes a plan that has just been stored. If its query has another plan, both are observed from now on.
/// Raises nothing.
pub(super) fn new_plan(store: &Store, unlocked: &mut Unlocked, key: &PlanKey, batch: &Batch) {
    contained::attempt(unlocked, "observe a plan", |_| {
        let flips = &store.control().flips;
        let done = flips.executions(batch);
        if !observes(store, key) {
            let Some((last, executions)) = last_of_others(store, key) else {
                return;
            };
            flips.with_table(|table| table.observe_query(&last, &executions));
        }
        entry::observe(store, key);
        flips.with_table(|table| table.add(key, &done));
    });
}

/// Notes a plan that was loaded from the file. The plan that ran last is the current one of its query, unless
/// the file says otherwise.
/// Raises nothing.
pub(super) fn loaded_plan(store: &Store, unlocked: &mut Unlocked, key: &PlanKey) {
    contained::attempt(unlocked, "observe a plan", |_| {
        if observes(store, key) {
            entry::observe(store, key);
            return;
        }
        let Some(other) = last_of_others(store, key) else {
            return;
        };
        let own = entry::observe(store, key).map(|executions| (*key, executions));
        let (last, executions) = match own {
            Some(own) if own.1.last_at >= other.1.last_at => own,
            _ => other,
        };
        let flips = &store.control().flips;
        flips.with_table(|table| table.observe_loaded(&last, &executions));
    });
}

fn observes(store: &Store, key: &PlanKey) -> bool {
    store.control().flips.with_table(|table| table.observes(key))
}

/// Observes the other plans of a query, and returns the one that ran last. `None` if there are none.
fn last_of_others(store: &Store, key: &PlanKey) -> Option<(PlanKey, Executions)> {
    let known = store
        .control()
        .flips
        .with_table(|_| control::known_plans().of_query(key));
    known
        .filter(|other| other.planid != key.planid)
        .filter_map(|other| Some((other, entry::observe(store, &other)?)))
        .max_by_key(|(_, executions)| executions.last_at)
}
