//! What is said of what works now, on lists of what has ended.

use super::*;
use crate::model::{Part, Wait, Working};
use crate::queries::Want;
use crate::raw::Form;

/// The next refresh, with processes that work.
fn working(app: &App, rows: Vec<Working>) -> Snapshot {
    Snapshot {
        at: app.data.at + 1.0,
        server: app.data.server.clone(),
        parts: vec![Part::Working(rows)],
        ..Snapshot::default()
    }
}

fn waiting(class: Option<&str>, event: Option<&str>, statements: f64, longest: f64) -> Working {
    Working {
        class: class.map(str::to_owned),
        event: event.map(str::to_owned),
        processes: statements,
        statements,
        planless: 0.0,
        longest: Some(longest),
    }
}

#[test]
fn views_are_named_by_their_keys() {
    use crate::working::{LIVE, LOCKS, SESSIONS};
    assert_eq!(
        [View::Live, View::Locks, View::Sessions].map(View::key),
        [LIVE, LOCKS, SESSIONS]
    );
}

/// A statement that has not ended is on no list of what has ended: these say that it runs.
#[test]
fn statements_that_still_run_are_said() {
    for view in [View::Statements, View::Nodes] {
        let mut app = app(view);
        assert!(app.wants().contains(&Want::Working));
        let rows = vec![
            waiting(None, None, 1.0, 5_000.0),
            waiting(Some("Lock"), Some("relation"), 2.0, 62_000.0),
        ];
        app.apply(working(&app, rows));
        let shown = text(&mut app);
        let says =
            "3 statements still run, the longest for 1m02s: 3 live, 9 sessions; 2 wait for a lock: 8 locks";
        assert!(shown.contains(says), "{shown}");
        app.apply(working(
            &app,
            vec![waiting(Some("Lock"), Some("tuple"), 1.0, 2_000.0)],
        ));
        let says = "1 statement still runs, for 2.00 s: 3 live, 9 sessions; it waits for a lock: 8 locks";
        assert!(text(&mut app).contains(says));
        // Those that have begun just now are on the next list.
        app.apply(working(&app, vec![waiting(None, None, 0.0, 20.0)]));
        assert!(!text(&mut app).contains("still run"));
    }
    // The first frame waits for no more than before.
    let mut app = App::new(
        Screen::List(View::Statements),
        String::new(),
        Duration::from_secs(1),
        false,
    );
    assert!(!app.wants().contains(&Want::Working));
}

/// How far a statement was says nothing of when it ends if it waits for a lock.
#[test]
fn a_statement_that_waits_for_a_lock_has_no_time_left() {
    let mut app = app(View::Live);
    let row = &mut app.data.live[0];
    let pid = row.pid;
    (row.percent, row.low, row.high, row.left) = (Some(100.0), Some(99.0), Some(100.0), Some(1.6));
    for (blocker, says) in [
        (Some(4_711), "blocked by 4711"),
        (Some(0), "prepared xact"),
        (None, "waits for lock"),
    ] {
        let row = &mut app.data.live[0];
        (row.wait_type, row.blocker) = (Some("Lock".to_owned()), blocker);
        let shown = text(&mut app);
        let line = shown.lines().find(|line| line.contains(&pid.to_string()));
        let line = line.expect("its row");
        assert!(line.contains(&format!("{says} ")), "{line}");
        assert!(!line.contains("1.6") && !line.contains('#'), "{line}");
        let json = crate::json::of(&app);
        assert_eq!(json["rows"][0]["done"].as_f64(), Some(100.0));
        assert_eq!(json["rows"][0]["blocked by"].as_i64(), blocker);
    }
    press(&mut app, KeyCode::Enter);
    let shown = text(&mut app);
    assert!(
        shown.contains("waits for lock") && !shown.contains(" left"),
        "{shown}"
    );
}

/// A statement that waits for a lock before it begins has no plan, and is not among those that have one.
#[test]
fn statements_without_a_plan_are_counted() {
    let mut app = app(View::Live);
    assert!(app.wants().contains(&Want::Working));
    // The server compares them: the list may be cut, or of another time.
    let mut rows = vec![
        waiting(Some("Lock"), Some("relation"), 2.0, 9_000.0),
        waiting(None, None, 300.0, 9_000.0),
    ];
    rows[0].planless = 2.0;
    app.apply(working(&app, rows));
    let shown = text(&mut app);
    assert!(
        shown.contains("2 more statements run ") && shown.contains("8 locks, 9 sessions"),
        "{shown}"
    );
    app.apply(working(&app, vec![waiting(None, None, 300.0, 9_000.0)]));
    assert!(!text(&mut app).contains("more statement"));
}

/// An application may have the mark of the program in its text, which only the beginning of a message tells.
#[test]
fn only_the_beginning_of_a_message_is_its_own() {
    let (query, _) = Want::Working.query(&crate::model::Server::default());
    assert!(
        query.contains("query !~ '^(SET LOCAL statement_timeout"),
        "{query}"
    );
    assert!(!query.contains("%/*"), "{query}");
    assert!(query.contains("backend_type <> 'walsender'"), "{query}");
    // What the regular expression takes for its own.
    let first = format!("{} json_strip_nulls(", crate::queries::OWN);
    assert!(crate::queries::rows_of("", Form::Text).starts_with(&first));
    let message = crate::server::message(500, &[String::new()], Form::Bytes);
    let (settings, rest) = message.split_once(crate::queries::OWN).expect("its mark");
    assert!(settings.starts_with("SET LOCAL statement_timeout = 500; SET LOCAL ") && !settings.contains('/'));
    assert!(rest.starts_with(" pg_catalog."), "{rest}");
    let sets = crate::server::set_timeout(1);
    assert!(
        sets.starts_with(&format!("{} pg_catalog.", crate::queries::OWN)),
        "{sets}"
    );
    let signal = addressee(7).statements(crate::signals::Signal::Cancel);
    let (settings, rest) = signal.split_once(crate::queries::OWN).expect("its mark");
    assert!(settings.starts_with("SET LOCAL statement_timeout = 500; SET LOCAL ") && !settings.contains('/'));
    assert!(rest.starts_with(" pg_cancel"), "{rest}");
}

/// An empty list says what that means, and not only that it is empty.
#[test]
fn an_empty_list_says_what_that_means() {
    let mut said = std::collections::BTreeSet::new();
    for view in View::ALL {
        let mut app = app(view);
        let server = app.data.server.clone();
        let at = app.data.at;
        app.data = crate::data::Data::default();
        (app.data.server, app.data.at, app.data.findings_at) = (server, at, Some(at));
        let shown = text(&mut app);
        let note = app.screen().empty(&app.data);
        assert!(
            note.starts_with("no ") && shown.contains(&note),
            "{view:?}: {shown}"
        );
        assert!(said.insert(note), "{view:?}");
        type_text(&mut app, "/x");
        assert!(text(&mut app).contains("no row fits the filter"));
    }
    let mut app = app(View::Findings);
    app.data.server.reset = Some(app.data.at - 12_000.0);
    let note = app.screen().empty(&app.data);
    assert!(
        note.contains("3h20m since the statistics began; the server looks each minute"),
        "{note}"
    );
}

/// A wait that has not ended is in no figure of the waits.
#[test]
fn waits_that_last_are_said() {
    let mut app = app(View::Waits);
    assert!(app.wants().contains(&Want::Working));
    let mut idle = waiting(Some("Timeout"), Some("VacuumDelay"), 0.0, 0.0);
    (idle.processes, idle.longest) = (1.0, None);
    let rows = vec![
        idle,
        waiting(None, None, 1.0, 90_000.0),
        waiting(Some("Lock"), Some("relation"), 2.0, 62_000.0),
    ];
    app.apply(working(&app, rows));
    let shown = text(&mut app);
    let says = "2 Lock relation (statement of 1m02s), 1 Timeout VacuumDelay; see 9 sessions";
    assert!(shown.contains(says), "{shown}");
    app.apply(working(&app, vec![waiting(None, None, 1.0, 90_000.0)]));
    assert!(text(&mut app).contains("no process waits now"));
}

/// A worker of an extension that has nothing to do waits all the time, and would be first of all.
#[test]
fn idle_workers_are_no_waits() {
    let mut app = app(View::Waits);
    let wait = |backend_type: &str| Wait {
        backend_type: Some(backend_type.to_owned()),
        class: Some("Extension".to_owned()),
        event: Some("Extension".to_owned()),
        waits: 1.0,
        time: 1.0,
        max: None,
    };
    app.data.waits.added.rows = vec![wait("background worker"), wait("client backend")];
    assert_eq!(app.table().0.rows.len(), 1);
    assert!(text(&mut app).contains("1 events by which background processes are idle"));
}

/// A screen that is refreshed twice a second does not ask for all of it each time.
#[test]
fn what_is_beside_the_figures_is_asked_for_less_often() {
    for (view, want, part) in [
        (View::Activity, Want::Activity, Part::Activity(Vec::new())),
        (View::Live, Want::Working, Part::Working(Vec::new())),
    ] {
        for (step, each) in [(0.5, 4), (2.0, 1)] {
            let mut app = app(view);
            let mut asked = Vec::new();
            for refresh in 0..12 {
                let is_asked = app.wants().contains(&want);
                asked.extend(is_asked.then_some(refresh));
                let mut next = working(&app, Vec::new());
                next.at = app.data.at + step;
                next.parts = is_asked.then(|| part.clone()).into_iter().collect();
                app.apply(next);
            }
            let gaps: Vec<_> = asked.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect();
            assert!(
                !gaps.is_empty() && gaps.iter().all(|gap| *gap == each),
                "{view:?}: {asked:?}"
            );
        }
    }
    // The server's clock was set back by an hour.
    let mut app = app(View::Activity);
    app.data.activity_at = app.data.at + 3_600.0;
    assert!(app.wants().contains(&Want::Activity));
    let new = |view: View| App::new(Screen::List(view), String::new(), Duration::from_secs(1), false);
    assert!(new(View::Activity).wants().contains(&Want::Activity));
}
