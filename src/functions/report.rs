//! `rowsource_report()`: one report on an interval, which names the next commands.

use super::commands::prefix;
use super::samples::{Lookup, why_not_stored};
use super::{ash, health, history, origin, regressions};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, query};
use crate::session;
use rowsource_core::report::activity::overview::{BARS, Figures, Finding, Given};
use serde_json::Value;
use std::collections::BTreeMap;

/// How many statements that became slower the report shows.
const REGRESSIONS: usize = 5;

/// Selects what statements did between the snapshots around an interval: those with the most time.
const STATEMENTS: &str = "
    SELECT pg_catalog.json_build_array(v.queryid, v.calls::pg_catalog.int8, v.total_time)
      FROM (SELECT p.queryid, pg_catalog.sum(p.calls) AS calls, pg_catalog.sum(p.total_time) AS total_time
              FROM {}rowsource_intervals s
                   JOIN {}rowsource_interval_plans p ON p.snap_id OPERATOR(pg_catalog.=) s.snap_id
             WHERE s.to_at OPERATOR(pg_catalog.>) {from} AND s.from_at OPERATOR(pg_catalog.<) {to} AND p.calls IS NOT NULL
             GROUP BY p.queryid ORDER BY 3 DESC LIMIT 100) v";
/// Selects the ends of the counters, and how many bytes of temporary files were written and read.
const COUNTERS: &str = "
    SELECT pg_catalog.json_build_array(
               (SELECT pg_catalog.min(s.from_at)::pg_catalog.text FROM {}rowsource_intervals s
                 WHERE s.to_at OPERATOR(pg_catalog.>) {from} AND s.from_at OPERATOR(pg_catalog.<) {to}),
               (SELECT pg_catalog.max(s.to_at)::pg_catalog.text FROM {}rowsource_intervals s
                 WHERE s.to_at OPERATOR(pg_catalog.>) {from} AND s.from_at OPERATOR(pg_catalog.<) {to}),
               pg_catalog.sum(f.small_write_bytes OPERATOR(pg_catalog.+) f.large_write_bytes)::pg_catalog.int8,
               pg_catalog.sum(f.small_read_bytes OPERATOR(pg_catalog.+) f.large_read_bytes)::pg_catalog.int8)
      FROM {}rowsource_interval_tempfile_io f
     WHERE f.to_at OPERATOR(pg_catalog.>) {from} AND f.from_at OPERATOR(pg_catalog.<) {to}";

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
            false => slower_statements(&prefix, (from, to)),
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

/// Returns the statements that became slower and are so in an interval, the most expensive first.
fn slower_statements(prefix: &str, interval: (i64, i64)) -> Vec<Finding> {
    let mut all = regressions::seen(interval);
    all.retain(|known| known.is_visible && known.is_shown());
    all.sort_by(|one, other| other.known.extra_ms.total_cmp(&one.known.extra_ms));
    let finding = |known: &regressions::Seen| Finding {
        text: known.sentence(),
        command: known.command(prefix),
    };
    all.iter().take(REGRESSIONS).map(finding).collect()
}

/// Returns what the statements with the most time did between the snapshots around an interval.
fn figures(interval: (i64, i64)) -> BTreeMap<i64, Figures> {
    let mut figures = BTreeMap::new();
    // The view is for those who may see all snapshots.
    if why_not_stored().is_some() {
        return figures;
    }
    query::each(STATEMENTS, interval, |row| {
        if let (Some(queryid), Some(calls), Some(ms)) = (row[0].as_i64(), row[1].as_u64(), row[2].as_f64()) {
            let mean_ms = ms / calls.max(1) as f64;
            figures.insert(queryid, Figures { calls, mean_ms });
        }
    });
    figures
}

/// Returns a line about the counters of an interval, and one about temporary files.
fn counters(interval: (i64, i64)) -> (String, String) {
    let mut said = (String::new(), String::new());
    query::each(COUNTERS, interval, |row| {
        let megabytes = |bytes: &Value| bytes.as_f64().unwrap_or(0.0) / 1e6;
        said = match (row[0].as_str(), row[1].as_str()) {
            (Some(from), Some(to)) => (
                format!("calls, mean times and temporary files are counted from {from} to {to}"),
                format!(
                    "{:.1} MB written, {:.1} MB read",
                    megabytes(&row[2]),
                    megabytes(&row[3])
                ),
            ),
            _ => (
                format!(
                    "calls, mean times and temporary files: no snapshot is as old as this interval. {}",
                    history::how_to_take()
                ),
                "not known".to_owned(),
            ),
        };
    });
    said
}
