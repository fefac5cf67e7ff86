//! Reads plans: `tree` walks plan states, `identity` computes a plan's number, `describe` describes a plan
//! with EXPLAIN, `reading` finds nodes that may be stopped early, `side_effects` finds plans that only read,
//! and `temporary` identifies statements on temporary tables.

pub mod describe;
pub mod identity;
mod reading;
pub mod side_effects;
pub mod temporary;
pub mod tree;
