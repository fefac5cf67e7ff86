//! Each key does something on each screen, or says why not.

use clap::Parser;

use super::*;
use crate::args::Arguments;
use crate::keys::{Action, ENTRIES, action, name};
use crate::signals::Signal;

/// All keys that are declared.
fn declared() -> Vec<KeyEvent> {
    let views = ('1'..='9').map(|number| (KeyModifiers::NONE, KeyCode::Char(number)));
    let others = ENTRIES.iter().flat_map(|entry| entry.keys);
    let others = others.map(|(modifiers, code, _)| (*modifiers, *code));
    let all = views.chain(others);
    all.map(|(modifiers, code)| KeyEvent::new(code, modifiers))
        .collect()
}

/// Forgets all rows.
fn empty(app: &mut App) {
    let data = &mut app.data;
    data.plan.clear();
    data.live.clear();
    data.live_plan.clear();
    data.activity.clear();
    data.findings.clear();
    data.temp.clear();
    data.locks.clear();
    data.sessions.clear();
    data.blockers = None;
    data.plans.added.rows.clear();
    data.nodes.added.rows.clear();
    data.waits.added.rows.clear();
}

/// What a screen may be like.
const KINDS: [(&str, Keys); 6] = [
    ("", |_| ()),
    ("read only", |app| app.read_only = true),
    ("of a replay", |app| app.data.is_replay = true),
    ("of a replay that has ended", |app| {
        (app.data.is_replay, app.ended) = (true, true);
    }),
    ("without rows", empty),
    ("before the first answer", |app| app.data = Default::default()),
];

#[test]
fn each_key_does_something_or_says_why_not() {
    for (screen_name, view, keys) in SCREENS {
        for (kind, change) in KINDS {
            let mut whole = app(*view);
            keys(&mut whole);
            change(&mut whole);
            whole.status.clear();
            if whole.mode != Mode::Normal {
                continue;
            }
            let before = screen(&mut whole, 120, 40, false);
            let has_rows = whole.target().is_some();
            for key in declared() {
                let mut app = whole.clone();
                let effects = app.key(key);
                let says = app.status.clone();
                app.status.clear();
                let does = !effects.is_empty() || screen(&mut app, 120, 40, false) != before;
                // The first and the last row stay selected.
                let moves = matches!(
                    action(&key),
                    Some(Action::Select(_) | Action::Page(_) | Action::First | Action::Last)
                );
                assert!(
                    does || !says.is_empty() || moves && has_rows,
                    "{} on {screen_name} {kind}: {says}",
                    name(key.modifiers, key.code)
                );
            }
        }
    }
}

/// Also one that is none.
#[test]
fn keys_that_are_not_declared_say_so() {
    for (modifiers, code, says) in [
        (KeyModifiers::CONTROL, KeyCode::Char('z'), "C-z does nothing"),
        (KeyModifiers::NONE, KeyCode::Tab, "Tab does nothing"),
        (KeyModifiers::NONE, KeyCode::Char('0'), "0 does nothing"),
    ] {
        let mut app = app(View::Statements);
        assert_eq!(app.key(KeyEvent::new(code, modifiers)), []);
        assert!(app.status.starts_with(says), "{}", app.status);
    }
    // What is typed is no key.
    let mut app = app(View::Statements);
    type_text(&mut app, "/count");
    app.key(KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL));
    assert_eq!(
        (app.mode.clone(), app.filter()),
        (Mode::Filter, "count".to_owned())
    );
}

/// The first screen has none above it, also if it is no list.
#[test]
fn escape_is_offered_where_something_is_above() {
    let mut app = app(View::Live);
    open_running(&mut app);
    assert!(crate::hints::hint(&app, 120).contains("Esc back"));
    let data = app.data.clone();
    let pid = app.process().expect("a process");
    let mut app = App::new(
        Screen::LivePlan(pid),
        String::new(),
        Duration::from_secs(1),
        false,
    );
    app.data = data;
    let hint = crate::hints::hint(&app, 120);
    assert!(
        !hint.contains("Esc") && hint.ends_with("? help  q leave"),
        "{hint}"
    );
    // What was said goes first.
    press(&mut app, KeyCode::Tab);
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.status, "");
    press(&mut app, KeyCode::Esc);
    assert!(app.status.contains("q leaves"), "{}", app.status);
}

/// Nothing is written without a server, and nothing is a table that has no rows.
#[test]
fn what_cannot_be_done_is_not_offered() {
    let mut app = app(View::Live);
    open_running(&mut app);
    assert!(crate::hints::hint(&app, 120).contains("e as a table"));
    empty(&mut app);
    assert!(!crate::hints::hint(&app, 120).contains("e as a table"));
    let mut app = super::app(View::Statements);
    assert!(crate::hints::hint(&app, 120).contains("w report"));
    app.data.is_replay = true;
    let list = crate::hints::hint(&app, 120);
    open_plan(&mut app);
    let plan = crate::hints::hint(&app, 120);
    assert!(
        !list.contains("w report") && !plan.contains("w HTML"),
        "{list} {plan}"
    );
    assert!(plan.contains("e EXPLAIN"), "{plan}");
}

/// On a server without the extension, keys that need it say what is missing, and no empty screen opens.
#[test]
fn keys_that_need_the_extension_say_so() {
    let mut refresh = recorded().pop().expect("a refresh");
    refresh.server.loaded = false;
    for key in ['e', 'f', 'c', 'b', 'w', '\n'] {
        let mut app = app(View::Sessions);
        app.apply(refresh.clone());
        let code = if key == '\n' {
            KeyCode::Enter
        } else {
            KeyCode::Char(key)
        };
        assert_eq!(press(&mut app, code), [], "{key}");
        assert!(
            app.status.contains("shared_preload_libraries"),
            "{key}: {}",
            app.status
        );
        assert_eq!(*app.screen(), Screen::List(View::Sessions), "{key}");
    }
}

/// Some terminals send Ctrl-h for Backspace.
#[test]
fn ctrl_h_deletes_a_letter() {
    let mut app = app(View::Statements);
    type_text(&mut app, "/ab");
    app.key(KeyEvent::new(KeyCode::Char('h'), KeyModifiers::CONTROL));
    assert_eq!(app.filter(), "a");
}

/// A terminal says what was pasted: its letters are no commands.
#[test]
fn a_text_that_is_pasted_is_no_keys() {
    let mut app = app(View::Live);
    let addressee = Addressee {
        pid: 7,
        ..Addressee::default()
    };
    app.mode = Mode::Confirm(Signal::Terminate, Box::new(addressee));
    let asked = app.mode.clone();
    app.paste("y");
    assert_eq!(app.mode, asked);
    app.mode = Mode::Normal;
    app.paste("q9");
    assert_eq!(app.screen(), &Screen::List(View::Live));
    type_text(&mut app, "/");
    app.paste("orders\n");
    assert_eq!(app.filter(), "orders");
    let long = "x".repeat(1_000);
    app.paste(&long);
    assert!(app.filter().len() <= 200);
}

#[test]
fn options_of_the_screen_may_stand_without_a_command() {
    let options = |line: &[&str]| Arguments::try_parse_from(line).map(|it| it.top.output.once);
    assert!(options(&["rowsource", "--once"]).is_ok_and(|once| once));
    assert!(options(&["rowsource", "-h", "x", "--view", "locks", "--once"]).is_ok_and(|once| once));
    assert!(options(&["rowsource", "top", "--once"]).is_ok_and(|once| !once));
    assert!(options(&["rowsource", "plan", "1", "--once"]).is_err());
}
