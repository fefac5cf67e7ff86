//! pg_rowsource: row source execution statistics for PostgreSQL.
//!
//! This crate is the adapter between PostgreSQL and the pure crate `rowsource-core`: `pg/` is the border and the
//! only place with `unsafe`. `guc` defines the settings, `instrumentation` derives from them what a statement is measured
//! with, `session` keeps the session's plans, and `functions` are what SQL sees.

#![allow(
    unsafe_code,
    reason = "pgrx's macros expand to unsafe; scripts/check-sources.sh keeps other unsafe code in src/pg/"
)]

mod functions;
mod guc;
mod instrumentation;
mod pg;
mod session;

pgrx::pg_module_magic!();

// What `cargo pgrx install` installs as SQL.
pgrx::extension_sql_file!("../pg_rowsource--0.1.0.sql", name = "pg_rowsource");

/// Called once, when the library is loaded: by the postmaster, or by a session.
#[allow(non_snake_case)]
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    rowsource_core::clock::prepare();
    pg::server::enable_query_ids();
    guc::init();
    pg::store::init();
    pg::hooks::init();
    pg::tempfile::init();
    pg::explain::init();
}
