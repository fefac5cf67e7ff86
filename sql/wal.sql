-- WAL by operation and object.
SET pg_rowsource.statistics_level = basic;
SELECT rowsource_reset();
CREATE TABLE logged (i int, t text);
CREATE TABLE copied (i int, t text);
CREATE UNLOGGED TABLE unlogged (i int, t text);
CREATE TEMPORARY TABLE temporary (i int, t text);
CREATE FUNCTION insert_one() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO logged SELECT 1, 'x'; END $$;
SET pg_rowsource.statistics_level = typical;
SET pg_rowsource.track = 'all';
INSERT INTO logged SELECT i, repeat('x', 100) FROM generate_series(1, 1000) i;
INSERT INTO logged SELECT i, repeat('x', 100) FROM generate_series(1, 1000) i;
INSERT INTO copied SELECT * FROM logged;
INSERT INTO unlogged SELECT * FROM logged;
INSERT INTO temporary SELECT * FROM logged;
UPDATE copied SET i = 0 WHERE i <= 10;
CREATE TABLE created AS SELECT * FROM copied;
SELECT insert_one();
SET pg_rowsource.statistics_level = basic;
RESET pg_rowsource.track;
SELECT operation, object_name, toplevel, wal_records >= 1000 AS many, wal_fpi >= 0 AS fpi, wal_bytes > 50 * wal_records AS bytes, percent > 0 AS percent, rtrim(query, ';') AS query
  FROM rowsource_wal WHERE operation !~ 'Scan' ORDER BY operation COLLATE "C", object_name COLLATE "C", toplevel;
-- Nothing is counted twice, and nothing is missing.
SELECT sum(wal_bytes) = (SELECT sum(wal_bytes) FROM pg_stat_rowsource_plans) AS all_bytes,
       sum(wal_records) = (SELECT sum(wal_records) FROM pg_stat_rowsource_plans) AS all_records,
       sum(percent) BETWEEN 99 AND 101 AS percent
  FROM rowsource_wal;
SELECT bool_and(ordered) AS ordered FROM (SELECT wal_bytes <= lag(wal_bytes) OVER () AS ordered FROM rowsource_wal) s;
DROP FUNCTION insert_one();
DROP TABLE logged, copied, unlogged, temporary, created;
RESET pg_rowsource.statistics_level;
