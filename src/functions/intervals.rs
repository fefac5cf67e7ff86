//! The intervals between snapshots of which a wanted interval consists, and what they do not have of it.

use super::commands::prefix;
use super::store::snapshots_elsewhere;
use super::{ash, origin};
use crate::pg::server::{self, query};
use serde_json::Value;

/// Selects the intervals between snapshots that have a part of an interval. Now counts as one more snapshot.
const OF_INTERVAL: &str = "(
        SELECT v.* FROM {}rowsource_intervals v
         WHERE v.to_at OPERATOR(pg_catalog.>) {from} AND v.from_at OPERATOR(pg_catalog.<) {to})";

/// Puts these intervals into a query where it has `[intervals]`.
pub(super) fn with_intervals(sql: &str) -> String {
    sql.replace("[intervals]", OF_INTERVAL)
}

/// Selects the ends of these intervals, whether any snapshot is here, and the longest interval in which more
/// than two snapshots are missing. After two days one snapshot of an hour is left, and after a week one of a
/// day. `[counters]` selects rows of json.
const ENDS: &str = "
    WITH i AS [intervals], h AS ([counters]), gap AS (
        SELECT g.snap_id, g.from_at, g.to_at
          FROM (SELECT i.*, pg_catalog.max(i.to_at) OVER () AS newest FROM i) g
         WHERE g.from_snap_id IS NOT NULL AND g.to_at OPERATOR(pg_catalog.-) g.from_at OPERATOR(pg_catalog.>) (
                   3::pg_catalog.float8 OPERATOR(pg_catalog.*) greatest(
                       CASE WHEN pg_catalog.current_setting('pg_rowsource.snapshot_interval') OPERATOR(pg_catalog.<>) '0'
                            THEN pg_catalog.current_setting('pg_rowsource.snapshot_interval')::pg_catalog.interval
                            ELSE '15 min'::pg_catalog.interval END,
                       CASE WHEN g.from_at OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '7 days'::pg_catalog.interval)
                            THEN '1 day'::pg_catalog.interval
                            WHEN g.from_at OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '2 days'::pg_catalog.interval)
                            THEN '1 hour'::pg_catalog.interval END))
         ORDER BY g.to_at OPERATOR(pg_catalog.-) g.from_at DESC LIMIT 1
    )
    SELECT pg_catalog.json_build_object(
               'first', (SELECT pg_catalog.extract('epoch', pg_catalog.min(a.from_at)) FROM {}rowsource_intervals a),
               'is_taken', EXISTS (SELECT FROM {}rowsource_intervals a WHERE a.snap_id OPERATOR(pg_catalog.>) 0),
               'from_snap', (SELECT i.from_snap_id FROM i ORDER BY i.from_at LIMIT 1), 'from_at', pg_catalog.min(i.from_at)::pg_catalog.text,
               'to_snap', (SELECT i.snap_id FROM i ORDER BY i.to_at DESC LIMIT 1), 'to_at', pg_catalog.max(i.to_at)::pg_catalog.text,
               'begin', pg_catalog.extract('epoch', pg_catalog.min(i.from_at)), 'end', pg_catalog.extract('epoch', pg_catalog.max(i.to_at)),
               'seconds', pg_catalog.date_part('epoch', pg_catalog.max(i.to_at) OPERATOR(pg_catalog.-) pg_catalog.min(i.from_at)),
               'active_time', pg_catalog.sum(i.active_time),
               'gap', (SELECT pg_catalog.json_build_array(gap.from_at::pg_catalog.text, gap.to_at::pg_catalog.text) FROM gap),
               'counters', coalesce((SELECT pg_catalog.json_agg(h.row) FROM h), '[]'::pg_catalog.json)::pg_catalog.text)
      FROM i";
/// Selects no counters.
const NOTHING: &str = "SELECT NULL::pg_catalog.json AS row WHERE false";

/// Says how to get snapshots, and in which database the server takes them.
pub(super) fn how_to_take() -> String {
    if origin::other().is_some() {
        return "No older snapshots were imported.".to_owned();
    }
    if server::is_in_recovery() {
        return "A standby takes no snapshots.".to_owned();
    }
    let here = format!(
        "Take one with SELECT {}rowsource_snapshot(), or wait for those of the server: pg_rowsource.snapshot_interval says how often it takes one.",
        prefix()
    );
    match snapshots_elsewhere() {
        Some(name) => format!("The server takes its snapshots in the database \"{name}\": connect to it."),
        None => here,
    }
}

/// The intervals between snapshots that have a part of a wanted interval: where they begin and end.
#[derive(Default)]
pub(super) struct Ends {
    /// The snapshot at the beginning; `None` if the counters began there.
    pub from_snap: Option<i64>,
    pub from_at: String,
    /// The snapshot at the end; 0 is now.
    pub to_snap: Option<i64>,
    pub to_at: String,
    /// How long that is; `None` if there is no such interval.
    pub seconds: Option<f64>,
    /// What sessions were active in it, in milliseconds.
    pub active_ms: Option<f64>,
    /// The counters, as JSON.
    pub counters: String,
    /// Their beginning and end, in microseconds.
    begin: Option<i64>,
    end: Option<i64>,
    /// When the first counters of all begin.
    first: Option<i64>,
    /// Some snapshot is here.
    is_taken: bool,
    /// The ends of the longest interval in which snapshots are missing.
    gap: Option<[String; 2]>,
}

/// Returns the ends of the intervals that have a part of a wanted one, and the counters that a query selects
/// from these intervals, which it calls `i`.
pub(super) fn ends(interval: (i64, i64), counters: Option<&str>) -> Ends {
    let sql = ENDS.replace("[counters]", counters.unwrap_or(NOTHING));
    let mut ends = Ends::default();
    query::each(&with_intervals(&sql), interval, |row| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let time = |key: &str| row[key].is_number().then(|| query::time(&row[key]));
        ends = Ends {
            from_snap: row["from_snap"].as_i64(),
            from_at: text(&row["from_at"]),
            to_snap: row["to_snap"].as_i64(),
            to_at: text(&row["to_at"]),
            seconds: row["seconds"].as_f64(),
            active_ms: row["active_time"].as_f64(),
            counters: text(&row["counters"]),
            begin: time("begin"),
            end: time("end"),
            first: time("first"),
            is_taken: row["is_taken"].as_bool() == Some(true),
            gap: row["gap"].as_array().map(|gap| [text(&gap[0]), text(&gap[1])]),
        };
    });
    ends
}

impl Ends {
    /// Returns when it begins and ends; `None` if nothing of it is counted.
    pub fn moments(&self) -> Option<(i64, i64)> {
        self.begin.zip(self.end)
    }

    /// Returns whether the interval begins before the counters.
    pub fn is_late(&self, from: i64) -> bool {
        self.begin.is_some_and(|begin| begin > from)
    }

    /// Returns what is missing behind the beginning of the interval: in the middle, and at its end. Now is
    /// always the last snapshot of this server.
    pub fn missing(&self, to: i64) -> Vec<(String, String)> {
        let gap = self.gap.as_ref().map(|[from, to]| {
            (
                format!("no snapshot was taken from {from} to {to}"),
                "The figures are of all that time. Waits that were counted before a restart in it are missing.".to_owned(),
            )
        });
        let is_other = origin::other().is_some();
        let end = self.end.filter(|end| is_other && *end < to).map(|_| {
            (
                format!("the counters end at {}", self.to_at),
                "No later snapshots were imported.".to_owned(),
            )
        });
        gap.into_iter().chain(end).collect()
    }
}

/// Returns no row for `_rowsource_check_interval()`. Tells the client if another database has the snapshots,
/// if snapshots are missing in the interval or before its end, and, if the user has said when it begins, if
/// no snapshot is as old.
///
/// # Errors
/// Raises an error if this is no interval.
pub fn check_interval(from: Option<i64>, to: Option<i64>) {
    let interval = ash::interval(from, to);
    let ends = ends(interval, None);
    let beginning = match (from, ends.first) {
        _ if !ends.is_taken && snapshots_elsewhere().is_some() => {
            Some("no snapshot is in this database".to_owned())
        }
        (Some(from), Some(at)) if at > from => {
            Some(format!("the counters begin at {}", server::shown_time(at)))
        }
        (Some(_), None) => Some("no snapshot has counters of this interval".to_owned()),
        _ => None,
    };
    if let Some(what) = beginning {
        server::notify(&what, &how_to_take());
    }
    for (what, hint) in ends.missing(interval.1) {
        server::notify(&what, &hint);
    }
    if ends.seconds.is_none() && ends.first.is_some_and(|first| first <= interval.0) {
        server::notify(
            "no snapshot has counters of this interval",
            "The view rowsource_intervals lists those that have some.",
        );
    }
}
