-- The objects of the extension. A change here is a change for its users and needs an upgrade script.
SELECT extversion, extrelocatable FROM pg_extension WHERE extname = 'pg_rowsource';
-- without row types, which \dx+ lists from 17 on
SELECT pg_describe_object(classid, objid, 0) AS object FROM pg_depend
 WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_rowsource') AND classid <> 'pg_type'::regclass
 ORDER BY pg_describe_object(classid, objid, 0) COLLATE "C";
\pset format unaligned
SELECT attrelid::regclass AS view, attname AS column, format_type(atttypid, atttypmod) AS type
  FROM pg_attribute JOIN pg_depend d ON d.objid = attrelid AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
       JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'pg_rowsource'
 WHERE attnum > 0 ORDER BY attrelid::regclass::text COLLATE "C", attnum;
\pset format aligned
-- privileges
SELECT p.oid::regprocedure AS function, has_function_privilege('public', p.oid, 'execute') AS public,
       provolatile, proparallel, prosecdef
  FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
       JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'pg_rowsource'
 ORDER BY p.oid::regprocedure::text COLLATE "C";
-- every object and every column has a comment
SELECT pg_describe_object(d.classid, d.objid, 0) AS "object without a comment" FROM pg_depend d
       JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'pg_rowsource'
 WHERE d.deptype = 'e' AND d.classid <> 'pg_type'::regclass AND obj_description(d.objid, d.classid::regclass::text) IS NULL
 ORDER BY pg_describe_object(d.classid, d.objid, 0) COLLATE "C";
SELECT attrelid::regclass AS view, attname AS "column without a comment"
  FROM pg_attribute JOIN pg_depend d ON d.objid = attrelid AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
       JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'pg_rowsource' JOIN pg_class c ON c.oid = attrelid
 WHERE attnum > 0 AND NOT attisdropped AND relkind <> 'S' AND col_description(attrelid, attnum) IS NULL
 ORDER BY attrelid::regclass::text COLLATE "C", attnum;
-- the daily views are narrow
SELECT attrelid::regclass AS view, count(*) FROM pg_attribute
 WHERE attrelid IN ('rowsource_top_statements'::regclass, 'rowsource_top_nodes'::regclass, 'rowsource_top_reads'::regclass, 'rowsource_top_temp'::regclass,
                    'rowsource_top_rows_removed'::regclass, 'rowsource_top_waits'::regclass, 'rowsource_wal'::regclass)
       AND attnum > 0
 GROUP BY attrelid HAVING count(*) > 12;
