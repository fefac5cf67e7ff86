-- Temporary files: each request is counted, and snapshots store the counters.
\set SHOW_CONTEXT never
SET pg_rowsource.statistics_level = basic;
SET work_mem = '64kB';
SELECT rowsource_tempfile_reset();
SELECT datname = current_database() AS here, filetype, source, small_reads, small_writes, large_reads,
       large_writes, small_read_time, small_read_mean_time, small_read_max_time
  FROM pg_stat_rowsource_tempfile_io WHERE datname = current_database() ORDER BY filetype;

-- A function scan's 20,000 rows are written once and read once.
SELECT count(*) FROM (SELECT * FROM generate_series(1, 20000) i OFFSET 0) s;
SELECT filetype, small_writes, small_write_bytes, small_read_bytes, small_reads >= small_writes AS reads,
       small_write_time > 0 AS timed, small_write_max_time >= small_write_mean_time AS longest
  FROM pg_stat_rowsource_tempfile_io WHERE datname = current_database() ORDER BY filetype;
SELECT h.filetype, h.operation, h.size, sum(h.requests) = min(CASE operation WHEN 'read' THEN i.small_reads ELSE i.small_writes END) AS all_there,
       bool_and(from_us < coalesce(to_us, 'infinity')) AS bounds
  FROM pg_stat_rowsource_tempfile_io_histogram h JOIN pg_stat_rowsource_tempfile_io i USING (datid, filetype)
 WHERE h.datname = current_database() GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- If the setting is off, nothing is counted.
SET pg_rowsource.tempfile_timing = off;
SELECT count(*) FROM (SELECT * FROM generate_series(1, 20000) i OFFSET 0) s;
RESET pg_rowsource.tempfile_timing;
SELECT small_writes FROM pg_stat_rowsource_tempfile_io WHERE datname = current_database() AND filetype = 'work file';

-- Temporary tables.
SET temp_buffers = 100;
CREATE TEMPORARY TABLE gtt AS SELECT i, repeat('x', 1000) AS pad FROM generate_series(1, 7000) i;
SELECT count(*) FROM gtt;
SELECT small_read_bytes + large_read_bytes = pg_relation_size('gtt') AS read, small_write_bytes + large_write_bytes > 0 AS written FROM pg_stat_rowsource_tempfile_io
 WHERE datname = current_database() AND filetype = 'temp table';
SELECT usename = current_user AS mine, datname = current_database() AS here, queryid IS NOT NULL AS running, filetype, files > 0 AS files,
       bytes >= 7000 * 1000 AS bytes
  FROM rowsource_tempfile_usage() WHERE pid = pg_backend_pid();
DROP TABLE gtt;

-- The history.
SELECT rowsource_snapshot();
SELECT count(*) FROM (SELECT * FROM generate_series(1, 20000) i OFFSET 0) s;
SELECT rowsource_snapshot();
SELECT filetype, small_writes, small_write_mean_time > 0 AS timed, source FROM rowsource_interval_tempfile_io
 WHERE datname = current_database() AND snap_id > 0 ORDER BY filetype;
SELECT regexp_replace(line, '  .*', '') AS line FROM rowsource_tempfile_report() line WHERE line ~ '^(IO|snapshot|now|nothing)';
SELECT regexp_replace(line, '  .*', '') AS line
  FROM rowsource_tempfile_report((SELECT taken_at FROM rowsource_snapshots WHERE snap_id = 1),
                                 (SELECT taken_at FROM rowsource_snapshots WHERE snap_id = 2)) line WHERE line ~ '^(IO|snapshot|now)';
DELETE FROM rowsource_snapshots;
SELECT count(*) FROM rowsource_snapshot_tempfile_io;
