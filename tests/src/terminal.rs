//! The program `rowsource` in a real terminal (tmux), that a test types into.

use crate::Server;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
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

/// Returns the names of all keys of the program, as tmux has them, and what each does.
pub fn declared_keys() -> Vec<(String, String)> {
    let output = Command::new(program())
        .arg("keys")
        .output()
        .expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("a text");
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs
        .map(|(name, does)| (name.to_owned(), does.to_owned()))
        .collect()
}

/// A terminal of tmux, with a server of its own.
pub struct Terminal(String);

impl Terminal {
    /// Runs the program with these arguments against a server, in a terminal of 120 columns and 40 lines.
    pub fn of(server: &Server, arguments: &[&str]) -> Terminal {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal(format!("rowsource-{}-{number}", std::process::id()));
        let command = format!(
            "'{}' -h '{}' -U postgres -d postgres {}; echo left with $?; sleep 60",
            program(),
            server.folder().display(),
            arguments.join(" ")
        );
        // What the program writes lies in the server's folder.
        let folder = server.folder().display().to_string();
        let start = [
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "it",
            "-x",
            "120",
            "-y",
            "40",
        ];
        terminal.tmux(&[&start[..], &["-c", &folder, &command]].concat());
        terminal.tmux(&["set-option", "-g", "set-clipboard", "on"]);
        terminal
    }

    /// Returns what the program has put on the terminal's clipboard.
    pub fn clipboard(&self) -> String {
        self.tmux(&["show-buffer"])
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
        self.until_it(text, |screen| screen.contains(text))
    }

    /// Waits until the screen is as it is to be, and returns it.
    pub fn until_it(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "never: {what}\n{screen}"
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
