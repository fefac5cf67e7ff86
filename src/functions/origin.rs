//! The server whose history is shown: this one, or one of which rowsource_import() has read the history. The
//! two never mix.

use crate::guc;
use crate::pg::server::srf::Rows;
use crate::pg::server::{fail, query};
use pgrx::PgSqlErrorCode;

/// Returns the other server whose history is shown, if it is not this one.
pub fn other() -> Option<String> {
    let name = guc::history_origin()?;
    Some(name.to_string_lossy().into_owned())
}

/// Begins a report with the other server, if it is of one. Fails if nothing of it was imported.
pub fn begin(rows: &mut Rows) {
    if let Some(origin) = check() {
        rows.add_line(&format!("of the server {origin}, imported"));
    }
}

/// Returns the other server whose history is shown. Fails if nothing of it was imported.
pub fn check() -> Option<String> {
    let origin = other()?;
    let mut is_there = false;
    query::each(IS_THERE, (0, 0), |_| is_there = true);
    if is_there {
        return Some(origin);
    }
    fail(
        PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
        &format!("no history of the server \"{origin}\" was imported"),
        "The table rowsource_imported has the origins. For the history of this server: RESET pg_rowsource.history_origin.",
    )
}

/// Fails if another server is chosen: for what only this one has.
pub fn must_be_this(what: &str) {
    if other().is_some() {
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            &format!("{what} of this server, and pg_rowsource.history_origin names another one"),
            "RESET pg_rowsource.history_origin.",
        )
    }
}

/// Puts the rows of tables of snapshots into a query where it has their names in brackets, with the names of
/// users and databases, if only the other server has these. `[rowsource_snapshot_plans of r]` has those of
/// the statement of a row `r`.
pub fn rows_of(query: &str) -> String {
    let mut query = query.to_owned();
    for table in [
        "rowsource_snapshots",
        "rowsource_snapshot_ash",
        "rowsource_snapshot_plans",
        "rowsource_snapshot_descriptions",
    ] {
        let rows = match other() {
            None => format!(
                "(SELECT t.*, NULL::pg_catalog.text AS usename, NULL::pg_catalog.text AS datname FROM {{}}{table} t)"
            ),
            Some(_) => format!(
                "(SELECT r.*, m.content OPERATOR(pg_catalog.->>) 'usename' AS usename, m.content OPERATOR(pg_catalog.->>) 'datname' AS datname
                    FROM {{}}rowsource_imported m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::{{}}{table}, m.content) r
                   WHERE {OF_ORIGIN} AND m.table_name OPERATOR(pg_catalog.=) '{table}')"
            ),
        };
        query = query.replace(&format!("[{table}]"), &rows);
        // An index finds them.
        let of_row = rows.replace(OF_ORIGIN, &format!("{OF_ORIGIN} AND {OF_STATEMENT}"));
        query = query.replace(&format!("[{table} of r]"), &of_row);
    }
    query
}

const OF_ORIGIN: &str =
    "m.origin OPERATOR(pg_catalog.=) pg_catalog.current_setting('pg_rowsource.history_origin')";
const OF_STATEMENT: &str = "(m.content OPERATOR(pg_catalog.->>) 'queryid'::pg_catalog.text) OPERATOR(pg_catalog.=) r.queryid::pg_catalog.text";
const IS_THERE: &str = "
    SELECT pg_catalog.json_build_array() FROM {}rowsource_imported m
     WHERE m.origin OPERATOR(pg_catalog.=) pg_catalog.current_setting('pg_rowsource.history_origin') LIMIT 1";
