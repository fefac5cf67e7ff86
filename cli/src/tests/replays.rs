//! Recordings, and what a replay shows of them.

use super::*;
use crate::model::{Lines, Node, Part};
use crate::queries::PlanKey;
use crate::record;

#[test]
fn what_is_recorded_is_replayed() {
    let path = std::env::temp_dir().join(format!("rowsource-recording-{}", std::process::id()));
    let mut file = record::create(&path).expect("a file");
    for snapshot in &recorded() {
        record::write(&mut file, snapshot).expect("a line");
    }
    let mut recording = Recording::open(&path).expect("the file");
    let again: Vec<Snapshot> = std::iter::from_fn(|| recording.next().expect("a refresh")).collect();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("a file").permissions());
    std::fs::remove_file(&path).expect("it is removed");
    assert_eq!(format!("{again:?}"), format!("{:?}", recorded()));
    assert_eq!(mode & 0o777, 0o600);
}

/// Shows the recording, without a server.
fn replay(view: View) -> App {
    let mut app = App::new(
        Screen::List(view),
        "replay".to_owned(),
        Duration::from_secs(2),
        true,
    );
    app.data.is_replay = true;
    recorded().into_iter().for_each(|snapshot| app.apply(snapshot));
    app
}

/// What a key says, and which keys there are, is seen at the end of a recording, too.
#[test]
fn the_end_of_a_replay_hides_nothing() {
    let mut app = replay(View::Statements);
    app.ended = true;
    let last = |app: &mut App| text(app).lines().last().unwrap_or_default().to_owned();
    let shown = last(&mut app);
    assert!(
        shown.starts_with("the replay has ended   Enter its plan") && shown.ends_with("q leave"),
        "{shown}"
    );
    press(&mut app, KeyCode::Char('>'));
    assert_eq!(last(&mut app), "the replay has ended   sorted by %");
}

/// The plan that was open is there with the details of its nodes, also after another one was open.
#[test]
fn a_plan_that_was_open_is_replayed() {
    let mut app = replay(View::Statements);
    let nodes = app.data.plan.clone();
    open_plan(&mut app);
    assert_eq!(app.table().0.rows.len(), nodes.len());
    let mut next = recorded().remove(2);
    let other: Vec<Node> = nodes
        .iter()
        .map(|node| Node {
            planid: Some(7),
            ..node.clone()
        })
        .collect();
    next.parts = vec![Part::Plan(other)];
    app.apply(next);
    assert_eq!(app.table().0.rows.len(), nodes.len());
    press(&mut app, KeyCode::Enter);
    let shown = text(&mut app);
    assert!(
        shown.contains("operation") && !shown.contains("only if the plan was open"),
        "{shown}"
    );
}

/// Other plans are made of the view of nodes, which is recorded with each refresh; of those that are not in
/// it, the screen says that the recording has none.
#[test]
fn a_plan_that_was_not_open_is_replayed_as_far_as_it_is_recorded() {
    let mut app = replay(View::Nodes);
    app.data.plan.clear();
    app.data.recorded = Default::default();
    let (table, selected, _) = app.table();
    let key = table.rows[selected].target.plan.clone().expect("a plan");
    press(&mut app, KeyCode::Enter);
    assert_eq!(*app.screen(), Screen::Plan(key.clone()));
    let (plan, ..) = app.table();
    assert!(!plan.rows.is_empty() && plan.notes.iter().all(|note| !note.contains("no nodes")));
    let ids: Vec<_> = plan.rows.iter().map(|row| row.target.node_id).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    press(&mut app, KeyCode::Enter);
    assert!(text(&mut app).contains("only if the plan was open"));
    let unknown = PlanKey { planid: 7, ..key };
    for screen in [
        Screen::Plan(unknown.clone()),
        Screen::Flame(unknown.clone()),
        Screen::Node(unknown, 1),
    ] {
        app.push(screen);
        let shown = text(&mut app).replace('\n', " ");
        assert!(
            shown.contains("the recording has no nodes of this plan"),
            "{shown}"
        );
    }
    app.push(Screen::LivePlan(4711));
    let shown = text(&mut app);
    assert!(
        shown.contains("the recording has no running plan of process 4711"),
        "{shown}"
    );
    assert!(!shown.contains("runs no measured statement"), "{shown}");
}

/// A text that was open is shown as soon as the recording has it.
#[test]
fn a_text_that_was_open_is_replayed() {
    let mut app = replay(View::Statements);
    open_plan(&mut app);
    let call = calls(&mut app, KeyCode::Char('e'));
    app.take_recorded_lines();
    assert!(text(&mut app).contains("does not have this text"));
    let lines = app
        .data
        .snapshot_of_lines(call, vec!["Seq Scan on orders".to_owned()]);
    let line = serde_json::to_string(&lines).expect("a line");
    app.apply(serde_json::from_str(&line).expect("a refresh"));
    assert!(text(&mut app).contains("Seq Scan on orders"));
    let other = Lines::default();
    app.apply(Snapshot {
        parts: vec![Part::Lines(other)],
        ..lines
    });
    press(&mut app, KeyCode::Esc);
    calls(&mut app, KeyCode::Char('e'));
    app.take_recorded_lines();
    assert!(text(&mut app).contains("Seq Scan on orders"));
}

#[test]
fn a_replay_sends_no_signals_and_says_why() {
    let mut app = replay(View::Locks);
    press(&mut app, KeyCode::Char('T'));
    assert_eq!(app.mode, Mode::Normal);
    let shown = text(&mut app);
    assert!(
        shown.contains("a recording has no server") && !shown.contains("read-only"),
        "{shown}"
    );
}
