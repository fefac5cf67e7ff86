//! Observes queries with several plans from the moment on when the second one is stored.

use super::access::Store;
use super::entry;
use crate::pg::server::contained::{self, Unlocked};
use rowsource_core::flips::Known;
use rowsource_core::model::{Batch, PlanKey};

/// Notes a plan that has just been stored. If its query has another plan, both are observed from now on.
/// Raises nothing.
pub(super) fn new_plan(store: &Store, unlocked: &mut Unlocked, key: &PlanKey, batch: &Batch) {
    contained::attempt(unlocked, "observe a plan", |_| {
        let flips = &store.control().flips;
        let done = flips.executions(batch);
        match flips.with_table(|table| table.note_new(key)) {
            Known::First => return,
            Known::Observed => (),
            Known::Other(first) => match entry::observe(store, &first) {
                Some(executions) => {
                    flips.with_table(|table| table.observe_query(&first, &executions));
                }
                None => return flips.with_table(|table| table.replace_first(key)),
            },
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
        let flips = &store.control().flips;
        let known = flips.with_table(|table| table.note_new(key));
        if known == Known::First {
            return;
        }
        let Some(done) = entry::observe(store, key) else {
            return;
        };
        if let Known::Other(first) = known {
            let earlier = entry::observe(store, &first);
            let (current, executions) = match earlier {
                Some(earlier) if earlier.last_at > done.last_at => (&first, earlier),
                _ => (key, done),
            };
            flips.with_table(|table| table.observe_query(current, &executions));
        }
    });
}
