//! `rowsource_report()`: one report on an interval, which names the next commands.

use super::commands::prefix;
use super::samples::{Lookup, why_not_stored};
use super::{ash, health, intervals, origin};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, query};
use crate::pg::store;
use crate::session;
use rowsource_core::flips::{Event, Verdict, extra_ms, verdict};
use rowsource_core::report::activity::overview::{BARS, Figures, Finding, Given};
use serde_json::Value;
use std::collections::BTreeMap;

/// How many changes of plans the report shows.
const CHANGES: usize = 5;

/// Selects what statements did between the snapshots around an interval: those with the most time.
const STATEMENTS: &str = "
    SELECT pg_catalog.json_build_array(v.queryid, v.calls::pg_catalog.int8, v.total_time)
      FROM (SELECT p.queryid, pg_catalog.sum(p.calls) AS calls, pg_catalog.sum(p.total_time) AS total_time
              FROM [intervals] s
                   JOIN {}rowsource_interval_plans p ON p.snap_id OPERATOR(pg_catalog.=) s.snap_id
             WHERE p.calls IS NOT NULL
             GROUP BY p.queryid ORDER BY 3 DESC LIMIT 100) v";
/// Selects how many bytes of temporary files were written and read.
const TEMPORARY_FILES: &str = "
        SELECT pg_catalog.json_build_array(
                   pg_catalog.sum(f.small_write_bytes OPERATOR(pg_catalog.+) f.large_write_bytes)::pg_catalog.int8,
                   pg_catalog.sum(f.small_read_bytes OPERATOR(pg_catalog.+) f.large_read_bytes)::pg_catalog.int8) AS row
          FROM i JOIN {}rowsource_interval_tempfile_io f ON f.snap_id OPERATOR(pg_catalog.=) i.snap_id";

/// Adds the lines of `rowsource_report()`.
pub fn lines(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    let (from, to) = ash::interval(from, to);
    rows.add_line(&format!(
        "What happened, in the time zone {}",
        server::moment::time_zone()
    ));
    origin::begin(rows);
    rows.add_line(&format!("from  {}", server::shown_time(from)));
    rows.add_line(&format!("to    {}", server::shown_time(to)));
    let mut lookup = Lookup::default();
    let mut now = ash::activity(&mut lookup, from, to, Some(BARS));
    let begin = from.saturating_sub(to.saturating_sub(from));
    let mut before = ash::activity(&mut lookup, begin, from.saturating_sub(1), None);
    let prefix = prefix();
    let is_other = origin::other().is_some();
    let (counters, temporary_files) = counters((from, to));
    let given = Given {
        prefix: &prefix,
        findings: match is_other {
            true => Vec::new(),
            false => changes_of_plans(&prefix, from, to),
        },
        missing: match is_other {
            true => Vec::new(),
            false => health::findings(),
        },
        kept: session::keys()
            .iter()
            .filter(|key| server::may_see(key.userid))
            .map(|key| (key.queryid, key.planid))
            .collect(),
        figures: figures((from, to)),
        counters,
        temporary_files,
    };
    for line in now.overview(&mut before, &given, &server::shown_time) {
        rows.add_line(&line);
    }
}

/// Returns the changes of plans in an interval after which statements took longer, the most expensive first.
fn changes_of_plans(prefix: &str, from: i64, to: i64) -> Vec<Finding> {
    let cost = |event: &Event| extra_ms(&event.before, &event.after).unwrap_or(0.0);
    let mut events: Vec<Event> = store::flips().unwrap_or_default();
    events.retain(|event| {
        (from..=to).contains(&event.at)
            && matches!(
                verdict(&event.before, &event.after),
                Verdict::Slower | Verdict::SlowerOnAverage
            )
            && server::may_see(event.from.userid)
    });
    events.sort_by(|one, other| cost(other).total_cmp(&cost(one)));
    let finding = |event: &Event| {
        let (before, after) = (event.before.mean_ms, event.after.mean_ms);
        let plan = store::plan(&event.to()).or_else(|| store::plan(&event.from));
        let text = plan.map_or_else(String::new, |plan| plan.description.text.clone());
        let queryid = event.from.queryid;
        Finding {
            text: format!(
                "another plan since {}: {before:.3} ms -> {after:.3} ms ({:.1}x, {} executions): {text}",
                server::shown_time(event.at),
                after / before.max(1e-6),
                event.after.calls
            ),
            command: format!(
                "SELECT * FROM {prefix}rowsource_compare({queryid}, '{}', '{}')",
                event.from.planid,
                event.to().planid
            ),
        }
    };
    events.iter().take(CHANGES).map(finding).collect()
}

/// Returns what the statements with the most time did between the snapshots around an interval.
fn figures(interval: (i64, i64)) -> BTreeMap<i64, Figures> {
    let mut figures = BTreeMap::new();
    // The view is for those who may see all snapshots.
    if why_not_stored().is_some() {
        return figures;
    }
    query::each(&intervals::with_intervals(STATEMENTS), interval, |row| {
        if let (Some(queryid), Some(calls), Some(ms)) = (row[0].as_i64(), row[1].as_u64(), row[2].as_f64()) {
            let mean_ms = ms / calls.max(1) as f64;
            figures.insert(queryid, Figures { calls, mean_ms });
        }
    });
    figures
}

/// Returns a line about the counters of an interval, and one about temporary files.
fn counters(interval: (i64, i64)) -> (String, String) {
    let ends = intervals::ends(interval, Some(TEMPORARY_FILES));
    if ends.seconds.is_none() {
        return (
            format!(
                "calls, mean times and temporary files: no snapshot is as old as this interval. {}",
                intervals::how_to_take()
            ),
            "not known".to_owned(),
        );
    }
    let bytes: Value = serde_json::from_str(&ends.counters).unwrap_or_default();
    let megabytes = |at: usize| bytes[0][at].as_f64().unwrap_or(0.0) / 1e6;
    (
        format!(
            "calls, mean times and temporary files are counted from {} to {}",
            ends.from_at, ends.to_at
        ),
        format!("{:.1} MB written, {:.1} MB read", megabytes(0), megabytes(1)),
    )
}
