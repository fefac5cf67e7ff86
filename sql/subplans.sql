-- rowsource_display: subqueries. They have numbers before PostgreSQL 19 and names from 19 on (subplans_1.out).
SET pg_rowsource.sampfreq = 1;
SET pg_rowsource.clock_source = system;
\set shown 'SELECT regexp_replace(regexp_replace(regexp_replace(line, $$(\\| ?) *\\d+\\.\\d{3}( ?\\|)$$, $$\\1    n.nnn\\2$$), $$(queryid|planid) -?\\d+$$, $$\\1 N$$, $$g$$), $$\\d+kB$$, $$NkB$$, $$g$$) AS display FROM '
\set without_times 'WHERE line !~ $$^(user|outcome|elapsed|mean) $$'
CREATE TABLE shown (id int PRIMARY KEY, grp int);
INSERT INTO shown SELECT i, i % 10 FROM generate_series(1, 20000) i;
VACUUM ANALYZE shown;
\pset tuples_only on
\pset format unaligned

-- a subquery that never ran
SELECT * FROM shown a WHERE id < 0 AND (SELECT count(*) FROM shown b WHERE b.grp = a.id) > 0;
:shown rowsource_display() line :without_times;
-- a subquery that runs for each row
SELECT (SELECT count(*) FROM shown b WHERE b.id <= a.id) FROM shown a WHERE id <= 3;
:shown rowsource_display() line :without_times;

\pset format aligned
\pset tuples_only off
DROP TABLE shown;
RESET pg_rowsource.sampfreq;
RESET pg_rowsource.clock_source;
