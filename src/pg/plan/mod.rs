//! Reads plans: `tree` walks plan states, `identity` computes a plan's number, `describe` describes a plan with EXPLAIN,
//! and `side_effects` finds plans that only read.

pub mod describe;
pub mod identity;
pub mod side_effects;
pub mod tree;
