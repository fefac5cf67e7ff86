//! Signals: whom they are for, and that nothing else gets one.

use super::*;
use crate::signals::{Addressee, Signal};

#[test]
fn signals_are_confirmed_and_absent_with_read_only() {
    let mut app = app(View::Locks);
    question(&mut app, 'T');
    assert_eq!(press(&mut app, KeyCode::Enter), []);
    assert_eq!(app.status, "nothing was sent");
    let pid = question(&mut app, 'T');
    let shown = text(&mut app);
    assert!(
        shown.contains("terminate the session of process")
            && shown.contains("postgres (psql), active: LOCK TABLE held"),
        "{shown}"
    );
    assert_eq!(
        press(&mut app, KeyCode::Char('y')),
        [Effect::Signal(Signal::Terminate, Box::new(addressee(pid)))]
    );
    let mut app = app_with(View::Locks, true);
    assert_eq!(press(&mut app, KeyCode::Char('C')), []);
    assert_eq!(app.mode, Mode::Normal);
    assert!(text(&mut app).contains("--read-only"));
}

/// A text that is pasted has all its keys at once, and whoever types ahead has not read the question.
#[test]
fn a_key_that_comes_before_the_question_drops_it() {
    let mut app = app(View::Locks);
    let effects = press(&mut app, KeyCode::Char('T'));
    let [Effect::LookUp(signal, pid)] = effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(press(&mut app, KeyCode::Char('y')), []);
    assert_eq!(app.status, "nothing was sent");
    app.ask_about(signal, pid, Ok(Some(addressee(pid))));
    assert_eq!(app.mode, Mode::Normal);
    assert!(!text(&mut app).contains("y: yes"));
}

#[test]
fn what_has_no_process_any_more_is_no_target() {
    // The selected row has gone: the row that stands there now is another one.
    let mut it = app(View::Sessions);
    press(&mut it, KeyCode::Down);
    let gone = it.process();
    let mut snapshot = recorded().pop().expect("a refresh");
    for part in &mut snapshot.parts {
        if let crate::model::Part::Sessions(rows) = part {
            rows.retain(|row| Some(row.pid) != gone);
            assert!(!rows.is_empty());
        }
    }
    it.apply(snapshot);
    assert_ne!(it.process(), gone);
    assert_eq!(press(&mut it, KeyCode::Char('T')), []);
    assert!(it.status.contains("has gone"), "{}", it.status);
    // The user has been told so: now the row that stands there is meant.
    question(&mut it, 'T');
    // A row that the filter leaves is the selected one.
    let mut it = app(View::Sessions);
    press(&mut it, KeyCode::Down);
    let before = it.process();
    let other = it
        .data
        .sessions
        .iter()
        .map(|row| row.pid)
        .find(|pid| Some(*pid) != before);
    press(&mut it, KeyCode::Char('/'));
    for letter in other.expect("another session").to_string().chars() {
        press(&mut it, KeyCode::Char(letter));
    }
    press(&mut it, KeyCode::Enter);
    assert_eq!(it.process(), other);
    question(&mut it, 'T');
    // A prepared transaction is listed as process 0.
    let mut it = app(View::Locks);
    for lock in &mut it.data.locks {
        lock.pid = 0;
    }
    assert_eq!(press(&mut it, KeyCode::Char('T')), []);
    assert_eq!(it.status, "a prepared transaction: ROLLBACK PREPARED ends it");
    // Others have ended, or run nothing.
    let mut it = app(View::Locks);
    let idle = Addressee {
        state: Some("idle in transaction".to_owned()),
        ..addressee(7)
    };
    // A role that does not see when a session began cannot tell it from the next one of the same process.
    let masked = Addressee {
        backend_start: None,
        state: None,
        ..addressee(7)
    };
    let sql = masked.statements(Signal::Terminate);
    assert!(sql.contains("pid = 7 AND false AND"), "{sql}");
    // A pooler has given the session to the program itself.
    let own = Addressee {
        is_own: true,
        ..addressee(7)
    };
    for (found, says) in [
        (Ok(Some(own)), "process 7 works for rowsource now"),
        (Ok(None), "process 7 is gone"),
        (Ok(Some(idle)), "runs no statement now"),
        (Ok(Some(masked)), "pg_read_all_stats"),
        (Err("no answer".to_owned()), "nothing was sent: no answer"),
    ] {
        it.mode = Mode::Asking(Signal::Cancel, 7);
        it.ask_about(Signal::Cancel, 7, found);
        assert_eq!(it.mode, Mode::Normal);
        assert!(it.status.contains(says), "{}", it.status);
    }
}

/// Names have up to 63 letters each.
#[test]
fn the_question_shows_what_runs_beside_long_names() {
    let session = Addressee {
        usename: Some("u".repeat(63)),
        application: Some("ä".repeat(63)),
        state: Some("idle in transaction".to_owned()),
        ..addressee(7)
    };
    let said: String = session.describe(80).chars().take(80).collect();
    assert!(
        said.contains("u~ (ä") && said.contains("idle in transaction: LOCK TABLE"),
        "{said}"
    );
    assert!(
        addressee(7)
            .describe(80)
            .starts_with("postgres (psql), active: LOCK TABLE")
    );
}

#[test]
fn the_statements_name_the_session_and_the_statement() {
    let it = addressee(7);
    let cancel = it.statements(Signal::Cancel);
    for part in [
        "pid = 7 AND",
        "IS NOT DISTINCT FROM 1795924500000001",
        "IS NOT DISTINCT FROM 1795924410501017",
        "IS NOT DISTINCT FROM 1795924600000002 AND state = 'active'",
    ] {
        assert!(cancel.contains(part), "{cancel}");
    }
    let terminate = it.statements(Signal::Terminate);
    assert!(!terminate.contains("query_start"), "{terminate}");
    for sql in [cancel, terminate] {
        assert_eq!(sql.matches("pid <> pg_backend_pid()").count(), 1, "{sql}");
    }
    let outcome = |answers: &[&str]| {
        let answers: Vec<String> = answers.iter().map(|it| it.to_string()).collect();
        it.outcome(&answers)
    };
    assert_eq!(outcome(&["t", "t"]), "sent to process 7");
    assert_eq!(outcome(&["f", "t"]), "nothing was sent: process 7 is gone");
    assert_eq!(outcome(&["f"]), "nothing was sent: process 7 is gone");
    assert!(outcome(&["t"]).contains("has ended"));
}
