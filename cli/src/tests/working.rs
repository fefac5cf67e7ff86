//! What is said of what works now, on lists of what has ended.

use super::*;
use crate::model::{Part, Working};
use crate::queries::Want;

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
        longest: Some(longest),
    }
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
            "3 statements still run, the longest for 1:02 m: 3 live, 9 sessions; 2 wait for a lock: 8 locks";
        assert!(shown.contains(says), "{shown}");
        app.apply(working(
            &app,
            vec![waiting(Some("Lock"), Some("tuple"), 1.0, 2_000.0)],
        ));
        let says = "1 statement still runs, for 2.00 s: 3 live, 9 sessions; waits for a lock: 8 locks";
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
