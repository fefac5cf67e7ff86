//! Reads plans: `tree` walks plan states, `identity` computes a plan's number, `describe` has EXPLAIN describe a plan, and
//! `side_effects` tells which plans only read.

pub mod describe;
pub mod identity;
pub mod side_effects;
pub mod tree;
