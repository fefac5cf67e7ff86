//! Joins, subplans and partitions.

use super::Case;

const ONLY_NESTED: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off";
const ONLY_MERGE: &str = "SET enable_hashjoin = off; SET enable_nestloop = off";
const ONLY_HASH: &str = "SET enable_mergejoin = off; SET enable_nestloop = off";

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("nested loop", "SELECT t.val FROM s JOIN t ON t.id = s.t_id", &["Nested Loop", "Index Scan"])
        .settings("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off"),
    Case::new("nested loop left", "SELECT t.val FROM s LEFT JOIN t ON t.id = s.t_id + 9000", &["Nested Loop Left Join"])
        .settings(ONLY_NESTED),
    Case::new(
        "memoize",
        "SELECT count(t.pad) FROM big JOIN t ON t.id = big.k % 300 WHERE big.id < 8000",
        &["Memoize", "Nested Loop"],
    )
    .settings(ONLY_NESTED),
    // Planned with enough memory and run with little, because the planner would not choose this plan with
    // little memory.
    Case::new("memoize with evictions", "EXECUTE evicting", &["Memoize", "Nested Loop"]).settings(
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan;
         PREPARE evicting AS SELECT count(t.pad) FROM big JOIN t ON t.id = big.k % 2000 WHERE big.id < 8000;
         EXECUTE evicting; SET work_mem = '64kB'; SET hash_mem_multiplier = 1",
    ),
    Case::new("memoize that overflows", "EXECUTE overflowing", &["Memoize", "Nested Loop"]).settings(
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan;
         SET max_parallel_workers_per_gather = 0;
         PREPARE overflowing AS SELECT count(x.p) FROM big,
             LATERAL (SELECT repeat(pad, 20) AS p FROM t WHERE t.grp = big.k % 90 OFFSET 0) x WHERE big.id < 500;
         EXECUTE overflowing; SET work_mem = '64kB'; SET hash_mem_multiplier = 1",
    ),
    Case::new("materialize", "SELECT count(*) FROM s a, s b WHERE a.id < b.id", &["Nested Loop", "Materialize"])
        .settings("SET enable_indexscan = off; SET enable_bitmapscan = off"),
    Case::new("merge join", "SELECT count(*) FROM t JOIN big ON t.val = big.k", &["Merge Join"])
        .settings("SET enable_hashjoin = off; SET enable_nestloop = off; SET max_parallel_workers_per_gather = 0"),
    Case::new(
        "merge join with sorts and mark",
        "SELECT count(*) FROM (SELECT grp FROM t OFFSET 0) a JOIN (SELECT v FROM p OFFSET 0) b ON a.grp = b.v",
        &["Merge Join", "Sort"],
    )
    .settings(ONLY_MERGE),
    Case::new("merge full join", "SELECT count(*) FROM t FULL JOIN s ON t.id = s.t_id + 5000", &["Merge Full Join"])
        .settings(ONLY_MERGE),
    Case::new("hash join", "SELECT count(*) FROM t JOIN s ON t.id = s.t_id", &["Hash Join", "Hash"]).settings(ONLY_HASH),
    Case::new("hash left join", "SELECT count(s.id) FROM t LEFT JOIN s ON t.id = s.t_id", &["Hash", "Hash Left Join"])
        .settings(ONLY_HASH),
    Case::new(
        "hash join in several batches",
        "SELECT count(*) FROM big a JOIN big b ON a.k = b.id",
        &["Hash Join", "Hash"],
    )
    .settings("SET work_mem = '64kB'; SET enable_mergejoin = off; SET enable_nestloop = off; SET max_parallel_workers_per_gather = 0"),
    Case::new(
        "hash join with an empty side",
        "SELECT count(*) FROM t JOIN (SELECT * FROM s WHERE name = 'nobody' OFFSET 0) s ON t.id = s.t_id",
        &["Hash Join"],
    )
    .settings(ONLY_HASH),
    Case::new("semi join", "SELECT count(*) FROM t WHERE EXISTS (SELECT FROM big WHERE big.k = t.id)", &["Hash Semi Join"])
        .settings("SET enable_hashagg = off; SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_sort = off; SET enable_mergejoin = off; SET enable_nestloop = off; SET max_parallel_workers_per_gather = 0"),
    Case::new("anti join", "SELECT count(*) FROM t WHERE NOT EXISTS (SELECT FROM s WHERE s.t_id = t.id)", &["Hash Anti Join"])
        .settings(ONLY_HASH),
    Case::new("init plan", "SELECT * FROM t WHERE val > (SELECT avg(val) + 4900 FROM t)", &["Seq Scan", "Aggregate"]),
    Case::new("init plan not needed", "SELECT * FROM s WHERE id = 1 OR (id = 2 AND t_id > (SELECT max(val) FROM t))", &["Bitmap Heap Scan"])
        .settings("SET enable_seqscan = off"),
    Case::new(
        "correlated subplan",
        "SELECT s.id, (SELECT count(*) FROM t WHERE t.grp = s.id % 100) FROM s WHERE s.id <= 200",
        &["Aggregate"],
    ),
    Case::new("hashed subplan", "SELECT count(*) FROM t WHERE id NOT IN (SELECT t_id FROM s)", &["Seq Scan", "Aggregate"]),
    Case::new(
        "alternatives of a subplan",
        "SELECT count(*) FROM t WHERE EXISTS (SELECT FROM s WHERE s.t_id = t.id) OR val = 3",
        &["Seq Scan"],
    ),
    Case::new(
        "subplans in a target list and a filter",
        "SELECT (SELECT name FROM s WHERE s.id = t.id), (SELECT 1) FROM t WHERE val < (SELECT count(*) FROM s WHERE s.t_id > t.id)",
        &["Seq Scan"],
    )
    .settings("SET jit = off"),
    Case::new(
        "lateral",
        "SELECT s.id, x.* FROM s, LATERAL (SELECT val FROM t WHERE t.grp = s.id % 100 ORDER BY pad, val LIMIT 2) x WHERE s.id < 100",
        &["Nested Loop", "Limit", "Sort"],
    ),
    Case::new("pruned when planned", "SELECT count(*) FROM p WHERE id < 3000", &["Append"]),
    Case::new("pruned at start", "EXECUTE pruned (2600)", &["Append"])
        .settings("SET plan_cache_mode = force_generic_plan; PREPARE pruned (int) AS SELECT count(*) FROM p WHERE id < $1"),
    Case::new(
        "pruned while running",
        "SELECT count(p.pad) FROM s JOIN p ON p.id = s.t_id WHERE s.id < 150",
        &["Nested Loop", "Append"],
    )
    .settings("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; SET enable_memoize = off"),
    Case::new("partition-wise join", "SELECT count(*) FROM p JOIN q ON p.id = q.id", &["Append", "Hash Join"])
        .settings("SET enable_partitionwise_join = on; SET enable_mergejoin = off; SET enable_nestloop = off"),
    Case::new(
        "partition-wise aggregate",
        "SELECT id, count(*) FROM p GROUP BY id",
        &["Append", "HashAggregate"],
    )
    .settings("SET enable_partitionwise_aggregate = on; SET enable_sort = off"),
    Case::new("inner side called twice a loop", "SELECT s.id FROM s JOIN t ON t.id = s.t_id WHERE t.val >= 0", &["Nested Loop", "Index Scan"])
        .settings("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off"),
    Case::new("SQL function as a table", "SELECT count(*) FROM s, LATERAL sql_rows(s.id) r WHERE s.id < 20", &["Function Scan"]),
    Case::new("SQL function in a target list", "SELECT sql_sum(id) FROM s WHERE id < 60", &["Index Only Scan"])
        .settings("SET enable_seqscan = off; SET enable_bitmapscan = off"),
    Case::new("PL/pgSQL function in a filter", "SELECT count(*) FROM s WHERE lookup(t_id) > 5000", &["Seq Scan"]),
    Case::new("exception blocks in a filter", "SELECT count(*) FROM s WHERE guarded(id) > 2", &["Seq Scan"]),
    Case::new("prepared statement", "EXECUTE one (7)", &["Bitmap Heap Scan"])
        .settings("PREPARE one (int) AS SELECT * FROM t WHERE grp = $1; EXECUTE one (1); EXECUTE one (2)"),
];
