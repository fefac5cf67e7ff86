//! All code that deals with PostgreSQL. Only this folder may contain `unsafe` code. From the top down:
//!
//! * `executor` measures statements while they run;
//! * `results` collects what their nodes counted, and has the core crate compute the statistics;
//! * `live` shows the statements that run to other sessions;
//! * `ash` samples what all sessions do;
//! * `store` keeps the statistics of all sessions in shared memory and in a file;
//! * `interpose` replaces functions of the C library in the server's import table;
//! * `tempfile` counts and times requests to temporary files;
//! * `waits` counts and times the waits of all processes;
//! * `sql_trace` writes the session's SQL trace to a file;
//! * `buffers` reads blocks of a relation, and times each get;
//! * `plan` reads plans: their nodes, identity and description;
//! * `hot` runs once per call of a plan node;
//! * `server` wraps the services of the server: errors, memory, processes, settings, rows;
//! * `compat` holds every difference between PostgreSQL's major versions;
//! * `handles` leads from a started query to all that it is made of;
//! * `border` has the functions and the kind of static that all of these use.
//!
//! Code that every measured statement executes is placed in one section, `.text.hot.rowsource`. Rarely
//! executed code is kept out of it with `inline(never)`. If many sessions share a processor, a short
//! statement finds the processor's caches empty. Then fetching code costs more than executing it. The same is
//! done for data: see `border::backend_local`.

pub mod ash;
pub mod border;
pub mod buffers;
pub mod compat;
pub mod executor;
pub mod handles;
pub mod hot;
pub mod interpose;
pub mod live;
pub mod plan;
pub mod results;
pub mod server;
pub mod sql_trace;
pub mod store;
pub mod tempfile;
pub mod waits;
