//! The sections below the table, about single operations.

use super::header::NamedPartition;
use super::text::{on_one_line, shortened, wrapped};
use super::{columns, numbers};
use crate::model::NamedWaits;
use crate::model::partitions::PartitionSum;
use crate::plan::PlanNode;
use unicode_width::UnicodeWidthStr;

/// Longer texts are cut, because an IN list may contain thousands of values.
const MAX_TEXT: usize = 4000;

const OLDER_LITERALS: &str = " with the literals of an earlier execution";

/// Returns the conditions of each operation. The title says so if the literals are those of an earlier
/// execution.
pub(super) fn predicates(nodes: &[PlanNode], older_literals: bool, width: usize) -> Vec<String> {
    let note = if older_literals { OLDER_LITERALS } else { "" };
    section(
        &format!("Predicate Information (identified by operation id):{note}"),
        nodes.iter().map(|node| (node.id, labelled(&node.predicates))),
        width,
    )
}

/// Returns the keys of sorts, groups and caches.
pub(super) fn keys(nodes: &[PlanNode], width: usize) -> Vec<String> {
    section(
        "Key Information (identified by operation id):",
        nodes.iter().map(|node| (node.id, labelled(&node.keys))),
        width,
    )
}

/// Returns the names that are wider than `column`, so they are cut in the table.
pub(super) fn names(nodes: &[PlanNode], search_path: &[String], column: usize, width: usize) -> Vec<String> {
    let names = nodes
        .iter()
        .map(|node| (node.id, columns::full_name(node, search_path)));
    section(
        "Full names (identified by operation id):",
        names
            .filter(|(_, name)| name.width() > column)
            .map(|(id, name)| (id, vec![name])),
        width,
    )
}

/// Returns the names of the tables in the statement. In a subquery, each is behind the name of the subquery.
pub(super) fn aliases(nodes: &[PlanNode], width: usize) -> Vec<String> {
    let mut blocks: Vec<Option<&str>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let outer = node.parent.and_then(|parent| *blocks.get(parent)?);
        blocks.push(node.subplan_name.as_deref().or(outer));
    }
    let lines = nodes.iter().zip(&blocks).filter_map(|(node, block)| {
        // A scan of nothing but an index has no alias of its own.
        let is_index = node.operation.ends_with("Bitmap Index Scan");
        let table = node.table.as_deref().or(node.object_name.as_deref());
        let table = table.filter(|_| !is_index)?;
        let alias = node.alias.as_deref().unwrap_or(table);
        let block = block.map(|block| format!("{block} / ")).unwrap_or_default();
        let schema = node.schema.iter().flat_map(|schema| [&**schema, "."]);
        let table: String = schema.chain([table]).collect();
        let full = if table == alias {
            String::new()
        } else {
            format!(" ({table})")
        };
        Some((node.id, vec![format!("{block}{alias}{full}")]))
    });
    section(
        "Query Block Name / Object Alias (identified by operation id):",
        lines,
        width,
    )
}

/// Returns the waits of each operation, and of the statement outside of them. `missing` is why waits are not
/// counted, if they are not.
pub(super) fn waits(waits: &[NamedWaits], missing: Option<&str>, width: usize) -> Vec<String> {
    const TITLE: &str = "Waits (identified by operation id):";
    let of = |node: Option<usize>| {
        let waits = waits.iter().filter(move |waits| waits.node == node);
        waits.map(wait_text).collect::<Vec<_>>()
    };
    let mut ids: Vec<usize> = waits.iter().filter_map(|waits| waits.node).collect();
    ids.dedup();
    let mut lines = section(TITLE, ids.into_iter().map(|id| (id, of(Some(id)))), width);
    let mut outside = of(None);
    outside.extend(missing.map(|reason| format!("not counted: {reason}")));
    if outside.is_empty() {
        return lines;
    }
    if lines.is_empty() {
        lines = vec![TITLE.to_owned(), "-".repeat(TITLE.len())];
    }
    for text in outside {
        lines.extend(hanging("     - ", &on_one_line(&text), width));
    }
    lines
}

/// Returns the partitions of each operation that took the longest.
pub(super) fn partitions(partitions: &[NamedPartition], width: usize) -> Vec<String> {
    let text = |partition: &NamedPartition| {
        let PartitionSum { rows, blocks, ms, .. } = partition.sum;
        let count = |number: f64| numbers::count(number);
        format!(
            "{}: {} rows, {} blocks, {ms:.3} ms",
            partition.name,
            count(rows as f64),
            count(blocks as f64)
        )
    };
    let operations = partitions.chunk_by(|one, next| one.sum.node == next.sum.node);
    section(
        "Partitions that took the longest (identified by operation id):",
        operations.map(|all| (all[0].sum.node as usize, all.iter().map(text).collect())),
        width,
    )
}

/// Returns what is said about the waits of an operation for an event.
fn wait_text(waits: &NamedWaits) -> String {
    let where_else = match waits.node {
        Some(_) => "",
        None if waits.event_type.is_none() => "",
        None => ", outside of the operations",
    };
    let name = waits.name();
    match waits.waits {
        1 => format!("{name}: 1 wait, {:.3} ms{where_else}", waits.ms),
        count => format!(
            "{name}: {} waits, {:.3} ms, the longest {:.3} ms{where_else}",
            numbers::count(count as f64),
            waits.ms,
            waits.max_ms
        ),
    }
}

/// Returns the notes; none if there are none.
pub(super) fn notes(notes: &[String], width: usize) -> Vec<String> {
    const MARGIN: &str = "   - ";
    if notes.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["Note".to_owned(), "----".to_owned()];
    for note in notes {
        lines.extend(hanging(MARGIN, note, width));
    }
    lines
}

fn labelled(texts: &[(String, String)]) -> Vec<String> {
    let texts = texts.iter();
    texts.map(|(label, text)| format!("{label}: {text}")).collect()
}

/// Returns a section with the texts of each operation; no lines if there are no texts.
fn section(title: &str, texts: impl Iterator<Item = (usize, Vec<String>)>, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (id, texts) in texts {
        let mut margin = format!("{id:4} - ");
        for text in texts {
            lines.extend(hanging(&margin, &shortened(&on_one_line(&text), MAX_TEXT), width));
            margin = " ".repeat(margin.len());
        }
    }
    if !lines.is_empty() {
        lines.splice(0..0, [title.to_owned(), "-".repeat(title.len())]);
    }
    lines
}

/// Returns a text behind a margin. Its further lines are indented.
fn hanging(margin: &str, text: &str, width: usize) -> Vec<String> {
    const INDENT: usize = 2;
    let indent = margin.len() + INDENT;
    let parts = wrapped(text, width.saturating_sub(indent), 0);
    let parts = parts.into_iter().enumerate();
    let line = |(i, part)| match i {
        0 => format!("{margin}{part}"),
        _ => format!("{:indent$}{part}", ""),
    };
    parts.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 120;

    fn node(id: usize, predicates: &[(&str, &str)]) -> PlanNode {
        let predicates = predicates
            .iter()
            .map(|(label, text)| ((*label).to_owned(), (*text).to_owned()))
            .collect();
        PlanNode {
            id,
            predicates,
            ..PlanNode::default()
        }
    }

    #[test]
    fn each_predicate_of_a_node_has_its_own_line() {
        let nodes = [
            node(0, &[]),
            node(1, &[("Index Cond", "(a = 5)"), ("Filter", "(b > 3)")]),
            node(12, &[("Filter", "c")]),
        ];
        assert_eq!(
            predicates(&nodes, false, WIDTH),
            [
                "Predicate Information (identified by operation id):",
                "---------------------------------------------------",
                "   1 - Index Cond: (a = 5)",
                "       Filter: (b > 3)",
                "  12 - Filter: c",
            ]
        );
    }

    #[test]
    fn without_predicates_there_are_no_lines() {
        assert!(predicates(&[node(0, &[])], false, WIDTH).is_empty());
    }

    #[test]
    fn long_conditions_are_cut_between_characters() {
        let text = |length| {
            let lines = predicates(&[node(0, &[("Filter", &"ä".repeat(length))])], false, WIDTH);
            let texts = lines[2..].iter().map(|line| line.trim().to_owned());
            texts.collect::<String>()
        };
        assert_eq!(text(3992), format!("0 - Filter:{}", "ä".repeat(3992)));
        assert_eq!(text(3993), format!("0 - Filter:{}...", "ä".repeat(3989)));
    }

    #[test]
    fn a_condition_has_no_line_breaks_of_its_own() {
        assert_eq!(
            predicates(&[node(0, &[("Filter", "(a = 'x\ny')")])], false, WIDTH)[2],
            "   0 - Filter: (a = 'x y')"
        );
    }

    #[test]
    fn a_condition_is_wrapped_and_indented() {
        let condition = "((a = 1) AND (b = 2))";
        assert_eq!(
            predicates(&[node(3, &[("Filter", condition)])], false, 30)[2..],
            ["   3 - Filter: ((a = 1) AND", "         (b = 2))"]
        );
    }

    #[test]
    fn the_title_names_older_literals() {
        let lines = predicates(&[node(0, &[("Filter", "(a = 1)")])], true, WIDTH);
        assert_eq!(
            lines[0],
            "Predicate Information (identified by operation id): with the literals of an earlier execution"
        );
        assert_eq!(lines[1].len(), lines[0].len());
    }

    #[test]
    fn keys_and_cut_names_are_listed() {
        let nodes = [
            PlanNode {
                keys: vec![("Sort Key".to_owned(), "b, a DESC".to_owned())],
                ..PlanNode::default()
            },
            PlanNode {
                id: 1,
                object_name: Some("a_long_name".to_owned()),
                ..PlanNode::default()
            },
        ];
        assert_eq!(keys(&nodes, WIDTH)[2..], ["   0 - Sort Key: b, a DESC"]);
        assert_eq!(names(&nodes, &[], 10, WIDTH)[2..], ["   1 - a_long_name"]);
        assert!(names(&nodes, &[], 11, WIDTH).is_empty());
    }

    #[test]
    fn aliases_have_their_block_and_their_table() {
        let scan = |id, parent, table: &str, alias: Option<&str>, subplan: Option<&str>| PlanNode {
            id,
            parent,
            object_name: Some(table.to_owned()),
            schema: Some("shop".into()),
            alias: alias.map(Into::into),
            subplan_name: subplan.map(str::to_owned),
            ..PlanNode::default()
        };
        let nodes = [
            PlanNode {
                table: Some("orders".into()),
                ..scan(0, None, "orders_pkey", Some("o"), None)
            },
            scan(1, Some(0), "customers", None, Some("SubPlan 1")),
            scan(2, Some(1), "parts", Some("p"), None),
            PlanNode {
                operation: "Bitmap Index Scan".to_owned(),
                ..scan(3, Some(2), "parts_pkey", None, None)
            },
            PlanNode {
                schema: None,
                ..scan(4, Some(0), "x", None, None)
            },
        ];
        assert_eq!(
            aliases(&nodes, WIDTH)[2..],
            [
                "   0 - o (shop.orders)",
                "   1 - SubPlan 1 / customers (shop.customers)",
                "   2 - SubPlan 1 / p (shop.parts)",
                "   4 - x",
            ]
        );
    }

    #[test]
    fn each_operation_has_its_waits() {
        let one = |node, of: Option<&str>, event: &str, waits, ms| NamedWaits {
            node,
            event_type: of.map(str::to_owned),
            event: event.to_owned(),
            waits,
            ms,
            max_ms: ms / waits as f64,
        };
        let all = [
            one(Some(1), Some("Lock"), "tuple", 1, 20.0),
            one(Some(1), Some("IO"), "DataFileRead", 2, 0.5),
            one(Some(12), Some("Timeout"), "PgSleep", 1, 3.0),
            one(None, Some("IO"), "WALSync", 1, 1.25),
            one(None, None, "other", 7, 0.7),
        ];
        assert_eq!(
            waits(&all, None, WIDTH),
            [
                "Waits (identified by operation id):",
                "-----------------------------------",
                "   1 - Lock:tuple: 1 wait, 20.000 ms",
                "       IO:DataFileRead: 2 waits, 0.500 ms, the longest 0.250 ms",
                "  12 - Timeout:PgSleep: 1 wait, 3.000 ms",
                "     - IO:WALSync: 1 wait, 1.250 ms, outside of the operations",
                "     - other: 7 waits, 0.700 ms, the longest 0.100 ms",
            ]
        );
        assert!(waits(&[], None, WIDTH).is_empty());
        assert_eq!(waits(&[], Some("why"), WIDTH)[2..], ["     - not counted: why"]);
    }

    #[test]
    fn notes_are_wrapped() {
        assert!(notes(&[], WIDTH).is_empty());
        assert_eq!(
            notes(&["one two".to_owned(), "three".to_owned()], 10),
            ["Note", "----", "   - one", "       two", "   - thr", "       ee"]
        );
    }
}
