//! The program `rowsource` in a real terminal (tmux), that a test types into.

use crate::Server;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Its views.
pub const VIEWS: [&str; 9] = [
    "statements",
    "nodes",
    "live",
    "activity",
    "findings",
    "waits",
    "temp",
    "locks",
    "sessions",
];

/// Returns the program, which scripts/test.sh builds.
pub fn program() -> String {
    let path = std::env::var_os("ROWSOURCE_PROGRAM").expect("scripts/test.sh sets ROWSOURCE_PROGRAM");
    path.into_string().expect("a path")
}

/// A terminal of tmux, with a server of its own.
pub struct Terminal(String);

impl Terminal {
    /// Runs the program with these arguments against a server, in a terminal of 120 columns and 40 lines.
    pub fn of(server: &Server, arguments: &[&str]) -> Terminal {
        let terminal = Terminal(format!("rowsource-{}", std::process::id()));
        let command = format!(
            "'{}' -h '{}' -U postgres -d postgres {}; echo left with $?; sleep 60",
            program(),
            server.folder().display(),
            arguments.join(" ")
        );
        terminal.tmux(&["new-session", "-d", "-s", "it", "-x", "120", "-y", "40", &command]);
        terminal
    }

    /// Returns what the screen shows.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "it"])
    }

    /// Makes the terminal this large.
    pub fn resize(&self, columns: u32, lines: u32) {
        let [columns, lines] = [columns, lines].map(|it| it.to_string());
        self.tmux(&["resize-window", "-t", "it", "-x", &columns, "-y", &lines]);
    }

    /// Runs a command of tmux, and returns what it prints.
    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.0])
            .args(arguments)
            .output()
            .expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types keys, which have tmux's names.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "it"], keys].concat());
    }

    /// Waits until the screen has a text, and returns it.
    pub fn until(&self, text: &str) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{text} is missing: {screen}"
            );
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
