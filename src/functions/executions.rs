//! The rows of `rowsource_executions`.

use super::again;
use super::display::outcome_name;
use super::stored::{Key, key_columns};
use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::store;
use rowsource_core::model::PlanKey;
use rowsource_core::model::executions::{NodeSums, RingExecution};
use serde_json::{Map, Value, json};

/// An execution in the ring.
pub struct Row {
    key: Key,
    execution: RingExecution,
    is_visible: bool,
    /// What its nodes did, and the values of its parameters, if the user may see that.
    nodes: Option<Map<String, Value>>,
    parameters: Option<Vec<String>>,
}

impl Row {
    fn of(key: PlanKey, execution: RingExecution) -> Row {
        let is_visible = server::may_see(key.userid);
        let nodes = (0..).zip(&execution.nodes);
        let nodes = nodes.map(|(id, node): (u32, _)| (id.to_string(), node_value(node)));
        Row {
            key: Key {
                userid: Some(key.userid),
                datid: Some(key.datid),
                ids: is_visible.then_some((key.queryid, key.planid)),
                toplevel: Some(key.toplevel()),
            },
            nodes: is_visible.then(|| nodes.collect()),
            parameters: execution
                .parameters
                .as_ref()
                .and_then(|all| again::shown(&key, all)),
            is_visible,
            execution,
        }
    }
}

/// Returns what a node did. Values that were not measured are null.
fn node_value(node: &NodeSums) -> Value {
    let ms = |which: usize| node.ns.map(|ns| ns[which] as f64 / 1e6);
    let blocks = |which: usize| node.blocks.map(|blocks| blocks[which]);
    json!({
        "starts": node.starts,
        "rows": node.rows,
        "total_time": ms(0),
        "self_time": ms(1),
        "blks_hit": blocks(0),
        "blks_read": blocks(1),
        "temp_blks": blocks(2),
    })
}

/// Adds the rows of `rowsource_executions`.
pub fn rows(rows: &mut Rows) {
    let columns = columns();
    store::each_execution(|key, execution| columns.add(rows, &Row::of(key, execution)));
}

/// The columns of `rowsource_executions()`.
pub fn columns() -> Columns<Row> {
    let rest = columns! { |row: &Row|
        /// The process of the session
        pid: int = row.is_visible.then_some(row.execution.pid);
        /// The session's application_name
        application_name: text = row.is_visible.then_some(&row.execution.application_name);
        /// When it ended
        ended_at: timestamptz = row.execution.run.at;
        /// How it ended: completed, failed or cancelled
        outcome: text = outcome_name(row.execution.run.outcome);
        /// Milliseconds in which the executor ran, as in pg_stat_rowsource_plans
        total_time: float8 = row.execution.run.elapsed_ms;
        /// Milliseconds that its client waited for it: before the executor, in it, and for the commit, if
        /// that is known
        response_time: float8 = row.execution.run.response_ms();
        /// Milliseconds before the executor
        before_time: float8 = row.execution.run.before_ms;
        /// Milliseconds of its commit, if the transaction ended with it and that is known
        commit_time: float8 = row.execution.run.commit_ms;
        /// What each node did, by its node_id: starts, rows, total_time, self_time, blks_hit, blks_read,
        /// temp_blks. Of large plans, the first nodes
        nodes: jsonb = row.nodes.as_ref();
        /// The values of its parameters as SQL, if they are kept, if you may see them, and in its
        /// database. ? is one that is not known
        parameters: texts = row.parameters.as_deref();
    };
    Columns::new().with(key_columns(), |row: &Row| &row.key).and(rest)
}
