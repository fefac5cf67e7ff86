//! What names and files of others must not do: move the cursor, be read by others, be lost, run as SQL.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use ratatui::backend::CrosstermBackend;
use ratatui::{TerminalOptions, Viewport};

use super::*;
use crate::actions::is_comparison;
use crate::model::Part;
use crate::record;
use crate::top::show;

/// Clears the screen of a terminal.
const EVIL: &str = "a\u{9b}2J\u{1b}[2Jb\u{202e}c\u{2066}d\u{200f}e\u{2028}f";
/// What it has that turns the order of letters.
const TURNS: [char; 4] = ['\u{202e}', '\u{2066}', '\u{200f}', '\u{2028}'];

#[test]
fn json_has_no_control_characters() {
    let mut app = app(View::Locks);
    let mut snapshot = recorded().pop().expect("a refresh");
    snapshot.server.database = EVIL.to_owned();
    snapshot.server.user = EVIL.to_owned();
    snapshot.missing = vec![format!("Waits: {EVIL}")];
    for part in &mut snapshot.parts {
        match part {
            Part::Locks(rows) => rows.iter_mut().for_each(|row| {
                row.relation = Some(EVIL.to_owned());
                row.usename = Some(EVIL.to_owned());
            }),
            Part::Sessions(rows) => rows
                .iter_mut()
                .for_each(|row| row.datname = Some(EVIL.to_owned())),
            _ => {}
        }
    }
    app.apply(snapshot);
    for key in ['8', '9', '6'] {
        press(&mut app, KeyCode::Char(key));
        let json = serde_json::to_string(&crate::json::of(&app)).expect("JSON");
        assert!(json.contains("a 2J"), "{json}");
        assert!(
            !json.contains(char::is_control) && !json.contains("\\u00") && !json.contains(TURNS),
            "{json}"
        );
        let shown = text(&mut app).replace('\n', "");
        assert!(
            !shown.contains(char::is_control) && !shown.contains(TURNS),
            "{shown}"
        );
    }
}

/// The order of letters is turned nowhere: not in the question before a signal, and not in the first line.
#[test]
fn nothing_turns_the_order_of_what_is_shown() {
    let mut app = app(View::Sessions);
    app.place = EVIL.to_owned();
    let session = Addressee {
        usename: Some(EVIL.to_owned()),
        query: Some(EVIL.to_owned()),
        ..Addressee::default()
    };
    app.mode = Mode::Confirm(crate::signals::Signal::Terminate, Box::new(session));
    let shown = text(&mut app);
    assert!(shown.contains("b c d e f") && !shown.contains(TURNS), "{shown}");
    app.mode = Mode::Normal;
    app.push(Screen::Text {
        title: EVIL.to_owned(),
        call: String::new(),
        lines: Some(vec![EVIL.to_owned()]),
        note: Some(EVIL.to_owned()),
    });
    let shown = text(&mut app);
    assert!(shown.contains("b c d e f") && !shown.contains(TURNS), "{shown}");
}

/// The functions that keys call are given a queryid and a planid, which several users and databases may have.
#[test]
fn texts_say_whose_figures_they_have_if_several_have_the_plan() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    let id = app.data.plan[0].planid;
    let plan = app.data.plans.last().find(|plan| plan.planid == id);
    let plan = plan.expect("the plan").clone();
    calls(&mut app, KeyCode::Char('e'));
    assert!(!text(&mut app).contains("these are the figures"));
    let mut next = recorded().remove(2);
    next.at += 1.0;
    (next.server.database, next.server.user) = ("shop".to_owned(), "app".to_owned());
    let of = |userid: i64, user: &str, database: &str, time: f64| Plan {
        userid,
        usename: Some(user.to_owned()),
        datname: Some(database.to_owned()),
        time,
        ..plan.clone()
    };
    let rows = vec![
        of(71, "slow", "other", 9e9),
        of(72, "batch", "shop", 1e3),
        of(73, "app", "shop", 1.0),
    ];
    next.parts = vec![Part::ChangedPlans(rows)];
    app.apply(next);
    press(&mut app, KeyCode::Esc);
    calls(&mut app, KeyCode::Char('e'));
    let shown = text(&mut app).replace('\n', " ");
    assert!(
        shown.contains("these are the figures of user app in database shop"),
        "{shown}"
    );
    press(&mut app, KeyCode::Esc);
    let effects = press(&mut app, KeyCode::Char('w'));
    assert!(matches!(effects[..], [Effect::Call(..)]), "{effects:?}");
    assert!(
        app.page_note.contains("of user app in database shop"),
        "{}",
        app.page_note
    );
}

/// A folder for a test, that goes with it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn recordings_and_pages_are_for_their_owner_and_recordings_are_kept() {
    let folder = Folder(std::env::temp_dir().join(format!("rowsource-files-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("a folder");
    let mode = |file: &Path| fs::metadata(file).expect("the file").permissions().mode() & 0o777;
    let put = |name: &str, text: &str| {
        let file = folder.0.join(name);
        fs::write(&file, text).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("permissions");
        file
    };
    // A new file, and one that mktemp has made.
    for file in [folder.0.join("new"), put("empty", "")] {
        drop(record::create(&file).expect("a recording"));
        assert_eq!(mode(&file), 0o600);
    }
    let full = put("full", "a recording");
    let error = record::create(&full).expect_err("it is there").to_string();
    assert!(error.contains("there already"), "{error}");
    assert_eq!(fs::read_to_string(&full).expect("the file"), "a recording");
    // A page is replaced.
    for file in [full, folder.0.join("page")] {
        record::write_page(&file, "a page").expect("a page");
        assert_eq!(mode(&file), 0o600);
        assert_eq!(fs::read_to_string(&file).expect("the file"), "a page");
    }
    record::create(Path::new("/dev/null")).expect("what is no file");
    record::write_page(Path::new("/dev/null"), "a page").expect("what is no file");
}

#[test]
fn only_a_comparison_is_sent_for_a_finding() {
    for call in [
        "rowsource_compare(-1, '-2', '3')",
        "rowsource_compare(1,'2 mean','14:00..14:05')",
    ] {
        assert!(is_comparison(call), "{call}");
    }
    for call in [
        "",
        "rowsource_compare()",
        "rowsource_compare(1, '2', '3'); DROP TABLE t",
        "rowsource_compare(1, '2', '3'); SELECT f()",
        "rowsource_compare(1, f(), '3')",
        "rowsource_compare(1, '2' || f(), '3')",
        "rowsource_compare(1, '2'); SELECT f('3')",
        "rowsource_compare(1, '2\\', '3')",
        "rowsource_compare(1, (SELECT 2))",
        "rowsource_compare(--1\n)",
        "rowsource_report(1)",
    ] {
        assert!(!is_comparison(call), "{call}");
    }
    let mut app = app(View::Findings);
    for finding in &mut app.data.findings {
        finding.command = Some("SELECT rowsource_compare(1, '2', '3'); SELECT f('x')".to_owned());
    }
    assert_eq!(press(&mut app, KeyCode::Enter), []);
}

#[test]
fn intervals_go_on_from_what_they_are() {
    let mut app = app(View::Statements);
    for (begin, key, seconds) in [
        (300, '-', 0.3),
        (300, '+', 0.5),
        (3_000, '+', 5.0),
        (3_000, '-', 2.0),
        (60_000, '+', 60.0),
        (600_000, '-', 60.0),
        (600_000, '+', 600.0),
    ] {
        app.interval = Duration::from_millis(begin);
        press(&mut app, KeyCode::Char(key));
        assert_eq!(app.interval.as_secs_f64(), seconds, "{begin} {key}");
        assert_eq!(app.status, format!("a refresh every {seconds:.1} s"));
    }
    // A running plan is refreshed often, whatever the interval is.
    app.interval = Duration::from_secs(2);
    press(&mut app, KeyCode::Char('3'));
    open_running(&mut app);
    press(&mut app, KeyCode::Char('+'));
    assert_eq!(
        app.status,
        "a refresh every 0.5 s here, and every 5.0 s on other screens"
    );
}

#[test]
fn the_statement_of_a_blocker_is_copied_as_a_whole() {
    let mut app = app(View::Locks);
    let statement = format!("LOCK TABLE held;\n  SELECT {}", "pg_sleep(1), ".repeat(30));
    let blocker = app.data.locks[0].pid;
    app.data.locks[0].query = Some(statement.clone());
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    let (table, ..) = app.table();
    assert_eq!(table.rows[0].target.pid, Some(blocker));
    for _ in 0..table.rows.len() {
        assert_eq!(
            press(&mut app, KeyCode::Char('y')),
            [Effect::Copy(statement.clone())]
        );
        press(&mut app, KeyCode::Down);
    }
}

/// ESC[201~ ends what a terminal takes for pasted, so that the rest would be typed.
#[test]
fn what_is_copied_has_no_controls() {
    let mut app = app(View::Locks);
    app.data.locks[0].query = Some("SELECT 1;\r\n\tSELECT '\x1b[201~\u{9b}2J\u{202e}ü\x07\r'\n".to_owned());
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    let copied = press(&mut app, KeyCode::Char('y'));
    let clean = "SELECT 1;\n\tSELECT ' [201~ 2J ü  '\n";
    assert_eq!(copied, [Effect::Copy(clean.to_owned())]);
    assert_eq!(
        app.status,
        "copied the statement: 34 characters, controls as spaces, if the terminal allows it"
    );
    let call = "rowsource_report()".to_owned();
    app.push(Screen::Text {
        call: call.clone(),
        lines: None,
        title: String::new(),
        note: None,
    });
    app.answer(&call, vec!["a\x1b[201~".to_owned(), "b\tc".to_owned()]);
    assert_eq!(
        press(&mut app, KeyCode::Char('y')),
        [Effect::Copy("a [201~\nb\tc".to_owned())]
    );
}

/// A text or a page at a time: each may take the server ten seconds.
#[test]
fn texts_are_asked_for_one_at_a_time() {
    let mut app = app(View::Statements);
    app.is_calling = true;
    for key in ['e', 'w'] {
        assert_eq!(press(&mut app, KeyCode::Char(key)), []);
        assert!(app.status.contains("still works"), "{}", app.status);
        assert_eq!(*app.screen(), Screen::List(View::Statements));
    }
    app.is_calling = false;
    assert_eq!(press(&mut app, KeyCode::Char('e')).len(), 1);
}

/// What a terminal got.
#[derive(Clone, Default)]
struct Written(Rc<RefCell<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is drawn anew is little, and a frame is shown as a whole.
#[test]
fn a_screen_that_stays_is_not_written_again() {
    let mut app = app(View::Statements);
    let mut frames = Vec::new();
    let mut written = 0;
    let options = TerminalOptions {
        viewport: Viewport::Fixed(ratatui::layout::Rect::new(0, 0, 120, 40)),
    };
    let bytes = Written::default();
    let mut terminal =
        Terminal::with_options(CrosstermBackend::new(bytes.clone()), options).expect("a terminal");
    for _ in 0..3 {
        show(&mut terminal, &mut app, Theme { has_colour: true }).expect("a frame");
        let all = bytes.0.borrow().len();
        frames.push(all - written);
        written = all;
    }
    assert!(
        frames[0] > 500 && frames[1] < 100 && frames[2] < 100,
        "{frames:?}"
    );
    let text = String::from_utf8(bytes.0.take()).expect("a text");
    assert!(
        text.starts_with("\u{1b}[?2026h") && text.ends_with("\u{1b}[?2026l"),
        "{text:?}"
    );
    assert_eq!(text.matches("\u{1b}[?2026h").count(), 3);
}
