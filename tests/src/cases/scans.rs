//! Every scan node.

use super::Case;

const NO_SEQ: &str = "SET enable_seqscan = off";
const BITMAPS: &str = "SET enable_seqscan = off; SET enable_indexscan = off";

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("seq scan", "SELECT * FROM t WHERE val % 3 = 0", &["Seq Scan"]),
    Case::new("seq scan without rows", "SELECT * FROM t WHERE pad = 'none'", &["Seq Scan"]),
    Case::new("index scan of one row", "SELECT * FROM t WHERE id = 4711", &["Index Scan"]),
    Case::new("index scan of a range", "SELECT pad FROM t WHERE id BETWEEN 100 AND 900", &["Index Scan"]).settings(NO_SEQ),
    Case::new("index scan backward", "SELECT pad FROM t ORDER BY id DESC LIMIT 17", &["Limit", "Index Scan Backward"]),
    Case::new("index only scan", "SELECT id FROM t WHERE id < 700", &["Index Only Scan"]).settings(NO_SEQ),
    Case::new("index only scan of changed pages", "SELECT id FROM tt WHERE id < 700", &["Index Only Scan"])
        .settings("SET enable_seqscan = off; SET enable_bitmapscan = off")
        .reset(
            "DROP TABLE IF EXISTS tt; CREATE TEMP TABLE tt AS SELECT * FROM t; CREATE INDEX ON tt (id); ANALYZE tt;
             UPDATE tt SET val = 0 WHERE id < 300",
        ),
    Case::new("bitmap scan", "SELECT * FROM t WHERE grp = 5", &["Bitmap Heap Scan", "Bitmap Index Scan"]).settings(BITMAPS),
    Case::new("bitmap and", "SELECT * FROM t WHERE grp = 5 AND val < 500", &["BitmapAnd", "Bitmap Index Scan"])
        .settings(BITMAPS),
    Case::new("bitmap or", "SELECT * FROM t WHERE grp = 5 OR val < 100", &["BitmapOr", "Bitmap Index Scan"]).settings(BITMAPS),
    Case::new("lossy bitmap", "SELECT count(pad) FROM tt WHERE k < 9000", &["Bitmap Heap Scan"]).settings(
        "CREATE TEMP TABLE tt (k int, pad text) WITH (fillfactor = 10); SET enable_seqscan = off; SET enable_indexscan = off;
         INSERT INTO tt SELECT (i * 7919) % 20000, repeat('y', 60) FROM generate_series(1, 20000) i;
         CREATE INDEX ON tt (k); ANALYZE tt; SET work_mem = '64kB'",
    ),
    Case::new("tid scan", "SELECT * FROM t WHERE ctid IN ('(0,1)', '(3,2)', '(5,5)')", &["Tid Scan"]),
    Case::new("tid range scan", "SELECT * FROM t WHERE ctid >= '(3,1)' AND ctid < '(9,4)'", &["Tid Range Scan"]),
    Case::new("sample scan by pages", "SELECT count(*) FROM t TABLESAMPLE system (30) REPEATABLE (1)", &["Sample Scan"]),
    Case::new("sample scan by rows", "SELECT count(*) FROM t TABLESAMPLE bernoulli (10) REPEATABLE (7)", &["Sample Scan"]),
    Case::new("function scan", "SELECT * FROM generate_series(1, 5000) g WHERE g % 7 = 0", &["Function Scan"]),
    Case::new("function scan on disk", "SELECT count(*) FROM generate_series(1, 50000) g", &["Function Scan"])
        .settings("SET work_mem = '64kB'"),
    Case::new(
        "functions side by side",
        "SELECT * FROM ROWS FROM (generate_series(1, 10), generate_series(1, 300)) AS x (a, b)",
        &["Function Scan"],
    ),
    Case::new(
        "xmltable",
        "SELECT i FROM doc, xmltable('/r/i' PASSING x COLUMNS i int PATH '.')",
        &["Table Function Scan", "Nested Loop"],
    ),
    Case::new("json rows", "SELECT e ->> 'a' FROM doc, jsonb_array_elements(j) e", &["Function Scan", "Nested Loop"]),
    Case::new("values scan", "SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) v (n, c) WHERE n > 1", &["Values Scan"]),
    Case::new(
        "materialised CTE used twice",
        "WITH c AS MATERIALIZED (SELECT grp, count(*) n FROM t GROUP BY grp)
         SELECT * FROM c a JOIN c b ON a.grp = b.grp + 1 WHERE a.n > 5",
        &["CTE Scan", "Hash Join"],
    ),
    Case::new(
        "CTE read in part",
        "WITH c AS MATERIALIZED (SELECT * FROM t) SELECT * FROM c LIMIT 25",
        &["CTE Scan", "Seq Scan", "Limit"],
    ),
    Case::new("CTE on disk", "WITH c AS MATERIALIZED (SELECT * FROM big) SELECT count(*) FROM c a", &["CTE Scan", "Seq Scan"])
        .settings("SET work_mem = '64kB'; SET max_parallel_workers_per_gather = 0"),
    Case::new(
        "recursive CTE",
        "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 400)
         SELECT count(*) FROM r JOIN s ON s.id = r.n",
        &["Recursive Union", "WorkTable Scan", "CTE Scan"],
    ),
    Case::new(
        "recursive CTE without duplicates",
        "WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT (n * 3) % 101 FROM r) SELECT * FROM r",
        &["Recursive Union", "WorkTable Scan"],
    ),
    Case::new(
        "subquery scan",
        "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY val) % 10 AS rn FROM t) x WHERE rn = 3",
        &["Subquery Scan", "WindowAgg"],
    ),
    Case::new("foreign scan", "SELECT count(*) FROM (SELECT * FROM ft WHERE grp < 50 OFFSET 0) x", &["Foreign Scan"]),
    Case::new("foreign join", "SELECT fs.name, ft.val FROM ft JOIN fs ON ft.id = fs.t_id WHERE fs.id < 40", &["Foreign Scan"]),
    Case::new("foreign scan started again", "SELECT (SELECT max(v) FROM fp1 WHERE fp1.id = s.id) FROM s WHERE id < 6", &["Foreign Scan"]),
    Case::new("async append", "SELECT * FROM fp WHERE v < 3", &["Append", "Async Foreign Scan"]),
    Case::new("async append under an aggregate", "SELECT v, count(*) FROM fp GROUP BY v", &["Append", "Async Foreign Scan"])
        .settings("SET enable_partitionwise_aggregate = off"),
    Case::new("toasted values", "SELECT sum(length(body || 'x')) FROM toasted", &["Seq Scan"]),
    Case::new(
        "temporary table",
        "SELECT grp, count(*) FROM tt GROUP BY grp",
        &["Seq Scan", "HashAggregate"],
    )
    .settings("CREATE TEMP TABLE tt AS SELECT * FROM t; ANALYZE tt"),
    Case::new("temporary table larger than its buffers", "SELECT count(pad) FROM tt", &["Seq Scan"])
        .settings("SET temp_buffers = '800kB'; CREATE TEMP TABLE tt AS SELECT * FROM big; ANALYZE tt"),
];
