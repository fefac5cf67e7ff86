//! Plans in the formats of other tools: folded stacks, speedscope, a page of HTML; and histograms as text.

use super::display::{self, Found};
use super::logical_io;
use super::wait_names;
use super::words::choose;
use crate::pg::executor::statement;
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail, memory};
use pgrx::PgSqlErrorCode;
use rowsource_core::export::{self, Syntax, in_ascii};
use rowsource_core::histogram::{Bucket, plot};
use rowsource_core::model::{Estimates, Exemplar, KeptExecution, NamedWaits, NodeStats, Outcome, Plan};

/// The executions that an export is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// The last one.
    Last,
    /// The mean of all.
    Mean,
    /// The sum of all.
    Total,
    /// One that was kept whole.
    Kept(Exemplar),
}

/// The words for [`Which`], as users write them.
pub(super) const WHICH: [(&str, Which); 6] = [
    ("last", Which::Last),
    ("mean", Which::Mean),
    ("total", Which::Total),
    kept(Exemplar::Slowest),
    kept(Exemplar::Failed),
    kept(Exemplar::Cancelled),
];

const fn kept(which: Exemplar) -> (&'static str, Which) {
    (which.name(), Which::Kept(which))
}

/// A plan with the statistics that are exported.
pub(super) struct Exported {
    pub plan: Plan,
    pub stats: Vec<NodeStats>,
    /// The statistics are divided by this.
    pub executions: f64,
    pub which: Which,
    /// The execution, if it was kept whole. It is in the place of the plan's last one; its nodes are `stats`.
    pub kept: Option<KeptExecution>,
}

impl Exported {
    /// Returns the waits of the executions that are exported.
    pub fn waits(&self) -> Vec<NamedWaits> {
        let is_one = matches!(self.which, Which::Last | Which::Kept(_));
        wait_names::shown(&self.plan, is_one)
    }

    /// Returns what a page says above the plan, with names.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let statistics = &self.plan.statistics;
        let times = &statistics.times;
        let (shown, ms) = match self.which {
            Which::Last => ("the last execution".to_owned(), statistics.last_ms),
            Which::Mean => (format!("the mean of {} executions", times.calls), times.mean_ms),
            Which::Total => (format!("the sum of {} executions", times.calls), times.total_ms),
            Which::Kept(Exemplar::Slowest) => ("the slowest execution".to_owned(), statistics.last_ms),
            Which::Kept(which) => (format!("the last {} execution", which.name()), statistics.last_ms),
        };
        let mut facts = vec![("Shown", shown), ("Elapsed", format!("{ms:.3} ms"))];
        if let Some((ended, outcome)) = self.ending() {
            facts.push(("Ended", ended));
            facts.push(("Outcome", outcome.to_owned()));
        }
        facts
    }

    /// Returns when the execution ended, and how, if it is one that was kept whole, or that did not complete.
    pub fn ending(&self) -> Option<(String, &'static str)> {
        let statistics = &self.plan.statistics;
        let is_one = match self.which {
            Which::Last => statistics.last_outcome != Outcome::Completed,
            Which::Kept(_) => true,
            Which::Mean | Which::Total => false,
        };
        is_one.then(|| {
            let outcome = display::outcome_name(statistics.last_outcome);
            (server::shown_time(statistics.last_seen_at), outcome)
        })
    }
}

/// Returns the plan with these ids, or the session's last statement if both are missing.
///
/// # Errors
/// Raises an error if `which` is unknown, if no such plan or execution is kept, if a planid has no queryid,
/// or if ids are missing and no statement was measured.
pub(super) fn chosen(queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) -> Exported {
    // This comes first, so that the calling statement is excluded even if the call fails.
    statement::exclude_running_from_last();
    executions(queryid, planid, choose("which", which, &WHICH))
}

/// Returns the same of executions that are known.
pub(super) fn executions(queryid: Option<i64>, planid: Option<i64>, which: Which) -> Exported {
    let Found { plan, last, choice } = match which {
        Which::Kept(_) => display::find_stored(queryid, planid),
        _ => display::find(queryid, planid),
    };
    if let Some(choice) = choice {
        server::notify(&choice, "Give its planid, too.");
    }
    match which {
        Which::Kept(exemplar) => kept_execution(plan, which, exemplar),
        _ => summed(plan, last, which),
    }
}

/// Returns a plan with an execution of it that was kept whole.
fn kept_execution(mut plan: Plan, which: Which, exemplar: Exemplar) -> Exported {
    let kept = display::take_kept(&mut plan, exemplar);
    let mut kept = kept.unwrap_or_else(|| display::fail_none_kept(&plan, exemplar));
    plan.description.estimate_as(&kept.nodes, false);
    Exported {
        plan,
        stats: std::mem::take(&mut kept.nodes),
        executions: 1.0,
        which,
        kept: Some(kept),
    }
}

/// Returns a plan with the statistics of its last execution, or of all. `last` is the last execution, if that
/// is not the one that `plan` has.
fn summed(mut plan: Plan, last: Option<Vec<NodeStats>>, which: Which) -> Exported {
    memory::ensure_headroom(plan.description.nodes.len());
    let is_last = which == Which::Last;
    let stats = display::statistics_of(&mut plan, last, is_last);
    memory::ensure_headroom(plan.description.nodes.len());
    plan.description.estimate_as(&stats, !is_last);
    let executions = match which {
        Which::Mean => plan.statistics.times.calls.max(1) as f64,
        _ => 1.0,
    };
    Exported {
        plan,
        stats,
        executions,
        which,
        kept: None,
    }
}

/// Adds the rows of `rowsource_folded()`.
pub fn folded_lines(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) {
    let exported = chosen(queryid, planid, which);
    notify_untimed(&exported.stats);
    let nodes = &exported.plan.description.nodes;
    for line in export::folded(nodes, &exported.stats, &exported.waits(), exported.executions) {
        rows.add_line(&line);
    }
}

/// Tells the client if no node was timed: then there is no time to show.
fn notify_untimed(stats: &[NodeStats]) {
    if !stats.iter().any(|stats| stats.time.get().is_some()) {
        server::notify("no node of these executions was timed", UNTIMED);
    }
}

/// Why calls are not timed.
const UNTIMED: &str = "Statements are not timed at pg_rowsource.sampfreq 0 and 3, and executions by EXPLAIN (ANALYZE) are not added up.";

/// Adds the row of `rowsource_speedscope()`.
pub fn speedscope_row(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) {
    let exported = chosen(queryid, planid, which);
    notify_untimed(&exported.stats);
    let description = &exported.plan.description;
    let file = export::speedscope(
        &description.text,
        &description.nodes,
        &exported.stats,
        exported.executions,
    );
    add_document(rows, &file, Syntax::Json);
}

/// Adds a row with a document. Programs expect UTF-8, but in a database with another encoding, psql writes a
/// file in that encoding, which may also lack characters of another database's plan. So there the document is
/// ASCII, with escapes.
pub(super) fn add_document(rows: &mut Rows, document: &str, syntax: Syntax) {
    if server::is_utf8() || document.is_ascii() {
        return rows.add_line(document);
    }
    // An escape takes up to four times the memory of its character.
    memory::ensure_headroom(document.len() / 1_000);
    rows.add_line(&in_ascii(document, syntax));
}

/// Adds the row of `rowsource_html()`.
pub fn html_row(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) {
    let exported = chosen(queryid, planid, which);
    let Exported { plan, stats, .. } = &exported;
    let format = match exported.which {
        Which::Last => "ALLSTATS LAST".to_owned(),
        Which::Mean | Which::Total => "ALLSTATS".to_owned(),
        Which::Kept(which) => format!("ALLSTATS {}", which.name()),
    };
    let mut histograms = memory::with_room(plan.nodes.len());
    // Those of a folded plan are not those of the single partitions.
    if plan.folded.is_none() {
        histograms.extend(plan.nodes.iter().map(|node| &node.histogram));
    }
    let mut estimates = memory::with_room(stats.len().max(plan.nodes.len()));
    match exported.which {
        Which::Last | Which::Kept(_) => estimates.extend(stats.iter().map(|stats| {
            let mut one = Estimates::default();
            one.add(&stats.estimate, stats.starts.get_or_zero(), stats.rows);
            one
        })),
        Which::Mean | Which::Total => estimates.extend(plan.nodes.iter().map(|node| node.estimates)),
    }
    let page = export::Page {
        title: &format!("queryid {}, planid {}", plan.key.queryid, plan.key.planid),
        facts: &exported.facts(),
        statement: &plan.description.text,
        table: &display::table(plan, stats, &display::parse(&format)),
        nodes: &plan.description.nodes,
        stats,
        estimates: &estimates,
        histograms: &histograms,
        waits: &exported.waits(),
        executions: exported.executions,
    };
    add_document(rows, &page.html(), Syntax::Markup);
}

/// Adds the rows of `rowsource_histogram_plot()`.
pub fn plot_lines(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, node: i32) {
    let exported = chosen(queryid, planid, Some("total"));
    let nodes = &exported.plan.nodes;
    let totals = usize::try_from(node).ok().and_then(|i| nodes.get(i));
    let totals = totals.unwrap_or_else(|| fail_no_node(node, exported.plan.description.nodes.len()));
    if totals.histogram.counts().next().is_none() {
        server::notify(&format!("no call of node {node} was timed"), UNTIMED);
    }
    let gets = logical_io::node_gets(&exported.plan);
    if let Some(line) = usize::try_from(node).ok().and_then(|i| gets.get(i)?.line()) {
        rows.add_line(&line);
    }
    for (heading, lines) in export::call_plots(&totals.histogram) {
        rows.add_line(heading);
        lines.iter().for_each(|line| rows.add_line(line));
    }
}

/// Raises the error that a plan has no such node.
fn fail_no_node(node: i32, nodes: usize) -> ! {
    fail(
        PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        &format!("the plan has no node {node}"),
        &format!("It has the nodes 0 to {}.", nodes.saturating_sub(1)),
    )
}

/// Adds the rows of `rowsource_histogram_plot()` for given buckets: their lower bounds in microseconds, and
/// their counts. Buckets without a bound or a count are left out.
pub fn histogram_lines(rows: &mut Rows, from_us: Vec<Option<f64>>, counts: Vec<Option<i64>>) {
    if from_us.len() != counts.len() {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("there are {} bounds and {} counts", from_us.len(), counts.len()),
            "Give a lower bound and a count for each bucket.",
        )
    }
    let buckets: Vec<Bucket> = from_us
        .into_iter()
        .zip(counts)
        .filter_map(|(from_us, count)| {
            Some(Bucket {
                from_us: from_us?,
                count: u64::try_from(count?).ok()?,
            })
        })
        .collect();
    plot(&buckets).iter().for_each(|line| rows.add_line(line));
}
