//! The machine and the versions that a result depends on.

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    pub kernel: String,
    pub hypervisor: bool,
    pub clocksource: String,
    /// The load average of the minute before the run.
    pub load: f64,
}

#[derive(Serialize, Deserialize)]
pub struct Versions {
    pub postgresql: String,
    pub pg_rowsource: String,
    /// The commit, followed by "+" if the checkout differs from it.
    pub commit: String,
    pub rustc: String,
}
