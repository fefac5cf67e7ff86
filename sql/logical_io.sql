-- How long gets of blocks take, and the calls of a statement.
SET max_parallel_workers_per_gather = 0;
CREATE TABLE blocks AS SELECT i AS id, repeat('x', 350) AS pad FROM generate_series(1, 20000) i;
VACUUM (FREEZE, ANALYZE) blocks;
SELECT sum(hits + reads) = pg_relation_size('blocks') / 8192 AS each_block_once, bool_and(hit_p50_us > 0) AS timed
  FROM rowsource_logical_io('blocks');
SELECT sum(hits) = 5000 AS all_hits, sum(reads) AS reads FROM rowsource_logical_io('blocks', blocks => 5000, pattern => 'random', seed => 1);
SELECT rowsource_reset();
SELECT count(*) FROM (SELECT id FROM blocks OFFSET 0) s;
SELECT operation, hits + self_blks_read = pg_relation_size('blocks') / 8192 AS each_block_once, coalesce(hit_error_us < hit_us, true) AS told
  FROM pg_stat_rowsource_logical_io WHERE object_name = 'blocks';
-- each call has a beginning and an end
SELECT event, depth, node_id, operation, object_name, rows, elapsed_us >= 0 AS timed
  FROM rowsource_call_trace('SELECT id FROM blocks LIMIT 2') WHERE event <> 'WAIT';
SELECT event, count(*), max(line) FILTER (WHERE event = 'OMITTED') ~ '^19999 more calls' AS omitted
  FROM rowsource_call_trace('SELECT id FROM blocks', 2) WHERE event <> 'WAIT' GROUP BY event ORDER BY event COLLATE "C";
SELECT rowsource_call_trace('SELECT 1; SELECT 2');
SELECT rowsource_call_trace('EXPLAIN SELECT 1');
SELECT rowsource_call_trace('SELECT $1');
SELECT rowsource_call_trace('SELEC 1');
SELECT rowsource_call_trace('SELECT 1 / 0');
SELECT rowsource_call_trace('SELECT * FROM rowsource_call_trace(''SELECT 1'')');
SELECT rowsource_call_trace('SELECT 1', 0);
DROP TABLE blocks;
RESET max_parallel_workers_per_gather;
