//! Reads plans: `tree` walks plan states, `identity` computes a plan's number, `describe` describes a plan
//! with EXPLAIN, `aliases` numbers the aliases of partitions, `by_tables` numbers nodes for all partitions of
//! a table, `definition` says what an index indexes, `entries` which tables a node scans, `fold` finds
//! partitions that are read in the same way, `pruned` has those that do not run, `reading` finds nodes that
//! may be stopped early, `side_effects` finds plans that only read, and `temporary` identifies statements on
//! temporary tables, `whole` has all nodes of a plan.

mod aliases;
mod by_tables;
mod definition;
pub mod describe;
mod entries;
pub mod fold;
pub mod identity;
mod pruned;
mod reading;
pub mod side_effects;
pub mod temporary;
pub mod tree;
mod whole;
