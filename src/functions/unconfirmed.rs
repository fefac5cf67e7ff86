//! What is slower in an interval than before, with the same plan, as snapshots tell it at once. The worker
//! confirms that only after three quarters of an hour.

use super::compare::{self, Why};
use super::interval_plans::from_hex;
use super::plan_changes::Changes;
use super::samples::room_for_one;
use crate::pg::server::{self, memory, query};
use crate::pg::store;
use rowsource_core::model::{PlanKey, archive};
use rowsource_core::regressions::{
    Candidate, Finding, Found, Interval, MIN_EXECUTIONS, Sums, judge, median_ratio,
};
use serde_json::Value;
use std::collections::HashMap;

/// The latest executions are those since the last snapshot that is older than these microseconds. Fewer
/// would say little of a plan.
const LATEST_US: i64 = 300_000_000;

/// Selects the plans that ran between two snapshots, and the beginnings of their statistics until each.
const RAN: &str = "
    WITH e AS (
        SELECT (SELECT pg_catalog.max(s.snap_id) FROM {}rowsource_snapshots s
                 WHERE s.taken_at OPERATOR(pg_catalog.<=) {from}) AS begin_id,
               (SELECT pg_catalog.max(s.snap_id) FROM {}rowsource_snapshots s
                 WHERE s.taken_at OPERATOR(pg_catalog.<=) {to}) AS end_id
    ), ran AS (
        SELECT DISTINCT ON (p.queryid, p.planid, p.userid, p.datid, p.toplevel) p.*, e.begin_id
          FROM e JOIN {}rowsource_snapshot_plans p
               ON p.snap_id OPERATOR(pg_catalog.>) coalesce(e.begin_id, 0::pg_catalog.int8)
                  AND p.snap_id OPERATOR(pg_catalog.<=) e.end_id
         ORDER BY p.queryid, p.planid, p.userid, p.datid, p.toplevel, p.snap_id DESC, p.first_seen_at DESC)
    SELECT pg_catalog.json_build_array(r.userid::pg_catalog.int8, r.datid::pg_catalog.int8, r.queryid, r.planid, r.toplevel,
               pg_catalog.extract('epoch', r.first_seen_at), pg_catalog.encode(pg_catalog.substr(r.statistics, 1, [bytes]), 'hex'),
               (SELECT pg_catalog.encode(pg_catalog.substr(p.statistics, 1, [bytes]), 'hex')
                  FROM {}rowsource_snapshot_plans p
                 WHERE p.queryid OPERATOR(pg_catalog.=) r.queryid AND p.planid OPERATOR(pg_catalog.=) r.planid
                       AND p.userid OPERATOR(pg_catalog.=) r.userid AND p.datid OPERATOR(pg_catalog.=) r.datid
                       AND p.toplevel OPERATOR(pg_catalog.=) r.toplevel AND p.snap_id OPERATOR(pg_catalog.<=) r.begin_id
                       AND p.first_seen_at OPERATOR(pg_catalog.=) r.first_seen_at
                 ORDER BY p.snap_id DESC LIMIT 1))
      FROM ran r";

/// A plan that is slower than before.
pub struct Slower {
    pub key: PlanKey,
    /// The time before, and the time since.
    pub intervals: [(i64, i64); 2],
    pub before: Sums,
    pub after: Sums,
    pub finding: Finding,
}

impl Slower {
    /// Returns why, as far as the history tells.
    pub fn cause(&self) -> Option<Why> {
        compare::cause_since(&self.key, self.intervals)
    }
}

/// What a plan did between two moments.
struct Ran {
    first_seen_at: i64,
    /// Its executions until the later moment.
    until: Sums,
    /// Those between them, with the least that the longest may have taken.
    did: Sums,
}

/// What plans did.
type Plans = HashMap<PlanKey, Ran>;

/// Plans that may be slower, in the order of the candidates.
type Compared = (Vec<(PlanKey, [(i64, i64); 2])>, Vec<Candidate>);

/// Returns the plans that take longer in an interval than before it, since its beginning or lately, those
/// that cost the most first: by the predicate of regressions without a change of plan, for which the interval
/// is each of the four. `begin` is when the time before begins. Plans of queries that have changed their plan
/// since then are left out.
///
/// # Errors
/// Raises "out of memory".
pub fn slower(begin: i64, (from, to): (i64, i64)) -> Vec<Slower> {
    let changes = Changes::default();
    let snapshots = changes.snapshots();
    let last_until = |at: i64| {
        let count = snapshots.partition_point(|taken| *taken <= at);
        snapshots[..count].last().copied()
    };
    let end = last_until(to).filter(|_| to.saturating_add(LATEST_US) < server::now());
    let first = last_until(begin);
    let mut splits = [from, to.saturating_sub(LATEST_US)].map(last_until);
    if splits[0] == splits[1] {
        splits[1] = None;
    }
    let mut compared: Compared = (memory::with_room(0), memory::with_room(0));
    for split in splits.into_iter().flatten() {
        if first.is_none_or(|first| first < split) && end.is_none_or(|end| split < end) {
            let before = ran(first.unwrap_or(0), split);
            let after = match end {
                Some(end) => ran(split, end),
                None => ran_until_now(split, &before),
            };
            let intervals = [(first.unwrap_or(begin), split), (split, end.unwrap_or(to))];
            add(&mut compared, intervals, &before, &after);
        }
    }
    let mut slower = judged(&compared);
    slower.retain(|one| {
        let is_since = changes.last(|event| event.at >= begin && event.from.is_same_query(&one.key));
        is_since.is_none()
    });
    slower
}

/// Adds the plans that ran enough in both of two intervals.
fn add((plans, candidates): &mut Compared, intervals: [(i64, i64); 2], before: &Plans, after: &Plans) {
    let is_enough = |sums: &Sums| sums.executions >= MIN_EXECUTIONS;
    let pairs = || {
        after.iter().filter_map(|(key, after)| {
            let before = before
                .get(key)
                .filter(|before| before.first_seen_at == after.first_seen_at)?;
            is_enough(&before.did).then_some((key, &before.did, &after.did))
        })
    };
    let control = median_ratio(
        pairs().map(|(_, before, after)| (before, after)),
        server::check_for_interrupts,
    );
    let Ok(control) = control else {
        memory::out_of_memory()
    };
    let toplevel = after.iter().filter(|(key, _)| key.toplevel());
    let database_ms = toplevel.map(|(_, ran)| ran.did.wall_ms).sum();
    for (key, before, after) in pairs() {
        if plans.try_reserve(1).is_err() || candidates.try_reserve(1).is_err() {
            memory::out_of_memory();
        }
        plans.push((*key, intervals));
        let interval = Interval {
            sums: *after,
            control,
        };
        candidates.push(Candidate {
            before: *before,
            after: *after,
            control,
            database_ms,
            intervals: Some([interval; 4]),
        });
    }
}

/// Returns those that are slower, each once.
fn judged((plans, candidates): &Compared) -> Vec<Slower> {
    let Ok(found) = judge(candidates, server::check_for_interrupts) else {
        memory::out_of_memory()
    };
    let mut slower: Vec<Slower> = memory::with_room(plans.len());
    for ((plan, candidate), found) in plans.iter().zip(candidates).zip(found) {
        let Found::Slower(finding) = found else { continue };
        if !slower.iter().any(|known| known.key == plan.0) {
            slower.push(Slower {
                key: plan.0,
                intervals: plan.1,
                before: candidate.before,
                after: candidate.after,
                finding,
            });
        }
    }
    slower.sort_unstable_by(|one, other| other.finding.extra_ms.total_cmp(&one.finding.extra_ms));
    slower
}

/// Returns what the plans did that ran between two snapshots.
fn ran(from: i64, to: i64) -> Plans {
    let mut plans = Plans::new();
    let sums = |statistics: &Value| {
        let whole = archive::stored_whole(&from_hex(statistics)?).ok()?;
        Some(Sums::of(&whole))
    };
    let sql = RAN.replace("[bytes]", &archive::WHOLE_BYTES.to_string());
    query::each(&sql, (from, to), |row| {
        let id = |at: usize| row[at].as_i64().unwrap_or(0);
        let key = PlanKey::new(
            id(0) as u32,
            id(1) as u32,
            id(2),
            id(3),
            row[4].as_bool() == Some(true),
        );
        let Some(until) = sums(&row[6]) else { return };
        room_for_one(&mut plans);
        let did = sums(&row[7]).map_or(until, |earlier| until.surely_since(&earlier));
        plans.insert(
            key,
            Ran {
                first_seen_at: query::time(&row[5]),
                until,
                did,
            },
        );
    });
    plans
}

/// Returns what plans did from a snapshot until now: those that ran before it, and those that are new since.
fn ran_until_now(from: i64, before: &Plans) -> Plans {
    let mut plans = Plans::new();
    for plan in store::sums().unwrap_or_default() {
        let earlier = before
            .get(&plan.key)
            .filter(|before| before.first_seen_at == plan.first_seen_at);
        let did = match earlier {
            Some(earlier) => plan.sums.surely_since(&earlier.until),
            None if plan.first_seen_at >= from => plan.sums,
            None => continue,
        };
        room_for_one(&mut plans);
        plans.insert(
            plan.key,
            Ran {
                first_seen_at: plan.first_seen_at,
                until: plan.sums,
                did,
            },
        );
    }
    plans
}
