//! What a throwaway server wrote to its log.

use crate::crashes;
use crate::server::Server;
use std::fs;

impl Server {
    /// Returns the server's log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder().join("log")).unwrap_or_default()).into_owned()
    }

    /// Returns the lines of the log that name the library, without statements.
    pub fn log_of_library(&self) -> Vec<String> {
        let log = self.log();
        let lines = log.lines().filter(|line| names_library(line));
        lines
            // PostgreSQL says "background worker ... exited" of each worker that it stops.
            .filter(|line| !line.contains("STATEMENT:") && !line.contains("background worker"))
            .map(String::from)
            .collect()
    }

    /// Empties the log, if only later lines matter or the earlier errors were intended. Crashes in it still
    /// fail the test.
    pub fn clear_log(&self) {
        let cleared: Vec<String> = crashes::crashes(self.folder());
        let _ = fs::remove_file(self.folder().join("crashes"));
        crashes::note(self.folder(), &cleared);
        fs::write(self.folder().join("log"), "").expect("the log can be emptied");
    }

    /// Returns the failures in the log with the lines around them, for messages of failed tests.
    pub fn log_extract(&self) -> String {
        const SIGNS: [&str; 6] = [
            "FATAL:",
            "PANIC:",
            "panicked at",
            "panic",
            "terminated by signal",
            "WARNING:",
        ];
        let log = self.log();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| !line.contains("not yet accepting connections"))
            .collect();
        let wanted = |at: usize| {
            let around = at.saturating_sub(2)..(at + 3).min(lines.len());
            lines[around]
                .iter()
                .any(|line| SIGNS.iter().any(|sign| line.contains(sign)))
        };
        let extract: Vec<&str> = (0..lines.len())
            .filter(|&at| wanted(at))
            .map(|at| lines[at])
            .collect();
        extract[extract.len().saturating_sub(30)..].join("\n")
    }
}

/// Returns whether a line of the log names the library. That a path does says nothing: any folder may have
/// that name, and spaces.
fn names_library(line: &str) -> bool {
    let quoted = line.split('"').skip(1).step_by(2);
    let words = line.split('"').step_by(2).flat_map(|text| text.split(' '));
    quoted
        .chain(words)
        .any(|part| part.contains("pg_rowsource") && !part.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::names_library;

    #[test]
    fn a_folder_of_that_name_is_not_the_library() {
        let socket = "2026 [1] LOG:  listening on Unix socket \"/home/my pg_rowsource clone/.s.PGSQL.5432\"";
        assert!(!names_library(socket));
        let of_library =
            "2026 [1] LOG:  pg_rowsource could not save its statistics to \"pg_stat/pg_rowsource.stat\": x";
        assert!(names_library(of_library));
    }
}
