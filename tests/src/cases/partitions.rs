//! Statements on partitioned tables: what partitions are one node counts what core counts of all of them.

use super::Case;

/// A table that each run makes again.
const FRESH: &str = "DROP TABLE IF EXISTS d CASCADE; CREATE TABLE d (id int, v int) PARTITION BY LIST (v);
    CREATE TABLE d0 PARTITION OF d FOR VALUES IN (0); CREATE TABLE d1 PARTITION OF d FOR VALUES IN (1);
    CREATE TABLE d2 PARTITION OF d DEFAULT; INSERT INTO d SELECT i, i % 4 FROM generate_series(1, 1000) i;
    CREATE INDEX ON d (id); ANALYZE d";
/// The same with a unique index.
const UNIQUE: &str = "DROP TABLE IF EXISTS d CASCADE; CREATE TABLE d (id int, v int) PARTITION BY LIST (v);
    CREATE TABLE d0 PARTITION OF d FOR VALUES IN (0); CREATE TABLE d1 PARTITION OF d FOR VALUES IN (1);
    CREATE TABLE d2 PARTITION OF d DEFAULT; INSERT INTO d SELECT i, i % 4 FROM generate_series(1, 1000) i;
    CREATE UNIQUE INDEX ON d (id, v); ANALYZE d";
const PARTITION_WISE: &str = "SET enable_partitionwise_join = on; SET enable_partitionwise_aggregate = on";
const NESTED_LOOPS: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off";
const BY_INDEX: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off";
const BY_BITMAP: &str =
    "SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off";
const GENERIC: &str = "SET plan_cache_mode = force_generic_plan; SET enable_bitmapscan = off;
    PREPARE one AS SELECT count(pad) FROM p WHERE id = $1;
    PREPARE upper AS SELECT count(pad) FROM p WHERE id >= $1;
    PREPARE ways AS SELECT * FROM ways WHERE id >= $1";

pub const CASES: &[Case] = &[
    Case::new("parts-all", "SELECT count(*) FROM p", &["Append", "Seq Scan"]),
    Case::new(
        "parts-filter",
        "SELECT * FROM p WHERE pad LIKE '%p' AND v % 3 = 1",
        &["Append"],
    ),
    Case::new(
        "parts-pruned",
        "SELECT count(pad) FROM p WHERE id >= 6000",
        &["Append"],
    ),
    Case::new(
        "parts-lone",
        "SELECT count(pad) FROM p WHERE id < 2000",
        &["Seq Scan"],
    ),
    Case::new(
        "parts-lone-init-plan",
        "SELECT pad FROM p WHERE id < 2000 AND v > (SELECT min(q.v) FROM q WHERE q.id < 100)",
        &["Seq Scan", "Aggregate"],
    ),
    Case::new(
        "parts-two-init-plan",
        "SELECT pad FROM p WHERE id < 4900 AND v > (SELECT min(q.v) FROM q WHERE q.id < 100)",
        &["Append", "Aggregate"],
    ),
    Case::new(
        "parts-lone-cte",
        "WITH c AS MATERIALIZED (SELECT v FROM q WHERE id % 2 = 1)
         SELECT id FROM p WHERE id < 2000 AND v IN (SELECT v FROM c) AND v < (SELECT max(v) FROM c)",
        &["CTE Scan"],
    ),
    Case::new("parts-lone-row", "SELECT pad FROM p WHERE id = 4711", &[]).settings(BY_INDEX),
    Case::new(
        "parts-union-queries",
        "SELECT count(*) FROM p WHERE id < 2000 UNION ALL SELECT count(*) FROM ways WHERE id < 0 UNION ALL
         (SELECT id FROM p ORDER BY pad LIMIT 5) UNION ALL SELECT count(*) FROM pg_class WHERE relname = 'p'",
        &["Append", "Aggregate", "Limit"],
    ),
    Case::new("parts-none", "SELECT * FROM p WHERE id > 20000", &["Result"]),
    Case::new(
        "parts-index",
        "SELECT pad FROM p WHERE v = 7",
        &["Append", "Index Scan"],
    )
    .settings(BY_INDEX),
    Case::new(
        "parts-index-only",
        "SELECT v FROM p WHERE v < 5",
        &["Append", "Index Only Scan"],
    )
    .settings(BY_INDEX),
    Case::new(
        "parts-bitmap",
        "SELECT pad FROM p WHERE v = 7",
        &["Append", "Bitmap Index Scan"],
    )
    .settings(BY_BITMAP),
    Case::new(
        "parts-bitmap-or",
        "SELECT pad FROM p WHERE v = 7 OR id = 4711",
        &["BitmapOr"],
    )
    .settings(BY_BITMAP),
    Case::new(
        "parts-merge-append",
        "SELECT id FROM p ORDER BY v LIMIT 70",
        &["Merge Append"],
    )
    .settings(BY_INDEX),
    Case::new(
        "parts-ordered",
        "SELECT id FROM p ORDER BY id LIMIT 3000",
        &["Append"],
    )
    .settings(BY_INDEX),
    Case::new(
        "parts-sorted",
        "SELECT id FROM q ORDER BY pad, v LIMIT 5",
        &["Append", "Sort"],
    ),
    Case::new("parts-generic-one", "EXECUTE one(4711)", &["Append"]).settings(GENERIC),
    Case::new("parts-generic-other", "EXECUTE one(9000)", &["Append"]).settings(GENERIC),
    Case::new("parts-generic-upper", "EXECUTE upper(5500)", &["Append"]).settings(GENERIC),
    Case::new("parts-generic-all", "EXECUTE upper(1)", &["Append"]).settings(GENERIC),
    Case::new("parts-generic-ways", "EXECUTE ways(1500)", &["Append"]).settings(GENERIC),
    Case::new(
        "parts-init-plan",
        "SELECT count(*) FROM p WHERE id < (SELECT 3000)",
        &["Append", "Result"],
    ),
    Case::new(
        "parts-by-parameter",
        "SELECT count(*) FROM q JOIN p ON p.id = q.id WHERE q.v = 4",
        &["Nested Loop"],
    )
    .settings(NESTED_LOOPS),
    Case::new(
        "parts-join",
        "SELECT count(*) FROM p JOIN q USING (id)",
        &["Append"],
    ),
    Case::new(
        "parts-self-join",
        "SELECT count(*) FROM q a JOIN q b USING (id) WHERE a.v < 20",
        &["Append"],
    ),
    Case::new(
        "parts-wise-join",
        "SELECT count(*) FROM p JOIN q USING (id)",
        &["Append"],
    )
    .settings(PARTITION_WISE),
    Case::new(
        "parts-wise-three",
        "SELECT count(*) FROM p a JOIN q b USING (id) LEFT JOIN p c USING (id)",
        &["Append"],
    )
    .settings(PARTITION_WISE),
    Case::new(
        "parts-wise-group",
        "SELECT id, count(*) FROM p GROUP BY id",
        &["Append", "HashAggregate"],
    )
    .settings(PARTITION_WISE),
    Case::new(
        "parts-wise-partial",
        "SELECT v, sum(id) FROM p GROUP BY v",
        &["Append"],
    )
    .settings(PARTITION_WISE),
    Case::new(
        "parts-wise-lone",
        "SELECT id, count(*) FROM p WHERE id < 100 GROUP BY id",
        &[],
    )
    .settings(PARTITION_WISE),
    Case::new(
        "parts-semi-join",
        "SELECT count(*) FROM p WHERE EXISTS (SELECT FROM q WHERE q.id = p.v)",
        &["Append"],
    ),
    Case::new(
        "parts-subplan",
        "SELECT (SELECT max(q.v) FROM q WHERE q.id = p.id) FROM p WHERE p.v = 3",
        &["Append"],
    ),
    Case::new(
        "parts-cte",
        "WITH c AS MATERIALIZED (SELECT * FROM q) SELECT count(*) FROM c a JOIN c b USING (id)",
        &["CTE Scan"],
    ),
    Case::new("parts-sub", "SELECT count(*) FROM deep", &["Append"]),
    Case::new(
        "parts-sub-some",
        "SELECT count(*) FROM deep WHERE a = 1",
        &["Append"],
    ),
    Case::new(
        "parts-sub-one",
        "SELECT count(*) FROM deep WHERE a = 1 AND b < 20",
        &["Seq Scan"],
    ),
    Case::new(
        "parts-default",
        "SELECT count(*) FROM deep WHERE a = 7",
        &["Seq Scan"],
    ),
    Case::new(
        "parts-nested-appends",
        "SELECT a FROM deep UNION ALL SELECT id FROM p WHERE v = 1",
        &["Append"],
    ),
    Case::new(
        "parts-ways",
        "SELECT v FROM ways WHERE id IN (1, 2, 1500, 2500, 3500)",
        &["Index Scan", "Seq Scan"],
    )
    .settings(BY_INDEX),
    Case::new(
        "parts-attached",
        "SELECT v FROM ways WHERE id >= 3000",
        &["Seq Scan"],
    ),
    Case::new(
        "parts-inherited",
        "SELECT count(*) FROM parent WHERE a < 300",
        &["Append"],
    ),
    Case::new(
        "parts-only-parent",
        "SELECT count(*) FROM ONLY parent",
        &["Seq Scan"],
    ),
    Case::new(
        "parts-union-of-tables",
        "SELECT id FROM t UNION ALL SELECT id FROM big",
        &["Append"],
    ),
    Case::new(
        "parts-union-of-parts",
        "SELECT id FROM p1 UNION ALL SELECT id FROM p2",
        &["Append"],
    ),
    Case::new(
        "parts-foreign",
        "SELECT count(*) FROM fp WHERE v = 3",
        &["Append"],
    ),
    Case::new(
        "parts-lock",
        "SELECT * FROM q WHERE v = 3 FOR UPDATE",
        &["LockRows"],
    )
    .reset("VACUUM q"),
    Case::new(
        "parts-update",
        "UPDATE d SET id = id + 1 WHERE id % 3 = 0",
        &["Update"],
    )
    .reset(FRESH),
    Case::new(
        "parts-update-one",
        "UPDATE d SET id = id + 1 WHERE v = 1",
        &["Update"],
    )
    .reset(FRESH),
    Case::new("parts-move", "UPDATE d SET v = v + 1 WHERE id < 100", &["Update"]).reset(FRESH),
    Case::new(
        "parts-delete",
        "DELETE FROM d WHERE id BETWEEN 100 AND 300",
        &["Delete"],
    )
    .reset(FRESH),
    Case::new(
        "parts-delete-using",
        "DELETE FROM d USING q WHERE d.id = q.id AND q.v < 10",
        &["Delete"],
    )
    .reset(FRESH),
    Case::new(
        "parts-merge",
        "MERGE INTO d USING q ON d.id = q.id WHEN MATCHED AND q.v < 10 THEN DELETE
         WHEN MATCHED THEN UPDATE SET id = d.id + 20000 WHEN NOT MATCHED AND q.v = 1 THEN INSERT VALUES (q.id, q.id % 3)",
        &["Merge"],
    )
    .reset(FRESH),
    Case::new(
        "parts-conflict",
        "INSERT INTO d SELECT id, id % 4 FROM q WHERE id < 1500 ON CONFLICT (id, v) DO UPDATE SET id = d.id + 20000",
        &["Insert"],
    )
    .reset(UNIQUE),
    Case::new(
        "parts-insert",
        "INSERT INTO d SELECT id, id % 3 FROM q WHERE id < 500",
        &["Insert"],
    )
    .reset(FRESH),
];
