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
SELECT count(*) > 0 AS shown FROM rowsource_display(NULL, NULL, 'ALLSTATS LAST');
SELECT count(*) > 0 AS shown FROM rowsource_display(NULL, NULL, NULL);
RESET pg_rowsource.statistics_level;
