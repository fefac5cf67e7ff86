//! Measures statements while the executor runs them: `hooks` decide what is measured, and count `nesting`; `statement` is
//! the state of one running statement; `explain` is the option that EXPLAIN has from 18 on.

pub mod explain;
pub mod hooks;
pub mod nesting;
pub mod statement;
