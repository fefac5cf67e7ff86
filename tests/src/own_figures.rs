//! The sum of what the nodes of a plan did themselves is what its executions did: nothing is missing, and
//! nothing counts twice.

use crate::explain::describe;
use postgres::Client;

/// The own figures of each plan, summed up over its nodes; those of its root with all below it; those of its
/// executions. What triggers, the output of rows and nested statements used is in the last ones only.
const SUMS: &str = "
    SELECT p.query, p.planid, f.* FROM pg_stat_rowsource_plans p
      JOIN (SELECT userid, datid, queryid, planid, toplevel, bool_or(operation LIKE 'Gather%') AS is_parallel,
                   sum(self_blks_read)::int8 AS blks_read, sum(self_temp_blks_read)::int8 AS temp_read,
                   sum(self_temp_blks_written)::int8 AS temp_written, sum(self_wal_records)::int8 AS wal_records,
                   sum(self_wal_bytes)::int8 AS wal_bytes, sum(self_time) AS ms
              FROM pg_stat_rowsource GROUP BY 1, 2, 3, 4, 5) n USING (userid, datid, queryid, planid, toplevel)
      JOIN pg_stat_rowsource r USING (userid, datid, queryid, planid, toplevel)
      LEFT JOIN (SELECT userid, datid, queryid, planid, toplevel, sum(hits)::int8 AS hits
              FROM pg_stat_rowsource_logical_io GROUP BY 1, 2, 3, 4, 5) h
             USING (userid, datid, queryid, planid, toplevel),
           LATERAL (VALUES
               ('hits', coalesce(h.hits, 0), r.shared_blks_hit + r.local_blks_hit, p.shared_blks_hit + p.local_blks_hit),
               ('blocks read', n.blks_read, r.shared_blks_read + r.local_blks_read, p.shared_blks_read + p.local_blks_read),
               ('temp read', n.temp_read, r.temp_blks_read, p.temp_blks_read),
               ('temp written', n.temp_written, r.temp_blks_written, p.temp_blks_written),
               ('WAL records', n.wal_records, r.wal_records, p.wal_records),
               ('WAL bytes', n.wal_bytes, r.wal_bytes, p.wal_bytes),
               ('ns', CASE WHEN NOT is_parallel THEN round(n.ms * 1e6)::int8 END, floor(r.total_time * (1 - 1e-9) * 1e6)::int8 - 1,
                ceil(greatest(p.total_time, r.total_time) * (1 + 1e-9) * 1e6)::int8 + 1)
           ) f(what, own, root, total)
     WHERE r.node_id = 0";

/// One figure of a plan.
#[derive(Debug)]
pub struct Figure {
    pub query: String,
    pub what: String,
    /// The sum of all nodes' own figures.
    pub own: i64,
    /// That of the root with all below it.
    pub root: i64,
    /// That of the executions.
    pub total: i64,
}

/// Returns the figures of all stored plans that are known.
///
/// # Errors
/// Returns what the server says, if the views cannot be read.
pub fn figures(client: &mut Client) -> Result<Vec<Figure>, String> {
    let rows = client
        .query(SUMS, &[])
        .map_err(|error| describe(&error).to_string())?;
    let figure = |row: &postgres::Row| {
        Some(Figure {
            query: row.get::<_, Option<String>>(0).unwrap_or_default(),
            what: row.get(2),
            own: row.get::<_, Option<i64>>(3)?,
            root: row.get::<_, Option<i64>>(4)?,
            total: row.get::<_, Option<i64>>(5)?,
        })
    };
    Ok(rows.iter().filter_map(figure).collect())
}

/// Returns those of them in which something is missing, or counts twice.
pub fn wrong(figures: Vec<Figure>) -> Vec<Figure> {
    // The times of nodes and of the executor come from different readings of the clock.
    let apart = |figure: &Figure| {
        if figure.what == "ns" {
            figure.total / 500
        } else {
            0
        }
    };
    let most = |figure: &Figure| figure.total.max(figure.root) + apart(figure);
    let is_wrong = |figure: &Figure| !(figure.root..=most(figure)).contains(&figure.own);
    figures.into_iter().filter(is_wrong).collect()
}
