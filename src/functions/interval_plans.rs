//! What a query's plans did in an interval, from the snapshots around it.

use super::history;
use super::intervals::{self, Ends, how_to_take};
use super::samples::room_for_one;
use super::{display, origin, wait_names};
use crate::pg::server::{self, fail, memory, query};
use crate::session;
use pgrx::PgSqlErrorCode;
use rowsource_core::compare::Side;
use rowsource_core::model::archive::ArchiveError;
use rowsource_core::model::{Plan, PlanKey};
use serde_json::Value;
use std::collections::HashMap;

/// Selects what the snapshots have of the plans of a query: until the beginning of the interval, and until
/// its end.
const PLANS: &str = "
    WITH i AS [intervals], ends (is_end, snap_id) AS (
        (SELECT false, i.from_snap_id FROM i ORDER BY i.from_at LIMIT 1)
        UNION ALL
        (SELECT true, i.snap_id FROM i ORDER BY i.to_at DESC LIMIT 1)
    )
    SELECT pg_catalog.json_build_array(e.is_end, p.userid::pg_catalog.int8, p.datid::pg_catalog.int8, p.planid, p.toplevel,
               pg_catalog.encode(d.description, 'hex'), pg_catalog.encode(p.statistics, 'hex'))
      FROM ends e
           CROSS JOIN LATERAL (
               SELECT DISTINCT ON (p.userid, p.datid, p.planid, p.toplevel) p.*
                 FROM {}rowsource_snapshot_plans p
                WHERE p.queryid OPERATOR(pg_catalog.=) [queryid] AND p.snap_id OPERATOR(pg_catalog.<=) e.snap_id
                ORDER BY p.userid, p.datid, p.planid, p.toplevel, p.snap_id DESC, p.first_seen_at DESC) p
           JOIN {}rowsource_snapshot_descriptions d
           ON d.queryid OPERATOR(pg_catalog.=) p.queryid AND d.planid OPERATOR(pg_catalog.=) p.planid
              AND d.userid OPERATOR(pg_catalog.=) p.userid AND d.datid OPERATOR(pg_catalog.=) p.datid
              AND d.toplevel OPERATOR(pg_catalog.=) p.toplevel";

/// Selects the interval of each baseline, the newest first: that is the one that plans are compared with.
const BASELINES: &str = "
    SELECT pg_catalog.json_build_array(b.name, pg_catalog.extract('epoch', b.from_at), pg_catalog.extract('epoch', b.to_at))
      FROM {}rowsource_baselines b
     WHERE [allowed] ORDER BY b.created_at DESC, b.name";

/// Returns the interval of a baseline.
///
/// # Errors
/// Raises an error if there is none of this name.
pub fn baseline(name: &str) -> (i64, i64) {
    let mut found = None;
    query::each(&BASELINES.replace("[allowed]", "true"), (0, 0), |row| {
        if row[0].as_str() == Some(name) {
            // A snapshot ends an interval and begins the next one.
            found = Some((query::time(&row[1]) + 1, query::time(&row[2]) - 1));
        }
    });
    found.unwrap_or_else(|| {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!("there is no baseline \"{name}\""),
            "The table rowsource_baselines lists them.",
        )
    })
}

/// A baseline of this database.
pub struct Baseline {
    /// Its name.
    pub name: String,
    /// When it begins and ends: at a snapshot.
    interval: (i64, i64),
}

impl Baseline {
    /// Returns whether it is of the interval between two snapshots. The history rounds microseconds.
    pub fn is_of(&self, (from, to): (i64, i64)) -> bool {
        self.interval.0.abs_diff(from) <= 1 && self.interval.1.abs_diff(to) <= 1
    }
}

/// Returns the baselines of this database, the newest first; none if the user may not read them.
pub fn baselines() -> Vec<Baseline> {
    let allowed = "pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')";
    let sql = BASELINES.replace("[allowed]", allowed);
    let mut baselines = Vec::new();
    if origin::other().is_none() {
        query::each(&sql, (0, 0), |row| {
            memory::ensure();
            if baselines.try_reserve(1).is_ok() {
                baselines.push(Baseline {
                    name: row[0].as_str().unwrap_or_default().to_owned(),
                    interval: (query::time(&row[1]), query::time(&row[2])),
                });
            }
        });
    }
    baselines
}

/// How late the first snapshot may be taken after a statement became slower, in microseconds, so that the
/// time before is told apart.
const FIRST_US: i64 = 900_000_000;

/// A plan that ran.
pub struct Ran {
    /// Which one it is.
    pub key: PlanKey,
    /// When it ran.
    pub interval: (i64, i64),
    /// When it was first seen.
    pub first_seen_at: i64,
    /// The snapshots between which it is counted; `None` if it is no interval.
    pub snapshots: Option<[Option<i64>; 2]>,
}

/// A plan until the end of the interval, and until its beginning.
#[derive(Default)]
struct Stored {
    end: Option<Plan>,
    begin: Option<Plan>,
}

/// What ends an interval.
pub enum IntervalEnd {
    /// A snapshot of this moment.
    Snapshot(i64),
    /// Now; with the moment at which it begins, as a text.
    Now(String),
}

/// Returns what ends an interval, as the snapshots have it; `None` if they have nothing of it.
pub fn end(interval: (i64, i64)) -> Option<IntervalEnd> {
    let ends = intervals::ends(interval, None);
    let (_, end) = ends.moments()?;
    Some(match ends.to_snap {
        Some(0) => IntervalEnd::Now(ends.from_at),
        // It also begins the next interval.
        _ => IntervalEnd::Snapshot(end + 1),
    })
}

/// Returns the plan of a query that took the most time in an interval, and what it did then. Counters are
/// those between the snapshots around it, and now counts as one more snapshot.
///
/// # Errors
/// Raises an error if the query did not run then.
pub fn side(queryid: i64, interval: (i64, i64)) -> (Ran, Side) {
    origin::must_be_this("intervals are compared");
    let ends = intervals::ends(interval, None);
    // First those of this database and this user.
    let most = sides(queryid, interval, &ends)
        .into_iter()
        .max_by(|(one, first), (other, second)| {
            let by_distance = display::distance(&other.key).cmp(&display::distance(&one.key));
            by_distance.then(first.total_ms.total_cmp(&second.total_ms))
        });
    let Ends { from_at, to_at, .. } = ends;
    let Some((ran, mut side)) = most else {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &match from_at.is_empty() {
                true => "no snapshot is as old as this interval".to_owned(),
                false => format!("queryid {queryid} did not run from {from_at} to {to_at}"),
            },
            &how_to_take(),
        )
    };
    side.name = name(&ran.key, &side, &from_at, &to_at);
    (ran, side)
}

/// Returns how a side of an interval is called.
fn name(key: &PlanKey, side: &Side, from_at: &str, to_at: &str) -> String {
    let (planid, count) = (key.planid, side.count());
    format!("planid {planid}, mean of {count} from {from_at} to {to_at}")
}

/// Returns what a plan did in an interval, likewise; `None` if it did not run then.
pub fn side_of(key: &PlanKey, interval: (i64, i64)) -> Option<Side> {
    let ends = intervals::ends(interval, None);
    let mut sides = sides(key.queryid, interval, &ends).into_iter();
    let (_, mut side) = sides.find(|(ran, _)| ran.key == *key)?;
    side.name = name(key, &side, &ends.from_at, &ends.to_at);
    Some(side)
}

/// Returns when the snapshots of this database were taken, in their order; none if the user may not read
/// them.
pub fn snapshot_times() -> Vec<i64> {
    const TIMES: &str = "
        SELECT pg_catalog.json_build_array(pg_catalog.extract('epoch', s.taken_at))
          FROM {}rowsource_snapshots s
         WHERE pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') ORDER BY s.taken_at";
    let mut times = Vec::new();
    if origin::other().is_none() {
        query::each(TIMES, (0, 0), |row| {
            memory::ensure();
            if times.try_reserve(1).is_ok() {
                times.push(query::time(&row[0]));
            }
        });
    }
    times
}

/// Returns whether snapshots tell two intervals apart: whether one was taken from the beginning of the first
/// interval until the first snapshot of the second one.
pub fn tells_apart(snapshots: &[i64], [(first, _), (second, _)]: [(i64, i64); 2]) -> bool {
    let after = snapshots.partition_point(|at| *at <= first);
    let last = second.saturating_add(FIRST_US);
    snapshots.get(after).is_some_and(|at| *at <= last)
}

/// Returns what each plan of a query did in an interval, if it ran then.
fn sides(queryid: i64, interval: (i64, i64), ends: &Ends) -> Vec<(Ran, Side)> {
    let mut plans: HashMap<PlanKey, Stored> = HashMap::new();
    query::each(
        &intervals::with_intervals(PLANS).replace("[queryid]", &format!("({queryid})::pg_catalog.int8")),
        interval,
        |row| {
            let Some((key, plan)) = stored_plan(queryid, row) else {
                return;
            };
            memory::ensure_headroom(plan.nodes.len());
            room_for_one(&mut plans);
            let stored = plans.entry(key).or_default();
            match row[0].as_bool() {
                Some(true) => stored.end = Some(plan),
                _ => stored.begin = Some(plan),
            }
        },
    );
    if ends.to_snap == Some(0) {
        let keys = session::keys().into_iter();
        for key in keys.filter(|key| key.queryid == queryid && server::may_see(key.userid)) {
            server::check_for_interrupts();
            memory::ensure();
            if let Some(plan) = session::plan(&key) {
                room_for_one(&mut plans);
                plans.entry(key).or_default().end = Some(plan);
            }
        }
    }
    let mut sides = memory::with_room(plans.len());
    sides.extend(plans.into_iter().filter_map(|(key, stored)| {
        server::check_for_interrupts();
        let end = stored.end?;
        let side = did(&end, stored.begin.as_ref());
        let first_seen_at = end.statistics.first_seen_at;
        let ran = Ran {
            key,
            interval,
            first_seen_at,
            snapshots: Some([ends.from_snap, ends.to_snap]),
        };
        (side.executions > 0).then_some((ran, side))
    }));
    sides
}

/// Returns what a plan did since an earlier moment. If it was evicted or reset meanwhile, that is all of it.
fn did(end: &Plan, begin: Option<&Plan>) -> Side {
    let side_of = |plan: &Plan| Side::of(plan, &wait_names::shown(plan, false));
    let mut side = side_of(end);
    let first_seen_at = |plan: &Plan| plan.statistics.first_seen_at;
    if let Some(begin) = begin.filter(|begin| first_seen_at(begin) == first_seen_at(end)) {
        side.subtract(&side_of(begin));
    }
    side
}

/// Returns a plan of the snapshots: a row has, from its second column on, the ids of its user and database,
/// its planid, its level, its description and its statistics. Returns `None` if these are of another version,
/// or damaged, or missing.
pub(super) fn stored_plan(queryid: i64, row: &Value) -> Option<(PlanKey, Plan)> {
    let id = |at: usize| row[at].as_i64();
    let key = PlanKey::new(
        id(1)? as u32,
        id(2)? as u32,
        queryid,
        id(3)?,
        row[4].as_bool() == Some(true),
    );
    let stored = history::Stored {
        key,
        description: from_hex(&row[5])?,
        statistics: from_hex(&row[6])?,
    };
    match history::unpacked(&stored) {
        Ok(plan) => Some((key, plan)),
        Err(ArchiveError::Memory) => memory::out_of_memory(),
        Err(_) => None,
    }
}

/// Returns the bytes of a text in hexadecimal.
pub(super) fn from_hex(text: &Value) -> Option<Vec<u8>> {
    let text = text.as_str()?.as_bytes();
    let mut bytes = memory::with_room(text.len() / 2);
    for pair in text.chunks_exact(2) {
        let digit = |c: u8| char::from(c).to_digit(16);
        bytes.push((digit(pair[0])? * 16 + digit(pair[1])?) as u8);
    }
    Some(bytes)
}
