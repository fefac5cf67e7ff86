//! What the terminal can show: whether a screen can be drawn on it, and whether in colours.

use std::ffi::OsString;

/// What the environment says of the terminal.
pub struct Terminal {
    /// `TERM`: its name; nothing if it is not set.
    name: Option<String>,
    wants_no_colour: bool,
}

impl Terminal {
    /// Reads the variables of the environment.
    pub fn new(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let is_set = |name: &str| text(name).is_some_and(|value| !value.is_empty());
        Self {
            name: text("TERM").filter(|name| !name.is_empty()),
            // The first is of no-color.org, the other one older.
            wants_no_colour: is_set("NO_COLOR") || text("CLICOLOR").is_some_and(|value| value == "0"),
        }
    }

    /// Returns whether there are colours: unless the user wants none, or the terminal has none.
    pub fn has_colour(&self) -> bool {
        let name = self.name.as_deref().unwrap_or("dumb");
        // Terminals of the VT series, and variants of others without colours.
        let number = name.strip_prefix("vt").unwrap_or("");
        let is_old = number.starts_with(|letter: char| letter.is_ascii_digit()) && !name.contains("color");
        let is_mono = name.ends_with("-m") || name.ends_with("-mono");
        !(self.wants_no_colour || name == "dumb" || is_old || is_mono)
    }

    /// Returns why no screen can be drawn that moves; nothing if it can.
    pub fn refuses(&self) -> Option<String> {
        let why = match self.name.as_deref() {
            None => "TERM is not set, so nothing is known of the terminal",
            Some("dumb") => "the terminal cannot move its cursor (TERM=dumb)",
            Some(_) => return None,
        };
        Some(format!("{why}: --once prints the screen, --json too"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(variables: &[(&str, &str)]) -> Terminal {
        Terminal::new(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn colours_are_those_that_the_terminal_has_and_the_user_wants() {
        for name in [
            "xterm",
            "xterm-256color",
            "screen",
            "tmux-256color",
            "linux",
            "vt100-color",
        ] {
            assert!(terminal(&[("TERM", name)]).has_colour(), "{name}");
            for (variable, value) in [("NO_COLOR", "1"), ("CLICOLOR", "0")] {
                assert!(!terminal(&[("TERM", name), (variable, value)]).has_colour());
            }
            for (variable, value) in [("NO_COLOR", ""), ("CLICOLOR", "1")] {
                assert!(terminal(&[("TERM", name), (variable, value)]).has_colour());
            }
        }
        for name in ["dumb", "", "vt100", "vt220", "xterm-mono", "linux-m"] {
            assert!(!terminal(&[("TERM", name)]).has_colour(), "{name}");
        }
        assert!(!terminal(&[]).has_colour());
    }

    #[test]
    fn a_terminal_that_draws_nothing_is_refused() {
        for variables in [&[("TERM", "dumb")][..], &[("TERM", "")], &[]] {
            let why = terminal(variables).refuses();
            assert!(why.is_some_and(|why| why.contains("TERM") && why.contains("--once")));
        }
        assert_eq!(terminal(&[("TERM", "vt100")]).refuses(), None);
    }
}
