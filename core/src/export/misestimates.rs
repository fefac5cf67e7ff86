//! The nodes of which the planner expected other numbers of rows, as a table of HTML.

use super::frames::{name, own_us};
use crate::model::{Estimates, NodeStats};
use crate::plan::PlanNode;
use maud::{Markup, html};

/// Smaller factors are not shown.
const MIN_FACTOR: f64 = 2.0;
/// The maximum number of nodes in the table.
const MAX_NODES: usize = 20;

/// A node with a wrong estimate.
struct Misestimate {
    node: usize,
    /// Rows per start.
    expected: f64,
    actual: f64,
    /// The largest factor of any execution.
    factor: f64,
    own_us: f64,
}

/// Returns the table; nothing if all estimates were about right. The first nodes are those whose time and
/// factor are large. `estimates` are those of the executions that `stats` sums up.
pub(super) fn misestimates(
    nodes: &[PlanNode],
    stats: &[NodeStats],
    estimates: &[Estimates],
    executions: f64,
) -> Markup {
    let judged = estimates.iter().enumerate().filter_map(|(node, estimates)| {
        let factor = estimates.max_underestimate()?.max(estimates.max_overestimate()?);
        Some(Misestimate {
            node,
            expected: estimates.rows_per_start()?,
            actual: estimates.actual_rows as f64 / estimates.starts.max(1) as f64,
            factor,
            own_us: own_us(stats.get(node), executions),
        })
    });
    let mut wrong: Vec<Misestimate> = judged.filter(|wrong| wrong.factor >= MIN_FACTOR).collect();
    let weight = |wrong: &Misestimate| (wrong.own_us + 1.0) * wrong.factor.ln();
    wrong.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    wrong.truncate(MAX_NODES);
    html! {
        @if !wrong.is_empty() {
            h2 { "Wrong estimates" }
            div.wide tabindex="0" role="group" aria-label="Misestimates" { table {
                tr { th { "Node" } th { "Expected rows" } th { "Actual rows" } th { "Factor" } th { "Own time" } }
                @for wrong in wrong {
                    tr {
                        td { (wrong.node) ": " @if let Some(node) = nodes.get(wrong.node) { (name(node)) } }
                        td.number { (rows(wrong.expected)) }
                        td.number { (rows(wrong.actual)) }
                        td.number { (format!("{:.1}", wrong.factor)) }
                        td.number { (format!("{:.3} ms", wrong.own_us / 1e3)) }
                    }
                }
            } }
            p { "Rows are those of a start. The factor is the largest of any execution." }
        }
    }
}

/// Returns a number of rows, with decimals only if it is small.
fn rows(rows: f64) -> String {
    if rows < 10.0 && rows.fract() != 0.0 {
        format!("{rows:.2}")
    } else {
        format!("{rows:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::tests::{node, timed};
    use super::*;
    use crate::model::Estimate;

    fn estimates(expected: f64, starts: u64, rows: u64) -> Estimates {
        let mut estimates = Estimates::default();
        estimates.add(&Estimate::new(expected, true), starts, rows);
        estimates
    }

    #[test]
    fn the_costliest_wrong_estimates_come_first() {
        let nodes = ["Limit", "Hash Join", "Seq Scan", "Sort"].map(|name| node(0, name, None));
        let stats = [0.0, 1.0, 50.0, 2.0].map(timed);
        let all = [
            estimates(10.0, 1, 19),
            estimates(5.0, 1, 5_000),
            estimates(100.0, 4, 50),
            Estimates::default(),
        ];
        let table = misestimates(&nodes, &stats, &all, 1.0).into_string();
        let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("{text}: {table}"));
        assert!(at("2: Seq Scan") < at("1: Hash Join"));
        assert!(
            table.contains("<td class=\"number\">12</td>") || table.contains("<td class=\"number\">13</td>")
        );
        assert!(table.contains("8.0") && table.contains("1000.0"), "{table}");
        assert!(!table.contains("Limit") && !table.contains("Sort"), "{table}");
        let right = [estimates(10.0, 1, 11)];
        assert_eq!(
            misestimates(&nodes[..1], &stats[..1], &right, 1.0).into_string(),
            ""
        );
    }

    #[test]
    fn names_are_escaped() {
        let odd = [node(0, "<script>", Some("a&b"))];
        let table = misestimates(&odd, &[], &[estimates(1.0, 1, 100)], f64::NAN).into_string();
        assert!(
            table.contains("&lt;script&gt; a&amp;b") && !table.contains("<script"),
            "{table}"
        );
    }
}
