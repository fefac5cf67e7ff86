//! pg_rowsource: row source execution statistics for PostgreSQL.
//!
//! This crate connects PostgreSQL with the pure crate `rowsource-core`. `pg/` is the border to PostgreSQL and the only
//! place with `unsafe`. `guc` defines the settings, `instrumentation` derives from them how a statement is
//! measured, `session` keeps the session's plans, and `functions` are the SQL functions.

#![allow(
    unsafe_code,
    reason = "pgrx's macros expand to unsafe; tests/src/sources.rs allows written unsafe only in src/pg/"
)]

mod functions;
mod guc;
mod instrumentation;
mod pg;
mod session;

pgrx::pg_module_magic!();

// The SQL file that `cargo pgrx install` installs.
pgrx::extension_sql_file!("../pg_rowsource--0.1.0.sql", name = "pg_rowsource");

/// Initialises the library. PostgreSQL calls it once when the postmaster or a session loads the library.
#[allow(non_snake_case)]
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    rowsource_core::clock::prepare();
    pg::server::enable_query_ids();
    guc::init();
    pg::store::init();
    pg::executor::hooks::init();
    pg::tempfile::init();
    pg::executor::explain::init();
}
