//! The adapter's border with PostgreSQL: the only folder that may say `unsafe`.
//!
//! * `hooks` decide what is measured, and count `nesting`; `statement` is the state of one running statement;
//! * `hot` is the hot path: the wrapper, the nodes, the tick, and the process-wide state that they touch, by way of
//!   `usage` and `timing`;
//! * `explain` is the option that EXPLAIN has from 18 on;
//! * `server` has safe functions for what the server knows and does, `setting` those that define checked settings, and
//!   `srf` those that SQL functions use;
//! * `tree` walks plan states, `identity` and `describe` name plans, `node` and `node_table` hold what wrappers count;
//! * `results` collects that at the end and has the core crate compute the statistics;
//! * `pg_try` is PG_TRY for plain frames;
//! * `tempfile` counts and times requests to temporary files;
//! * `backend_local` is for state that needs no lock;
//! * `compat` holds every difference between PostgreSQL's major versions, `unguarded` the functions that are called without a
//!   guard.
//!
//! Code that every measured statement executes is placed in one section, `.text.hot.rowsource`. Rarely executed code is kept
//! out of it with `inline(never)`. If many sessions take turns on a processor, a short statement finds the caches empty.
//! Then each page and line of code costs more than the instructions in it.

pub mod backend_local;
pub mod compat;
pub mod contained;
pub mod describe;
pub mod explain;
pub mod hooks;
pub mod hot;
pub mod identity;
pub mod memory;
pub mod nesting;
pub mod node;
pub mod node_table;
pub mod parallel;
pub mod pg_try;
pub mod results;
pub mod server;
pub mod setting;
pub mod side_effects;
pub mod srf;
pub mod statement;
pub mod statfile;
pub mod store;
pub mod tempfile;
pub mod timing;
pub mod tree;
pub mod unguarded;
pub mod usage;
pub mod workarea;
