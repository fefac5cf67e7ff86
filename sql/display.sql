-- rowsource_display: the table, its columns and its format words. Times and ids are replaced.
SET pg_rowsource.clock_source = system;
SET pg_rowsource.sampfreq = 1;
\set shown 'SELECT regexp_replace(regexp_replace(regexp_replace(line, $$(\\| ?) *\\d+\\.\\d{3}( ?\\|)$$, $$\\1    n.nnn\\2$$), $$(queryid|planid) -?\\d+$$, $$\\1 N$$, $$g$$), $$\\d+kB$$, $$NkB$$, $$g$$) AS display FROM '
\set without_times 'WHERE line !~ $$^(user|outcome|elapsed|mean) $$'
CREATE TABLE shown (id int PRIMARY KEY, grp int, pad text);
INSERT INTO shown SELECT i, i % 10, 'x' FROM generate_series(1, 20000) i;
VACUUM ANALYZE shown;
SET pg_rowsource.statistics_level = basic;
SELECT count(*) FROM shown;
SET pg_rowsource.statistics_level = typical;
\pset tuples_only on
\pset format unaligned

SELECT count(pad) FROM shown;
:shown rowsource_display() line :without_times;
-- reading the display does not make it the last statement
:shown rowsource_display() line :without_times;

-- a join with a filter, an index condition and a hash
SELECT count(*) FROM shown a JOIN shown b ON a.id = b.grp WHERE a.id < 8 AND b.pad = 'x';
:shown rowsource_display() line :without_times;
:shown rowsource_display(format => 'ALLSTATS LAST -PREDICATE') line :without_times;
:shown rowsource_display(format => 'LAST ROWS') line :without_times;
:shown rowsource_display(format => 'IOSTATS LAST') line :without_times;
:shown rowsource_display(format => 'MEMSTATS LAST') line :without_times;
:shown rowsource_display(format => 'ALLSTATS LAST +COST +BYTES') line :without_times;
:shown rowsource_display(format => 'allstats last -rows') line :without_times;
:shown rowsource_display(format => 'ROWSTATS LAST') line :without_times;
:shown rowsource_display(format => 'BASIC') line :without_times;
:shown rowsource_display(format => 'TYPICAL') line :without_times;
:shown rowsource_display(format => 'ALLSTATS LAST COMPACT') line :without_times AND line !~ '^(queryid|sampfreq|clock)';

-- who ran it, when, and how it ended
SELECT string_agg(line, '  ') ~ ('^user ' || current_user || '  database ' || current_database()
    || '  at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d.*  outcome completed  elapsed \d+\.\d+ ms$')
  FROM rowsource_display() line WHERE line ~ '^(user|outcome|elapsed) ';

-- a statement of several lines, one of them long
SELECT count(*), 'a long text: ' || repeat('x', 3) || ' which is wrapped at the width of the table, not at the end of the line'
  FROM shown
 WHERE grp = 1;
:shown rowsource_display() line :without_times;

-- keys of sorts and groups
SELECT grp, count(*) FROM shown WHERE grp < 2 GROUP BY grp ORDER BY 2 DESC, 1;
:shown rowsource_display(format => 'ALL ROWSTATS LAST -COST -BYTES') line :without_times;

-- total over executions
PREPARE again AS SELECT count(*) FROM shown WHERE grp = 3;
EXECUTE again;
EXECUTE again;
EXECUTE again;
:shown rowsource_display() line :without_times;
:shown rowsource_display(format => 'ALLSTATS') line :without_times;
DEALLOCATE again;

-- a sort with its memory, which differs between versions
SELECT count(*) FROM (SELECT * FROM shown ORDER BY pad, id OFFSET 1) x;
SELECT line ~ '\| +1[0-9]{3}K \|$' FROM rowsource_display() line WHERE line ~ 'Sort';
:shown rowsource_display(format => 'IOSTATS LAST') line :without_times;

-- WAL, and a node that never ran
CREATE TABLE written (id int);
INSERT INTO written SELECT id FROM shown WHERE id <= 100;
:shown rowsource_display(format => 'ALLSTATS LAST +WAL') line :without_times;
SELECT * FROM shown a JOIN shown b ON a.id = b.grp + 20000 AND b.grp < 0;
:shown rowsource_display() line :without_times;

-- without times, then with rows only
SET pg_rowsource.sampfreq = 0;
SELECT count(pad) FROM shown WHERE grp = 0;
:shown rowsource_display() line :without_times;
SET client_min_messages = warning;
SET pg_rowsource.sampfreq = 3;
RESET client_min_messages;
SELECT count(pad) FROM shown WHERE grp = 1;
:shown rowsource_display() line :without_times;
SET pg_rowsource.sampfreq = 1;

-- a plan selected by its ids
SELECT max(pad) FROM shown;
SELECT queryid, planid FROM rowsource_last() \gset
SELECT min(id + 1) FROM shown;
:shown rowsource_display(:queryid, :planid) line :without_times;
SELECT count(*) > 0 FROM rowsource_display(:queryid);

-- a failed statement; without buffers, because newer versions read ahead
SELECT sum(1 / (id - 500)) FROM shown;
:shown rowsource_display(format => 'ALLSTATS LAST -BUFFERS') line :without_times;
\pset format aligned
\pset tuples_only off
SELECT outcome FROM rowsource_last();

DROP TABLE shown, written;
RESET pg_rowsource.statistics_level;
RESET pg_rowsource.clock_source;
RESET pg_rowsource.sampfreq;
