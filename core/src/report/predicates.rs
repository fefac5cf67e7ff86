//! The section below the table: the conditions of each operation.

use super::text::{on_one_line, shortened};
use crate::plan::PlanNode;

/// Longer conditions are cut, because an IN list may contain thousands of values.
const MAX_CONDITION: usize = 4000;

const TITLE: &str = "Predicate Information (identified by operation id):";

const OLDER_LITERALS: &str = " with the literals of an earlier execution";

/// Returns the section's lines; none if no node has a predicate. The title says so if the literals are those of an earlier
/// execution.
pub(super) fn lines(nodes: &[PlanNode], older_literals: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for node in nodes {
        let mut margin = format!("{:4} - ", node.id);
        for (label, condition) in &node.predicates {
            lines.push(format!(
                "{margin}{label}: {}",
                shortened(&on_one_line(condition), MAX_CONDITION)
            ));
            margin = " ".repeat(margin.len());
        }
    }
    if !lines.is_empty() {
        let note = if older_literals { OLDER_LITERALS } else { "" };
        let title = format!("{TITLE}{note}");
        let rule = "-".repeat(title.len());
        lines.splice(0..0, [title, rule]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

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
            lines(&nodes, false),
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
        assert!(lines(&[node(0, &[])], false).is_empty());
    }

    #[test]
    fn long_conditions_are_cut_between_characters() {
        let line = |length| lines(&[node(0, &[("Filter", &"ä".repeat(length))])], false).remove(2);
        let text = |line: &str| line["   0 - Filter: ".len()..].to_owned();
        assert_eq!(text(&line(4000)), "ä".repeat(4000));
        assert_eq!(text(&line(4001)), format!("{}...", "ä".repeat(3997)));
    }

    #[test]
    fn a_condition_is_one_line() {
        assert_eq!(
            lines(&[node(0, &[("Filter", "(a = 'x\ny')")])], false)[2],
            "   0 - Filter: (a = 'x y')"
        );
    }

    #[test]
    fn the_title_names_older_literals() {
        let lines = lines(&[node(0, &[("Filter", "(a = 1)")])], true);
        assert_eq!(
            lines[0],
            "Predicate Information (identified by operation id): with the literals of an earlier execution"
        );
        assert_eq!(lines[1].len(), lines[0].len());
    }
}
