-- `make demo` runs this file. It shows statements, each followed by what pg_rowsource measured. The variable rows is the
-- number of rows of their table.
\set QUIET on
\pset tuples_only on
\pset format unaligned
\pset pager off
\set show 'SELECT rowsource_display();'
\o /dev/null
SET client_min_messages = warning;
SET max_parallel_workers_per_gather = 0;
DROP EXTENSION IF EXISTS pg_rowsource CASCADE;
-- The table of an earlier run is used again. Its comment is written last.
SELECT obj_description(to_regclass('test'), 'pg_class') IS DISTINCT FROM :'rows' AS load \gset
\if :load
\echo == loading :rows rows
DROP TABLE IF EXISTS test;
CREATE TABLE test AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, :rows) i;
CREATE INDEX test_id ON test (id);
VACUUM ANALYZE test;
CHECKPOINT;
COMMENT ON TABLE test IS :'rows';
\endif
\o

\echo
\echo == CREATE EXTENSION starts measuring in this session at once
CREATE EXTENSION pg_rowsource;
\echo
\echo == a full scan of ten million rows, with one call in 128 timed
\echo select count(pad) from test;
select count(pad) from test;
:show

\echo
\echo == the same with an index scan
SET enable_seqscan = off; SET enable_bitmapscan = off;
\echo select count(pad) from test where id > 0;
select count(pad) from test where id > 0;
:show
RESET enable_seqscan; RESET enable_bitmapscan;

\echo
\echo == a hash join and a sort that do not fit into work_mem
SET work_mem = '1MB'; SET enable_mergejoin = off;
\echo select a.id % 1000 as k, count(*) from test a join test b on a.id = b.id where a.id <= 1000000 group by 1 order by 2 desc, 1 limit 3;
select a.id % 1000 as k, count(*) from test a join test b on a.id = b.id where a.id <= 1000000 group by 1 order by 2 desc, 1 limit 3;
SELECT rowsource_display(format => 'ALLSTATS LAST +COST');
\echo
\echo == the same plan for a flame graph: names from the root to the node, and its own microseconds
SELECT rowsource_folded();
\echo
\echo == how long the calls of its first scan took
SELECT rowsource_histogram_plot(node_id => 4);
RESET work_mem; RESET enable_mergejoin;

\echo
\echo == a parallel query: rows, blocks and times summed over all processes
SET max_parallel_workers_per_gather = 2;
\echo select count(pad) from test where id % 3 = 0;
select count(pad) from test where id % 3 = 0;
:show
SET max_parallel_workers_per_gather = 0;

\echo
\echo == a subquery: its time and blocks are included in the node that uses it
\echo select id, (select count(*) from test b where b.id between a.id and a.id + 500) from test a where id <= 4;
select id, (select count(*) from test b where b.id between a.id and a.id + 500) from test a where id <= 4;
:show

\echo
\echo == an INSERT, with its WAL
CREATE TABLE IF NOT EXISTS changed (id int PRIMARY KEY, pad text);
TRUNCATE changed;
\echo insert into changed select * from test where id <= 20000 on conflict do nothing returning id;
\o /dev/null
insert into changed select * from test where id <= 20000 on conflict do nothing returning id;
\o
SELECT rowsource_display(format => 'ALLSTATS LAST +WAL');

\echo
\echo == a cancelled statement: what it did until then
\set ON_ERROR_STOP off
SET statement_timeout = '400ms';
\echo select count(*) from test a join test b on a.id = b.id + 1;
select count(*) from test a join test b on a.id = b.id + 1;
RESET statement_timeout;
\set ON_ERROR_STOP on
:show

\echo
\echo == level basic measures only statements with the hint
SET pg_rowsource.statistics_level = basic;
\echo select /*+ gather_plan_statistics */ count(*) from test where id < 5000;
select /*+ gather_plan_statistics */ count(*) from test where id < 5000;
:show
RESET pg_rowsource.statistics_level;

\echo
\echo == for comparison: every call timed
SET pg_rowsource.sampfreq = 1;
\echo select count(pad) from test;
select count(pad) from test;
:show
RESET pg_rowsource.sampfreq;

\echo
\echo == EXPLAIN (ANALYZE) with sampled times
SET pg_rowsource.explain = on;
\echo explain (analyze, buffers) select count(pad) from test;
explain (analyze, buffers) select count(pad) from test;
SET pg_rowsource.explain = off;

\echo
\echo == the clocks of this machine
\pset tuples_only off
\pset format aligned
SELECT * FROM rowsource_clocks();

\echo
\echo == a statement of 20 MB: how much of it is stored, and how much memory all plans take
\echo select count(*) from test where id < 10 and pad = repeat('x', 20000000);
select count(*) from test where id < 10 and pad = repeat('x', 20000000);
SELECT rowsource_display();
SELECT plans, pg_size_pretty(bytes) AS bytes, pg_size_pretty(max_bytes) AS at_most, evictions, refused, truncated
  FROM rowsource_info();

\echo
\echo == temporary files: each request is counted and timed
SET client_min_messages = error;
\o /dev/null
CREATE TEMPORARY TABLE gtt (id int, pad text);
INSERT INTO gtt SELECT i, repeat('*', 1000) FROM generate_series(1, 700000) i;
SELECT rowsource_tempfile_reset(); SELECT rowsource_snapshot();
\o
\echo select count(*) from gtt;
select count(*) from gtt;
SELECT small_reads AS reads, small_read_bytes AS bytes, small_read_time AS ms, small_read_mean_time AS avg,
       small_read_max_time AS max, source
  FROM pg_stat_rowsource_tempfile_io WHERE datname = current_database() AND filetype = 'temp table';
SELECT operation, size, from_us, to_us, requests
  FROM pg_stat_rowsource_tempfile_io_histogram WHERE datname = current_database() AND filetype = 'temp table' AND operation = 'read';
\echo
\echo == a sort that spills to disk, and the space that it uses
BEGIN;
DECLARE sorted CURSOR FOR SELECT * FROM test WHERE id <= 1000000 ORDER BY pad, id DESC;
\o /dev/null
FETCH 1 FROM sorted;
\o
SELECT pid, usename, datname, queryid, filetype, files, bytes FROM rowsource_tempfile_usage();
\echo
\echo == the same statement while it is open, as any other session sees it
SELECT pg_backend_pid() AS pid \gset
\pset tuples_only on
\echo select rowsource_display(pid => :pid);
SELECT rowsource_display(pid => :pid);
\echo
\pset tuples_only off
MOVE ALL FROM sorted;
CLOSE sorted;
SELECT rowsource_display();
COMMIT;
\o /dev/null
SELECT rowsource_snapshot();
\o
SELECT rowsource_tempfile_report();

\echo
\echo == what all these statements waited for
SELECT node_id, operation, object_name, wait_event_type, wait_event, waits, wait_time::numeric(9, 3), percent::numeric(4, 1) FROM rowsource_top_waits LIMIT 8;

\echo
\echo == what the sessions did, from samples of them
SELECT queryid, node_id, operation, object_name, wait_event, samples, round(percent::numeric, 1) AS percent
    FROM rowsource_top_activity() WHERE queryid IS NOT NULL LIMIT 8;

\echo
\echo == a SQL trace of lookups in a procedure, and its report
\o /dev/null
SELECT rowsource_trace_start();
DO $$ DECLARE n int; BEGIN FOR i IN 1..10000 LOOP SELECT count(*) INTO n FROM test WHERE id = i; END LOOP; END $$;
SELECT rowsource_trace_stop();
\o
SELECT rowsource_tkprof AS report FROM rowsource_tkprof(sort => 'fchela', statements => 1) LIMIT 36 OFFSET 11;

\echo
\echo == each call of the nodes of a statement
SELECT line FROM rowsource_call_trace('select count(*) from test where id <= 2');

\echo
\echo == how long a logical I/O takes: hits and reads of random blocks
SELECT from_us, to_us, hits, reads FROM rowsource_logical_io('test', pattern => 'random', blocks => 20000);

\echo
\echo == the commands to begin with, with the ids of what was measured here
SELECT * FROM rowsource();
\echo
\echo == what happened on this server, and what to look at next
SELECT rowsource_report();
