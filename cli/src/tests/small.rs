//! A small terminal, and what stands above what.

use super::*;
use ratatui::style::Modifier;

fn lines(app: &mut App, width: u16, height: u16) -> Vec<String> {
    lines_of(&screen(app, width, height, true))
}

#[test]
fn a_narrow_terminal_has_all_views_and_all_keys() {
    let mut app = app(View::Locks);
    let shown = lines(&mut app, 40, 10);
    assert_eq!(shown[1], "1 2 3 4 5 6 7 8locks 9");
    press(&mut app, KeyCode::Char('?'));
    let mut seen = lines(&mut app, 40, 10).join("\n");
    for _ in 0..60 {
        press(&mut app, KeyCode::Down);
        seen += &lines(&mut app, 40, 10).join("\n");
    }
    assert!(matches!(app.mode, Mode::Help(first) if first == app.help_rest));
    for entry in crate::keys::ENTRIES {
        assert!(seen.contains(entry.does), "{}: {seen}", entry.does);
    }
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.mode, Mode::Normal);
    // A help that fits is closed by any key.
    lines(&mut app, 80, 24);
    press(&mut app, KeyCode::Char('?'));
    lines(&mut app, 80, 24);
    press(&mut app, KeyCode::Down);
    assert_eq!(app.mode, Mode::Normal);
}

#[test]
fn the_question_before_a_signal_is_shown_whole() {
    let mut app = app(View::Locks);
    let pid = question(&mut app, 'C');
    let shown = lines(&mut app, 40, 10);
    assert_eq!(shown[9], format!("cancel {pid}? y: yes, other keys: no"));
    assert!(lines(&mut app, 80, 24)[23].starts_with("cancel the statement of process"));
}

/// The help covers what is below it, with its colours.
#[test]
fn nothing_shows_through_the_help() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    press(&mut app, KeyCode::Char('?'));
    let buffer = screen(&mut app, 80, 24, true);
    // A line in the middle, within the help.
    let styles: Vec<_> = (4..76).map(|x| buffer[(x, 12)].style()).collect();
    assert!(styles.iter().all(|style| *style == styles[0]), "{styles:?}");
    assert!(!styles[0].add_modifier.contains(Modifier::BOLD));
}

/// Old figures do not stand below a time as if they were new.
#[test]
fn figures_without_a_connection_say_of_when_they_are() {
    let mut app = app(View::Statements);
    let clock = crate::format::clock(app.data.at);
    let trouble = "connection refused: is the server running on that host and accepting TCP/IP connections?";
    app.trouble = Some(trouble.to_owned());
    let shown = lines(&mut app, 80, 24);
    assert!(
        shown[0].contains(&format!("NO CONNECTION: figures of {clock} UTC")),
        "{shown:#?}"
    );
    let shown = shown.join(" ");
    for word in trouble.split(' ') {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

#[test]
fn columns_do_not_become_narrower_while_somebody_looks() {
    let mut app = app(View::Sessions);
    let titles = |app: &mut App| lines(app, 120, 40)[3].clone();
    let wide = titles(&mut app);
    app.data.sessions.truncate(1);
    assert_eq!(titles(&mut app), wide);
}
