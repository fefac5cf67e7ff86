//! The program `rowsource` in a real terminal (tmux), that a test types into.

use crate::{Server, process};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
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

/// Runs the program with arguments and variables, without a terminal. It has no others of a user.
pub fn run(arguments: &[&str], variables: &[(&str, String)]) -> Output {
    let mut command = Command::new(program());
    command.args(arguments).env_remove("PGHOST");
    variables.iter().for_each(|(name, value)| {
        command.env(name, value);
    });
    command.output().expect("the program runs")
}

/// Runs the program with arguments against a server, as a role, and returns whether it succeeded, and what it
/// wrote to its output and to its errors.
pub fn run_as(server: &Server, user: &str, arguments: &[&str]) -> (bool, String, String) {
    let folder = server.folder().display().to_string();
    let output = run(
        &[&["-h", &folder, "-U", user, "-d", "postgres"], arguments].concat(),
        &[],
    );
    // An assertion that fails ends it with 101, and a signal with none.
    assert!(matches!(output.status.code(), Some(0..=2)), "{output:?}");
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("a text"));
    (output.status.success(), out, err)
}

/// Runs openssl in a folder.
pub fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .output();
    let output = output.expect("openssl runs");
    assert!(output.status.success(), "{output:?}");
}

/// Makes a certificate for localhost that signs itself, `NAME.crt` and `NAME.key` in a folder, with more
/// options of `openssl req`, and returns its file.
pub fn signed_by_itself(folder: &Path, name: &str, more: &str) -> String {
    let make = format!(
        "req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.crt -days 2 -subj /CN=localhost"
    );
    openssl(folder, (make + more).as_str());
    folder.join(name).with_extension("crt").display().to_string()
}

/// Makes an authority and a certificate for localhost in a folder, and returns the authority's file.
pub fn certificates(folder: &Path) -> String {
    let openssl = |arguments: &str| openssl(folder, arguments);
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority");
    openssl("req -newkey rsa:2048 -nodes -keyout it.key -out it.csr -subj /CN=localhost");
    fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").expect("a file");
    openssl(
        "x509 -req -in it.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out it.crt -days 2 -extfile names",
    );
    folder.join("ca.crt").display().to_string()
}

/// Returns whether a screen has a negative figure, in any column. A queryid, which is longer than figures
/// are, may be negative.
pub fn has_negative(screen: &str) -> bool {
    screen.split_whitespace().any(|word| {
        let rest = word.strip_prefix('-').unwrap_or_default();
        rest.starts_with(|letter: char| letter.is_ascii_digit()) && rest.len() < 12
    })
}

/// A terminal of tmux, with a server of its own.
pub struct Terminal(String);

impl Terminal {
    /// Runs the program with these arguments against a server, in a terminal of 120 columns and 40 lines.
    pub fn of(server: &Server, arguments: &[&str]) -> Terminal {
        let folder = server.folder().display().to_string();
        let connection = format!("-h '{folder}' -U postgres -d postgres ");
        // What the program writes lies in the server's folder.
        Terminal::of_command(&folder, "", &(connection + &arguments.join(" ")))
    }

    /// Runs the program with these variables and arguments, as a shell reads them, in a folder.
    pub fn of_command(folder: &str, variables: &str, arguments: &str) -> Terminal {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal(format!("rowsource-{}-{number}", std::process::id()));
        // Ctrl-C ends the program, and not the shell.
        let command = format!(
            "trap : INT; {variables} '{}' {arguments}; echo left with $?; sleep 60",
            program()
        );
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
        terminal.tmux(&[&start[..], &["-c", folder, &command]].concat());
        terminal.tmux(&["set-option", "-g", "set-clipboard", "on"]);
        terminal
    }

    /// Returns the process of the program.
    pub fn process(&self) -> u32 {
        let shell = self.tmux(&["list-panes", "-t", "it", "-F", "#{pane_pid}"]);
        let shell = shell.trim().parse().expect("the process of the shell");
        let children = process::children(shell);
        assert_eq!(children.len(), 1, "{children:?}");
        children[0]
    }

    /// Returns what the program has put on the terminal's clipboard.
    pub fn clipboard(&self) -> String {
        self.tmux(&["show-buffer"])
    }

    /// Returns what the screen shows.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "it"])
    }

    /// Returns what the screen shows, and what has moved out of it.
    pub fn history(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-", "-t", "it"])
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
    pub fn until_it(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) -> String {
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

#[cfg(test)]
mod tests {
    use super::has_negative;

    #[test]
    fn a_negative_figure_is_found_in_each_column() {
        for screen in ["-1 a", "a  -0.3 ms", "x -12%", "x\n   12 -5", "9 9 -1"] {
            assert!(has_negative(screen), "{screen}");
        }
        let fine = "2026-11-29 - 0% -> x-1 --once -h a\n-5307272899094270794 SELECT $1 - $2 ..........";
        assert!(!has_negative(fine));
    }
}
