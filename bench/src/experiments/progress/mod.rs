//! How far `rowsource_progress` is from the truth: long statements, whose progress another session polls. The
//! truth of a poll is the part of the statement's time that had passed, which is known when it has ended.

mod polls;
pub mod shapes;
pub mod tpch;
