//! The changes of a query's plan: when they were, what both plans did around them, and whether an index of
//! the plan before is gone.

use super::interval_plans;
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
    /// Until when its executions are asked for.
    pub end: i64,
}

/// What is known of changes of plans, read when it is first asked for.
#[derive(Default)]
pub(super) struct Changes {
    events: OnceCell<Vec<Judged>>,
    snapshots: OnceCell<Vec<i64>>,
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
            end: server::now().max(event.at + 1),
        })
    }

    /// Returns when the snapshots of the history were taken, in their order; none if the user may not read
    /// them.
    pub fn snapshots(&self) -> &[i64] {
        self.snapshots.get_or_init(interval_plans::snapshot_times)
    }

    /// Returns the last change from one plan to another until a moment.
    pub fn between(&self, from: &PlanKey, to: &PlanKey, until: i64) -> Option<Change> {
        self.last(|event| event.from == *from && event.to() == *to && event.at <= until)
    }

    /// Returns what both plans did around a change whose new plan had run before, if a snapshot was taken
    /// since the plan before took over: what came before that is of earlier runs of both. `first_seen_at`
    /// says when the plan before was first seen. Its side is `None` if it had no earlier run.
    fn sides(&self, change: &Change, first_seen_at: i64) -> Option<(Option<Side>, Side)> {
        let took_over = self.last(|event| event.to() == change.from && event.at < change.at);
        let began = took_over.map_or(first_seen_at, |earlier| earlier.at);
        let snapshots = self.snapshots();
        let snapshot = *snapshots.get(snapshots.partition_point(|at| *at < began))?;
        let before = match first_seen_at >= began {
            true => None,
            false if snapshot >= change.at => return None,
            false => Some(interval_plans::side_of(&change.from, (snapshot + 1, change.at))?),
        };
        let since = (change.at.max(snapshot + 1), change.end);
        Some((before, interval_plans::side_of(&change.to, since)?))
    }
}

/// Lets two sides, all executions of both plans, be what the plans did around a change whose new plan had run
/// before. `first_seen_at` says when the plan before was first seen. If `changes` cannot tell, the second
/// side says that it includes more.
pub(super) fn narrow(
    changes: Option<&Changes>,
    change: &Change,
    first_seen_at: i64,
    [first, second]: [&mut Side; 2],
) {
    match changes.and_then(|changes| changes.sides(change, first_seen_at)) {
        Some((before, after)) => {
            *second = after;
            if let Some(before) = before {
                *first = before;
            }
        }
        None => {
            let at = server::shown_time(change.at);
            second.name += &format!(", some of them before it took over at {at}");
            second.returned_at = Some(at);
        }
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
