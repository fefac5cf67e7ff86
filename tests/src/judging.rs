//! Lets the worker look for regressions at a moment that the test chooses, and reads what it found.

use crate::session::{run_each, texts};
use postgres::Client;

/// Burns processor time: busy time, which a sleep would not be.
pub const BURN: &str = "CREATE FUNCTION burn(ms float8) RETURNS boolean LANGUAGE plpgsql VOLATILE AS
     'DECLARE until timestamptz := clock_timestamp() + ms * interval ''1 ms'';
      BEGIN WHILE clock_timestamp() < until LOOP END LOOP; RETURN true; END'";

/// Runs a statement so often.
pub fn run(client: &mut Client, sql: &str, times: usize) {
    (0..times).for_each(|_| run_each(client, sql));
}

/// Lets the worker look as if it were so many minutes later.
pub fn judge(client: &mut Client, minutes: i32) {
    let sql = format!("SELECT rowsource_judge(now() + {minutes} * interval '1 min')");
    run_each(client, &sql);
}

/// Returns columns of all regressions, in the order of their numbers.
pub fn found(client: &mut Client, columns: &str) -> Vec<Vec<Option<String>>> {
    let columns = columns.split(", ").map(|column| format!("({column})::text"));
    let columns = columns.collect::<Vec<_>>().join(", ");
    texts(
        client,
        &format!("SELECT {columns} FROM rowsource_regressions() ORDER BY id"),
    )
}

/// Returns the states of all regressions, in the order of their numbers.
pub fn states(client: &mut Client) -> Vec<String> {
    let rows = found(client, "state");
    rows.into_iter().flatten().flatten().collect()
}
