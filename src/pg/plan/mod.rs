//! Reads plans: `tree` walks plan states, `identity` computes a plan's number, `describe` describes a plan
//! with EXPLAIN, `aliases` numbers the aliases of partitions, `definition` says what an index indexes,
//! `entries` which tables a node scans, `fold` finds partitions that are read in the same way, `reading`
//! finds nodes that may be stopped early, `side_effects` finds plans that only read, and `temporary`
//! identifies statements on temporary tables.

mod aliases;
mod definition;
pub mod describe;
mod entries;
pub mod fold;
pub mod identity;
mod reading;
pub mod side_effects;
pub mod temporary;
pub mod tree;
