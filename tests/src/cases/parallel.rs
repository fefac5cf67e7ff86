//! Parallel plans. The share of each process depends on chance; the sums do not (see `tests/equality.rs`).

use super::Case;

const FORCE: &str = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
     SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET jit = off";
const SORTED: &str = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
     SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET jit = off; SET enable_seqscan = off; \
     SET enable_bitmapscan = off";
const GROUPED: &str = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
     SET max_parallel_workers_per_gather = 2; SET jit = off; SET enable_sort = off; SET enable_indexscan = off; \
     SET enable_indexonlyscan = off";
const COMPILED: &str = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
     SET max_parallel_workers_per_gather = 2; SET jit = on; SET jit_above_cost = 0; SET jit_inline_above_cost = -1; \
     SET jit_optimize_above_cost = -1";
const HASHES: &str = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
     SET max_parallel_workers_per_gather = 2; SET jit = off; SET enable_mergejoin = off; SET enable_nestloop = off";
const NO_LEADER: &str = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
     SET max_parallel_workers_per_gather = 2; SET jit = off; SET parallel_leader_participation = off";

const PARTITIONS: &str = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
     SET max_parallel_workers_per_gather = 2; SET jit = off; SET enable_partitionwise_join = on; SET enable_mergejoin = off; \
     SET enable_nestloop = off";

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("parallel aggregate", "SELECT count(*), sum(k) FROM big", &["Gather", "Partial Aggregate", "Parallel Seq Scan"])
        .settings(FORCE)
        .parallel(),
    Case::new("parallel scan", "SELECT id FROM big WHERE k < 2000", &["Gather"]).settings(FORCE).parallel(),
    Case::new("parallel partitions", "SELECT count(*), sum(v) FROM p", &["Gather"]).settings(FORCE).parallel(),
    Case::new("parallel partition", "SELECT count(pad) FROM p WHERE id < 2000", &["Gather"]).settings(FORCE).parallel(),
    Case::new(
        "parallel partition-wise join",
        "SELECT count(*) FROM p JOIN q USING (id) WHERE p.v % 2 = 0",
        &["Gather"],
    )
    .settings(PARTITIONS)
    .parallel(),
    Case::new("parallel index scan", "SELECT count(pad) FROM big WHERE id < 40000", &["Gather", "Parallel Index Scan"])
        .settings("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_index_scan_size = 0; SET min_parallel_table_scan_size = 0; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off")
        .parallel(),
    Case::new("parallel bitmap scan", "SELECT count(pad) FROM big WHERE k < 9000", &["Gather", "Parallel Bitmap Heap Scan"])
        .settings("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_index_scan_size = 0; SET min_parallel_table_scan_size = 0; SET enable_seqscan = off; SET enable_indexscan = off; SET jit = off")
        .parallel(),
    Case::new("gather merge", "SELECT id, k FROM big ORDER BY k, id", &["Gather Merge", "Sort", "Parallel Seq Scan"])
        .settings(FORCE)
        .parallel(),
    Case::new("hash aggregate under gather", "SELECT grp, count(*) FROM t GROUP BY grp", &["Gather", "Partial HashAggregate"])
        .settings(GROUPED)
        .parallel(),
    Case::new(
        "incremental sort under gather",
        "SELECT id, pad FROM big WHERE id < 20000 ORDER BY id, pad",
        &["Gather Merge", "Incremental Sort"],
    )
    .settings(SORTED)
    .parallel(),
    Case::new("workers with JIT", "SELECT count(*) FROM big WHERE k % 3 = 1", &["Gather", "Partial Aggregate"])
        .settings(COMPILED)
        .parallel(),
    Case::new(
        "parallel hash join",
        "SELECT count(*) FROM big a JOIN big b ON a.k = b.id",
        &["Gather", "Parallel Hash Join", "Parallel Hash"],
    )
    .settings(HASHES)
    .parallel(),
    Case::new("hash join under gather", "SELECT count(*) FROM big JOIN s ON big.k = s.t_id", &["Gather", "Hash Join"])
        .settings("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET jit = off; SET enable_parallel_hash = off; SET enable_mergejoin = off; SET enable_nestloop = off")
        .parallel(),
    Case::new("nested loop under gather", "SELECT count(t.pad) FROM big JOIN t ON t.id = big.id WHERE big.k < 1500", &["Gather", "Nested Loop"])
        .settings("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET jit = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off")
        .parallel(),
    Case::new("parallel append", "SELECT count(*), sum(v) FROM p", &["Gather", "Parallel Append"]).settings(FORCE).parallel(),
    Case::new("leader that takes no part", "SELECT count(*), sum(k) FROM big", &["Gather", "Partial Aggregate"])
        .settings(NO_LEADER)
        .parallel(),
    Case::new(
        "parallel hash without leader",
        "SELECT count(*) FROM big a JOIN big b ON a.k = b.id",
        &["Gather", "Parallel Hash Join"],
    )
    .settings("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET jit = off; SET enable_mergejoin = off; SET enable_nestloop = off; SET parallel_leader_participation = off")
    .parallel(),
    Case::new(
        "init plan beside gather",
        "SELECT count(*) FROM big WHERE k > (SELECT avg(val) FROM t)",
        &["Gather"],
    )
    .settings(FORCE)
    .parallel(),
    Case::new(
        "gather started again",
        "SELECT sum(n + c) FROM (VALUES (1), (2), (3)) v (n), LATERAL (SELECT count(*) c FROM big WHERE k > 10 OFFSET 0) x",
        &["Nested Loop", "Gather"],
    )
    .settings("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET jit = off; SET enable_material = off")
    .parallel(),
    Case::new("forced gather", "SELECT count(*) FROM s", &["Gather"])
        .settings("SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')")
        .parallel(),
    Case::new("parallel create table as", "CREATE TABLE made AS SELECT k, id FROM big WHERE k < 5000", &["Gather"])
        .settings(FORCE)
        .reset("DROP TABLE IF EXISTS made")
        .parallel(),
];
