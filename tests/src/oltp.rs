//! The OLTP-like procedure of the original's article: a loop over three cursors.

use crate::session::run_each;
use postgres::Client;

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

/// Creates the tables and the procedure `oltp(loops)`.
pub fn create(client: &mut Client) {
    let [few, many, nested] = CURSORS.map(|cursor| cursor.rows);
    run_each(
        client,
        &format!(
            "CREATE TABLE few AS SELECT k AS key, i, md5(i::text) AS v FROM generate_series(1, {KEYS}) k, generate_series(1, {few}) i;
             CREATE TABLE many AS SELECT k AS key, i, md5(i::text) AS v FROM generate_series(1, {KEYS}) k, generate_series(1, {many}) i;
             CREATE TABLE heads AS SELECT k AS key, k * {nested} + i AS detail FROM generate_series(1, {KEYS}) k, generate_series(1, {nested}) i;
             CREATE TABLE details AS SELECT detail AS id, md5(detail::text) AS v FROM heads;
             CREATE INDEX ON few (key); CREATE INDEX ON many (key); CREATE INDEX ON heads (key);
             ALTER TABLE details ADD PRIMARY KEY (id); VACUUM (FREEZE, ANALYZE) few, many, heads, details"
        ),
    );
    create_procedure(
        client,
        "oltp",
        "loops int",
        &format!("k := i % {KEYS} + 1;"),
        &CURSORS.map(|cursor| cursor.statement),
        CURSORS.iter().map(|cursor| cursor.rows).sum(),
    );
}

/// Creates a procedure that reads the rows of these statements in a loop, after `set`. It fails unless a loop
/// has this many rows.
pub fn create_procedure(
    client: &mut Client,
    name: &str,
    arguments: &str,
    set: &str,
    statements: &[&str],
    rows: u64,
) {
    let body: String = statements
        .iter()
        .map(|statement| format!("FOR r IN {statement} LOOP n := n + 1; END LOOP;"))
        .collect();
    let sql = format!(
        "CREATE PROCEDURE {name}({arguments}) LANGUAGE plpgsql AS $$
         DECLARE r record; n bigint := 0; k int; p int;
         BEGIN
             FOR i IN 1..loops LOOP {set} {body} END LOOP;
             IF n <> {rows}::bigint * loops THEN RAISE EXCEPTION '{name} saw % rows', n; END IF;
         END$$"
    );
    client
        .batch_execute(&sql)
        .unwrap_or_else(|error| panic!("{sql}\n{error}"));
}
