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
