use super::*;
use crate::processor_time;

/// Statements with EXPLAIN's output in both formats. Names must be those of the text format.
const EXPLAIN_15: &str = include_str!("explain15.txt");

struct Case {
    statement: &'static str,
    text: Vec<&'static str>,
    nodes: Vec<PlanNode>,
}

fn cases() -> Vec<Case> {
    let case = |lines: &'static str| {
        let mut text: Vec<_> = lines.lines().collect();
        let nodes = parse_explain_json(text.pop().expect("JSON line"))
            .expect("a plan")
            .nodes;
        Case {
            statement: text.remove(0),
            text,
            nodes,
        }
    };
    EXPLAIN_15.split("\n> ").skip(1).map(case).collect()
}

/// Returns the text before the costs if a line starts a node: `Seq Scan on test t`.
fn title(line: &str) -> Option<String> {
    let (title, _) = line.split_once("  (cost=")?;
    Some(title.trim_start().trim_start_matches("->  ").replace('"', ""))
}

#[test]
fn nodes_are_named_as_in_the_text_format() {
    let mut kinds = std::collections::BTreeSet::new();
    for Case {
        statement,
        text,
        nodes,
    } in cases()
    {
        let titles: Vec<_> = text.iter().filter_map(|line| title(line)).collect();
        assert_eq!(titles.len(), nodes.len(), "{statement}");
        for (title, node) in titles.iter().zip(nodes) {
            let object = title
                .strip_prefix(&node.operation)
                .unwrap_or_else(|| panic!("{title} is not {node:?}"));
            match &node.object_name {
                None => assert_eq!(object, "", "{title}"),
                Some(name) => {
                    let objects = [format!(" using {name} "), format!(" on {name} ")];
                    assert!(
                        objects
                            .iter()
                            .any(|start| format!("{object} ").starts_with(start)),
                        "{title}: {name}"
                    );
                }
            }
            kinds.insert(node.operation);
        }
    }
    assert!(kinds.len() > 50, "only {} kinds of node: {kinds:?}", kinds.len());
}

#[test]
fn predicates_keys_and_subplans_are_those_of_the_text_format() {
    for Case {
        statement,
        text,
        nodes,
    } in cases()
    {
        let mut of_node: Vec<Vec<String>> = Vec::new();
        let mut subplans = Vec::new();
        for line in &text {
            match line.trim_start().split_once(": ") {
                _ if title(line).is_some() => of_node.push(Vec::new()),
                Some((label, _))
                    if ["Cond", "Filter", "Key", "Condition", "By"]
                        .iter()
                        .any(|end| label.ends_with(end)) =>
                {
                    of_node
                        .last_mut()
                        .expect("a node")
                        .push(line.trim_start().to_owned());
                }
                None if !line.contains(" on ") => subplans.push(line.trim_start()),
                _ => {}
            }
        }
        for (mut expected, node) in of_node.into_iter().zip(&nodes) {
            let labelled = node.predicates.iter().chain(&node.keys);
            let mut found: Vec<_> = labelled
                .map(|(label, value)| format!("{label}: {value}"))
                .collect();
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{statement}");
        }
        assert_eq!(
            nodes
                .iter()
                .filter_map(|node| node.subplan_name.as_deref())
                .collect::<Vec<_>>(),
            subplans
        );
    }
}

#[test]
fn nodes_are_in_explain_order_with_parents_before_children() {
    for Case {
        statement,
        text,
        nodes,
    } in cases()
    {
        let indents = text
            .iter()
            .filter(|line| title(line).is_some())
            .map(|line| line.find(|c| c != ' '));
        for (indent, (id, node)) in indents.zip(nodes.iter().enumerate()) {
            assert_eq!(node.id, id);
            match node.parent {
                None => assert_eq!((node.depth, indent), (0, Some(0)), "{statement}"),
                Some(parent) => assert!(
                    parent < id && nodes[parent].depth + 1 == node.depth,
                    "{statement}"
                ),
            }
        }
    }
}

#[test]
fn estimates_are_read() {
    let nodes = &cases()[0].nodes;
    assert_eq!(
        (nodes[1].plan_rows, nodes[1].plan_width, nodes[1].total_cost),
        (200000.0, 2.0, 3385.0)
    );
}

fn only_node(properties: &str) -> PlanNode {
    parse_explain_json(&format!(r#"{{"Plan": {{{properties}}}}}"#))
        .expect("a plan")
        .nodes
        .remove(0)
}

#[test]
fn unusual_nodes_are_named() {
    for (properties, operation, object) in [
        (
            r#""Node Type": "Custom Scan", "Custom Plan Provider": "Columnar", "Relation Name": "t""#,
            "Custom Scan (Columnar)",
            Some("t"),
        ),
        (
            r#""Node Type": "Custom Scan", "Parallel Aware": true"#,
            "Parallel Custom Scan",
            None,
        ),
        (
            r#""Node Type": "Foreign Scan", "Operation": "Select", "Relations": "(a) INNER JOIN (b)""#,
            "Foreign Scan",
            Some("(a) INNER JOIN (b)"),
        ),
        (
            r#""Node Type": "Foreign Scan", "Operation": "Delete", "Alias": "x""#,
            "Foreign Delete",
            Some("x"),
        ),
        (
            r#""Node Type": "Named Tuplestore Scan", "Tuplestore Name": "newtab""#,
            "Named Tuplestore Scan",
            Some("newtab"),
        ),
        (
            r#""Node Type": "Hash Join", "Join Type": "Right Anti", "Parallel Aware": true"#,
            "Parallel Hash Right Anti Join",
            None,
        ),
        (
            r#""Node Type": "Hash Join", "Join Type": "Right Semi""#,
            "Hash Right Semi Join",
            None,
        ),
        (
            r#""Node Type": "Aggregate", "Strategy": "New""#,
            "Aggregate ???",
            None,
        ),
        (r#""Node Type": "ModifyTable""#, "ModifyTable", None),
        (r#""Node Type": 3"#, "???", None),
    ] {
        let node = only_node(properties);
        assert_eq!(
            (node.operation.as_str(), node.object_name.as_deref()),
            (operation, object)
        );
    }
}

#[test]
fn tables_of_indexes_and_aliases_are_read() {
    for (properties, table, alias) in [
        (
            r#""Node Type": "Index Scan", "Index Name": "i", "Relation Name": "t", "Alias": "a""#,
            Some("t"),
            Some("a"),
        ),
        (
            r#""Node Type": "Index Scan", "Index Name": "i", "Relation Name": "t", "Alias": "t""#,
            Some("t"),
            None,
        ),
        (
            r#""Node Type": "Seq Scan", "Relation Name": "t", "Alias": "t_1""#,
            None,
            Some("t_1"),
        ),
        (
            r#""Node Type": "Function Scan", "Function Name": "f", "Alias": "f""#,
            None,
            None,
        ),
        (r#""Node Type": "Subquery Scan", "Alias": "x""#, None, None),
        (
            r#""Node Type": "Bitmap Index Scan", "Index Name": "i""#,
            None,
            None,
        ),
    ] {
        let node = only_node(properties);
        assert_eq!(
            (node.table.as_deref(), node.alias.as_deref()),
            (table, alias),
            "{properties}"
        );
    }
}

#[test]
fn unknown_conditions_are_predicates() {
    let node = only_node(
        r#""Vectorized Filter": "(a > 1)", "Filter": "(b)", "Rows Removed by Filter": 3, "Cache Mode": "logical""#,
    );
    let expected = [("Filter", "(b)"), ("Vectorized Filter", "(a > 1)")];
    assert_eq!(
        node.predicates,
        expected.map(|(label, value)| (label.to_owned(), value.to_owned()))
    );
    assert_eq!(node.keys, []);
}

#[test]
fn every_wrapping_is_accepted() {
    let plan = r#""Plan": {"Node Type": "Result", "One-Time Filter": "(x = '\"{[')"}"#;
    for json in [
        format!("[{{{plan}}}]"),
        format!("{{{plan}, \"Settings\": {{}}}}"),
        format!("\n  {{ {plan},\n  \"Planning Time\": 3.5 }} "),
        format!("[\"Utility Statement\", {{{plan}}}]"),
    ] {
        let nodes = parse_explain_json(&json)
            .unwrap_or_else(|error| panic!("{json}: {error}"))
            .nodes;
        assert_eq!(nodes.len(), 1);
        assert_eq!(nodes[0].operation, "Result");
        assert_eq!(nodes[0].predicates[0].1, "(x = '\"{[')");
    }
}

#[test]
fn input_without_a_plan_is_refused() {
    for json in [
        "",
        "  ",
        "[]",
        "{}",
        "3",
        r#"["Utility Statement"]"#,
        r#"{"Plan": 3}"#,
        "null",
    ] {
        assert!(
            matches!(parse_explain_json(json), Err(PlanError::NoPlan)),
            "{json}"
        );
    }
    for json in [
        "{",
        "[",
        r#"{"Plan": {}} x"#,
        r#""Plan": {"#,
        r#"{"Plan": {"Node Type": "Res"#,
        "Seq Scan on t",
    ] {
        assert!(
            matches!(parse_explain_json(json), Err(PlanError::Json(_))),
            "{json}"
        );
    }
}

#[test]
fn deep_plans_are_read_and_too_deep_ones_refused() {
    let chain = |nodes| {
        let open = r#"{"Node Type": "Limit", "Plans": ["#.repeat(nodes);
        format!(r#"{{"Plan": {open}{}}}"#, "]}".repeat(nodes))
    };
    let nodes = parse_explain_json(&chain(499)).expect("a plan").nodes;
    assert_eq!(
        nodes.last().map(|node| (node.id, node.depth, node.parent)),
        Some((498, 498, Some(497)))
    );
    assert!(matches!(parse_explain_json(&chain(500)), Err(PlanError::TooDeep)));
    assert!(matches!(
        parse_explain_json(&chain(100_000)),
        Err(PlanError::TooDeep)
    ));
}

#[test]
fn texts_are_cut_and_counted() {
    let plan = |properties: &str| {
        parse_explain_json(&format!(r#"{{"Plan": {{"Node Type": "Result", {properties}}}}}"#))
            .expect("a plan")
    };
    let long = "\u{fc}".repeat(5_000_000);
    for (raw, kept) in [
        (format!("\"{long}\""), format!("{}...", "\u{fc}".repeat(1000))),
        (
            format!("\"\\\"{long}\""),
            format!("\"{}...", "\u{fc}".repeat(999)),
        ),
        (
            format!("[\"a\", \"{long}\", \"{long}\"]"),
            format!("a, {}...", "\u{fc}".repeat(997)),
        ),
        (format!("\"{}\"", "x".repeat(1000)), "x".repeat(1000)),
        (
            format!("\"{}\"", "\\u0001".repeat(1001)),
            format!("{}...", "\u{1}".repeat(1000)),
        ),
        (
            format!("[{}\"b\"]", "\"a\",".repeat(100_000)),
            format!("{}a...", "a, ".repeat(333)),
        ),
    ] {
        let plan = plan(&format!(r#""Filter": {raw}"#));
        let cut = usize::from(kept.ends_with("..."));
        assert_eq!(plan.nodes[0].predicates, [("Filter".to_owned(), kept)]);
        assert_eq!((plan.cut, plan.generic), (cut, false));
    }
    // A parameter counts even if it is in a part that was cut.
    assert!(plan(&format!(r#""Filter": "{} = $1""#, "x".repeat(2000))).generic);
    assert!(!plan(r#""Filter": "(a = '$')", "Sort Key": ["$1"]"#).generic);
}

#[test]
fn all_texts_of_a_plan_are_bounded() {
    let child = format!(r#"{{"Node Type": "Result", "Filter": "{}"}}"#, "x".repeat(900));
    let json = format!(
        r#"{{"Plan": {{"Node Type": "Append", "Plans": [{}{child}]}}}}"#,
        format!("{child},").repeat(500)
    );
    let plan = parse_explain_json(&json).expect("a plan");
    assert_eq!(plan.nodes.len(), 502);
    let bytes: usize = plan
        .nodes
        .iter()
        .flat_map(|node| &node.predicates)
        .map(|(_, text)| text.len())
        .sum();
    assert!((16 * 1024..20 * 1024).contains(&bytes), "{bytes} bytes");
    assert_eq!(plan.cut, 501 - 16 * 1024 / 900);
    assert_eq!(plan.nodes[501].predicates[0].1, "...");
}

#[test]
fn long_plans_are_read_in_linear_time() {
    let time = |children: usize| {
        let child = r#"{"Node Type": "Result", "Filter": "(a > 1)"}"#;
        let json = format!(
            r#"{{"Plan": {{"Node Type": "Append", "Plans": [{}{child}]}}}}"#,
            format!("{child},").repeat(children)
        );
        processor_time::smallest(|| assert!(parse_explain_json(&json).is_ok()))
    };
    let (small, large) = (time(500), time(16_000));
    assert!(
        large < 150 * small,
        "{small:?} and {large:?} for 32 times as much"
    );
}

#[test]
fn reading_takes_little_stack() {
    let open = r#"{"Node Type": "Limit", "Plans": ["#.repeat(499);
    let json = format!(r#"{{"Plan": {open}{}}}"#, "]}".repeat(499));
    // PostgreSQL leaves 512 kB of stack below its own limit. An unoptimised build needs several times as
    // much.
    let stack = if cfg!(debug_assertions) {
        4 << 20
    } else {
        448 << 10
    };
    let reader = std::thread::Builder::new().stack_size(stack);
    let nodes = reader.spawn(move || parse_explain_json(&json).map_or(0, |plan| plan.nodes.len()));
    assert_eq!(nodes.expect("a thread").join().expect("no overflow"), 499);
}
