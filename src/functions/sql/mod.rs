//! The objects that are written in SQL.

pub mod baselines;
pub mod blockers;
pub mod common;
pub mod history;
pub mod snapshots;
pub mod views;
