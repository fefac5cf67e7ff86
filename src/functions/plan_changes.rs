//! The changes of a query's plan: when they were, and whether an index of the plan before is gone.

use crate::pg::server::{self, memory, query};
use crate::pg::store::{self, Judged};
use rowsource_core::compare::{Side, UsedIndex};
use rowsource_core::flips::Event;
use rowsource_core::model::PlanKey;
use std::cell::OnceCell;
use std::fmt::Write;

/// The catalog is asked about at most this many indexes of a plan.
const MAX_INDEXES: usize = 1_000;

/// Selects the numbers of those indexes that do not exist: there is none with this name in this schema, or it
/// is one of another table. If the table has another name now, its index may still be the one.
const GONE: &str = "
    SELECT pg_catalog.json_build_array(w.number)
      FROM (SELECT v.number, pg_catalog.convert_from(pg_catalog.decode(v.s, 'hex'), 'UTF8') AS s,
                   pg_catalog.convert_from(pg_catalog.decode(v.t, 'hex'), 'UTF8') AS t,
                   pg_catalog.convert_from(pg_catalog.decode(v.i, 'hex'), 'UTF8') AS i
              FROM (VALUES [indexes]) v (number, s, t, i)) w
     WHERE NOT EXISTS (
               SELECT FROM pg_catalog.pg_class c
                      JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
                      JOIN pg_catalog.pg_index x ON x.indexrelid OPERATOR(pg_catalog.=) c.oid
                      JOIN pg_catalog.pg_class t ON t.oid OPERATOR(pg_catalog.=) x.indrelid
                WHERE n.nspname OPERATOR(pg_catalog.=) w.s AND c.relname OPERATOR(pg_catalog.=) w.i
                      AND (t.relname OPERATOR(pg_catalog.=) w.t
                           OR NOT EXISTS (SELECT FROM pg_catalog.pg_class o
                                           WHERE o.relnamespace OPERATOR(pg_catalog.=) n.oid
                                                 AND o.relname OPERATOR(pg_catalog.=) w.t)))";

/// A query runs with another plan from a moment on.
pub(super) struct Change {
    /// The plan before.
    pub from: PlanKey,
    /// The new plan.
    pub to: PlanKey,
    /// When its first execution ended.
    pub at: i64,
}

/// What is known of changes of plans, read when it is first asked for.
#[derive(Default)]
pub(super) struct Changes {
    events: OnceCell<Vec<Judged>>,
}

impl Changes {
    fn events(&self) -> impl Iterator<Item = &Event> {
        let judged = self.events.get_or_init(|| store::flips().unwrap_or_default());
        judged.iter().map(|judged| &judged.event)
    }

    /// Returns the last change of a query's plan that fits.
    pub fn last(&self, fits: impl Fn(&Event) -> bool) -> Option<Change> {
        let last = self
            .events()
            .filter(|event| fits(event))
            .max_by_key(|event| event.at);
        last.map(|event| Change {
            from: event.from,
            to: event.to(),
            at: event.at,
        })
    }

    /// Returns the last change from one plan to another until a moment.
    pub fn between(&self, from: &PlanKey, to: &PlanKey, until: i64) -> Option<Change> {
        self.last(|event| event.from == *from && event.to() == *to && event.at <= until)
    }
}

/// Returns the indexes that a plan used and that do not exist any more, as SQL would name them. Nothing is
/// known of those of another database, of temporary tables and of system catalogs.
pub(super) fn gone_indexes(side: &Side, datid: u32) -> Vec<String> {
    let mut used: Vec<UsedIndex<'_>> = Vec::new();
    let all = (0..side.nodes.len()).filter_map(|i| side.index_of(i));
    for index in all.filter(|index| index.schema.is_some()) {
        if used.len() == MAX_INDEXES || datid != server::database_id() {
            break;
        }
        server::check_for_interrupts();
        memory::ensure();
        if !used.contains(&index) {
            used.push(index);
        }
    }
    if used.is_empty() {
        return Vec::new();
    }
    let mut indexes = String::new();
    for (number, index) in used.iter().enumerate() {
        let names = [index.schema, index.table, Some(index.name)];
        let [schema, table, name] = names.map(|name| query::hex(name.unwrap_or_default()));
        let comma = if number > 0 { ", " } else { "" };
        let _ = write!(indexes, "{comma}({number}, '{schema}', '{table}', '{name}')");
    }
    let mut gone = Vec::new();
    query::each(&GONE.replace("[indexes]", &indexes), (0, 0), |row| {
        let number = row[0].as_u64().and_then(|number| usize::try_from(number).ok());
        if let Some(index) = number.and_then(|number| used.get(number)) {
            let names = [index.schema.unwrap_or_default(), index.name];
            gone.push(names.map(server::quoted_identifier).join("."));
        }
    });
    gone
}
