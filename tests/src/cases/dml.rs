//! Statements that change data. Each run starts with newly created tables, so that core and pg_rowsource find
//! the same pages.

use super::Case;

const PLAIN: &str = "DROP TABLE IF EXISTS d, e CASCADE; CREATE TABLE d (id int PRIMARY KEY, v int, pad text);
    INSERT INTO d SELECT i, i % 10, repeat('d', 30) FROM generate_series(1, 3000) i; CREATE INDEX d_v ON d (v);
    CREATE TABLE e (id int, v int); INSERT INTO e SELECT i, i FROM generate_series(2001, 4000) i;
    VACUUM ANALYZE d; VACUUM ANALYZE e";
// VACUUM removes catalogue rows of the last reset: triggers plan their statements when they run, and would
// read these rows.
const TRIGGERS: &str = "DROP TABLE IF EXISTS d, audit CASCADE; CREATE TABLE d (id int PRIMARY KEY, v int);
    CREATE TABLE audit (what text, n bigint); INSERT INTO d SELECT i, i % 10 FROM generate_series(1, 500) i;
    CREATE TRIGGER before_row BEFORE UPDATE ON d FOR EACH ROW EXECUTE FUNCTION note_row();
    CREATE TRIGGER after_row AFTER UPDATE ON d FOR EACH ROW EXECUTE FUNCTION note_row();
    CREATE TRIGGER after_all AFTER UPDATE ON d REFERENCING NEW TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION note_all(); VACUUM ANALYZE d; VACUUM pg_class;
    VACUUM pg_attribute; VACUUM pg_type; VACUUM pg_trigger; VACUUM pg_statistic; VACUUM pg_index";
const PARTS: &str = "DROP TABLE IF EXISTS d CASCADE; CREATE TABLE d (id int, v int) PARTITION BY LIST (v);
    CREATE TABLE d0 PARTITION OF d FOR VALUES IN (0); CREATE TABLE d1 PARTITION OF d FOR VALUES IN (1);
    CREATE TABLE d2 PARTITION OF d DEFAULT; INSERT INTO d SELECT i, i % 4 FROM generate_series(1, 1000) i;
    VACUUM ANALYZE d";
const FOREIGN_KEY: &str = "DROP TABLE IF EXISTS d, e CASCADE; CREATE TABLE d (id int PRIMARY KEY);
    CREATE TABLE e (id int PRIMARY KEY, d_id int REFERENCES d ON DELETE CASCADE);
    CREATE INDEX e_d ON e (d_id); INSERT INTO d SELECT generate_series(1, 200);
    INSERT INTO e SELECT i, 1 + i % 200 FROM generate_series(1, 1000) i; VACUUM ANALYZE d; VACUUM ANALYZE e;
    VACUUM pg_class; VACUUM pg_attribute; VACUUM pg_type; VACUUM pg_constraint; VACUUM pg_statistic; VACUUM pg_index";
const LOOPBACK: &str = "DROP TABLE IF EXISTS d CASCADE; DROP FOREIGN TABLE IF EXISTS fd;
    CREATE TABLE d (id int PRIMARY KEY, v int); INSERT INTO d SELECT i, i % 10 FROM generate_series(1, 300) i;
    CREATE FOREIGN TABLE fd (id int, v int) SERVER loopback OPTIONS (table_name 'd'); VACUUM ANALYZE d; ANALYZE fd";
const TEMPORARY: &str = "DROP TABLE IF EXISTS td; CREATE TEMP TABLE td (id int, v int, pad text);
    INSERT INTO td SELECT i, i % 10, repeat('d', 40) FROM generate_series(1, 2000) i; ANALYZE td";

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("insert values", "INSERT INTO d VALUES (5001, 1, 'x'), (5002, 2, 'y')", &["Insert", "Values Scan"]).reset(PLAIN),
    Case::new("insert one row", "INSERT INTO d VALUES (5001, 1, 'x')", &["Insert", "Result"]).reset(PLAIN),
    Case::new("insert select", "INSERT INTO d SELECT id + 10000, v, 'new' FROM e", &["Insert", "Seq Scan"]).reset(PLAIN),
    Case::new("insert returning", "INSERT INTO d SELECT id + 10000, v, 'new' FROM e RETURNING id, (SELECT max(id) FROM e)", &["Insert"])
        .reset(PLAIN),
    Case::new("update", "UPDATE d SET pad = pad || 'x' WHERE v < 5", &["Update"]).reset(PLAIN),
    Case::new("update of an index returning", "UPDATE d SET v = v + 100 WHERE id % 3 = 0 RETURNING *", &["Update"]).reset(PLAIN),
    Case::new("update from a join", "UPDATE d SET v = e.v FROM e WHERE e.id = d.id", &["Update"]).reset(PLAIN),
    Case::new("delete", "DELETE FROM d WHERE v = 3", &["Delete"]).reset(PLAIN),
    Case::new("delete using, returning", "DELETE FROM d USING e WHERE e.id = d.id AND e.v % 2 = 0 RETURNING d.id, e.v", &["Delete"])
        .reset(PLAIN),
    Case::new(
        "merge",
        "MERGE INTO d USING e ON d.id = e.id WHEN MATCHED AND e.v % 3 = 0 THEN DELETE
         WHEN MATCHED THEN UPDATE SET v = e.v WHEN NOT MATCHED THEN INSERT VALUES (e.id, e.v, 'merged')",
        &["Merge"],
    )
    .reset(PLAIN),
    Case::new(
        "merge that skips rows",
        "MERGE INTO d USING e ON d.id = e.id WHEN MATCHED AND e.v % 3 = 0 THEN DELETE WHEN MATCHED AND e.v % 3 = 1 THEN DO NOTHING
         WHEN NOT MATCHED AND e.v % 2 = 0 THEN INSERT VALUES (e.id, e.v, 'merged')",
        &["Merge"],
    )
    .reset(PLAIN),
    Case::new(
        "on conflict update",
        "INSERT INTO d SELECT id, v, 'again' FROM e ON CONFLICT (id) DO UPDATE SET v = excluded.v WHERE d.v > 2",
        &["Insert"],
    )
    .reset(PLAIN),
    Case::new("on conflict nothing", "INSERT INTO d SELECT id, v, 'again' FROM e ON CONFLICT DO NOTHING RETURNING id", &["Insert"])
        .reset(PLAIN),
    Case::new(
        "modifying CTE",
        "WITH gone AS (DELETE FROM d WHERE v = 1 RETURNING *), added AS (INSERT INTO e SELECT id, v FROM gone RETURNING id)
         SELECT count(*) FROM added",
        &["CTE Scan", "Delete", "Insert"],
    )
    .reset(PLAIN),
    Case::new(
        "modifying CTE that nobody reads",
        "WITH gone AS (DELETE FROM d WHERE v = 1) UPDATE e SET v = 0 WHERE id < 2100",
        &["Update", "Delete"],
    )
    .reset(PLAIN),
    Case::new("lock rows", "SELECT * FROM d WHERE v = 4 FOR UPDATE", &["LockRows"]).reset(PLAIN),
    Case::new("lock rows that are skipped", "SELECT * FROM d ORDER BY id LIMIT 10 FOR SHARE SKIP LOCKED", &["LockRows", "Limit"])
        .reset(PLAIN),
    Case::new("triggers", "UPDATE d SET v = v + 1 WHERE id <= 100", &["Update"]).reset(TRIGGERS),
    Case::new("insert into partitions", "INSERT INTO d SELECT i, i % 5 FROM generate_series(1, 500) i", &["Insert"]).reset(PARTS),
    Case::new("update between partitions", "UPDATE d SET v = 1 - v WHERE v < 2 AND id < 300 RETURNING tableoid::regclass", &["Update", "Append"])
        .reset(PARTS),
    Case::new("cascading delete", "DELETE FROM d WHERE id <= 20", &["Delete"]).reset(FOREIGN_KEY),
    Case::new("foreign insert", "INSERT INTO fd SELECT i, i FROM generate_series(1001, 1020) i RETURNING id", &["Insert"]).reset(LOOPBACK),
    Case::new("foreign update, direct", "UPDATE fd SET v = v + 1 WHERE id < 50", &["Update", "Foreign Update"]).reset(LOOPBACK),
    Case::new("foreign delete, row by row", "DELETE FROM fd WHERE v = (random() * 0)::int RETURNING id", &["Delete", "Foreign Scan"])
        .reset(LOOPBACK),
    Case::new("temporary insert", "INSERT INTO td SELECT * FROM td", &["Insert"]).reset(TEMPORARY),
    Case::new("temporary update", "UPDATE td SET v = v + 1 WHERE id < 1500", &["Update"])
        .settings("SET temp_buffers = '800kB'")
        .reset(TEMPORARY),
];
