//! The two procedures of the original's article. Each is a loop over three cursors.

use postgres::Client;
use rowsource_tests::oltp::{self, create_procedure};
use rowsource_tests::session::run_each;

/// The numbers of rows of the warehouse-like cursors.
const WAREHOUSE_ROWS: [u64; 3] = [25_652, 32_095, 20_788];

/// Creates the tables and the procedures. `periods` is the number of periods of the warehouse.
pub fn create(client: &mut Client, periods: u64) {
    oltp::create(client);
    let [first, second, third] = WAREHOUSE_ROWS;
    run_each(
        client,
        &format!(
            "CREATE TABLE first AS SELECT p AS period, i AS v FROM generate_series(1, {first}) i, generate_series(1, {periods}) p;
             CREATE TABLE second AS SELECT p AS period, i AS v FROM generate_series(1, {second}) i, generate_series(1, {periods}) p;
             CREATE TABLE third AS SELECT p AS period, i % 2000 AS dim, i AS v
                 FROM generate_series(1, {third}) i, generate_series(1, {periods}) p;
             CREATE TABLE dims AS SELECT i AS id, md5(i::text) AS v FROM generate_series(0, 1999) i;
             VACUUM (FREEZE, ANALYZE)"
        ),
    );
    create_procedure(
        client,
        "warehouse",
        "loops int, periods int",
        "p := i % periods + 1;",
        // The last one is a hash join.
        &[
            "SELECT * FROM first WHERE period = p",
            "SELECT * FROM second WHERE period = p",
            "SELECT t.v, d.v FROM third t JOIN dims d ON d.id = t.dim WHERE t.period = p",
        ],
        WAREHOUSE_ROWS.iter().sum(),
    );
    run_each(client, "CHECKPOINT");
}
