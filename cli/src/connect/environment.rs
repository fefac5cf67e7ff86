//! Where parameters come from besides options, and what is said of wrong ones.

use std::env;
use std::path::PathBuf;

/// Why there is no connection, in one sentence.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// What the system says: variables, the home folder, and the user.
pub struct Environment {
    /// Reads a variable.
    pub read: fn(&str) -> Option<String>,
    /// The home folder.
    pub home: Option<PathBuf>,
    /// The user's name.
    pub user: String,
}

impl Environment {
    /// Returns that of this process.
    pub fn of_process() -> Self {
        let read = |name: &str| env::var(name).ok();
        Self {
            read,
            home: env::home_dir(),
            user: whoami::username().unwrap_or_default(),
        }
    }

    /// Returns a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.read)(name).filter(|value| !value.is_empty())
    }
}
