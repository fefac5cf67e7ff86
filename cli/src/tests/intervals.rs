//! What is shown of an interval in which a server was restarted, plans were evicted, or other nodes were
//! read.

use super::*;
use crate::model::{Node, Part};
use crate::queries::{PlanKey, Want};

/// Returns the next refresh of a screen, with only these parts.
fn next(app: &App, seconds: f64, parts: Vec<Part>) -> Snapshot {
    Snapshot {
        at: app.data.at + seconds,
        server: app.data.server.clone(),
        parts,
        ..Snapshot::default()
    }
}

fn plan(queryid: i64, calls: f64, first_seen: f64) -> Plan {
    Plan {
        queryid: Some(queryid),
        planid: Some(queryid),
        calls,
        time: calls,
        first_seen,
        ..Plan::default()
    }
}

fn others(calls: f64) -> Plan {
    Plan {
        calls,
        time: calls,
        ..Plan::default()
    }
}

fn node(queryid: i64, executions: f64) -> Node {
    Node {
        queryid: Some(queryid),
        planid: Some(queryid),
        operation: "Seq Scan".to_owned(),
        executions,
        ..Node::default()
    }
}

/// Returns the statements that have figures, with their calls.
fn calls_of(app: &App) -> Vec<(Option<i64>, f64)> {
    let rows = app.data.plans.added.rows.iter();
    rows.map(|plan| (plan.queryid, plan.calls)).collect()
}

/// The store outlives a clean restart. The first list after it has only what ran since; the whole list that
/// follows is the beginning of the next interval.
#[test]
fn lives_of_plans_are_no_interval_after_a_restart() {
    let mut app = app(View::Statements);
    let born = app.data.at - 1_000.0;
    let mut restart = next(&app, 2.0, vec![Part::ChangedPlans(vec![plan(1, 10.0, born)])]);
    restart.server.started += 500.0;
    app.apply(restart);
    assert_eq!(calls_of(&app), []);
    assert!(app.wants().contains(&Want::Plans(None)));
    let all = vec![plan(1, 11.0, born), plan(2, 5_000.0, born)];
    app.apply(next(&app, 2.0, vec![Part::Plans(all)]));
    assert_eq!(app.data.plans.seconds, None);
    app.apply(next(
        &app,
        2.0,
        vec![Part::ChangedPlans(vec![plan(2, 5_001.0, born)])],
    ));
    assert_eq!(calls_of(&app), [(Some(2), 1.0)]);
    assert_eq!(app.data.plans.seconds, Some(2.0));
}

/// The sum of what is not stored has the whole lives of evicted plans.
#[test]
fn evicted_plans_are_not_what_others_did_in_the_interval() {
    let mut app = app(View::Statements);
    let born = app.data.at;
    let refresh = |app: &App, evicted: f64, rows: Vec<Plan>| {
        let mut next = next(app, 2.0, vec![Part::ChangedPlans(rows)]);
        next.server.evictions += evicted;
        next
    };
    app.apply(refresh(&app, 7.0, vec![others(9_000.0), plan(1, 1.0, born)]));
    assert_eq!(calls_of(&app), [(Some(1), 1.0)]);
    let text = app.data.event.as_ref().map(|event| event.text.as_str());
    assert!(
        text.is_some_and(|text| text.contains("7 plans were evicted") && text.contains("others")),
        "{text:?}"
    );
    app.apply(refresh(&app, 0.0, vec![others(9_003.0)]));
    assert_eq!(calls_of(&app), [(None, 3.0)]);
    // Another view was open while plans were evicted.
    let mut elsewhere = next(&app, 2.0, vec![]);
    elsewhere.server.evictions += 1.0;
    app.apply(elsewhere);
    app.apply(refresh(&app, 0.0, vec![others(9_900.0)]));
    assert_eq!(calls_of(&app), []);
}

/// What the store says of itself is asked for before the plans, and may not come at all.
#[test]
fn plans_that_are_evicted_within_a_refresh_are_not_what_others_did() {
    let mut app = app(View::Statements);
    let mut evictions = app.data.server.evictions;
    let mut refresh = |app: &mut App, before: f64, after: f64, calls: f64| {
        let mut next = next(app, 2.0, vec![Part::ChangedPlans(vec![others(calls)])]);
        next.server.evictions = evictions + before;
        next.evictions_after = Some(evictions + before + after);
        evictions += before + after;
        app.apply(next);
        calls_of(app)
    };
    assert_eq!(refresh(&mut app, 0.0, 0.0, 9_000.0).len(), 1);
    // Between the two questions: in the sum already, or not yet.
    assert_eq!(refresh(&mut app, 0.0, 5.0, 9_500.0), []);
    assert_eq!(refresh(&mut app, 0.0, 0.0, 9_900.0), []);
    assert_eq!(refresh(&mut app, 0.0, 0.0, 9_903.0), [(None, 3.0)]);
    // What the store says did not come, so that what it said last holds.
    assert_eq!(refresh(&mut app, 0.0, 2.0, 9_950.0), []);
    assert_eq!(refresh(&mut app, -2.0, 2.0, 9_980.0), []);
    assert_eq!(refresh(&mut app, 0.0, 0.0, 9_981.0), []);
    assert_eq!(refresh(&mut app, 0.0, 0.0, 9_982.0), [(None, 1.0)]);
    let mut late = next(&app, 2.0, vec![Part::ChangedPlans(vec![others(9_990.0)])]);
    late.evictions_after = Some(crate::model::UNKNOWN);
    app.apply(late);
    assert_eq!(calls_of(&app), []);
    assert_eq!(refresh(&mut app, 0.0, 0.0, 9_992.0), [(None, 2.0)]);
}

/// Only statements whose nodes were not read before ran since: their sums are of no interval. A recording
/// does not say which were read.
#[test]
fn nodes_that_are_read_for_the_first_time_have_no_interval() {
    for is_replay in [false, true] {
        let mut app = App::new(
            Screen::List(View::Nodes),
            String::new(),
            Duration::from_secs(2),
            false,
        );
        app.data.is_replay = is_replay;
        let mut refresh = |first: i64, nodes: Part| {
            // These took more time than the statements before.
            app.data.plans.added.rows = (first..first + 40).map(|id| plan(id, 9.0, 1.0)).collect();
            if !is_replay {
                app.wants();
            }
            app.apply(next(&app, 2.0, vec![nodes]));
            app.data.nodes.added.rows.clone()
        };
        let changed = |queryid, executions| Part::ChangedNodes(vec![node(queryid, executions)]);
        refresh(100, Part::Nodes(vec![node(100, 500.0)]));
        assert_eq!(refresh(100, changed(100, 501.0)), [node(100, 1.0)]);
        assert_eq!(refresh(200, changed(200, 700.0)), []);
        assert_eq!(refresh(200, changed(200, 703.0)), [node(200, 3.0)]);
        // Its nodes were not read meanwhile.
        assert_eq!(refresh(100, changed(100, 900.0)), []);
    }
}

/// Two users run the same plan.
#[test]
fn a_plan_has_the_nodes_of_its_user() {
    let mut app = app(View::Statements);
    let of_user = |userid: i64| Node {
        userid,
        ..node(1, 1.0)
    };
    app.data.plan = vec![of_user(10), of_user(11)];
    let key = PlanKey::of_node(&of_user(11)).expect("a key");
    assert_eq!(app.data.nodes_of(&key), [&of_user(11)]);
}

/// A server with very many plans has no time for the list of all: the interval begins without it.
#[test]
fn plans_that_run_are_shown_although_the_list_of_all_takes_too_long() {
    let mut app = App::new(
        Screen::List(View::Statements),
        String::new(),
        Duration::from_secs(2),
        false,
    );
    app.data.server = recorded().remove(2).server;
    assert!(app.wants().contains(&Want::Plans(None)));
    let mut refused = next(&app, 1_000.0, vec![]);
    refused.missing = vec!["Plans: canceling statement due to statement timeout".to_owned()];
    app.apply(refused);
    assert!(app.wants().contains(&Want::Plans(Some(998))));
    // What it did before is not known.
    app.apply(next(
        &app,
        2.0,
        vec![Part::ChangedPlans(vec![plan(1, 5_000.0, 10.0)])],
    ));
    assert_eq!(calls_of(&app), []);
    app.apply(next(
        &app,
        2.0,
        vec![Part::ChangedPlans(vec![plan(1, 5_003.0, 10.0)])],
    ));
    assert_eq!(calls_of(&app), [(Some(1), 3.0)]);
    assert_eq!(app.data.plans.seconds, Some(2.0));
    // Now and then, the list of all is asked for again.
    app.apply(next(&app, 400.0, vec![Part::ChangedPlans(vec![])]));
    assert!(app.wants().contains(&Want::Plans(None)));
}

/// The first interval is short, so that figures come soon. It may name another winner than a whole one.
#[test]
fn the_first_interval_is_said() {
    let mut app = App::new(
        Screen::List(View::Statements),
        String::new(),
        Duration::from_secs(2),
        false,
    );
    for (number, says) in ["sums so far", "in the first 0.5 s", "in the last 2.0 s"]
        .into_iter()
        .enumerate()
    {
        let mut refresh = recorded().remove(2);
        refresh.at += [0.0, 0.5, 2.5][number];
        refresh.parts = vec![Part::Plans(vec![plan(1, number as f64 + 1.0, 1.0)])];
        app.apply(refresh);
        let title = app.table().0.title;
        assert!(title.whole().contains(says), "{title:?}");
    }
}
