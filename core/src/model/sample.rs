//! A plan for the tests of the records.

use super::{
    Buffers, ExecutionStats, KeepLimit, NodeFacts, NodeKind, NodeStats, Outcome, Plan, PlanDescription,
    PlanKey, PlanOrigin, Planning, Run, Time, Wal,
};
use crate::clock::Source;
use crate::plan::parse_explain_json;
use std::rc::Rc;

/// Returns an execution that completed at once.
pub fn run() -> Run {
    Run {
        outcome: Outcome::Completed,
        sampfreq: 1,
        clock: Some(Source::Tsc),
        elapsed_ms: 0.0,
        before_ms: 0.0,
        commit_ms: 0.0,
        planning: Planning::default(),
        origin: PlanOrigin::Other,
        at: 0,
        unfinished: false,
        explained: false,
        caller: 0,
        changed_rows: 0,
    }
}

/// Returns a plan that ran once: an Append over scans, with this number of nodes in total.
pub fn plan(nodes: usize) -> Plan {
    let key = PlanKey::new(10, 5, 4711, 815, true);
    let scan = r#"{"Node Type": "Seq Scan", "Relation Name": "t", "Filter": "(a > 1)", "Plan Rows": 3}"#;
    let scans = vec![scan; nodes - 1].join(",");
    let json = format!(r#"{{"Plan": {{"Node Type": "Append", "Plan Rows": 3, "Plans": [{scans}]}}}}"#);
    let explained = parse_explain_json(&json).expect("a plan");
    let description = PlanDescription::new(b"SELECT 1", "SELECT 1".to_string(), false, explained);
    let run = Run {
        outcome: Outcome::Cancelled,
        sampfreq: 128,
        elapsed_ms: 1.5,
        at: 7,
        unfinished: true,
        ..self::run()
    };
    let stats = NodeStats {
        starts: 2.into(),
        rows: 3,
        time: Time {
            total_ms: 1.25,
            ..Time::default()
        }
        .into(),
        buffers: Buffers {
            shared_hit: 1_000,
            ..Buffers::default()
        }
        .into(),
        wal: Wal {
            records: 1,
            fpi: 2,
            bytes: 3,
            fpi_bytes: 1,
            buffers_full: 0,
        }
        .into(),
        facts: NodeFacts {
            kind: NodeKind::Sort,
            memory_kb: 64.into(),
            ..NodeFacts::default()
        },
        ..NodeStats::default()
    };
    let mut plan = Plan::new(key, Rc::new(description));
    let histogram = Default::default();
    let nodes = vec![stats; nodes];
    let execution = ExecutionStats {
        run: &run,
        outside: None,
        nodes: &nodes,
        histograms: &vec![&histogram; nodes.len()],
        partitions: &[],
    };
    plan.add(&execution);
    let mut limit = KeepLimit::UNUSED;
    plan.keep(&execution, &mut limit);
    plan
}
