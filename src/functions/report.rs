//! `rowsource_report()`: one report on an interval, which names the next commands.

use super::commands::prefix;
use super::intervals::Ends;
use super::samples::{Lookup, why_not_stored};
use super::words::choose;
use super::{
    advice, ash, blockers, export, health, interval_plans, interval_top, intervals, origin, regressions,
    unconfirmed,
};
use crate::pg::ash::memory;
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, memory as server_memory, query};
use crate::pg::store;
use crate::session;
use rowsource_core::export::Syntax;
use rowsource_core::model::PlanKey;
use rowsource_core::regressions::State;
use rowsource_core::report::activity::overview::{BARS, Figures, Finding, Given, New};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How many statements that became slower the report shows.
const REGRESSIONS: usize = 5;
/// How much advice.
const ADVICE: usize = 3;
/// The share of the time that a new statement must take. Unmeasured.
const NEW_SHARE: f64 = 0.01;

/// Selects the name of this server, if it has one, its port and its version.
const SERVER: &str = "
    SELECT pg_catalog.to_json(pg_catalog.concat(
               NULLIF(pg_catalog.current_setting('cluster_name'), '') OPERATOR(pg_catalog.||) ', ',
               'port ', pg_catalog.current_setting('port'),
               ', PostgreSQL ', pg_catalog.current_setting('server_version')))";
/// Selects what statements of another server did between the snapshots around an interval: those with the
/// most time.
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

/// Selects those statements of a list that the history has from before an interval.
const EARLIER: &str = "
    SELECT pg_catalog.json_build_array(p.queryid)
      FROM {}rowsource_snapshot_plans p
     WHERE p.queryid OPERATOR(pg_catalog.=) ANY ('{[ids]}'::pg_catalog.int8[])
           AND p.first_seen_at OPERATOR(pg_catalog.<) {from} GROUP BY p.queryid";

/// How the report is written.
#[derive(Clone, Copy)]
enum Format {
    Text,
    Html,
}

/// Adds the lines of `rowsource_report()`, or the row with its page. `queryid` is of the statement that it is
/// about, if it is about one.
pub fn rows(rows: &mut Rows, queryid: Option<i64>, from: Option<i64>, to: Option<i64>, format: Option<&str>) {
    let format = choose(
        "format",
        format,
        &[("text", Format::Text), ("html", Format::Html)],
    );
    let (from, to) = interval(from, to);
    let origin = origin::check();
    let what = queryid.map_or_else(
        || "What happened".to_owned(),
        |queryid| format!("What statement {queryid} did"),
    );
    let title = format!("{what}, in the time zone {}", server::moment::time_zone());
    let mut facts = vec![(
        "server",
        origin.map_or_else(this_server, |origin| format!("{origin}, imported")),
    )];
    facts.extend([("from", from), ("to", to)].map(|(name, at)| (name, server::shown_time(at))));
    let mut lookup = Lookup::default();
    let mut now = ash::activity(&mut lookup, (from, to), queryid, Some(BARS));
    let begin = from.saturating_sub(to.saturating_sub(from));
    let mut before = ash::activity(&mut lookup, (begin, from.saturating_sub(1)), queryid, None);
    let prefix = prefix();
    let given = given(&prefix, now.has_blockers(), begin, (from, to), queryid);
    let report = now.overview(&mut before, &given, title, facts, &server::shown_time);
    match format {
        Format::Text => report.lines().iter().for_each(|line| rows.add_line(line)),
        Format::Html => export::add_document(rows, &report.html(), Syntax::Markup),
    }
}

/// Returns what the report says beside what samples tell. What this server has is not what another one had.
fn given(
    prefix: &str,
    has_blockers: bool,
    begin: i64,
    interval: (i64, i64),
    queryid: Option<i64>,
) -> Given<'_> {
    let is_here = origin::other().is_none();
    let ends = intervals::ends(interval, Some(TEMPORARY_FILES));
    let (counters, mut temporary_files) = counters(&ends);
    if queryid.is_some() {
        temporary_files += ", by all statements";
    }
    let (figures, earlier) = (figures(interval), earlier_interval(begin, &ends));
    let figures_before = earlier.map_or_else(BTreeMap::new, self::figures);
    let compared = || {
        let intervals = [(begin, interval.0), interval];
        let ran = figures.keys().filter(|id| figures_before.contains_key(id));
        interval_plans::tells_apart(&interval_plans::snapshot_times(), intervals)
            .then(|| ran.copied().collect())
    };
    let mut given = Given {
        prefix,
        findings: Vec::new(),
        // Those of one statement are only a part of a tree.
        blocked: match queryid.is_none() && has_blockers {
            true => blockers::blocked(interval),
            false => Vec::new(),
        },
        states: BTreeMap::new(),
        missing: Vec::new(),
        kept: BTreeSet::new(),
        compared: is_here.then(compared).flatten(),
        calls_per_second: [None; 2],
        new: Vec::new(),
        figures,
        counters,
        temporary_files,
    };
    if !is_here {
        return given;
    }
    given.findings = slower_statements(prefix, begin, interval, queryid);
    given.findings.extend(advised(prefix, interval, queryid));
    if has_blockers {
        given.states = blockers::states(interval);
    }
    given.missing = unseen(queryid).into_iter().chain(health::findings()).collect();
    given.kept = visible().map(|key| (key.queryid, key.planid)).collect();
    let seconds = earlier.and_then(|earlier| intervals::ends(earlier, None).seconds);
    given.calls_per_second = [
        calls_per_second(ends.seconds, &given.figures, queryid),
        calls_per_second(seconds, &figures_before, queryid),
    ];
    if queryid.is_none() {
        given.new = new_statements(interval, &given.figures);
    }
    given
}

/// Returns the interval of the report: the last hour, or the last minutes of a young server.
fn interval(from: Option<i64>, to: Option<i64>) -> (i64, i64) {
    let is_default = from.is_none() && to.is_none();
    let (from, to) = ash::interval(from, to);
    let first = memory::ring().and_then(|ring| ring.complete_from());
    let first = first.filter(|_| is_default && origin::other().is_none());
    (from.max(first.map_or(from, |first| first.min(to))), to)
}

/// Returns the plans that the user may see.
fn visible() -> impl Iterator<Item = PlanKey> {
    let keys = session::keys().into_iter();
    keys.filter(|key| server::may_see(key.userid))
}

/// Says so if the report is about a statement of which the user sees nothing.
fn unseen(queryid: Option<i64>) -> Option<Finding> {
    let queryid = queryid?;
    let is_seen = visible().any(|key| key.queryid == queryid);
    (!is_seen).then(|| Finding {
        text: format!("no plan of a statement with the queryid {queryid} is stored that you may see"),
        command: String::new(),
    })
}

/// Returns what tells this server from others.
fn this_server() -> String {
    let mut said = String::new();
    query::each(SERVER, (0, 0), |name| {
        said = name.as_str().unwrap_or_default().to_owned();
    });
    said
}

/// Returns the statements that became slower and were so in an interval: those that are still so first, and
/// the most expensive of them. Behind them are those that are slower than in the time before, which begins at
/// `begin`, and which nothing has confirmed.
fn slower_statements(prefix: &str, begin: i64, interval: (i64, i64), queryid: Option<i64>) -> Vec<Finding> {
    let is_asked = |key: &PlanKey| queryid.is_none_or(|queryid| queryid == key.queryid);
    let mut all = regressions::seen(interval);
    let mut unconfirmed = unconfirmed::slower(begin, interval);
    unconfirmed.retain(|slower| {
        let is_known = all.iter().any(|seen| seen.known.to() == slower.key);
        is_asked(&slower.key) && server::may_see(slower.key.userid) && !is_known
    });
    all.retain(|seen| {
        seen.is_visible && !seen.known.is_dismissed(server::now()) && is_asked(&seen.known.from)
    });
    let is_over = |one: &regressions::Seen| one.known.state == State::Over;
    all.sort_by(|one, other| {
        let by_cost = other.known.extra_ms.total_cmp(&one.known.extra_ms);
        is_over(one).cmp(&is_over(other)).then(by_cost)
    });
    let finding = |known: &regressions::Seen| Finding {
        text: known.sentence(),
        command: known.command(prefix),
    };
    let not_confirmed = |slower: &unconfirmed::Slower| Finding {
        text: slower.sentence(),
        command: slower.command(prefix),
    };
    let known = all.iter().take(REGRESSIONS).map(finding);
    known
        .chain(unconfirmed.iter().take(REGRESSIONS).map(not_confirmed))
        .collect()
}

/// Returns what could be done better in the plans that ran in an interval, what saves the most first.
fn advised(prefix: &str, interval: (i64, i64), queryid: Option<i64>) -> Vec<Finding> {
    let (all, _) = advice::all();
    let all = all.iter().filter(|advice| advice.is_for(interval, queryid));
    let finding = |advice: &advice::Advice| Finding {
        text: advice.sentence(),
        command: advice.command(prefix),
    };
    all.take(ADVICE).map(finding).collect()
}

/// Returns what the statements with the most time did between the snapshots around an interval.
fn figures(interval: (i64, i64)) -> BTreeMap<i64, Figures> {
    let mut figures = BTreeMap::new();
    // The view is for those who may see all snapshots.
    if why_not_stored().is_some() {
        return figures;
    }
    // What was imported is only in tables.
    if origin::other().is_none() {
        let figures = interval_top::statements(interval).into_iter();
        return figures
            .map(|(queryid, (calls, ms))| {
                let mean_ms = ms / calls as f64;
                (queryid, Figures { calls, mean_ms })
            })
            .collect();
    }
    query::each(&intervals::with_intervals(STATEMENTS), interval, |row| {
        if let (Some(queryid), Some(calls), Some(ms)) = (row[0].as_i64(), row[1].as_u64(), row[2].as_f64()) {
            let mean_ms = ms / calls.max(1) as f64;
            figures.insert(queryid, Figures { calls, mean_ms });
        }
    });
    figures
}

/// Returns the interval that ends where the counters of another one begin.
fn earlier_interval(begin: i64, ends: &Ends) -> Option<(i64, i64)> {
    let (from, _) = ends.moments()?;
    (begin < from - 1).then_some((begin, from - 1))
}

/// Returns how many statements ended in a second: all, or one.
fn calls_per_second(
    seconds: Option<f64>,
    figures: &BTreeMap<i64, Figures>,
    queryid: Option<i64>,
) -> Option<f64> {
    let is_asked = |id: &i64| queryid.is_none_or(|queryid| queryid == *id);
    let asked = figures.iter().filter(|(id, _)| is_asked(id));
    let calls: u64 = asked.map(|(_, figures)| figures.calls).sum();
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && !figures.is_empty())?;
    Some(calls as f64 / seconds)
}

/// Returns the statements that ran in an interval first, and took a share of its time, those with the most
/// first. What was evicted and came back is none of them if the history has it.
fn new_statements((from, to): (i64, i64), figures: &BTreeMap<i64, Figures>) -> Vec<New> {
    let all_ms: f64 = figures.values().map(Figures::total_ms).sum();
    let mut plans: BTreeMap<i64, (i64, PlanKey)> = BTreeMap::new();
    if store::info().is_some_and(|info| info.reset_at < from) {
        for plan in store::sums().unwrap_or_default() {
            server_memory::ensure();
            let first = (plan.first_seen_at, plan.key);
            let known = plans.entry(plan.key.queryid).or_insert(first);
            known.0 = known.0.min(first.0);
        }
    }
    plans.retain(|queryid, (first_seen_at, key)| {
        let ms = figures.get(queryid).map_or(0.0, Figures::total_ms);
        let is_much = ms > 0.0 && ms >= NEW_SHARE * all_ms;
        (from..=to).contains(first_seen_at) && is_much && server::may_see(key.userid)
    });
    let ids: Vec<String> = plans.keys().map(i64::to_string).collect();
    // Who may not read the history has no snapshots.
    if !ids.is_empty() && !interval_plans::snapshot_times().is_empty() {
        query::each(&EARLIER.replace("[ids]", &ids.join(",")), (from, to), |row| {
            row[0].as_i64().map(|queryid| plans.remove(&queryid));
        });
    }
    let mut new: Vec<New> = plans
        .into_iter()
        .filter_map(|(queryid, (first_seen_at, key))| {
            Some(New {
                queryid,
                first_seen_at,
                figures: *figures.get(&queryid)?,
                text: store::plan(&key)?.description.text.clone(),
            })
        })
        .collect();
    new.sort_by(|one, other| other.figures.total_ms().total_cmp(&one.figures.total_ms()));
    new.truncate(REGRESSIONS);
    new
}

/// Returns a line about the counters of an interval, and one about temporary files.
fn counters(ends: &Ends) -> (String, String) {
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
