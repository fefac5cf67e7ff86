-- The settings: names, defaults, values, and the errors for wrong values.
SELECT name, setting, boot_val, context, vartype, min_val, max_val, enumvals
FROM pg_settings WHERE name LIKE 'pg\_rowsource.%' ORDER BY name COLLATE "C";

SET pg_rowsource.statistics_level = basic;
SET pg_rowsource.statistics_level = typical;
SET pg_rowsource.statistics_level = 'all';
SET pg_rowsource.statistics_level = everything;
RESET pg_rowsource.statistics_level;
SHOW pg_rowsource.statistics_level;

SET pg_rowsource.sampfreq = 0;
SET pg_rowsource.sampfreq = 1;
SET pg_rowsource.sampfreq = 1000000;
SET pg_rowsource.sampfreq = 1000001;
SET pg_rowsource.sampfreq = -1;
SET pg_rowsource.sampfreq = 'often';
-- As in Oracle, 3 means row counts only.
SET pg_rowsource.sampfreq = 3;
SHOW pg_rowsource.sampfreq;
RESET pg_rowsource.sampfreq;
SHOW pg_rowsource.sampfreq;

-- These clocks exist on every machine.
SET pg_rowsource.clock_source = auto;
SET pg_rowsource.clock_source = system;
SET pg_rowsource.clock_source = coarse;
SET pg_rowsource.clock_source = syscall;
SET pg_rowsource.clock_source = sundial;
SHOW pg_rowsource.clock_source;
RESET pg_rowsource.clock_source;

SET pg_rowsource.track = 'all';
SET pg_rowsource.track = top;
SET pg_rowsource.track = none;
SET pg_rowsource.explain = on;
SET pg_rowsource.explain = maybe;
RESET pg_rowsource.explain;

-- Privileges to set them.
SET pg_rowsource.max_plans = 10;
SET pg_rowsource.save = off;
SET pg_rowsource.tempfile_timing = off;
RESET pg_rowsource.tempfile_timing;
SET pg_rowsource.keep_constants = on;
RESET pg_rowsource.keep_constants;
CREATE ROLE regress_rowsource_user;
SET ROLE regress_rowsource_user;
SET pg_rowsource.sampfreq = 2;
SET pg_rowsource.statistics_level = 'all';
SET pg_rowsource.tempfile_timing = off;
SET pg_rowsource.keep_constants = on;
RESET ROLE;
DROP ROLE regress_rowsource_user;
RESET pg_rowsource.sampfreq;
RESET pg_rowsource.statistics_level;

-- The prefix is reserved.
SET pg_rowsource.sampfrequency = 1;

-- A rollback undoes the settings of its transaction.
BEGIN;
SET LOCAL pg_rowsource.sampfreq = 7;
SHOW pg_rowsource.sampfreq;
ROLLBACK;
SHOW pg_rowsource.sampfreq;

-- The clocks: all are listed, auto chooses one, and the measured values are plausible.
SELECT clock_source, usable OR reason <> '' AS usable_or_why_not,
       NOT usable OR reading_ns BETWEEN 0.1 AND 100000 AS sensible_cost,
       NOT usable OR backward_steps >= 0 AS backward_steps
FROM rowsource_clocks(1000) WHERE clock_source <> 'auto' ORDER BY clock_source COLLATE "C";
SELECT count(*) FILTER (WHERE auto) AS chosen FROM rowsource_clocks(1000);
