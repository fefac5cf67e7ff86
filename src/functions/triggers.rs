//! The names of the triggers that a statement called.

use crate::pg::server;
use rowsource_core::export::Trigger;
use rowsource_core::model::StatementFacts;

/// Returns the triggers of a database with their names, which only a session of it knows.
pub fn named(datid: u32, facts: &StatementFacts) -> Vec<Trigger> {
    let may_name = datid == server::database_id();
    facts
        .triggers()
        .map(|trigger| {
            let names = match trigger.oid {
                0 => None,
                oid => may_name.then(|| server::trigger_names(oid)).flatten(),
            };
            let unknown = if trigger.oid == 0 { "others" } else { "unknown" };
            Trigger {
                name: names
                    .as_ref()
                    .map_or_else(|| unknown.to_owned(), |names| names.name.clone()),
                constraint: names.as_ref().and_then(|names| names.constraint.clone()),
                relation: names.and_then(|names| names.relation),
                calls: trigger.calls,
                ms: trigger.ms,
            }
        })
        .collect()
}
