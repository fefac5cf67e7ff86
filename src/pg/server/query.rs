//! Reads what the extension's tables and views have, with the rights of the user who called its function.

use super::{check_for_interrupts, fail, from_unix, memory, quoted_identifier, shown_time, srf};
use pgrx::{PgSqlErrorCode, Spi, spi};
use serde_json::Value;

/// How many rows are copied at a time.
const BATCH: i64 = 1_000;

/// Visits the rows of a query, whose one column is of the type json. In it, `{}` stands for the schema of
/// the extension with a dot, and `{from}` and `{to}` for the times of an interval. The query must name the
/// schemas of all that it uses: the session's search path is that of the user. The user can cancel this
/// before each row.
pub fn each(sql: &str, (from, to): (i64, i64), mut visit: impl FnMut(&Value)) {
    let schema = srf::schema().unwrap_or_default();
    // The year 2000 is before all that is stored.
    let moment = |at: i64| format!("'{}'::pg_catalog.timestamptz", shown_time(at.max(0)));
    let sql = sql
        .replace("{}", &format!("{}.", quoted_identifier(&schema)))
        .replace("{from}", &moment(from))
        .replace("{to}", &moment(to));
    let sql = format!("SELECT pg_catalog.convert_to(q.j::pg_catalog.text, 'UTF8') FROM ({sql}) q (j)");
    let cursor = Spi::connect(|client| client.open_cursor(sql.as_str(), &[]).detach_into_name());
    loop {
        // What a batch takes is freed with the connection.
        let rows = Spi::connect(|client| batch(client, &cursor)).unwrap_or_else(|error| {
            fail(
                PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
                &error.to_string(),
                "This is a bug in pg_rowsource.",
            )
        });
        if rows.is_empty() {
            return;
        }
        for row in &rows {
            check_for_interrupts();
            visit(row);
        }
    }
}

/// Returns the bytes of a name in hexadecimal, so that a query can have any name.
pub fn hex(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a time that a query returned in seconds since 1970.
pub fn time(seconds: &Value) -> i64 {
    from_unix(0) + (seconds.as_f64().unwrap_or(0.0) * 1e6).round() as i64
}

/// Returns the next rows of a cursor. It closes if there are none.
fn batch(client: &spi::SpiClient<'_>, cursor: &str) -> Result<Vec<Value>, spi::Error> {
    let mut cursor = client.find_cursor(cursor)?;
    let mut rows = memory::with_room(BATCH as usize);
    for row in cursor.fetch(BATCH)? {
        // A row may be the description of a large plan.
        check_for_interrupts();
        memory::ensure();
        let json = row.get::<Vec<u8>>(1)?;
        rows.extend(json.and_then(|json| serde_json::from_slice::<Value>(&json).ok()));
    }
    if !rows.is_empty() {
        cursor.detach_into_name();
    }
    Ok(rows)
}
