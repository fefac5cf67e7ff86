//! How the time of a plan is divided among its nodes: a flame graph of a line for each node. What a node took
//! with all below it lies below what its parent took.

use crate::data::Data;
use crate::format::node_name;
use crate::model::Node;
use crate::queries::PlanKey;
use crate::table::{Cell, Order, Row, Table};

/// How many columns the whole time takes.
const WIDTH: usize = 34;

/// Makes the table.
pub fn table(data: &Data, key: &PlanKey) -> Table {
    let nodes = data.nodes_of(key);
    let mut table = Table::new(
        format!(
            "Time of plan {}: # the node itself, - the nodes below",
            key.planid
        ),
        &[
            ("id", 3, 0),
            ("total", 9, 0),
            ("%", 5, 0),
            ("time", WIDTH as u16, 0),
            ("node", 24, 0),
        ],
        Order::Fixed,
    );
    if nodes.is_empty() && data.is_replay {
        table.notes.push(crate::screens_plan::NOT_RECORDED.to_owned());
    }
    // Of all processes, and each node's with all below it: a share of the first node's time may exceed it.
    let sums = sums(&nodes);
    let whole = sums.first().copied().unwrap_or(0.0);
    // Where the nodes begin that may have children, and where the next child begins: by depth.
    let mut ends: Vec<f64> = vec![0.0];
    table.notes.extend(crate::screens_plan::of_processes(&nodes));
    for (node, time) in nodes.into_iter().zip(sums) {
        ends.truncate(node.depth.max(0) as usize + 1);
        let begin = ends.last().copied().unwrap_or(0.0).min(whole);
        if let Some(end) = ends.last_mut() {
            *end = begin + time;
        }
        ends.push(begin);
        let cells = vec![
            Cell::Id(node.node_id),
            Cell::Time(node.time),
            Cell::Percent(if whole > 0.0 { 100.0 * time / whole } else { 0.0 }),
            Cell::Text(bar(begin, time, node.own_time.clamp(0.0, time), whole)),
            Cell::Text(node_name(node.depth, &node.operation, node.object.as_deref())),
        ];
        table.add(Row::of_node(key, node.node_id, node.depth, cells));
    }
    table
}

/// Returns what each node and those below it took themselves, in all processes.
fn sums(nodes: &[&Node]) -> Vec<f64> {
    let own: Vec<f64> = nodes.iter().map(|node| node.own_time.max(0.0)).collect();
    let sum = |at: usize| {
        let below = nodes[at + 1..]
            .iter()
            .take_while(|node| node.depth > nodes[at].depth);
        own[at..=at + below.count()].iter().sum()
    };
    (0..nodes.len()).map(sum).collect()
}

/// Draws a part of the whole. What the node took itself comes last, behind its inputs.
fn bar(begin: f64, time: f64, own: f64, whole: f64) -> String {
    let column = |at: f64| {
        if whole > 0.0 {
            (at / whole * WIDTH as f64).round() as usize
        } else {
            0
        }
    };
    let (start, middle, end) = (column(begin), column(begin + time - own), column(begin + time));
    let mut bar = " ".repeat(start);
    bar.extend(std::iter::repeat_n('-', middle.saturating_sub(start)));
    bar.extend(std::iter::repeat_n('#', end.saturating_sub(middle.max(start))));
    if start == end && time > 0.0 {
        bar.push('.');
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_below_the_whole() {
        assert_eq!(bar(0.0, 34.0, 4.0, 34.0), "-".repeat(30) + "####");
        assert_eq!(bar(17.0, 17.0, 17.0, 34.0), " ".repeat(17) + &"#".repeat(17));
        assert_eq!(bar(1.0, 0.1, 0.1, 34.0), " .");
        assert_eq!(bar(0.0, 0.0, 0.0, 0.0), "");
        assert_eq!(
            bar(1.0, 31.0, 31.000000000000004, 68.0),
            format!(" {}", "#".repeat(15))
        );
    }
}
