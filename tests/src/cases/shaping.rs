//! Sorts, aggregates, set operations and the small nodes above them.

use super::Case;

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("sort in memory", "SELECT * FROM s ORDER BY name", &["Sort"]),
    Case::new("sort on disk", "SELECT * FROM t ORDER BY pad, val", &["Sort"]).settings("SET work_mem = '64kB'"),
    // A merge join that goes back needs the whole result on disk.
    Case::new("sort on disk that is read again", "SELECT count(a.pad), count(b.pad) FROM t a JOIN t b ON a.val = b.val", &["Merge Join", "Sort"])
        .settings("SET work_mem = '64kB'; SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_material = off; SET enable_indexscan = off"),
    Case::new("top-N sort", "SELECT * FROM t ORDER BY pad, val LIMIT 5", &["Limit", "Sort"]),
    Case::new("incremental sort", "SELECT grp, pad, val FROM t ORDER BY grp, val", &["Incremental Sort", "Index Scan"])
        .settings("SET enable_sort = on; SET enable_seqscan = off; SET enable_bitmapscan = off; SET random_page_cost = 0.1"),
    Case::new(
        "incremental sort on disk",
        "SELECT * FROM (SELECT k / 4000 AS b, * FROM big ORDER BY k / 4000 OFFSET 0) x ORDER BY b, pad, id",
        &["Incremental Sort", "Sort"],
    )
    .settings("SET enable_sort = on; SET work_mem = '64kB'; SET max_parallel_workers_per_gather = 0"),
    Case::new("aggregate", "SELECT count(*), sum(val), max(pad) FROM t", &["Aggregate"]),
    Case::new("min and max by index", "SELECT min(val), max(val) FROM t", &["Result", "Limit", "Index Only Scan Backward"]),
    Case::new("aggregate of distinct values", "SELECT count(DISTINCT grp), string_agg(pad, ',' ORDER BY val) FROM t", &["Aggregate"])
        .settings("SET work_mem = '64kB'"),
    Case::new("group aggregate", "SELECT grp, sum(val) FROM t GROUP BY grp", &["GroupAggregate"])
        .settings("SET enable_hashagg = off"),
    Case::new("hash aggregate", "SELECT grp, sum(val) FROM t GROUP BY grp", &["HashAggregate"]).settings("SET enable_sort = off"),
    Case::new("hash aggregate on disk", "SELECT id, count(*) FROM big GROUP BY id", &["HashAggregate"])
        .settings("SET work_mem = '256kB'; SET hash_mem_multiplier = 1; SET enable_sort = off; SET max_parallel_workers_per_gather = 0; SET enable_indexscan = off; SET enable_indexonlyscan = off"),
    Case::new("mixed aggregate", "SELECT grp, val % 5, count(*) FROM t GROUP BY CUBE (grp, val % 5)", &["MixedAggregate"]),
    Case::new("grouping sets by sort", "SELECT grp, val % 5, count(*) FROM t GROUP BY ROLLUP (grp, val % 5)", &["GroupAggregate", "Sort"])
        .settings("SET enable_hashagg = off"),
    Case::new(
        "grouping sets by two sorts",
        "SELECT grp, val % 5, count(*) FROM t GROUP BY GROUPING SETS ((grp), (val % 5))",
        &["GroupAggregate"],
    )
    .settings("SET enable_hashagg = off"),
    Case::new("window", "SELECT sum(val) OVER (PARTITION BY grp ORDER BY id) FROM t", &["WindowAgg"]),
    Case::new("window on disk", "SELECT count(*) OVER () FROM big WHERE id < 20000", &["WindowAgg"])
        .settings("SET work_mem = '64kB'; SET max_parallel_workers_per_gather = 0"),
    Case::new("window with run condition", "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY id) rn FROM t) x WHERE rn <= 10", &["WindowAgg"]),
    Case::new("unique", "SELECT DISTINCT grp FROM t", &["Unique"]).settings("SET enable_hashagg = off"),
    Case::new("group", "SELECT grp FROM t GROUP BY grp", &["Group"]).settings("SET enable_hashagg = off"),
    Case::new("set operation by hash", "SELECT id FROM t EXCEPT SELECT t_id FROM s", &["HashSetOp Except"]),
    Case::new("set operation by sort", "SELECT id FROM t INTERSECT ALL SELECT t_id FROM s", &["SetOp Intersect All"])
        .settings("SET enable_hashagg = off"),
    Case::new("limit and offset", "SELECT * FROM t OFFSET 100 LIMIT 50", &["Limit"]),
    Case::new("limit zero", "SELECT * FROM t LIMIT (SELECT 0)", &["Limit"]),
    Case::new("project set", "SELECT id, generate_series(1, 3) FROM s", &["ProjectSet"]),
    Case::new("append", "SELECT id FROM t WHERE val < 50 UNION ALL SELECT id FROM s", &["Append"]),
    Case::new("merge append", "SELECT id FROM (SELECT id FROM t UNION ALL SELECT id FROM s) x ORDER BY id LIMIT 300", &["Merge Append"])
        .settings("SET enable_sort = off"),
    Case::new("result", "SELECT 1 + random()::int * 0", &["Result"]),
    Case::new("one-time filter", "SELECT * FROM t WHERE (SELECT 1) = 2", &["Result"]),
    Case::new("no rows wanted", "SELECT * FROM t WHERE false", &["Result"]),
    Case::new("with JIT", "SELECT grp, sum(val + 1) FROM t WHERE val % 2 = 0 GROUP BY grp", &["HashAggregate"])
        .settings("SET enable_sort = off; SET jit = on; SET jit_above_cost = 0; SET jit_inline_above_cost = 0; SET jit_optimize_above_cost = 0"),
    Case::new("create table as", "CREATE TABLE made AS SELECT * FROM t WHERE grp <> 10", &["Seq Scan"])
        .reset("DROP TABLE IF EXISTS made"),
];
