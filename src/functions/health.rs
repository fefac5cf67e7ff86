//! `rowsource_health()`: whether the library itself works, line by line, with the command that mends it.

use super::commands::prefix;
use super::samples::why_not_stored;
use super::store::{last_failure, last_snapshot_at, snapshots_elsewhere, why_no_snapshots};
use crate::guc;
use crate::pg::ash::{memory, worker};
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, query, switch};
use crate::pg::{live, store, waits};
use crate::session;
use rowsource_core::report::activity::overview::Finding;

/// Snapshots are missing if none was taken for this many intervals.
const MISSING_SNAPSHOTS: i64 = 3;
/// Plans that made room for others are missed if their statements took this share of the time. Unmeasured.
const MISSING_SHARE: f64 = 0.05;

/// Something that was looked at.
pub struct Line {
    what: &'static str,
    /// Whether nothing must be done.
    is_ok: bool,
    /// One sentence.
    says: String,
    /// A command or step that mends it.
    mend: String,
}

impl Line {
    fn ok(what: &'static str, says: String) -> Line {
        Line {
            what,
            is_ok: true,
            says,
            mend: String::new(),
        }
    }

    fn bad(what: &'static str, says: String, mend: &str) -> Line {
        Line {
            what,
            is_ok: false,
            says,
            mend: mend.to_owned(),
        }
    }
}

/// Adds the rows of `rowsource_health()`.
pub fn rows(rows: &mut Rows) {
    let columns = columns();
    for line in all() {
        columns.add(rows, &line);
    }
}

/// Returns what should be mended, for a report.
pub fn findings() -> Vec<Finding> {
    let bad = all().into_iter().filter(|line| !line.is_ok);
    bad.map(|line| Finding {
        text: format!("{}: {}", line.what, line.says),
        command: line.mend,
    })
    .collect()
}

/// The columns of `rowsource_health()`.
pub fn columns() -> Columns<Line> {
    columns! { |line: &Line|
        /// What was looked at
        component: text = line.what;
        /// ok, or attention: something should be done
        verdict: text = if line.is_ok { "ok" } else { "attention" };
        /// What was found
        finding: text = line.says.as_str();
        /// What mends it; NULL if nothing must be done
        mend: text = Some(line.mend.as_str()).filter(|mend| !mend.is_empty());
    }
}

fn all() -> Vec<Line> {
    let mut lines = vec![switch()];
    let Some(info) = store::info() else {
        lines.push(Line::bad(
            "memory",
            "there is no shared memory, so each session keeps only its own statistics".to_owned(),
            "Add pg_rowsource to shared_preload_libraries, and restart the server.",
        ));
        return lines;
    };
    lines.extend([
        worker(),
        beats(),
        samples(),
        snapshots(),
        plans(&info),
        refused(&info),
        waits(),
        stops(),
        errors(&info),
    ]);
    lines
}

fn switch() -> Line {
    match switch::disabled_at() {
        None => Line::ok("switch", "pg_rowsource.enabled is on".to_owned()),
        Some(at) => Line::bad(
            "switch",
            format!(
                "nothing is measured since {}: pg_rowsource.enabled is off",
                server::shown_time(at)
            ),
            "ALTER SYSTEM SET pg_rowsource.enabled = on; SELECT pg_reload_conf();",
        ),
    }
}

fn worker() -> Line {
    match worker::pid() {
        Some(pid) => Line::ok(
            "worker",
            format!("process {pid} samples the sessions and takes the snapshots"),
        ),
        None => Line::bad(
            "worker",
            "it does not run: no samples, no snapshots, and long calls without I/O may be missed".to_owned(),
            &format!(
                "SELECT {}rowsource_ash_start(); -- if the library is preloaded, the server's log says why it ended",
                prefix()
            ),
        ),
    }
}

fn beats() -> Line {
    match live::sessions_without_beats() {
        (0, _) => Line::ok("beats", "the worker sees all sessions".to_owned()),
        (sessions, why) => Line::bad(
            "beats",
            format!(
                "in {sessions} sessions, long calls without I/O may be missed{}",
                why.map_or_else(String::new, |why| format!(": {why}"))
            ),
            "The chapter \"How times are measured\" says what a session needs to share its page.",
        ),
    }
}

fn samples() -> Line {
    if guc::history_frequency().is_none() {
        return Line::bad(
            "samples",
            "the sessions are not sampled: pg_rowsource.history_frequency is 0".to_owned(),
            "ALTER SYSTEM SET pg_rowsource.history_frequency = 100; SELECT pg_reload_conf();",
        );
    }
    let Some(first) = memory::ring().and_then(|ring| ring.complete_from()) else {
        return Line::bad(
            "samples",
            "there are none yet".to_owned(),
            "Wait a second. If there are still none, look at the line of the worker.",
        );
    };
    Line::ok(
        "samples",
        format!("in memory since {}", server::shown_time(first)),
    )
}

fn snapshots() -> Line {
    let interval = guc::snapshot_interval_us();
    if interval.is_none() && !server::is_in_recovery() {
        return Line::bad(
            "snapshots",
            "the server takes none: pg_rowsource.snapshot_interval is 0".to_owned(),
            "ALTER SYSTEM SET pg_rowsource.snapshot_interval = '15 min'; SELECT pg_reload_conf();",
        );
    }
    // Nothing is wrong, or another line says it.
    if let Some(why) = why_no_snapshots() {
        return Line::ok("snapshots", why.to_owned());
    }
    if let Some(why) = last_failure() {
        return Line::bad(
            "snapshots",
            format!("the last one failed: {why}"),
            &format!(
                "SELECT last_snapshot_error, snapshots_failed, snapshots_refused FROM {}rowsource_info();",
                prefix()
            ),
        );
    }
    let latest = last_snapshot_at().unwrap_or_else(started_at);
    let is_late = |interval| server::now().saturating_sub(latest) > MISSING_SNAPSHOTS * interval;
    if interval.is_some_and(is_late) {
        return Line::bad(
            "snapshots",
            format!("the server has taken none since {}", server::shown_time(latest)),
            &format!(
                "Look at the server's log, and at SELECT snapshot_interval, last_snapshot_error FROM {}rowsource_info();",
                prefix()
            ),
        );
    }
    let taken = match last_snapshot_at() {
        Some(at) => format!("the server took the last one at {}", server::shown_time(at)),
        None => "the server has taken none since it started".to_owned(),
    };
    let place =
        snapshots_elsewhere().map_or_else(String::new, |name| format!(", in the database \"{name}\""));
    let why = why_not_stored().map_or_else(String::new, |why| format!("; {why}"));
    Line::ok("snapshots", format!("{taken}{place}{why}"))
}

/// Returns when the server started.
fn started_at() -> i64 {
    const STARTED: &str = "SELECT pg_catalog.json_build_array(pg_catalog.extract('epoch', pg_catalog.pg_postmaster_start_time()))";
    let mut at = server::now();
    query::each(STARTED, (0, 0), |row| at = query::time(&row[0]));
    at
}

/// Returns the share of the time of all client statements that those took whose plans are not stored.
fn share_of_others() -> f64 {
    let others = session::others();
    let others = others.iter().filter(|sum| sum.toplevel);
    let others_ms: f64 = others.map(|sum| sum.totals.plan.times.total_ms).sum();
    let plans = store::sums().unwrap_or_default();
    let plans = plans.iter().filter(|plan| plan.key.toplevel());
    let all_ms = others_ms + plans.map(|plan| plan.sums.wall_ms).sum::<f64>();
    others_ms / all_ms.max(f64::MIN_POSITIVE)
}

fn plans(info: &store::Info) -> Line {
    let kept = format!(
        "{} of {} plans are kept, in {} of {} kB",
        info.plans,
        guc::max_plans(),
        info.bytes / 1024,
        info.limit / 1024
    );
    match (info.evictions, info.incomplete_at) {
        (0, _) | (_, None) => Line::ok("plans", kept),
        (evictions, Some(at)) => {
            let share = share_of_others();
            let says = format!(
                "{kept}; since {}, {evictions} others made room, which took {:.1} % of the time",
                server::shown_time(at),
                100.0 * share
            );
            match share < MISSING_SHARE {
                true => Line::ok("plans", says),
                false => Line::bad(
                    "plans",
                    says,
                    "Increase pg_rowsource.max_plans or pg_rowsource.max_memory, and restart the server.",
                ),
            }
        }
    }
}

fn refused(info: &store::Info) -> Line {
    match info.refused {
        0 => Line::ok("executions", "all were stored".to_owned()),
        refused => Line::bad(
            "executions",
            format!("{refused} were not stored: their plan has too many nodes, or there was no memory"),
            "Increase pg_rowsource.max_memory, and restart the server. That does not help with too many nodes.",
        ),
    }
}

fn waits() -> Line {
    match waits::refused() {
        None => Line::ok("waits", "they are counted".to_owned()),
        Some(why) => Line::bad(
            "waits",
            format!("they are not counted: {why}"),
            "Preload pg_rowsource, and load no library that replaces the same functions of the C library.",
        ),
    }
}

fn stops() -> Line {
    match store::shared_stops().map_or((0, None), |stops| stops.shown()) {
        (0, _) => Line::ok(
            "cost",
            "no session has stopped because measuring cost too much".to_owned(),
        ),
        (sessions, last) => Line::bad(
            "cost",
            format!(
                "{sessions} sessions measure no more{}",
                last.map_or_else(String::new, |last| format!("; the last one: {last}"))
            ),
            "Raise pg_rowsource.max_overhead if that cost is acceptable; such a session measures again at once.",
        ),
    }
}

fn errors(info: &store::Info) -> Line {
    match info.errors {
        0 => Line::ok("errors", "there were none inside of the library".to_owned()),
        errors => Line::bad(
            "errors",
            format!("{errors} since the server started, which no user saw"),
            "The server's log has the first one of each session: please report it.",
        ),
    }
}
