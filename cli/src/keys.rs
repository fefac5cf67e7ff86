//! The keys: the help, the man page, the list of `rowsource keys` and what a key does are made of this table.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::format::wrap;
use crate::screens::View;

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Opens the view with this number.
    View(usize),
    /// Selects a row that is so far below.
    Select(isize),
    /// The same in pages.
    Page(isize),
    First,
    Last,
    Down,
    Up,
    /// Moves a text, else as Up and Down.
    Left,
    Right,
    Filter,
    Command,
    /// Sorts by a column that is so far right.
    Sort(isize),
    Pause,
    /// Makes the interval longer or shorter.
    Interval(isize),
    Refresh,
    Explain,
    Flame,
    Compare,
    Blocker,
    Write,
    Copy,
    Cancel,
    Terminate,
    Help,
    Quit,
}

/// A line of the help.
pub struct Entry {
    /// The keys, as the help names them.
    pub shown: &'static str,
    pub does: &'static str,
    pub keys: &'static [(KeyModifiers, KeyCode, Action)],
}

const fn key(code: KeyCode, action: Action) -> (KeyModifiers, KeyCode, Action) {
    (KeyModifiers::NONE, code, action)
}

const fn letter(letter: char, action: Action) -> (KeyModifiers, KeyCode, Action) {
    key(KeyCode::Char(letter), action)
}

const fn control(letter: char, action: Action) -> (KeyModifiers, KeyCode, Action) {
    (KeyModifiers::CONTROL, KeyCode::Char(letter), action)
}

/// The keys beside the numbers of the views.
pub const ENTRIES: &[Entry] = &[
    Entry {
        shown: "up down j k",
        does: "select a row",
        keys: &[
            key(KeyCode::Up, Action::Select(-1)),
            key(KeyCode::Down, Action::Select(1)),
            letter('j', Action::Select(1)),
            letter('k', Action::Select(-1)),
        ],
    },
    Entry {
        shown: "PgUp PgDn g G",
        does: "a page, all rows",
        keys: &[
            key(KeyCode::PageUp, Action::Page(-1)),
            key(KeyCode::PageDown, Action::Page(1)),
            letter('g', Action::First),
            key(KeyCode::Home, Action::First),
            letter('G', Action::Last),
            key(KeyCode::End, Action::Last),
        ],
    },
    Entry {
        shown: "Enter right",
        does: "down: plan, node",
        keys: &[
            key(KeyCode::Enter, Action::Down),
            key(KeyCode::Right, Action::Right),
        ],
    },
    Entry {
        shown: "Esc left",
        does: "up",
        keys: &[
            key(KeyCode::Esc, Action::Up),
            key(KeyCode::Left, Action::Left),
            key(KeyCode::Backspace, Action::Up),
        ],
    },
    Entry {
        shown: "/",
        does: "filter rows",
        keys: &[letter('/', Action::Filter)],
    },
    Entry {
        shown: ":",
        does: "view by name",
        keys: &[letter(':', Action::Command)],
    },
    Entry {
        shown: "< >",
        does: "sort by a column",
        keys: &[letter('<', Action::Sort(-1)), letter('>', Action::Sort(1))],
    },
    Entry {
        shown: "Space",
        does: "pause",
        keys: &[letter(' ', Action::Pause)],
    },
    Entry {
        shown: "+ -",
        does: "refresh interval",
        keys: &[
            letter('+', Action::Interval(1)),
            letter('-', Action::Interval(-1)),
        ],
    },
    Entry {
        shown: "r",
        does: "refresh now",
        keys: &[letter('r', Action::Refresh), control('l', Action::Refresh)],
    },
    Entry {
        shown: "e",
        does: "plan as EXPLAIN",
        keys: &[letter('e', Action::Explain)],
    },
    Entry {
        shown: "f",
        does: "where its time goes",
        keys: &[letter('f', Action::Flame)],
    },
    Entry {
        shown: "c",
        does: "compare two plans",
        keys: &[letter('c', Action::Compare)],
    },
    Entry {
        shown: "b",
        does: "who blocks it",
        keys: &[letter('b', Action::Blocker)],
    },
    Entry {
        shown: "w",
        does: "write a page of HTML",
        keys: &[letter('w', Action::Write)],
    },
    Entry {
        shown: "y",
        does: "copy the text",
        keys: &[letter('y', Action::Copy)],
    },
    Entry {
        shown: "C",
        does: "cancel a statement",
        keys: &[letter('C', Action::Cancel)],
    },
    Entry {
        shown: "T",
        does: "terminate a session",
        keys: &[letter('T', Action::Terminate)],
    },
    Entry {
        shown: "? F1",
        does: "this help",
        keys: &[letter('?', Action::Help), key(KeyCode::F(1), Action::Help)],
    },
    Entry {
        shown: "q Ctrl-C",
        does: "leave",
        keys: &[letter('q', Action::Quit), control('c', Action::Quit)],
    },
];

/// Returns what a key does.
pub fn action(event: &KeyEvent) -> Option<Action> {
    let control = event.modifiers & KeyModifiers::CONTROL;
    if let (KeyCode::Char(digit @ '1'..='9'), true) = (event.code, control.is_empty()) {
        return Some(Action::View(digit as usize - '1' as usize));
    }
    let mut keys = ENTRIES.iter().flat_map(|entry| entry.keys);
    keys.find(|(modifiers, code, _)| (*modifiers, *code) == (control, event.code))
        .map(|(.., action)| *action)
}

/// Returns the name of a key, as tmux has it.
pub fn name(modifiers: KeyModifiers, code: KeyCode) -> String {
    let prefix = if modifiers.is_empty() { "" } else { "C-" };
    let name = match code {
        KeyCode::Char(' ') => "Space".to_owned(),
        KeyCode::Char(letter) => letter.to_string(),
        KeyCode::Esc => "Escape".to_owned(),
        KeyCode::Backspace => "BSpace".to_owned(),
        KeyCode::PageUp => "PPage".to_owned(),
        KeyCode::PageDown => "NPage".to_owned(),
        KeyCode::F(number) => format!("F{number}"),
        other => format!("{other:?}"),
    };
    format!("{prefix}{name}")
}

/// Returns the name of each key, and what it does.
pub fn all() -> Vec<(String, String)> {
    let views = View::ALL.iter().enumerate();
    let views = views.map(|(number, view)| ((number + 1).to_string(), view.name().to_owned()));
    let others = ENTRIES.iter().flat_map(|entry| {
        let keys = entry.keys.iter();
        keys.map(|(modifiers, code, _)| (name(*modifiers, *code), entry.does.to_owned()))
    });
    views.chain(others).collect()
}

impl Entry {
    /// Returns whether it is a key of a program that must not change anything.
    fn is_offered(&self, read_only: bool) -> bool {
        let is_signal = |action| matches!(action, Action::Cancel | Action::Terminate);
        !read_only || !self.keys.iter().any(|(.., action)| is_signal(*action))
    }
}

/// How wide the help is, with its frame.
const HELP_WIDTH: usize = 76;

/// Returns the lines of the help: without the keys that send signals, if none are sent. A narrow terminal
/// has a line for each key.
pub fn help(read_only: bool, width: usize) -> Vec<String> {
    let offered: Vec<&Entry> = ENTRIES
        .iter()
        .filter(|entry| entry.is_offered(read_only))
        .collect();
    let is_narrow = width < HELP_WIDTH;
    let views: Vec<String> = View::ALL
        .iter()
        .enumerate()
        .map(|(number, view)| format!("{} {:<13}", number + 1, view.name()))
        .collect();
    let mut lines: Vec<String> = views
        .chunks(if is_narrow { 2 } else { 4 })
        .map(|views| views.concat())
        .collect();
    lines.push(String::new());
    let half = ENTRIES.len().div_ceil(2).min(offered.len());
    let (left, right) = offered.split_at(if is_narrow { offered.len() } else { half });
    let entry = |entry: &&Entry| format!("{:<14}{:<20}", entry.shown, entry.does);
    let right = right.iter().map(entry).chain(std::iter::repeat(String::new()));
    lines.extend(
        left.iter()
            .map(entry)
            .zip(right)
            .map(|(left, right)| left + &right),
    );
    lines.push(String::new());
    let words = [
        "statements, nodes and waits: what was added between two refreshes.",
        "Marked row: the node that takes the most time. ->: it runs now.",
        "left and right also move wide texts. A key closes this help.",
    ];
    lines.extend(
        words
            .iter()
            .flat_map(|text| wrap(text, width.saturating_sub(4).max(16), 5)),
    );
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns the section of the man page.
pub fn man() -> String {
    let mut text = ".SH KEYS\n".to_owned();
    for (number, view) in View::ALL.iter().enumerate() {
        text += &format!(".TP\n{}\nthe view {}\n", number + 1, view.name());
    }
    for entry in ENTRIES {
        let shown = entry.shown.replace('-', "\\-");
        text += &format!(".TP\n{shown}\n{}\n", entry.does);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_key_is_declared_once_and_does_what_is_declared() {
        let keys: Vec<_> = ENTRIES.iter().flat_map(|entry| entry.keys).collect();
        for (modifiers, code, does) in &keys {
            assert_eq!(action(&KeyEvent::new(*code, *modifiers)), Some(*does));
        }
        let names: BTreeSet<String> = all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), keys.len() + View::ALL.len());
    }

    #[test]
    fn the_help_fits_a_small_terminal() {
        let lines = help(false, 80);
        assert!(
            lines.len() <= 22 && lines.iter().all(|line| line.len() <= 76),
            "{lines:#?}"
        );
        let all = lines.join("\n");
        let narrow = help(false, 40);
        assert!(narrow.iter().all(|line| line.len() <= 36), "{narrow:#?}");
        let narrow = narrow.join(" ");
        assert!(ENTRIES.iter().all(|entry| narrow.contains(entry.does)));
        // The book has the same.
        let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/terminal.md");
        let book = std::fs::read_to_string(book).expect("the book");
        let keys = &all[..all.find("statements, nodes and waits").unwrap_or(0)];
        assert!(book.contains(keys.trim_end()), "{keys}");
        assert!(ENTRIES.iter().all(|entry| all.contains(entry.does)));
    }
}
