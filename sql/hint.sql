-- The hint gather_plan_statistics measures one statement at any level.
CREATE TABLE hinted AS SELECT i AS id FROM generate_series(1, 100) i;
ANALYZE hinted;
CREATE FUNCTION last_rows() RETURNS bigint LANGUAGE sql AS $$
    SELECT max(last_rows) FROM pg_stat_rowsource JOIN rowsource_last() l USING (queryid, planid) WHERE operation = 'Seq Scan'
$$;
SET pg_rowsource.statistics_level = basic;

SELECT count(*) FROM hinted WHERE id <= 1;
SELECT last_rows();
SELECT /*+ gather_plan_statistics */ count(*) FROM hinted WHERE id <= 2;
SELECT last_rows();
-- anywhere in the text, in any case, among other hints
SELECT count(*) FROM hinted /*+ GATHER_PLAN_STATISTICS */ WHERE id <= 3;
SELECT last_rows();
SELECT /*+ SeqScan(hinted) gather_plan_statistics Leading(a b) */ count(*) FROM hinted WHERE id <= 4;
SELECT last_rows();
/*+gather_plan_statistics*/ SELECT count(*) FROM hinted WHERE id <= 5;
SELECT last_rows();
SELECT /*+
  gather_plan_statistics
*/ count(*) FROM hinted WHERE id <= 6;
SELECT last_rows();
-- these are no hints
SELECT /* gather_plan_statistics */ count(*) FROM hinted WHERE id <= 7;
SELECT /*+ gather_plan_statistics_not */ count(*) FROM hinted WHERE id <= 8;
SELECT /*+ no_gather_plan_statistics */ count(*) FROM hinted WHERE id <= 9;
SELECT count(*) FROM hinted WHERE id <= 10 AND 'gather_plan_statistics' <> '';
SELECT last_rows();
-- of several statements in one message only the hinted one is measured
SELECT /*+ gather_plan_statistics */ count(*) FROM hinted WHERE id <= 11 \; SELECT count(*) FROM hinted WHERE id <= 12;
SELECT last_rows();
SELECT count(*) FROM hinted WHERE id <= 13 \; SELECT /*+ gather_plan_statistics */ count(*) FROM hinted WHERE id <= 14;
SELECT last_rows();
-- the hinted statement is measured at the value of sampfreq
SET pg_rowsource.sampfreq = 0;
SELECT /*+ gather_plan_statistics */ count(*) FROM hinted WHERE id <= 15;
SELECT last_rows(), bool_and(last_total_time IS NULL) AS untimed
FROM pg_stat_rowsource JOIN rowsource_last() l USING (queryid, planid);
RESET pg_rowsource.sampfreq;
-- an INSERT with a hint
INSERT /*+ gather_plan_statistics */ INTO hinted VALUES (1000);
SELECT operation FROM pg_stat_rowsource JOIN rowsource_last() l USING (queryid, planid) ORDER BY node_id;

DROP FUNCTION last_rows();
DROP TABLE hinted;
RESET pg_rowsource.statistics_level;
