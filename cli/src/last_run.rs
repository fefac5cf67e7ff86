//! A running plan, as it was when it was last seen.

use std::collections::BTreeMap;

use crate::model::{LiveNode, Running};

/// For so many seconds a node is marked after it was seen to run: two nodes that pass rows to each other
/// would else change places at each refresh.
const RUNS: f64 = 2.0;

/// The running plan that was seen last. It is shown until its process runs another one.
#[derive(Clone, Debug, Default)]
pub struct LastRun {
    /// When it was seen, by the server's clock, in seconds since 1970.
    pub at: f64,
    pub pid: i64,
    /// The text of the statement, if that has come.
    pub query: Option<String>,
    pub nodes: Vec<LiveNode>,
    /// When each node was seen to run, by nesting level and number.
    pub ran: BTreeMap<(i64, i64), f64>,
}

impl LastRun {
    /// Takes over the nodes of a running plan, and its text if `live` has the same statement.
    pub fn see(&mut self, at: f64, nodes: &[LiveNode], live: &[Running]) {
        let Some(top) = nodes.iter().find(|node| is_node(node)) else {
            return;
        };
        let pid = top.leader.unwrap_or(top.pid);
        let known = self.nodes.iter().find(|node| is_node(node));
        let is_same = known.is_some_and(|known| {
            (self.pid, known.queryid, known.planid) == (pid, top.queryid, top.planid) && at >= self.at
        });
        if !is_same {
            *self = LastRun::default();
        }
        let running = live
            .iter()
            .find(|row| (row.pid, row.queryid, row.planid) == (pid, top.queryid, top.planid));
        if let Some(running) = running {
            self.query.clone_from(&running.query);
        }
        let runs = nodes.iter().filter(|node| node.running);
        self.ran
            .extend(runs.map(|node| ((node.nesting, node.node_id), at)));
        self.ran.retain(|_, ran| at - *ran < RUNS);
        (self.at, self.pid, self.nodes) = (at, pid, nodes.to_vec());
    }
}

/// Returns whether a row has a node.
pub fn is_node(node: &LiveNode) -> bool {
    // A statement whose nodes cannot be seen has one row without a node.
    !node.operation.is_empty()
}
