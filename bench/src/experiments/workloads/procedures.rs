//! The two procedures of the original's article. Each is a loop over three cursors.

use postgres::Client;
use rowsource_tests::session::run_each;

/// The number of keys of the OLTP-like tables.
pub const KEYS: u64 = 1000;

#[derive(Clone, Copy)]
pub struct Cursor {
    pub name: &'static str,
    /// Selects the rows of the key `k`.
    pub statement: &'static str,
    pub rows: u64,
}

/// The OLTP-like cursors.
pub const CURSORS: [Cursor; 3] = [
    Cursor {
        name: "22 rows by index",
        statement: "SELECT * FROM few WHERE key = k",
        rows: 22,
    },
    Cursor {
        name: "63 rows by index",
        statement: "SELECT * FROM many WHERE key = k",
        rows: 63,
    },
    Cursor {
        name: "10 rows by nested loop",
        statement: "SELECT h.key, d.v FROM heads h JOIN details d ON d.id = h.detail WHERE h.key = k",
        rows: 10,
    },
];

/// The numbers of rows of the warehouse-like cursors.
const WAREHOUSE_ROWS: [u64; 3] = [25_652, 32_095, 20_788];

/// Creates the tables and the procedures. `periods` is the number of periods of the warehouse.
pub fn create(client: &mut Client, periods: u64) {
    let [few, many, nested] = CURSORS.map(|cursor| cursor.rows);
    let [first, second, third] = WAREHOUSE_ROWS;
    let loop_over = |statement: &str| format!("FOR r IN {statement} LOOP n := n + 1; END LOOP;");
    let oltp: String = CURSORS.iter().map(|cursor| loop_over(cursor.statement)).collect();
    // The last one is a hash join.
    let warehouse: String = [
        "SELECT * FROM first WHERE period = p",
        "SELECT * FROM second WHERE period = p",
        "SELECT t.v, d.v FROM third t JOIN dims d ON d.id = t.dim WHERE t.period = p",
    ]
    .map(loop_over)
    .concat();
    run_each(
        client,
        &format!(
            "CREATE TABLE few AS SELECT k AS key, i, md5(i::text) AS v FROM generate_series(1, {KEYS}) k, generate_series(1, {few}) i;
             CREATE TABLE many AS SELECT k AS key, i, md5(i::text) AS v FROM generate_series(1, {KEYS}) k, generate_series(1, {many}) i;
             CREATE TABLE heads AS SELECT k AS key, k * {nested} + i AS detail FROM generate_series(1, {KEYS}) k, generate_series(1, {nested}) i;
             CREATE TABLE details AS SELECT detail AS id, md5(detail::text) AS v FROM heads;
             CREATE INDEX ON few (key); CREATE INDEX ON many (key); CREATE INDEX ON heads (key);
             ALTER TABLE details ADD PRIMARY KEY (id);
             CREATE TABLE first AS SELECT p AS period, i AS v FROM generate_series(1, {first}) i, generate_series(1, {periods}) p;
             CREATE TABLE second AS SELECT p AS period, i AS v FROM generate_series(1, {second}) i, generate_series(1, {periods}) p;
             CREATE TABLE third AS SELECT p AS period, i % 2000 AS dim, i AS v
                 FROM generate_series(1, {third}) i, generate_series(1, {periods}) p;
             CREATE TABLE dims AS SELECT i AS id, md5(i::text) AS v FROM generate_series(0, 1999) i;
             VACUUM (FREEZE, ANALYZE)"
        ),
    );
    let procedure = |name: &str, arguments: &str, set: &str, body: &str, rows: u64| {
        format!(
            "CREATE PROCEDURE {name}({arguments}) LANGUAGE plpgsql AS $$
             DECLARE r record; n bigint := 0; k int; p int;
             BEGIN
                 FOR i IN 1..loops LOOP {set} {body} END LOOP;
                 IF n <> {rows}::bigint * loops THEN RAISE EXCEPTION '{name} saw % rows', n; END IF;
             END$$"
        )
    };
    let oltp_rows = CURSORS.iter().map(|cursor| cursor.rows).sum();
    let warehouse_rows = WAREHOUSE_ROWS.iter().sum();
    for sql in [
        procedure(
            "oltp",
            "loops int",
            &format!("k := i % {KEYS} + 1;"),
            &oltp,
            oltp_rows,
        ),
        procedure(
            "warehouse",
            "loops int, periods int",
            "p := i % periods + 1;",
            &warehouse,
            warehouse_rows,
        ),
    ] {
        client
            .batch_execute(&sql)
            .unwrap_or_else(|error| panic!("{sql}\n{error}"));
    }
    run_each(client, "CHECKPOINT");
}
