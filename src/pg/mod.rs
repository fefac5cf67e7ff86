//! The adapter's border with PostgreSQL: the only folder that may say `unsafe`.
//!
//! * `hooks` decide what is measured and keep nesting; `statement` is the state of one running statement;
//! * `wrapper` is the hot path; `hot` is the process-wide state that it touches, by way of `usage` and `timing`;
//! * `explain` is the option that EXPLAIN has from 18 on;
//! * `tree` walks plan states, `harvest` turns raw state into figures, `identity` and `describe` name plans;
//! * `protect` is PG_TRY for plain frames;
//! * `tempfile` counts and times requests to temporary files;
//! * `backend_local` is for state that needs no lock;
//! * `compat` holds every difference between PostgreSQL's major versions, `raw` the functions called unguarded.
//!
//! What every measured statement runs through lies side by side, in the section `.text.hot.rowsource`; what few do is
//! kept out of it (`inline(never)`). Where many sessions take turns on a processor, a short statement finds the caches
//! empty, and pays for each page and line of code more than for the instructions in it.

pub mod backend_local;
pub mod compat;
pub mod contained;
pub mod describe;
pub mod explain;
pub mod harvest;
pub mod hooks;
pub mod hot;
pub mod identity;
pub mod memory;
pub mod nesting;
pub mod node;
pub mod parallel;
pub mod protect;
pub mod quiet;
pub mod raw;
pub mod server;
pub mod setting;
pub mod srf;
pub mod statement;
pub mod statfile;
pub mod store;
pub mod tempfile;
pub mod tick;
pub mod timing;
pub mod tree;
pub mod usage;
pub mod workarea;
pub mod wrapper;
