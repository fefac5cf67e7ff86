//! The statements whose figures are compared with core's, by topic.

pub mod dml;
pub mod joins;
pub mod parallel;
pub mod scans;
pub mod shaping;

/// One compared statement.
#[derive(Clone, Copy)]
pub struct Case {
    /// What it is about.
    pub name: &'static str,
    /// The statement.
    pub statement: &'static str,
    /// Operations that must be in its plan, so that the case covers what its name says.
    pub expects: &'static [&'static str],
    /// Run first in each session.
    pub settings: &'static str,
    /// Run before each single run, where the statement changes something.
    pub reset: &'static str,
    /// Whether it divides work between processes by chance (see `tests/equality.rs`).
    pub parallel: bool,
}

impl Case {
    /// A statement without further ado.
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

    /// With settings (any SQL) at the start of the session.
    pub const fn settings(self, settings: &'static str) -> Case {
        Case { settings, ..self }
    }

    /// With SQL that brings back the state before each run; such a statement is not warmed up.
    pub const fn reset(self, reset: &'static str) -> Case {
        Case { reset, ..self }
    }

    /// As one whose work is divided by chance.
    pub const fn parallel(self) -> Case {
        Case {
            parallel: true,
            ..self
        }
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        scans::CASES,
        joins::CASES,
        shaping::CASES,
        dml::CASES,
        parallel::CASES,
    ]
    .into_iter()
    .flatten()
}
