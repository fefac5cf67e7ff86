//! A plan that runs, and that has ended while somebody looked.

use super::*;
use crate::model::{Activity, LiveNode, Part, Running, Session};

const PID: i64 = 4711;

/// A refresh of the running plan of a process: which of its two nodes runs, if it still runs.
fn refresh(at: f64, runs: Option<i64>) -> Snapshot {
    let node = |node_id: i64, runs: i64| LiveNode {
        pid: PID,
        node_id,
        depth: node_id,
        operation: ["Sort", "Seq Scan"][node_id as usize].to_owned(),
        own_time: Some(10.0 + node_id as f64),
        running: node_id == runs,
        queryid: Some(7),
        planid: Some(8),
        ..LiveNode::default()
    };
    let running = Running {
        pid: PID,
        queryid: Some(7),
        planid: Some(8),
        elapsed: Some(at),
        query: Some("SELECT * FROM t ORDER BY v".to_owned()),
        ..Running::default()
    };
    let session = Session {
        pid: PID,
        state: Some("idle".to_owned()),
        ..Session::default()
    };
    let nodes: Vec<_> = runs.map_or_else(Vec::new, |runs| [0, 1].map(|id| node(id, runs)).to_vec());
    let live = runs.map_or_else(Vec::new, |_| vec![running]);
    Snapshot {
        at,
        parts: vec![
            Part::LivePlan(nodes),
            Part::Live(live),
            Part::Sessions(vec![session]),
        ],
        ..recorded().remove(2)
    }
}

/// Looks at the process from the list of those that run.
fn looking() -> (App, f64) {
    let mut app = app(View::Live);
    let at = app.data.at;
    app.push(Screen::LivePlan(PID));
    (app, at)
}

fn arrows(app: &mut App) -> Vec<bool> {
    let (table, ..) = app.table();
    { table.rows.iter() }
        .map(|row| row.cells[0].show().starts_with("->"))
        .collect()
}

#[test]
fn nodes_that_take_turns_are_both_marked() {
    let (mut app, at) = looking();
    app.apply(refresh(at + 1.0, Some(0)));
    assert_eq!(arrows(&mut app), [true, false]);
    app.apply(refresh(at + 1.5, Some(1)));
    assert_eq!(arrows(&mut app), [true, true]);
    app.apply(refresh(at + 3.4, Some(1)));
    assert_eq!(arrows(&mut app), [false, true]);
    // The one that has taken the most time stands out.
    let marked: Vec<bool> = app.table().0.rows.iter().map(|row| row.is_marked).collect();
    assert_eq!(marked, [false, true]);
    let json = app.table().0.json();
    assert_eq!((&json[1]["id"], &json[1]["runs"]), (&1.into(), &"yes".into()));
}

#[test]
fn a_plan_stays_when_its_statement_has_ended() {
    let (mut app, at) = looking();
    app.apply(refresh(at + 1.0, Some(0)));
    app.apply(refresh(at + 1.5, None));
    let shown = text(&mut app);
    for part in [
        "its statement has ended",
        "process 4711 runs no measured statement now",
        "Seq Scan",
        "11.0 ms",
        "SELECT * FROM t ORDER BY v",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("->"), "{shown}");
    let hint = crate::hints::hint(&app, 120);
    assert!(
        hint.contains("Enter its stored plan") && !hint.contains("C cancel"),
        "{hint}"
    );
    assert_eq!(
        press(&mut app.clone(), KeyCode::Char('y')),
        [Effect::Copy("SELECT * FROM t ORDER BY v".to_owned())]
    );
    for (key, calls) in [(KeyCode::Enter, "(7,"), (KeyCode::Char('e'), "(7, 8,")] {
        let effects = press(&mut app.clone(), key);
        let [Effect::Call(call, None)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert!(call.contains(calls), "{call}");
    }
    // A refresh without the plan does not make it newer.
    let seen = app.data.last_run.at;
    let mut other = refresh(at + 1.8, None);
    other.parts.retain(|part| matches!(part, Part::Sessions(_)));
    app.apply(other);
    assert_eq!(app.data.last_run.at, seen);
    // Another statement whose nodes cannot be seen does not lend it its text.
    app.data.live = vec![Running {
        pid: PID,
        query: Some("SELECT 2".to_owned()),
        ..Running::default()
    }];
    assert_eq!(app.data.text_of_run(PID), Some("SELECT * FROM t ORDER BY v"));
    // Another one runs.
    app.apply(refresh(at + 2.0, Some(1)));
    assert!(!text(&mut app).contains("has ended"));
    // Who comes back later does not see what ran then.
    app.apply(refresh(at + 2.5, None));
    press(&mut app, KeyCode::Esc);
    app.push(Screen::LivePlan(PID));
    let shown = text(&mut app);
    assert!(
        shown.contains("runs no measured statement now") && !shown.contains("Seq Scan"),
        "{shown}"
    );
}

/// The plan is on the screen, and not a text that is wider than it.
#[test]
fn enter_leads_from_activity_to_the_stored_plan() {
    let mut app = app(View::Activity);
    let plan = app.data.plans.last().next().cloned().expect("a plan");
    app.data.activity = vec![Activity {
        class: "CPU".to_owned(),
        queryid: plan.queryid,
        planid: plan.planid,
        sessions: 1.0,
        ..Activity::default()
    }];
    press(&mut app, KeyCode::Enter);
    let key = crate::screens_plan::key_of(&plan).expect("a key");
    assert_eq!(app.screen(), &Screen::Plan(key));
}
