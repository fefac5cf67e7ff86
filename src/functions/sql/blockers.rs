//! Who waits for whom.

use crate::functions::surface::objects;

objects! {
    // A session that waits for several others stands below the first that PostgreSQL names. A prepared
    // transaction is process 0.
    /// Who waits for whom now: a tree for each session that others wait for and that waits for no lock itself
    VIEW rowsource_blockers TO PUBLIC {
        /// The session at the root of the tree: all the others in it wait for it
        root_pid: int;
        /// How many sessions wait for the root, directly or behind others
        blocked_sessions: bigint;
        /// 0 for the root, 1 for those that wait for it, 2 for those that wait for these
        depth: int;
        /// The process of the session; 0 is a prepared transaction
        pid: int;
        /// The process that it waits for; NULL for the root
        blocking_pid: int;
        /// The OID of its user
        userid: oid;
        /// Its user
        usename: name;
        /// The OID of its database
        datid: oid;
        /// Its database
        datname: name;
        /// The name of its application
        application_name: text;
        /// What it does, as in pg_stat_activity; NULL, as is what follows, if you may not see that
        state: text;
        /// When its transaction began
        xact_start: timestamptz;
        /// The kind of what it waits to lock, as in pg_locks
        locktype: text;
        /// The mode in which it waits to lock that
        mode: text;
        /// The relation that it waits to lock, or a row of it; of another database, its OID as text
        relation: text;
        /// When it began to wait
        waitstart: timestamptz;
        /// Identifies its statement, or its last one if it is idle
        queryid: bigint;
        /// The text of that statement
        query: text;
    } "
    WITH RECURSIVE wanted AS MATERIALIZED (
        -- Who waits for the end of a transaction to lock a row has locked the row's place.
        SELECT l.pid, pg_catalog.max(l.locktype) FILTER (WHERE NOT l.granted) AS locktype,
               pg_catalog.max(l.mode) FILTER (WHERE NOT l.granted) AS mode,
               pg_catalog.max(l.waitstart) AS waitstart,
               (pg_catalog.array_agg(l.database ORDER BY l.granted) FILTER (WHERE l.relation IS NOT NULL))[1] AS database,
               (pg_catalog.array_agg(l.relation ORDER BY l.granted) FILTER (WHERE l.relation IS NOT NULL))[1] AS relation
          FROM pg_catalog.pg_locks l
         WHERE NOT l.granted OR l.locktype = 'tuple'::text
         GROUP BY l.pid
        HAVING pg_catalog.count(*) FILTER (WHERE NOT l.granted) > 0::bigint
    ), waiting AS MATERIALIZED (
        SELECT l.pid, b.pid AS blocking_pid
          FROM wanted l CROSS JOIN LATERAL (SELECT (pg_catalog.pg_blocking_pids(l.pid))[1] AS pid) b
         WHERE b.pid IS NOT NULL
    ), tree AS (
        SELECT DISTINCT r.blocking_pid AS root_pid, 0 AS depth, r.blocking_pid AS pid, NULL::int AS blocking_pid,
               ARRAY[r.blocking_pid] AS path
          FROM waiting r
         WHERE NOT EXISTS (SELECT FROM waiting o WHERE o.pid = r.blocking_pid)
        UNION ALL
        SELECT t.root_pid, t.depth + 1, w.pid, w.blocking_pid, pg_catalog.array_append(t.path, w.pid)
          FROM tree t JOIN waiting w ON w.blocking_pid = t.pid
    )
    SELECT t.root_pid, pg_catalog.count(*) OVER (PARTITION BY t.root_pid) - 1::bigint AS blocked_sessions, t.depth, t.pid, t.blocking_pid,
           a.usesysid AS userid, a.usename, a.datid, a.datname, a.application_name,
           CASE WHEN t.pid = 0 THEN 'prepared transaction'::text ELSE a.state END AS state, a.xact_start,
           w.locktype, w.mode,
           CASE WHEN w.database IN (0::oid, d.oid) THEN w.relation::pg_catalog.regclass::text ELSE w.relation::text END AS relation,
           w.waitstart, a.query_id AS queryid, a.query
      FROM tree t
           LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = t.pid
           LEFT JOIN wanted w ON w.pid = t.pid
           LEFT JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
     ORDER BY blocked_sessions DESC, t.path";
}
