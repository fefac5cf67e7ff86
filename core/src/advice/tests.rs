use super::*;
use crate::model::facts::{HEAP_FETCHES, REMOVED_BY_FILTER, REMOVED_OTHERWISE};
use crate::model::{
    Buffers, Estimate, NodeFacts, NodeKind, NodeStats, NodeTotals, PlanDescription, PlanKey, Time,
};
use crate::plan::{ExplainedPlan, ObjectKind, PlanNode, Relationship};
use std::rc::Rc;

fn quote(name: &str) -> String {
    name.to_owned()
}

const SERVER: Server<'static> = Server {
    work_mem_kb: Some(4096.0),
    hash_mem_multiplier: 2.0,
    quote: &quote,
};

/// A node, and what it did in all executions.
fn node(parent: Option<usize>, operation: &str, predicates: &[(&str, &str)]) -> (PlanNode, NodeStats) {
    let described = PlanNode {
        parent,
        operation: operation.to_owned(),
        object_name: operation.contains("Scan").then(|| "t".to_owned()),
        object_kind: ObjectKind::Relation,
        schema: Some("s".into()),
        predicates: predicates
            .iter()
            .map(|(label, text)| ((*label).to_owned(), (*text).to_owned()))
            .collect(),
        relationship: Relationship::Outer,
        ..PlanNode::default()
    };
    let stats = NodeStats {
        starts: 1.into(),
        ..NodeStats::default()
    };
    (described, stats)
}

/// Sets the milliseconds of a node alone, and with those below it.
fn took(stats: &mut NodeStats, self_ms: f64, total_ms: f64) {
    stats.time = Time {
        total_ms,
        self_ms,
        ..Time::default()
    }
    .into();
}

/// Returns a plan whose one execution took 1,000 ms.
fn plan(nodes: Vec<(PlanNode, NodeStats)>) -> Plan {
    let (described, stats): (Vec<PlanNode>, Vec<NodeStats>) = nodes.into_iter().unzip();
    let explained = ExplainedPlan {
        nodes: described,
        ..ExplainedPlan::default()
    };
    let description = PlanDescription::new(b"", String::new(), false, explained);
    let mut plan = Plan::new(PlanKey::new(1, 2, 3, 4, true), Rc::new(description));
    plan.nodes = stats
        .into_iter()
        .map(|stats| NodeTotals {
            total: stats,
            last: stats,
            ..NodeTotals::default()
        })
        .collect();
    plan.statistics.times.calls = 1;
    plan.statistics.times.total_ms = 1_000.0;
    plan
}

fn found(plan: &Plan) -> Vec<(usize, &'static str)> {
    let findings = of_plan(plan, &[], &SERVER);
    findings
        .iter()
        .map(|finding| (finding.node, finding.rule))
        .collect()
}

/// A scan of 1,000 blocks that returned `rows`, removed `removed` and took `ms`.
fn scan(operation: &str, filter: &str, [rows, removed]: [u64; 2], ms: f64) -> (PlanNode, NodeStats) {
    let (described, mut stats) = node(None, operation, &[("Filter", filter)]);
    stats.rows = rows;
    stats.facts.kind = if operation.contains("Index") {
        NodeKind::IndexScan
    } else {
        NodeKind::Filter
    };
    stats.facts.sums[REMOVED_BY_FILTER] = removed;
    stats.buffers = Buffers {
        shared_hit: 1_000,
        ..Buffers::default()
    }
    .into();
    took(&mut stats, ms, ms);
    (described, stats)
}

#[test]
fn a_filter_that_removes_most_rows_wants_an_index() {
    let filter = "((customer = 5) AND (at > '2026-01-01'::date))";
    let plan = plan(vec![scan("Seq Scan", filter, [10, 99_990], 900.0)]);
    let findings = of_plan(&plan, &[], &SERVER);
    assert_eq!(findings.len(), 1);
    let found = &findings[0].found;
    assert_eq!(findings[0].rule, "index for a filter");
    assert_eq!(found.try_sql, "CREATE INDEX CONCURRENTLY ON s.t (customer, at)");
    assert!((found.saves_ms - 899.9).abs() < 0.1, "{found:?}");
    assert_eq!(
        found.figures,
        "it removed 99990 of 100000 rows (100.0 %) in 1 starts, and took 90.0 % of its statement"
    );
}

/// Ten indexes that look right, and are not.
#[test]
fn tempting_indexes_are_not_advised() {
    let equal = "(a = 5)";
    let mut small = scan("Seq Scan", equal, [1, 9_999], 900.0);
    small.1.buffers = Buffers {
        shared_hit: 10,
        ..Buffers::default()
    }
    .into();
    let mut temporary = scan("Seq Scan", equal, [1, 99_999], 900.0);
    temporary.0.schema = None;
    let mut function = scan("Function Scan", equal, [1, 99_999], 900.0);
    function.0.object_kind = ObjectKind::Function;
    let wrong = [
        (
            "half of the rows",
            scan("Seq Scan", equal, [50_000, 50_000], 900.0),
        ),
        (
            "each block has a row that is wanted",
            scan("Seq Scan", equal, [5_000, 95_000], 900.0),
        ),
        (
            "a tenth of the statement is elsewhere",
            scan("Seq Scan", equal, [10, 99_990], 90.0),
        ),
        ("a small table", small),
        ("a temporary table", temporary),
        ("a function", function),
        (
            "a pattern",
            scan("Seq Scan", "(a ~~ '%x'::text)", [10, 99_990], 900.0),
        ),
        (
            "an expression",
            scan("Seq Scan", "(lower(a) = 'x'::text)", [10, 99_990], 900.0),
        ),
        (
            "two columns of a row",
            scan("Seq Scan", "(a = b)", [10, 99_990], 900.0),
        ),
        (
            "one part that an index finds, and one that removes the rows",
            scan("Seq Scan", "((a = 1) AND (b ~~ '%x'::text))", [10, 99_990], 900.0),
        ),
        (
            "alternatives",
            scan("Seq Scan", "((a = 1) OR (b = 2))", [10, 99_990], 900.0),
        ),
        ("not equal", scan("Seq Scan", "(a <> 1)", [10, 99_990], 900.0)),
        ("few rows a start", scan("Index Scan", equal, [5, 95], 900.0)),
    ];
    for (why, scan) in wrong {
        assert_eq!(found(&plan(vec![scan])), [], "{why}");
    }
    let mut foreign = scan("Foreign Scan", equal, [10, 99_990], 900.0);
    foreign.0.object_kind = ObjectKind::Relation;
    assert_eq!(found(&plan(vec![foreign])), [], "a foreign table");
}

#[test]
fn an_order_below_a_limit_wants_the_columns_of_the_filter() {
    let limit = |between: Option<&str>| {
        let mut nodes = vec![node(None, "Limit", &[])];
        if let Some(between) = between {
            nodes.push(node(Some(0), between, &[]));
        }
        let mut scan = scan("Index Scan Backward", "(customer = 5)", [10, 50_000], 900.0);
        scan.0.parent = Some(nodes.len() - 1);
        nodes.push(scan);
        plan(nodes)
    };
    assert_eq!(found(&limit(None)), [(1, "index for an order with a limit")]);
    assert_eq!(
        found(&limit(Some("Nested Loop"))),
        [(2, "index for an order with a limit")]
    );
    assert_eq!(found(&limit(Some("Sort"))), [(2, "index for a filter")]);
}

/// A nested loop whose outer side was expected to have `expected` rows and had 5,000.
fn nested_loop(expected: f64, starts: u64) -> Plan {
    let outer = node(Some(0), "Seq Scan", &[("Filter", "((a = 1) AND (b = 2))")]);
    let mut inner = node(Some(0), "Index Scan", &[("Index Cond", "(x = o.y)")]);
    inner.0.relationship = Relationship::Inner;
    inner.1.starts = starts.into();
    took(&mut inner.1, 800.0, 800.0);
    let mut plan = plan(vec![node(None, "Nested Loop", &[]), outer, inner]);
    plan.nodes[1]
        .estimates
        .add(&Estimate::new(expected, true), 1, 5_000);
    plan
}

#[test]
fn a_nested_loop_after_a_low_estimate() {
    let plan = nested_loop(1.0, 5_000);
    let findings = of_plan(&plan, &[], &SERVER);
    assert_eq!(found(&plan), [(0, "nested loop after a low estimate")]);
    assert_eq!(findings[0].found.saves_ms, 800.0);
    assert_eq!(
        findings[0].found.try_sql,
        "ANALYZE s.t; -- if that does not help: CREATE STATISTICS s.a_b_stat ON a, b FROM s.t; ANALYZE s.t"
    );
    assert_eq!(found(&nested_loop(4_000.0, 5_000)), [], "the estimate is right");
    assert_eq!(found(&nested_loop(1.0, 500)), [], "few starts");
}

/// A scan that was expected to have `expected` rows and had 5,000, on the side of a hash join that spilled.
#[test]
fn a_wrong_estimate_below_a_join_that_spilled() {
    let joined = |expected: f64, batches: u32| {
        let mut hash = node(Some(0), "Hash", &[]);
        hash.0.relationship = Relationship::Inner;
        hash.1.facts.kind = NodeKind::Hash;
        hash.1.facts.peaks[2] = batches;
        let mut join = node(None, "Hash Join", &[]);
        took(&mut join.1, 700.0, 900.0);
        let outer = node(Some(0), "Seq Scan", &[]);
        let scan = node(Some(2), "Seq Scan", &[("Filter", "(a = 1)")]);
        let mut plan = plan(vec![join, outer, hash, scan]);
        plan.nodes[3]
            .estimates
            .add(&Estimate::new(expected, true), 1, 5_000);
        plan
    };
    let of_estimate = |plan: &Plan| {
        let mut found = found(plan);
        found.retain(|(_, rule)| *rule == "estimate");
        found
    };
    assert_eq!(of_estimate(&joined(100.0, 4)), [(3, "estimate")]);
    assert_eq!(of_estimate(&joined(4_000.0, 4)), [], "it is right");
    assert_eq!(of_estimate(&joined(100.0, 1)), [], "nothing was written");
}

fn with_facts(operation: &str, facts: NodeFacts) -> Plan {
    let (described, mut stats) = node(None, operation, &[]);
    stats.rows = 100;
    took(&mut stats, 500.0, 900.0);
    stats.facts = facts;
    plan(vec![(described, stats)])
}

#[test]
fn visits_of_the_table_want_a_vacuum() {
    let scan = |fetches: u64| {
        let mut facts = NodeFacts {
            kind: NodeKind::IndexOnlyScan,
            ..NodeFacts::default()
        };
        facts.sums[HEAP_FETCHES] = fetches;
        with_facts("Index Only Scan", facts)
    };
    assert_eq!(found(&scan(90)), [(0, "heap fetches")]);
    assert_eq!(found(&scan(30)), []);
    // The last execution does not show it any more.
    let mut over = scan(90);
    over.nodes[0].last.facts.sums[HEAP_FETCHES] = 0;
    assert_eq!(found(&over), []);
}

#[test]
fn too_little_memory() {
    let sort = |disk_kb: u32| NodeFacts {
        kind: NodeKind::Sort,
        disk_kb: disk_kb.into(),
        ..NodeFacts::default()
    };
    let plan = with_facts("Sort", sort(10_240));
    assert_eq!(found(&plan), [(0, "spill to disk")]);
    assert_eq!(
        of_plan(&plan, &[], &SERVER)[0].found.try_sql,
        "SET work_mem = '36MB'"
    );
    assert_eq!(found(&with_facts("Sort", sort(0))), []);
    let hash = |batches: u32| {
        let mut facts = NodeFacts {
            kind: NodeKind::Hash,
            memory_kb: 8_000.into(),
            ..NodeFacts::default()
        };
        facts.peaks[2] = batches;
        with_facts("Hash", facts)
    };
    assert_eq!(found(&hash(4)), [(0, "spill to disk")]);
    assert_eq!(found(&hash(1)), []);
    let bitmap = |lossy: u64, removed: u64| {
        let mut facts = NodeFacts {
            kind: NodeKind::BitmapHeapScan,
            ..NodeFacts::default()
        };
        facts.sums[REMOVED_OTHERWISE] = removed;
        (facts.sums[2], facts.sums[3]) = (100, lossy);
        with_facts("Bitmap Heap Scan", facts)
    };
    assert_eq!(found(&bitmap(900, 5_000)), [(0, "lossy bitmap")]);
    assert_eq!(found(&bitmap(5, 5_000)), []);
    assert_eq!(found(&bitmap(900, 0)), [], "the recheck removed nothing");
}

#[test]
fn caches_workers_and_compilation() {
    let memoize = |hits: u64, misses: u64| {
        let mut facts = NodeFacts {
            kind: NodeKind::Memoize,
            ..NodeFacts::default()
        };
        (facts.sums[0], facts.sums[1]) = (hits, misses);
        with_facts("Memoize", facts)
    };
    assert_eq!(found(&memoize(10, 5_000)), [(0, "cache of a Memoize")]);
    assert_eq!(found(&memoize(1_000, 5_000)), []);
    assert_eq!(found(&memoize(1, 50)), [], "few lookups");
    let gather = |launched: u64| {
        let mut facts = NodeFacts {
            kind: NodeKind::Gather,
            ..NodeFacts::default()
        };
        (facts.sums[2], facts.sums[3]) = (4, launched);
        with_facts("Gather", facts)
    };
    assert_eq!(found(&gather(1)), [(0, "workers not launched")]);
    assert_eq!(of_plan(&gather(1), &[], &SERVER)[0].found.saves_ms, 900.0 * 0.6);
    assert_eq!(found(&gather(4)), []);
    let jit = |ms: f64| {
        let mut plan = with_facts("Aggregate", NodeFacts::default());
        let jit = &mut plan.statistics.outside.facts.jit;
        (jit.functions, jit.generation_ms) = (7, ms);
        plan
    };
    assert_eq!(found(&jit(200.0)), [(0, "JIT compilation")]);
    assert_eq!(found(&jit(50.0)), []);
}

#[test]
fn only_what_saves_much_is_shown() {
    assert!(is_shown(10_000.0, 1e9), "ten seconds");
    assert!(is_shown(20.0, 1_000.0), "two percent");
    assert!(!is_shown(20.0, 10_000.0));
    assert!(!is_shown(2.0, 3.0), "nothing");
    assert!(!is_shown(0.0, 0.0));
}

/// A plan without figures, as it is before an execution has ended.
#[test]
fn a_plan_without_figures_has_no_findings() {
    let mut empty = plan(vec![node(None, "Seq Scan", &[("Filter", "(a = 1)")])]);
    empty.nodes.clear();
    assert_eq!(found(&empty), []);
}
