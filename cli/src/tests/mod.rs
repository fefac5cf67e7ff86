//! The state machine, and each screen as text, with what was recorded on a real server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use crate::app::{App, Effect, Mode};
use crate::draw::{Theme, draw, lines_of};
use crate::model::{Plan, Snapshot};
use crate::record::Recording;
use crate::screens::{Screen, View};
use crate::signals::Addressee;

mod answers;
pub mod fake_server;
mod hints;
mod intervals;
mod keys;
mod live_plan;
mod refreshes;
mod replays;
mod rows;
mod safety;
mod signals;
mod small;
mod titles;
mod working;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests")
}

fn recorded() -> Vec<Snapshot> {
    let mut recording = Recording::open(&folder().join("recording.jsonl")).expect("the recording");
    std::iter::from_fn(|| recording.next().expect("a refresh")).collect()
}

fn app_with(view: View, read_only: bool) -> App {
    let place = "postgres@localhost/postgres".to_owned();
    let mut app = App::new(Screen::List(view), place, Duration::from_secs(2), read_only);
    for snapshot in recorded() {
        app.apply(snapshot);
    }
    app
}

fn app(view: View) -> App {
    app_with(view, false)
}

fn press(app: &mut App, code: KeyCode) -> Vec<Effect> {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_text(app: &mut App, text: &str) {
    for letter in text.chars() {
        press(app, KeyCode::Char(letter));
    }
}

fn screen(app: &mut App, width: u16, height: u16, has_colour: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal
        .draw(|frame| draw(frame, app, Theme { has_colour }))
        .expect("a frame");
    terminal.backend().buffer().clone()
}

fn text(app: &mut App) -> String {
    lines_of(&screen(app, 120, 40, false)).join("\n")
}

/// Brings a state about by keys.
type Keys = fn(&mut App);

/// Each screen and each mode: its name, the view it begins with, and the keys.
const SCREENS: &[(&str, View, Keys)] = &[
    ("statements", View::Statements, |_| ()),
    ("nodes", View::Nodes, |_| ()),
    ("live", View::Live, |_| ()),
    ("activity", View::Activity, |_| ()),
    ("findings", View::Findings, |_| ()),
    ("waits", View::Waits, |_| ()),
    ("temp", View::Temp, |_| ()),
    ("locks", View::Locks, |_| ()),
    ("sessions", View::Sessions, |_| ()),
    ("a plan", View::Statements, open_plan),
    ("the plans of a statement", View::Statements, open_plans),
    ("a text", View::Statements, |app| {
        open_plan(app);
        let call = calls(app, KeyCode::Char('e'));
        app.answer(
            &call,
            (1..=60)
                .map(|line| format!("{}-> a line of a plan, {line}", " ".repeat(line)))
                .collect(),
        );
        press(app, KeyCode::PageDown);
    }),
    ("a text that is awaited", View::Statements, |app| {
        open_plan(app);
        calls(app, KeyCode::Char('e'));
    }),
    ("a node", View::Statements, |app| {
        open_plan(app);
        press(app, KeyCode::Down);
        press(app, KeyCode::Enter);
    }),
    ("where the time of a plan goes", View::Statements, |app| {
        open_plan(app);
        press(app, KeyCode::Char('f'));
    }),
    ("a running plan", View::Live, open_running),
    ("a blocked session", View::Locks, |app| {
        press(app, KeyCode::Down);
        press(app, KeyCode::Enter);
    }),
    ("an idle session", View::Locks, |app| {
        press(app, KeyCode::Enter);
    }),
    ("help", View::Statements, |app| {
        press(app, KeyCode::Char('?'));
    }),
    ("a filter", View::Statements, |app| type_text(app, "/count")),
    ("a command", View::Statements, |app| type_text(app, ":wa")),
    ("a confirmation", View::Locks, |app| {
        if app.read_only {
            press(app, KeyCode::Char('C'));
        } else {
            question(app, 'C');
        }
    }),
    ("paused", View::Waits, |app| {
        press(app, KeyCode::Char(' '));
    }),
    ("no connection", View::Waits, |app| {
        app.trouble = Some("connection closed".to_owned())
    }),
    ("without the extension", View::Statements, |app| {
        let mut snapshot = recorded().remove(0);
        (snapshot.server.schema, snapshot.server.loaded) = (None, false);
        app.apply(snapshot);
    }),
    ("a role that sees little", View::Statements, |app| {
        let mut snapshot = recorded().remove(2);
        (snapshot.server.sees_all, snapshot.server.user) = (false, "guest".to_owned());
        app.apply(snapshot);
    }),
];

/// Opens the plan that the recording has.
fn open_plan(app: &mut App) {
    let planid = app.data.plan[0].planid;
    for _ in 0..50 {
        let (table, selected, _) = app.table();
        if table.rows[selected].target.plan.as_ref().map(|plan| plan.planid) == planid {
            break;
        }
        press(app, KeyCode::Down);
    }
    press(app, KeyCode::Enter);
}

/// Opens the plans of a statement that has two, and selects the second.
fn open_plans(app: &mut App) {
    let plan = another_plan(app);
    while app.target().and_then(|target| target.queryid) != plan.queryid {
        press(app, KeyCode::Down);
    }
    press(app, KeyCode::Enter);
    press(app, KeyCode::Down);
}

/// Gives the statement whose plan the recording has a second one, which takes half the time, and returns
/// the first one.
fn another_plan(app: &mut App) -> Plan {
    let (queryid, planid) = (app.data.plan[0].queryid, app.data.plan[0].planid);
    let plans = &mut app.data.plans.added.rows;
    let is_it = |plan: &&Plan| (plan.queryid, plan.planid) == (queryid, planid);
    let plan = plans.iter().find(is_it).expect("the plan").clone();
    plans.push(Plan {
        planid: Some(7),
        time: plan.time / 2.0,
        ..plan.clone()
    });
    plan
}

/// Opens the running statement whose nodes the recording has.
fn open_running(app: &mut App) {
    let node = &app.data.live_plan[0];
    let pid = node.leader.unwrap_or(node.pid);
    for _ in 0..50 {
        let (table, selected, _) = app.table();
        if table.rows[selected].target.pid == Some(pid) {
            break;
        }
        press(app, KeyCode::Down);
    }
    press(app, KeyCode::Enter);
}

/// A session that a signal may be for.
fn addressee(pid: i64) -> Addressee {
    Addressee {
        pid,
        server_start: 1_795_924_410_501_017,
        backend_start: Some(1_795_924_500_000_001),
        query_start: Some(1_795_924_600_000_002),
        state: Some("active".to_owned()),
        usename: Some("postgres".to_owned()),
        application: Some("psql".to_owned()),
        query: Some("LOCK TABLE\nheld \u{9b}2J".to_owned()),
        is_own: false,
    }
}

/// Presses a key that asks about the selected process, has it looked up, and returns it.
fn question(app: &mut App, key: char) -> i64 {
    let effects = press(app, KeyCode::Char(key));
    let [Effect::LookUp(signal, pid)] = effects[..] else {
        panic!("{effects:?}: {}", app.status)
    };
    app.ask_about(signal, pid, Ok(Some(addressee(pid))));
    pid
}

/// Compares a text with a file of this folder. `ROWSOURCE_ACCEPT=1` writes it.
fn compare(name: &str, found: &str) {
    let file = folder().join(name);
    if std::env::var_os("ROWSOURCE_ACCEPT").is_some() {
        std::fs::write(&file, found).expect("the file is written");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(
            found,
            expected,
            "line {} of {name}; ROWSOURCE_ACCEPT=1 takes what is shown now",
            number + 1
        );
    }
    assert_eq!(
        found.lines().count(),
        expected.lines().count(),
        "the lines of {name}"
    );
}

fn all_screens(width: u16, height: u16) -> String {
    let mut all = String::new();
    for (name, view, keys) in SCREENS {
        let mut app = app(*view);
        keys(&mut app);
        all += &format!("==== {name}\n");
        for line in lines_of(&screen(&mut app, width, height, false)) {
            all += &format!("{line}\n");
        }
    }
    all
}

#[test]
fn screens_of_80_columns() {
    compare("screens-80x24.txt", &all_screens(80, 24));
}

#[test]
fn screens_of_120_columns() {
    compare("screens-120x40.txt", &all_screens(120, 40));
}

#[test]
fn screens_of_200_columns() {
    compare("screens-200x50.txt", &all_screens(200, 50));
}

/// The colours of each line: where they change, and to what.
#[test]
fn colours() {
    let mut all = String::new();
    for (name, view, keys) in SCREENS {
        let mut app = app(*view);
        keys(&mut app);
        let buffer = screen(&mut app, 120, 40, true);
        all += &format!("==== {name}\n");
        for y in 0..40 {
            let mut last = None;
            for x in 0..120 {
                let cell = &buffer[(x, y)];
                let style = (cell.fg, cell.bg, cell.modifier);
                if last != Some(style) {
                    all += &format!("{y},{x} {:?} on {:?} {:?}\n", style.0, style.1, style.2);
                    last = Some(style);
                }
            }
        }
    }
    compare("colours-120x40.txt", &all);
}

#[test]
fn without_colours_there_are_none() {
    for (_, view, keys) in SCREENS {
        let mut app = app(*view);
        keys(&mut app);
        let buffer = screen(&mut app, 120, 40, false);
        assert!(
            buffer
                .content
                .iter()
                .all(|cell| [cell.fg, cell.bg] == [ratatui::style::Color::Reset; 2])
        );
    }
}

#[test]
fn enter_leads_to_the_node_and_escape_back() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    assert!(matches!(app.screen(), Screen::Plan(_)));
    press(&mut app, KeyCode::Enter);
    // The node that takes the most time is selected.
    let most = app.data.plan.iter().map(|node| node.own_time).fold(0.0, f64::max);
    let is_most = |id: i64| {
        app.data
            .plan
            .iter()
            .any(|node| node.node_id == id && node.own_time == most)
    };
    assert!(matches!(app.screen(), Screen::Node(_, id) if is_most(*id)));
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Esc);
    assert_eq!(*app.screen(), Screen::List(View::Statements));
}

#[test]
fn a_regression_is_compared_by_two_keys() {
    let mut app = app(View::Statements);
    press(&mut app, KeyCode::Char('5'));
    let found = &app.data.findings[0];
    let command = found.command.clone().expect("a command");
    let call = calls(&mut app, KeyCode::Enter);
    assert!(
        call.starts_with("rowsource_compare(") && command.ends_with(&call),
        "{command}: {call}"
    );
    app.answer(&call, vec!["it is slower".to_owned()]);
    assert!(text(&mut app).contains("it is slower"));
}

/// An answer goes to the screen that asked, whatever is shown meanwhile.
#[test]
fn an_answer_never_overwrites_another_text() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    let explained = calls(&mut app, KeyCode::Char('e'));
    app.answer(&explained, vec!["the plan".to_owned()]);
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Char('c'));
    let compared = calls(&mut app, KeyCode::Char('c'));
    app.answer(&explained, vec!["an answer that comes late".to_owned()]);
    assert!(text(&mut app).contains("the server works on it"));
    app.answer(&compared, vec!["the comparison".to_owned()]);
    assert!(text(&mut app).contains("the comparison"));
    press(&mut app, KeyCode::Esc);
    app.answer(&compared, vec!["cancelled".to_owned()]);
    assert!(!text(&mut app).contains("cancelled"));
}

#[test]
fn a_wide_text_moves() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    let call = calls(&mut app, KeyCode::Char('e'));
    app.answer(
        &call,
        vec!["short".to_owned(), format!("begin{}the end", " ".repeat(120))],
    );
    assert!(!text(&mut app).contains("the end"));
    press(&mut app, KeyCode::Right);
    let moved = text(&mut app);
    assert!(moved.contains("the end") && !moved.contains("begin"), "{moved}");
    press(&mut app, KeyCode::Right);
    assert!(app.status.contains("nothing more"), "{}", app.status);
    app.status.clear();
    assert_eq!(text(&mut app), moved);
    press(&mut app, KeyCode::Left);
    assert!(text(&mut app).contains("begin"));
    press(&mut app, KeyCode::Left);
    assert!(matches!(app.screen(), Screen::Plan(_)));
}

/// Presses a key, and returns the function that is called.
fn calls(app: &mut App, code: KeyCode) -> String {
    let effects = press(app, code);
    match &effects[..] {
        [Effect::Call(call, None)] => call.clone(),
        _ => panic!("{effects:?}"),
    }
}

#[test]
fn a_plan_is_explained_compared_drawn_and_written() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    let Screen::Plan(key) = app.screen().clone() else {
        panic!("{:?}", app.screen())
    };
    let (queryid, planid) = (key.queryid, key.planid);
    assert_eq!(
        calls(&mut app, KeyCode::Char('e')),
        format!("rowsource_explain({queryid}, {planid}, 'mean')")
    );
    press(&mut app, KeyCode::Esc);
    assert_eq!(press(&mut app, KeyCode::Char('c')), []);
    assert!(app.status.starts_with("marked"), "{}", app.status);
    assert_eq!(
        calls(&mut app, KeyCode::Char('c')),
        format!("rowsource_compare({queryid}, '{planid} mean', '{planid} slowest')")
    );
    press(&mut app, KeyCode::Esc);
    let page = press(&mut app, KeyCode::Char('w'));
    assert_eq!(
        page,
        [Effect::Call(
            format!("rowsource_html({queryid}, {planid}, 'mean')"),
            Some(format!("rowsource-plan-{planid}"))
        )]
    );
    press(&mut app, KeyCode::Char('f'));
    assert_eq!(*app.screen(), Screen::Flame(key));
    assert_eq!(app.table().0.rows.len(), app.data.plan.len());
}

#[test]
fn two_plans_of_a_statement_are_compared() {
    let mut app = app(View::Statements);
    let plan = another_plan(&mut app);
    app.data
        .plans
        .added
        .rows
        .retain(|row| row.queryid == plan.queryid);
    press(&mut app, KeyCode::Enter);
    assert!(matches!(app.screen(), Screen::Plans(_)), "{:?}", app.screen());
    press(&mut app, KeyCode::Char('c'));
    press(&mut app, KeyCode::Down);
    let (queryid, planid) = (plan.queryid.expect("an id"), plan.planid.expect("an id"));
    assert_eq!(
        calls(&mut app, KeyCode::Char('c')),
        format!("rowsource_compare({queryid}, '{planid}', '7')")
    );
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Enter);
    assert!(matches!(app.screen(), Screen::Plan(key) if key.planid == 7));
}

#[test]
fn the_report_is_written_from_a_list_without_plans() {
    let mut app = app(View::Waits);
    let effects = press(&mut app, KeyCode::Char('w'));
    assert!(
        matches!(&effects[..], [Effect::Call(call, Some(_))] if call.starts_with("rowsource_report(")),
        "{effects:?}"
    );
    assert_eq!(press(&mut app, KeyCode::Char('e')), []);
    assert_eq!(press(&mut app, KeyCode::Char('c')), []);
    assert!(app.status.contains("no plan"), "{}", app.status);
}

#[test]
fn a_blocker_stands_above_what_it_blocks() {
    let mut app = app(View::Statements);
    press(&mut app, KeyCode::Char('8'));
    let (table, ..) = app.table();
    assert!(table.rows[0].is_marked && !table.rows[1].is_marked);
    assert!(
        table.rows[0]
            .cells
            .last()
            .expect("a cell")
            .show()
            .contains("lock table")
    );
}

/// No screen offers a signal if none is sent: neither its last line nor the help.
#[test]
fn no_signal_is_offered_with_read_only() {
    let offers = |text: &str| {
        let text = text.to_lowercase();
        ["cancel", "terminate"].iter().any(|signal| text.contains(signal))
    };
    let mut offered = 0;
    for (name, view, keys) in SCREENS {
        for read_only in [false, true] {
            let mut app = app_with(*view, read_only);
            keys(&mut app);
            app.status.clear();
            for help in ["", "?"] {
                type_text(&mut app, help);
                let shown = text(&mut app);
                let last = shown.lines().last().unwrap_or_default();
                let shown = if matches!(app.mode, Mode::Help(_)) {
                    &shown
                } else {
                    last
                };
                assert!(!read_only || !offers(shown), "{name}: {shown}");
                offered += usize::from(!read_only && offers(shown));
            }
        }
    }
    assert!(offered > 20, "{offered}");
}

/// Keys in any order, sizes of any kind: no panic, and Ctrl-C always leaves.
#[test]
fn any_keys_and_any_size() {
    let mut app = app(View::Statements);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for step in 0..2_000_u32 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let codes = [
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::PageDown,
            KeyCode::End,
            KeyCode::Backspace,
        ];
        let code = match state % 12 {
            number @ 0..=6 => codes[number as usize],
            _ => KeyCode::Char(char::from(32 + (state >> 8) as u8 % 95)),
        };
        press(&mut app, code);
        if step % 20 == 0 {
            screen(
                &mut app,
                (state >> 20) as u16 % 220 + 1,
                (state >> 40) as u16 % 60 + 1,
                true,
            );
        }
    }
    assert_eq!(
        app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)),
        [Effect::Quit]
    );
}

#[test]
fn control_characters_of_a_server_do_not_reach_the_terminal() {
    let mut app = app(View::Sessions);
    app.data.sessions[0].query = Some("SELECT '\u{1b}]0;title\u{7}'\n\u{9b}2J".to_owned());
    app.data.missing.push("\u{1b}[2J".to_owned());
    assert!(!text(&mut app).contains(['\u{1b}', '\u{7}', '\u{9b}']));
    let json = crate::json::of(&app).to_string();
    assert!(!json.contains(['\u{1b}', '\u{7}', '\u{9b}']));
}

#[test]
fn options_are_declared_without_contradiction() {
    <crate::args::Arguments as clap::CommandFactory>::command().debug_assert();
}
