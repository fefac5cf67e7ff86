//! The record of one experiment: everything that the report is made of, and the raw values behind it.

use super::chart::BarChart;
use super::check::{Check, Verdict};
use super::machine::{Machine, Versions};
use super::sizes::Sizes;
use super::table::Table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize)]
pub struct Record {
    pub experiment: String,
    pub question: String,
    /// UTC, as in RFC 3339.
    pub date: String,
    pub seconds: f64,
    pub sizes: Sizes,
    pub machine: Machine,
    pub versions: Versions,
    /// The experiment's own settings: rows, rounds.
    pub settings: BTreeMap<String, String>,
    /// The settings that all servers of the experiment share.
    pub server_settings: BTreeMap<String, String>,
    pub findings: Vec<String>,
    pub tables: Vec<Table>,
    pub plots: Vec<BarChart>,
    pub checks: Vec<Check>,
    pub samples: Vec<Measured>,
}

/// Raw values, one for each round.
#[derive(Serialize, Deserialize)]
pub struct Measured {
    pub of: String,
    pub variant: String,
    pub unit: String,
    pub values: Vec<f64>,
}

impl Record {
    /// Returns whether no check of an exact value failed.
    pub fn exact_checks_hold(&self) -> bool {
        !self
            .checks
            .iter()
            .any(|check| check.exact && check.verdict == Verdict::Missed)
    }
}
