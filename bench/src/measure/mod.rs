//! What experiments measure with: their context, sessions, CPU time, instruction counts, interleaved rounds,
//! and the tables that several experiments share.

pub mod context;
pub mod cpu;
pub mod machine;
pub mod narrow;
pub mod phases;
pub mod progress;
pub mod rounds;
pub mod session;
pub mod tpch;
pub mod tpch_queries;
