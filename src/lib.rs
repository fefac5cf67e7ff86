//! pg_rowsource: row source execution statistics for PostgreSQL.
//!
//! This crate connects PostgreSQL with the pure crate `rowsource-core`. `pg/` contains all code that calls
//! PostgreSQL, and is the only place with `unsafe`. `guc` defines the settings, `instrumentation` derives
//! from them how a statement is measured, `session` stores the session's plans, and `functions` are the SQL
//! functions.

#![deny(ffi_unwind_calls)]
#![allow(
    unsafe_code,
    reason = "pgrx's macros expand to unsafe; a test allows written unsafe only in src/pg/"
)]

mod functions;
mod guc;
mod instrumentation;
mod pg;
mod session;

pgrx::pg_module_magic!();

// The SQL file that `cargo pgrx install` installs.
pgrx::extension_sql_file!("../pg_rowsource--0.2.0.sql", name = "pg_rowsource");

/// Turns the library on or off in this process.
fn set_enabled(is_on: bool) {
    pg::server::switch::set_own(is_on);
    pg::interpose::set_enabled(is_on);
}

/// Initialises the library. PostgreSQL calls it once when the postmaster or a session loads the library.
#[allow(non_snake_case)]
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    rowsource_core::clock::prepare();
    pg::server::enable_query_ids();
    pg::server::switch::share();
    pg::executor::breaker::init();
    guc::init(
        set_enabled,
        pg::executor::breaker::set_limit,
        pg::sql_trace::targets::set_own,
    );
    pg::store::init();
    pg::plan::describe::unended::init();
    pg::executor::hooks::init();
    let interposed = pg::interpose::install();
    pg::tempfile::init(&interposed);
    pg::waits::init(interposed);
    pg::executor::explain::init();
    pg::ash::worker::init();
}
