//! Plans in the formats of other tools: folded stacks and speedscope; and histograms as text.

use super::display;
use super::words::choose;
use crate::pg::executor::statement;
use crate::pg::server::srf::Rows;
use crate::pg::server::{fail, memory};
use pgrx::PgSqlErrorCode;
use rowsource_core::export;
use rowsource_core::histogram::{Bucket, plot};
use rowsource_core::model::{NodeStats, Plan};

/// The executions that an export is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// The last one.
    Last,
    /// The mean of all.
    Mean,
    /// The sum of all.
    Total,
}

/// The words for [`Which`], as users write them.
const WHICH: [(&str, Which); 3] = [
    ("last", Which::Last),
    ("mean", Which::Mean),
    ("total", Which::Total),
];

/// A plan with the statistics that are exported.
struct Exported {
    plan: Plan,
    stats: Vec<NodeStats>,
    /// The statistics are divided by this.
    executions: f64,
}

/// Returns the plan with these ids, or the session's last statement if both are missing. Returns `None` if no such plan is kept.
///
/// # Errors
/// Raises an error if `which` is unknown, or if ids are missing and no statement was measured.
fn chosen(queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) -> Option<Exported> {
    // This comes first, so that the calling statement is excluded even if the call fails.
    statement::exclude_running_from_last();
    let which = choose("which", which.unwrap_or_default(), &WHICH);
    let (plan, last) = display::find(queryid, planid)?;
    memory::ensure_headroom(plan.description.nodes.len());
    let stats = display::statistics_of(&plan, last, which == Which::Last);
    let executions = match which {
        Which::Mean => plan.statistics.times.calls.max(1) as f64,
        _ => 1.0,
    };
    Some(Exported {
        plan,
        stats,
        executions,
    })
}

/// Adds the rows of `rowsource_folded()`.
pub fn folded_lines(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) {
    let Some(exported) = chosen(queryid, planid, which) else {
        return;
    };
    let nodes = &exported.plan.description.nodes;
    for line in export::folded(nodes, &exported.stats, exported.executions) {
        rows.add_line(&line);
    }
}

/// Adds the row of `rowsource_speedscope()`.
pub fn speedscope_row(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) {
    let Some(exported) = chosen(queryid, planid, which) else {
        return;
    };
    let description = &exported.plan.description;
    rows.add_line(&export::speedscope(
        &description.text,
        &description.nodes,
        &exported.stats,
        exported.executions,
    ));
}

/// Adds the rows of `rowsource_histogram_plot()`.
pub fn plot_lines(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, node: i32) {
    let Some(exported) = chosen(queryid, planid, Some("total")) else {
        return;
    };
    let Some(totals) = usize::try_from(node)
        .ok()
        .and_then(|i| exported.plan.nodes.get(i))
    else {
        return;
    };
    for (heading, lines) in export::call_plots(&totals.histogram) {
        rows.add_line(heading);
        lines.iter().for_each(|line| rows.add_line(line));
    }
}

/// Adds the rows of `rowsource_histogram_plot()` for given buckets: their lower bounds in microseconds, and their counts. Buckets
/// without a bound or a count are left out.
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
