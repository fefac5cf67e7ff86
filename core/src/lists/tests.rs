use super::*;
use crate::model::{Buffers, NodeStats, NodeTotals, PlanDescription, PlanKey, Time};
use crate::plan::ExplainedPlan;

fn node(operation: &str, parent: Option<usize>, table: Option<&str>) -> PlanNode {
    PlanNode {
        operation: operation.to_owned(),
        parent,
        object_name: table.map(str::to_owned),
        object_kind: match table {
            Some(_) => ObjectKind::Relation,
            None => ObjectKind::Unknown,
        },
        schema: table.map(|_| "s".into()),
        ..PlanNode::default()
    }
}

fn totals(total_ms: f64, self_ms: f64, read: i64) -> NodeTotals {
    NodeTotals {
        total: NodeStats {
            starts: 2.into(),
            rows: 7,
            time: Time {
                total_ms,
                self_ms,
                ..Time::default()
            }
            .into(),
            buffers: Buffers {
                shared_read: read,
                ..Buffers::default()
            }
            .into(),
            ..NodeStats::default()
        },
        ..NodeTotals::default()
    }
}

/// Aggregates the rows of a bitmap scan of `s.t`: 10 ms in all, 9 of them in nodes.
fn plan() -> Plan {
    let mut index = node("Bitmap Index Scan", Some(1), None);
    index.object_name = Some("t_i".to_owned());
    index.object_kind = ObjectKind::Index;
    let explained = ExplainedPlan {
        nodes: vec![
            node("Aggregate", None, None),
            node("Bitmap Heap Scan", Some(0), Some("t")),
            index,
        ],
        ..ExplainedPlan::default()
    };
    let description = PlanDescription::new(b"", String::new(), false, explained);
    let mut plan = Plan::new(PlanKey::new(1, 2, 3, 4, true), Rc::new(description));
    plan.nodes = vec![totals(9.0, 1.0, 30), totals(8.0, 6.0, 30), totals(2.0, 2.0, 10)];
    plan.statistics.times.calls = 2;
    plan.statistics.times.total_ms = 10.0;
    plan
}

fn waits() -> Vec<NamedWaits> {
    [(Some(1), 3, 0.5), (None, 1, 0.25)]
        .map(|(node, waits, ms)| NamedWaits {
            node,
            event_type: Some("IO".to_owned()),
            event: "DataFileRead".to_owned(),
            waits,
            ms,
            ..NamedWaits::default()
        })
        .to_vec()
}

fn sum(by: By) -> Figures {
    let mut sum = Figures::default();
    parts(&plan(), &waits(), by)
        .iter()
        .for_each(|part| sum += &part.figures);
    sum
}

#[test]
fn the_parts_of_a_plan_are_all_of_it() {
    let all = sum(By::Statement);
    assert_eq!((all.calls, all.total_ms, all.read), (2, 10.0, 30));
    assert_eq!((all.waits, all.wait_ms), (4, 0.75));
    for by in [By::Node, By::Relation] {
        let sum = sum(by);
        assert_eq!((sum.read, sum.waits, sum.wait_ms), (30, 4, 0.75), "{by:?}");
        assert_eq!(sum.self_ms, all.total_ms, "{by:?}");
    }
    assert_eq!((sum(By::Wait).waits, sum(By::Wait).wait_ms), (4, 0.75));
}

#[test]
fn an_index_belongs_to_its_table() {
    let parts = parts(&plan(), &waits(), By::Relation);
    let of = |wanted: Option<&str>| {
        let mut sum = Figures::default();
        for part in &parts {
            if part.of == Of::Relation(wanted.map(Rc::from)) {
                sum += &part.figures;
            }
        }
        sum
    };
    assert_eq!(
        (
            of(Some("s.t")).read,
            of(Some("s.t")).self_ms,
            of(Some("s.t")).waits
        ),
        (30, 8.0, 3)
    );
    assert_eq!((of(None).read, of(None).self_ms, of(None).waits), (0, 2.0, 1));
}

#[test]
fn the_difference_of_equal_figures_is_nothing() {
    let mut figures = sum(By::Node);
    assert!(!figures.is_none());
    figures -= &sum(By::Node);
    assert!(figures.is_none());
}

fn event(name: &str, waits: u64) -> NamedWaits {
    NamedWaits {
        node: Some(1),
        event_type: (name != "other").then(|| "IO".to_owned()),
        event: name.to_owned(),
        waits,
        ms: waits as f64,
        ..NamedWaits::default()
    }
}

/// The waits of an event that lost its place are among the others, also if the event has a place again.
#[test]
fn an_event_that_lost_its_place_is_never_negative() {
    let before = [event("A", 10), event("B", 3), event("other", 1)];
    let gone = vec![event("B", 5), event("other", 15)];
    let back = vec![event("A", 2), event("B", 5), event("other", 13)];
    for now in [gone, back] {
        let mut found = parts(&plan(), &now, By::Wait);
        subtract(&mut found, &parts(&plan(), &before, By::Wait));
        let of = |name: &str| {
            let part = found
                .iter()
                .find(|part| matches!(&part.of, Of::Wait(_, event) if **event == *name));
            part.map_or(0, |part| part.figures.waits)
        };
        assert_eq!((of("A"), of("B"), of("other")), (0, 2, 4));
        // Its node has none of them any more.
        let outside = |waits: &[NamedWaits]| {
            let mut waits = waits.to_vec();
            waits
                .iter_mut()
                .filter(|waits| waits.event == "other")
                .for_each(|waits| waits.node = None);
            waits
        };
        let mut found = parts(&plan(), &outside(&now), By::Node);
        subtract(&mut found, &parts(&plan(), &outside(&before), By::Node));
        assert!(found.iter().all(|part| part.figures.waits >= 0), "{found:?}");
        assert_eq!(found.iter().map(|part| part.figures.waits).sum::<i64>(), 6);
    }
}

#[test]
fn a_table_may_have_brackets_in_its_name() {
    let nodes = [node("Seq Scan", None, Some("sales (2026)"))];
    assert_eq!(relation(&nodes, 0).as_deref(), Some("s.sales (2026)"));
}

/// The waits of executions whose plans are not stored are known, without their events.
#[test]
fn waits_of_unknown_plans_are_other_waits() {
    let figures = Figures {
        calls: 3,
        waits: 2,
        wait_ms: 5.0,
        ..Figures::default()
    };
    let found = unknown_parts(&figures, By::Wait);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].of, Of::Wait(None, "other".into()));
    let Figures {
        calls,
        waits,
        wait_ms,
        ..
    } = found[0].figures;
    assert_eq!((calls, waits, wait_ms), (0, 2, 5.0));
}
