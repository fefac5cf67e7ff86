-- Wrong input is refused with a message that says what to do.
\set VERBOSITY default
SET pg_rowsource.statistics_level = basic;
-- the session has measured nothing yet
SELECT rowsource_display();
SELECT count(*) FROM rowsource_last();
SELECT /*+ gather_plan_statistics */ 1;
-- unknown words
SELECT rowsource_display(format => 'ALLSTAT LAST');
SELECT rowsource_display(format => 'ALLSTATS LAST +NOTHING');
SELECT rowsource_display(format => '+');
SELECT rowsource_display(format => repeat('+ALLSTATS ', 10000));
-- unknown ids
SELECT rowsource_display(4711, 815);
SELECT rowsource_display(4711);
SELECT * FROM rowsource_folded(4711, 815);
SELECT rowsource_display(planid => 815);
SELECT rowsource_html(planid => 815);
SELECT rowsource_histogram_plot(node_id => 5);
-- nothing was timed
SET pg_rowsource.sampfreq = 0;
SELECT /*+ gather_plan_statistics */ count(*) AS untimed FROM (VALUES (1), (2)) v;
SELECT * FROM rowsource_folded();
SELECT * FROM rowsource_histogram_plot(node_id => 0);
RESET pg_rowsource.sampfreq;
-- numbers that are too small
SELECT count(*) FROM rowsource_clocks(0);
SELECT count(*) FROM rowsource_clocks(-5);
SELECT count(*) > 0 FROM rowsource_clocks(1);
-- NULL means the same as no argument
SELECT count(*) > 0 AS shown FROM rowsource_display(NULL, NULL, format => 'ALLSTATS LAST');
SELECT count(*) > 0 AS shown FROM rowsource_display(NULL, NULL, format => NULL);
SELECT count(*) FILTER (WHERE d IS DISTINCT FROM n) AS different, count(*) > 0 AS shown
  FROM rowsource_explain() WITH ORDINALITY a (d, i)
       FULL JOIN rowsource_explain(format => NULL, which => NULL) WITH ORDINALITY b (n, i) USING (i);
SELECT (SELECT array_agg(f) FROM rowsource_folded() f) IS NOT DISTINCT FROM (SELECT array_agg(f) FROM rowsource_folded(which => NULL) f) AS same;
SELECT count(*) > 0 AS shown FROM rowsource_speedscope(which => NULL);
SELECT count(*) > 0 AS shown FROM rowsource_html(which => NULL);
SELECT count(*) > 0 AS shown FROM rowsource_tkprof_store(sort => NULL);
SELECT count(*) > 0 AS shown FROM rowsource_logical_io('pg_class', fork => NULL, pattern => NULL);
-- an empty word is none of the known ones
SELECT rowsource_explain(format => '');
RESET pg_rowsource.statistics_level;
-- a snapshot writes
BEGIN TRANSACTION READ ONLY;
SELECT rowsource_snapshot();
ROLLBACK;
