//! What a record holds. Nothing here runs anything, prints anything or reads a file.

pub mod chart;
pub mod check;
pub mod machine;
pub mod number;
pub mod record;
pub mod sizes;
pub mod spread;
pub mod table;
