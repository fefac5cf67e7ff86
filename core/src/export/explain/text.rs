//! The text format.

use super::explained::{Explained, Trigger};
use super::node::{body, costs, end, title};
use super::workers::{jit_item, workers_item};
use crate::plan::Attribute;

/// The most levels by which a line is indented, at two spaces each. A plan can be thousands of levels deep.
const MAX_INDENT: usize = 600;

/// Returns the lines.
pub(super) fn lines(explained: &Explained) -> Vec<String> {
    let mut lines = Vec::new();
    let scale = explained.scale();
    // The indentation of what is said of a node, by its depth.
    let mut indents: Vec<usize> = Vec::new();
    for (i, node) in explained.nodes.iter().enumerate() {
        let counts = explained.counts(scale, i);
        indents.truncate(node.depth);
        let mut indent = indents.last().copied().unwrap_or(0);
        if let Some(name) = &node.subplan_name {
            lines.push(indented(indent, name));
            indent += 1;
        }
        let arrow = if indent > 0 { "->  " } else { "" };
        let first = format!(
            "{arrow}{}{}{}",
            title(node, explained.quote),
            costs(node),
            counts.actual_text()
        );
        lines.push(indented(indent, &first));
        indent += if indent > 0 { 3 } else { 1 };
        indents.push(indent);
        let said = body(node, &counts, explained.quote);
        let workers = workers_item(explained, scale, i);
        let after = counts.usage().into_iter().chain(workers).chain(end(&counts));
        let items = said.into_iter().chain(after);
        lines.extend(
            items
                .flat_map(|item| item.lines)
                .map(|line| indented(indent, &line)),
        );
    }
    add_summary(explained, &mut lines);
    lines
}

fn indented(indent: usize, line: &str) -> String {
    let mut indented = "  ".repeat(indent.min(MAX_INDENT));
    // A line that has several is no line of EXPLAIN's. Names may contain anything.
    indented.extend(line.chars().map(|c| if c == '\n' || c == '\r' { ' ' } else { c }));
    indented
}

fn add_summary(explained: &Explained, lines: &mut Vec<String>) {
    let scale = explained.scale();
    if let Some(planning) = explained.planning {
        let scale = scale.of_planning(planning.plannings);
        let buffers = scale.buffers(&planning.buffers).lines;
        if !buffers.is_empty() {
            lines.push("Planning:".to_owned());
            lines.extend(buffers.iter().map(|line| indented(1, line)));
        }
        lines.push(format!("Planning Time: {:.3} ms", scale.mean(planning.ms)));
    }
    let triggers = explained.triggers.unwrap_or_default();
    let several = several_tables(explained, triggers);
    for trigger in triggers {
        lines.push(trigger.line(several, (scale.mean(trigger.ms), scale.whole(trigger.calls))));
    }
    if let Some(jit) = explained.jit.filter(|jit| jit.functions > 0) {
        lines.extend(jit_item(scale, &jit).lines);
    }
    lines.push(format!("Execution Time: {:.3} ms", explained.execution_ms));
    lines.extend(explained.ending().map(|(label, text)| format!("{label}: {text}")));
}

/// Returns whether triggers may be of several tables. Then PostgreSQL names the table of each.
fn several_tables(explained: &Explained, triggers: &[Trigger]) -> bool {
    let changes = |operation: &str| matches!(operation, "Insert" | "Update" | "Delete" | "Merge");
    let mut changing = explained.nodes.iter().filter(|node| changes(&node.operation));
    let Some(first) = changing.next() else {
        return true;
    };
    let mut attributes = first.attributes.iter();
    let has_targets = attributes.any(|(attribute, _)| *attribute == Attribute::TargetTable);
    changing.next().is_some()
        || has_targets
        || triggers
            .iter()
            .any(|trigger| trigger.relation != first.object_name)
}
