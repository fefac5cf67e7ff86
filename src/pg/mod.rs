//! Everything that deals with PostgreSQL, and the only folder that may say `unsafe`. From the top down:
//!
//! * `executor` measures statements while they run;
//! * `results` collects what their nodes counted, and has the core crate compute the statistics;
//! * `store` keeps the statistics of all sessions in shared memory and in a file;
//! * `tempfile` counts and times requests to temporary files;
//! * `plan` reads plans: their nodes, their number, their description;
//! * `hot` runs once per call of a plan node;
//! * `server` is the border with the server: errors, memory, processes, settings, rows;
//! * `compat` holds every difference between PostgreSQL's major versions.
//!
//! Code that every measured statement executes is placed in one section, `.text.hot.rowsource`. Rarely executed code is kept
//! out of it with `inline(never)`. If many sessions take turns on a processor, a short statement finds the caches empty.
//! Then each page and line of code costs more than the instructions in it.

pub mod compat;
pub mod executor;
pub mod hot;
pub mod plan;
pub mod results;
pub mod server;
pub mod store;
pub mod tempfile;
