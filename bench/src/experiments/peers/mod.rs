//! The same statements with other extensions that measure statements, in the same run.

pub mod analytical;
pub mod counted;
mod hosts;
pub mod many;
pub mod pgbench;
