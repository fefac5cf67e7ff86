//! Asks for a password on the terminal.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use crate::ending::Ending;

/// How often signals are looked for while no key comes.
const TICK: Duration = Duration::from_millis(50);

/// Keeps the terminal from showing what is typed, until it goes.
struct Silence;

impl Silence {
    fn new() -> io::Result<Self> {
        enable_raw_mode().map(|()| Self)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        drop(disable_raw_mode());
    }
}

/// What came of the keys.
#[derive(Debug, PartialEq)]
enum End {
    /// The password is whole.
    Entered,
    /// Ctrl-C.
    Interrupted,
    /// A signal, and the exit status that it asks for.
    Signalled(i32),
}

/// Asks until Enter. Ctrl-C and signals end the program, as a shell says it of one that these have ended.
pub fn ask(user: &str) -> io::Result<String> {
    let ending = Ending::watch(false)?;
    // Nothing that is typed after the question is shown, and nothing typed before it is a password.
    let silence = Silence::new()?;
    while event::poll(Duration::ZERO)? {
        drop(event::read()?);
    }
    write(&format!("Password for user {user}: "))?;
    let mut password = String::new();
    let end = loop {
        if let Some(status) = ending.status() {
            break End::Signalled(status);
        }
        if !event::poll(TICK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if let Some(end) = take(&mut password, key) {
            break end;
        }
    };
    drop(silence);
    write("\n")?;
    match end {
        End::Entered => Ok(password),
        End::Interrupted => std::process::exit(130),
        End::Signalled(status) => std::process::exit(status),
    }
}

/// Writes to the terminal, even if the errors of the program go to a file.
fn write(text: &str) -> io::Result<()> {
    match OpenOptions::new().write(true).open("/dev/tty") {
        Ok(mut terminal) => terminal.write_all(text.as_bytes()),
        Err(_) => io::stderr().write_all(text.as_bytes()),
    }
}

/// Takes a key.
fn take(password: &mut String, key: KeyEvent) -> Option<End> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Enter => return Some(End::Entered),
        KeyCode::Char('c') if is_control => return Some(End::Interrupted),
        KeyCode::Char('j' | 'm') if is_control => return Some(End::Entered),
        KeyCode::Char('d') if is_control && password.is_empty() => return Some(End::Entered),
        KeyCode::Char('u') if is_control => password.clear(),
        KeyCode::Char('h') if is_control => drop(password.pop()),
        KeyCode::Backspace => drop(password.pop()),
        KeyCode::Char(letter) if !is_control => password.push(letter),
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[(KeyCode, bool)]) -> (String, Option<End>) {
        let mut password = String::new();
        let mut end = None;
        for (code, is_control) in keys {
            assert_eq!(end, None);
            let modifiers = if *is_control {
                KeyModifiers::CONTROL
            } else {
                KeyModifiers::NONE
            };
            end = take(&mut password, KeyEvent::new(*code, modifiers));
        }
        (password, end)
    }

    #[test]
    fn keys_make_a_password() {
        let letters = |text: &str| -> Vec<_> { text.chars().map(|it| (KeyCode::Char(it), false)).collect() };
        let mut keys = letters("wrong");
        keys.push((KeyCode::Char('u'), true));
        keys.extend(letters("Pä sx"));
        keys.extend([(KeyCode::Backspace, false), (KeyCode::Left, false)]);
        keys.push((KeyCode::Char('d'), true));
        assert_eq!(typed(&keys), ("Pä s".to_owned(), None));
        keys.push((KeyCode::Enter, false));
        assert_eq!(typed(&keys), ("Pä s".to_owned(), Some(End::Entered)));
    }

    #[test]
    fn keys_end_the_question() {
        for (key, end) in [('c', End::Interrupted), ('d', End::Entered), ('j', End::Entered)] {
            assert_eq!(typed(&[(KeyCode::Char(key), true)]), (String::new(), Some(end)));
        }
    }
}
