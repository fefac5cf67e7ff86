//! The statements whose statistics are compared with core's, by topic.

pub mod dml;
pub mod joins;
pub mod parallel;
pub mod partitions;
pub mod scans;
pub mod shaping;

/// One compared statement.
#[derive(Clone, Copy)]
pub struct Case {
    /// The case's name.
    pub name: &'static str,
    /// The statement.
    pub statement: &'static str,
    /// Operations that the plan must contain, so that the case covers what its name says.
    pub expects: &'static [&'static str],
    /// SQL that runs first in each session.
    pub settings: &'static str,
    /// SQL that runs before each run, if the statement changes something.
    pub reset: &'static str,
    /// Whether processes divide its work by chance (see `tests/equality.rs`).
    pub parallel: bool,
}

impl Case {
    /// Creates a case of a statement alone.
    pub const fn new(name: &'static str, statement: &'static str, expects: &'static [&'static str]) -> Case {
        Case {
            name,
            statement,
            expects,
            settings: "",
            reset: "",
            parallel: false,
        }
    }

    /// Adds settings (any SQL) for the start of the session.
    pub const fn settings(self, settings: &'static str) -> Case {
        Case { settings, ..self }
    }

    /// Adds SQL that restores the state before each run. There is no warm-up run of this statement.
    pub const fn reset(self, reset: &'static str) -> Case {
        Case { reset, ..self }
    }

    /// Marks the work as divided by chance.
    pub const fn parallel(self) -> Case {
        Case {
            parallel: true,
            ..self
        }
    }
}

/// Returns all cases.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        scans::CASES,
        joins::CASES,
        shaping::CASES,
        dml::CASES,
        parallel::CASES,
        partitions::CASES,
    ]
    .into_iter()
    .flatten()
}
