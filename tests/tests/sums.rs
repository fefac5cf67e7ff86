//! The sums of a statement in pg_stat_rowsource_plans: they are those of pg_stat_statements, column by
//! column.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{major, run_each, texts, value};

const TABLES: &str = "
    CREATE TABLE t (id int PRIMARY KEY, grp int, pad text);
    INSERT INTO t SELECT i, i % 10, repeat('x', 100) FROM generate_series(1, 20000) i;
    CREATE TABLE target (id int, pad text);
    CREATE TABLE referring (id int PRIMARY KEY, t_id int REFERENCES t ON DELETE CASCADE);
    INSERT INTO referring SELECT i, i FROM generate_series(1, 20000, 7) i;
    CREATE TABLE toasted (id int, body text);
    ALTER TABLE toasted ALTER body SET STORAGE external;
    INSERT INTO toasted SELECT i, repeat('toast', 2000) FROM generate_series(1, 20) i;
    CREATE TABLE audited AS SELECT id, grp FROM t WHERE id <= 2000;
    CREATE TABLE audit (id int);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NULL; END';
    CREATE TRIGGER note AFTER UPDATE ON audited FOR EACH ROW EXECUTE FUNCTION note();
    VACUUM (FREEZE, ANALYZE)";

/// A name for each statement, and the statement. Each runs twice.
const STATEMENTS: [(&str, &str); 18] = [
    ("an index scan", "SELECT pad FROM t WHERE id = 17"),
    ("a sort on disk", "SELECT id FROM t ORDER BY pad, grp, id"),
    (
        "an InitPlan",
        "SELECT count(*) FROM t WHERE grp > (SELECT avg(grp) FROM t)",
    ),
    (
        "a subplan",
        "SELECT (SELECT sum(b.grp) FROM t b WHERE b.id = a.id) FROM t a WHERE a.id < 50",
    ),
    (
        "a CTE",
        "WITH c AS MATERIALIZED (SELECT * FROM t) SELECT count(*) FROM c x, c y WHERE x.id = y.id",
    ),
    ("parallel workers", "SELECT sum(id) FROM t WHERE length(pad) > 5"),
    ("a temporary table", "SELECT count(*), min(pad) FROM temporary"),
    (
        "an INSERT with RETURNING",
        "INSERT INTO target SELECT id, pad FROM t WHERE id < 100 RETURNING id",
    ),
    (
        "a change of a temporary table",
        "INSERT INTO temporary SELECT id, grp, pad FROM t WHERE id < 100 RETURNING id",
    ),
    (
        "an INSERT",
        "INSERT INTO target SELECT id, pad FROM t WHERE id < 200",
    ),
    (
        "an INSERT that skips rows",
        "INSERT INTO t SELECT i, 0, '' FROM generate_series(19990, 20010) i ON CONFLICT DO NOTHING",
    ),
    ("an UPDATE", "UPDATE t SET grp = grp + 1 WHERE id < 30"),
    // PostgreSQL measures the node Hash, and the triggers run outside of all nodes.
    (
        "triggers after a hash join",
        "UPDATE audited SET grp = grp + 1 FROM generate_series(1901, 2000) AS wanted WHERE id = wanted",
    ),
    (
        "a DELETE with foreign keys",
        "DELETE FROM t WHERE id BETWEEN 15000 AND 15100",
    ),
    (
        "a data-modifying CTE",
        "WITH d AS (DELETE FROM target WHERE id < 5 RETURNING id) SELECT count(*) FROM t WHERE id < 500",
    ),
    // Volatile functions keep parallel workers away: with them, the output of rows is not counted.
    ("long values", "SELECT id, body FROM toasted WHERE random() >= 0"),
    (
        "parallel workers below the root",
        "SELECT id, grp FROM t WHERE length(pad) > 1000",
    ),
    ("no rows", "SELECT grp FROM t WHERE id = -1"),
];

/// Returns the columns of pg_stat_statements that both views have. Before PostgreSQL 17, it calls the times
/// of shared blocks otherwise, and has none of local blocks.
fn columns(major: i32) -> Vec<(String, String)> {
    let same = |name: &str| (name.to_string(), name.to_string());
    let blocks = ["shared", "local"].into_iter().flat_map(|kind| {
        ["hit", "read", "dirtied", "written"].map(|what| same(&format!("{kind}_blks_{what}")))
    });
    let mut columns = vec![same("calls"), same("rows")];
    columns.extend(blocks);
    columns.extend(["temp_blks_read", "temp_blks_written"].map(same));
    for direction in ["read", "write"] {
        let shared = if major < 17 {
            format!("blk_{direction}_time")
        } else {
            format!("shared_blk_{direction}_time")
        };
        columns.push((format!("shared_blk_{direction}_time"), shared));
        columns.push(same(&format!("temp_blk_{direction}_time")));
    }
    columns.extend(["wal_records", "wal_fpi", "wal_bytes"].map(same));
    columns
}

/// Returns the texts of these columns for the one statement that fulfils the condition.
fn row(client: &mut Client, view: &str, columns: &[&String], condition: &str) -> Vec<String> {
    let list = columns
        .iter()
        .map(|column| format!("round({column}::numeric, 3)"))
        .collect::<Vec<_>>()
        .join(", ");
    let rows = texts(client, &format!("SELECT {list} FROM {view} WHERE {condition}"));
    assert_eq!(rows.len(), 1, "{view}: {condition}");
    rows[0]
        .iter()
        .map(|value| value.clone().unwrap_or_default())
        .collect()
}

#[test]
fn the_sums_of_a_statement_are_those_of_pg_stat_statements() {
    let server = Server::start(
        "sums",
        &[
            "shared_preload_libraries = 'pg_stat_statements, pg_rowsource'",
            "track_io_timing = on",
            "work_mem = '100kB'",
            "shared_buffers = '1MB'",
            "temp_buffers = '800kB'",
            "min_parallel_table_scan_size = 0",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
            "autovacuum = off",
            "full_page_writes = on",
        ],
    );
    let mut client = server.connect();
    run_each(&mut client, TABLES);
    run_each(
        &mut client,
        "CHECKPOINT; CREATE EXTENSION pg_rowsource; CREATE EXTENSION pg_stat_statements;
         CREATE TEMP TABLE temporary AS SELECT * FROM t; SELECT pg_stat_statements_reset(); SELECT rowsource_reset()",
    );
    let queryids = STATEMENTS.map(|(_, statement)| {
        client.batch_execute(statement).expect(statement);
        client.batch_execute(statement).expect(statement);
        let ours: i64 = value(&mut client, "SELECT queryid FROM rowsource_last()");
        // Before 18, it differs from PostgreSQL's for statements on temporary tables.
        let plan = texts(&mut client, &format!("EXPLAIN (VERBOSE) {statement}"));
        let theirs = plan
            .iter()
            .flatten()
            .flatten()
            .find_map(|line| line.strip_prefix("Query Identifier: ")?.parse::<i64>().ok());
        (ours, theirs.expect("a query identifier"))
    });
    let columns = columns(major(&mut client));
    let (ours, theirs): (Vec<_>, Vec<_>) = columns.iter().map(|(ours, theirs)| (ours, theirs)).unzip();
    let mut used = vec![0.0; columns.len()];
    /// Both views round the times of many requests.
    const MAX_ROUNDING_MS: f64 = 0.01;
    for ((name, _), (our_id, their_id)) in STATEMENTS.into_iter().zip(queryids) {
        let condition = |queryid: i64| format!("queryid = {queryid}");
        let sums = row(&mut client, "pg_stat_rowsource_plans", &ours, &condition(our_id));
        let wanted = row(&mut client, "pg_stat_statements", &theirs, &condition(their_id));
        for (i, column) in ours.iter().enumerate() {
            let number = |text: &String| text.parse::<f64>().expect("a number");
            let is_near =
                column.ends_with("_time") && (number(&sums[i]) - number(&wanted[i])).abs() <= MAX_ROUNDING_MS;
            assert!(
                is_near || sums[i] == wanted[i],
                "{name}: {column}: {} instead of {}",
                sums[i],
                wanted[i]
            );
            used[i] += number(&wanted[i]);
        }
    }
    // Each column was compared with a value other than zero, except the time of writes, which another process
    // may do.
    for (column, used) in ours.iter().zip(used) {
        let may_be_zero = column == &"shared_blk_write_time";
        assert!(used > 0.0 || may_be_zero, "{column} is always zero");
    }
    server.assert_no_crash();
}
