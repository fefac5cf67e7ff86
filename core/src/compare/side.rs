//! One of the two sides of a comparison. It can be written as JSON and read on another server.

use crate::model::{MAX_NODES, NamedWaits, Plan, WaitsFor, own_io, processes};
use crate::plan::PlanNode;
use crate::regressions::Sums;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::Sub;

/// The format of sides as JSON. Another number means that older versions cannot read it.
const FORMAT: u32 = 1;

/// The format of a side, which is the same for all that can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(FORMAT)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            FORMAT => Ok(Version),
            other => Err(D::Error::custom(format_args!(
                "it has the format {other}, and this version of pg_rowsource reads {FORMAT}"
            ))),
        }
    }
}

/// The executions of a plan, or some of them. All figures are sums over them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The format of its JSON.
    #[serde(rename = "rowsource_plan")]
    pub version: Version,
    /// What it is, as a line above the tree says it.
    pub name: String,
    /// The number of executions.
    pub executions: u64,
    /// Their time in milliseconds.
    pub total_ms: f64,
    /// The sum of the squares of these times; 0 if that is not known.
    #[serde(default)]
    pub squares: f64,
    /// The sum of the binary logarithms of the busy times in milliseconds, and of their squares; 0 if that is
    /// not known.
    #[serde(default)]
    pub logs: f64,
    /// See `logs`.
    #[serde(default)]
    pub log_squares: f64,
    /// The number of those with a plan that the plan cache made for all parameters.
    pub generic_plan_executions: u64,
    /// The indexes of the plan before that were gone when this one was described, as `schema.index`.
    pub gone_indexes: Vec<String>,
    /// The session for which they waited longest, if that is known.
    pub blocker: Option<Blocker>,
    /// What is known of the statistics of the table whose estimate is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<TableStatistics>,
    /// When the plan took over again from that of the other side. Then its executions before that are
    /// included, because nothing tells them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned_at: Option<String>,
    /// The milliseconds that they waited for locks outside of the nodes.
    pub lock_ms: f64,
    /// The milliseconds that they waited for something else there.
    pub wait_ms: f64,
    /// The nodes in EXPLAIN's order.
    pub nodes: Vec<Node>,
}

/// A session for which others wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Its process; 0 is a prepared transaction.
    pub pid: i32,
    /// The name of its application.
    pub application: Option<String>,
    /// Its statement, or its last one if it is idle.
    pub statement: Option<String>,
}

/// What is known of a table's statistics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableStatistics {
    /// Nobody has analysed it.
    NeverAnalysed,
    /// This many of its rows have changed since it was analysed.
    Changed(u64),
    /// Only this database knows.
    InDatabase(String),
}

/// A node. The figures of processes that run it together add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The index of the node above.
    pub parent: Option<usize>,
    /// The distance from the root.
    pub depth: usize,
    /// EXPLAIN's name: `Parallel Seq Scan`.
    pub operation: String,
    /// The table, index, function or CTE.
    pub object: Option<String>,
    /// The table of an index scan.
    pub table: Option<String>,
    /// The table's schema.
    pub schema: Option<String>,
    /// The table's name in the statement, if it has another one there.
    pub alias: Option<String>,
    /// How often it was started.
    pub starts: u64,
    /// The rows that it returned.
    pub rows: u64,
    /// These rows, those that it removed, and those of its inputs.
    pub handled_rows: u64,
    /// The rows that the planner expected, in the executions that say something about it.
    pub expected_rows: f64,
    /// The rows that came in these.
    pub actual_rows: u64,
    /// The number of processes that ran it.
    pub processes: f64,
    /// Milliseconds in the node alone.
    pub self_ms: f64,
    /// Milliseconds in the node and all below it.
    pub total_ms: f64,
    /// Blocks that it found in buffers.
    pub hit: i64,
    /// Blocks that it read.
    pub read: i64,
    /// The milliseconds of that.
    pub read_ms: f64,
    /// Blocks of temporary files that it read and wrote.
    pub temp_blocks: i64,
    /// The milliseconds of that.
    pub temp_ms: f64,
    /// The milliseconds that it waited for locks, LWLocks and pins of buffers.
    pub lock_ms: f64,
    /// The milliseconds that it waited for something else.
    pub wait_ms: f64,
}

/// Why JSON is no side of a comparison.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    /// It is no JSON, or JSON of another form.
    #[error("this is no exported plan: {0}")]
    Json(#[from] serde_json::Error),
    /// There are too many nodes.
    #[error("an exported plan has at most {MAX_NODES} nodes")]
    TooManyNodes,
    /// A node is not below one that comes before it.
    #[error("node {0} of the exported plan has no valid parent")]
    Parent(usize),
    /// A figure is negative or not finite.
    #[error("a figure of the exported plan is not valid")]
    Figure,
}

impl Side {
    /// Returns the executions that `plan` has, and their waits.
    pub fn of(plan: &Plan, waits: &[NamedWaits]) -> Side {
        let nodes = &plan.description.nodes;
        let io = own_io(nodes, &plan.nodes);
        let starts = |i: usize| plan.nodes.get(i)?.total.starts.get();
        let processes = processes(nodes, starts);
        let sums = Sums::of(&plan.statistics);
        let mut side = Side {
            executions: plan.statistics.times.calls,
            total_ms: plan.statistics.times.total_ms,
            squares: plan.statistics.times.squares(),
            logs: sums.logs,
            log_squares: sums.log_squares,
            generic_plan_executions: plan.statistics.generic_plan_calls,
            gone_indexes: plan.description.gone_indexes.clone(),
            nodes: nodes.iter().take(MAX_NODES).map(Node::described).collect(),
            ..Side::default()
        };
        for (i, (node, totals)) in side.nodes.iter_mut().zip(&plan.nodes).enumerate() {
            let stats = &totals.total;
            let time = stats.time.get_or_zero();
            let io = io.get(i).copied().flatten().unwrap_or_default();
            let facts = &stats.facts;
            let removed = facts
                .kind
                .facts()
                .iter()
                .filter(|fact| fact.key.starts_with("Rows Removed"));
            node.starts = stats.starts.get_or_zero();
            node.rows = stats.rows;
            node.handled_rows = stats.rows + removed.map(|fact| facts.get(fact)).sum::<u64>();
            node.expected_rows = totals.estimates.expected_rows;
            node.actual_rows = totals.estimates.actual_rows;
            node.processes = processes.get(i).copied().flatten().unwrap_or(1.0);
            (node.self_ms, node.total_ms) = (time.self_ms, time.total_ms);
            (node.hit, node.read, node.read_ms) = (io.hit, io.read, io.read_ms);
            (node.temp_blocks, node.temp_ms) = (io.temp_read + io.temp_written, io.temp_ms);
        }
        side.add_inputs();
        waits.iter().for_each(|waits| side.add_waits(waits));
        side
    }

    /// Adds to the rows that each node handled those of its inputs.
    fn add_inputs(&mut self) {
        for i in 0..self.nodes.len() {
            let (parent, rows) = (self.nodes[i].parent, self.nodes[i].rows);
            if let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(parent)) {
                parent.handled_rows = parent.handled_rows.saturating_add(rows);
            }
        }
    }

    /// Adds waits of a node, or outside of the nodes. Waits for blocks and temporary files are part of the
    /// times of requests. Those are zero without `track_io_timing`, and waits are exact.
    fn add_waits(&mut self, waits: &NamedWaits) {
        let node = match waits.node {
            Some(i) => self.nodes.get_mut(i),
            None => None,
        };
        let is_lock = matches!(
            waits.event_type.as_deref(),
            Some("Lock" | "LWLock" | "BufferPin" | "Buffer")
        );
        let Some(node) = node else {
            *(if is_lock {
                &mut self.lock_ms
            } else {
                &mut self.wait_ms
            }) += waits.ms;
            return;
        };
        let is_read = waits.event.starts_with("DataFileRead") || waits.event.starts_with("Aio");
        match waits.waits_for() {
            _ if is_lock => node.lock_ms += waits.ms,
            WaitsFor::Blocks if is_read => node.read_ms = node.read_ms.max(waits.ms),
            WaitsFor::TemporaryFile => node.temp_ms = node.temp_ms.max(waits.ms),
            _ => node.wait_ms += waits.ms,
        }
    }

    /// Takes away what the same plan had done until an earlier moment.
    pub fn subtract(&mut self, earlier: &Side) {
        take(&mut self.executions, earlier.executions);
        take(&mut self.generic_plan_executions, earlier.generic_plan_executions);
        take(&mut self.total_ms, earlier.total_ms);
        take(&mut self.squares, earlier.squares);
        self.logs -= earlier.logs;
        take(&mut self.log_squares, earlier.log_squares);
        take(&mut self.lock_ms, earlier.lock_ms);
        take(&mut self.wait_ms, earlier.wait_ms);
        for (node, earlier) in self.nodes.iter_mut().zip(&earlier.nodes) {
            node.subtract(earlier);
        }
    }

    /// Reads what another server has written.
    pub fn from_json(json: &str) -> Result<Side, SideError> {
        let side: Side = serde_json::from_str(json)?;
        if side.nodes.len() > MAX_NODES {
            return Err(SideError::TooManyNodes);
        }
        let is_orphan = |(i, node): &(usize, &Node)| match node.parent {
            Some(parent) => parent >= *i || node.depth != side.nodes[parent].depth + 1,
            None => *i > 0 || node.depth > 0,
        };
        if let Some((i, _)) = side.nodes.iter().enumerate().find(is_orphan) {
            return Err(SideError::Parent(i));
        }
        let figures = |node: &Node| {
            [
                node.expected_rows,
                node.processes,
                node.self_ms,
                node.total_ms,
                node.read_ms,
                node.temp_ms,
                node.lock_ms,
                node.wait_ms,
                node.hit as f64,
                node.read as f64,
                node.temp_blocks as f64,
            ]
        };
        let of_side = [side.total_ms, side.lock_ms, side.wait_ms, side.squares.sqrt()];
        let all = side.nodes.iter().flat_map(figures).chain(of_side);
        let logs = [side.logs.abs(), side.log_squares.abs()];
        let mut all = all.chain(logs);
        if all.any(|figure| !(0.0..=1e18).contains(&figure)) {
            return Err(SideError::Figure);
        }
        Ok(side)
    }

    /// Returns the mean time of an execution, in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.per_execution(self.total_ms)
    }

    /// Returns the square of the standard error of that; 0 if nothing is known of it.
    pub(super) fn squared_error(&self) -> f64 {
        self.squared_error_of(self.mean_ms(), self.squares)
    }

    /// Returns the mean binary logarithm of the busy times, and the square of its standard error; `None` if
    /// nothing is known of them.
    pub(super) fn mean_log(&self) -> Option<(f64, f64)> {
        let mean = self.per_execution(self.logs);
        let is_known = self.log_squares > 0.0 && self.executions > 1;
        is_known.then(|| (mean, self.squared_error_of(mean, self.log_squares)))
    }

    fn squared_error_of(&self, mean: f64, squares: f64) -> f64 {
        if self.executions < 2 {
            return 0.0;
        }
        let executions = self.executions as f64;
        let variance = (squares / executions - mean * mean) * executions / (executions - 1.0);
        variance.max(0.0) / executions
    }

    /// Returns how many executions there are: `1 execution`, `12 executions`.
    pub fn count(&self) -> String {
        match self.executions {
            1 => "1 execution".to_owned(),
            several => format!("{several} executions"),
        }
    }

    /// Returns the mean over the executions of a sum.
    pub fn per_execution(&self, sum: f64) -> f64 {
        sum / self.executions.max(1) as f64
    }
}

/// Takes a part of a sum away. Of what is not exact, no less than nothing is left.
fn take<T: Copy + Default + PartialOrd + Sub<Output = T>>(sum: &mut T, part: T) {
    *sum = if *sum > part { *sum - part } else { T::default() };
}

impl Node {
    fn subtract(&mut self, earlier: &Node) {
        // The number of processes is one of starts: as many as each of them made.
        let of_each = |node: &Node| node.starts as f64 / node.processes.max(1.0);
        let starts = self.starts.saturating_sub(earlier.starts) as f64;
        let each = of_each(self) - of_each(earlier);
        if starts > 0.0 && each > 0.0 {
            self.processes = (starts / each).max(1.0);
        }
        for (sum, part) in [
            (&mut self.starts, earlier.starts),
            (&mut self.rows, earlier.rows),
            (&mut self.handled_rows, earlier.handled_rows),
            (&mut self.actual_rows, earlier.actual_rows),
        ] {
            take(sum, part);
        }
        for (sum, part) in [
            (&mut self.hit, earlier.hit),
            (&mut self.read, earlier.read),
            (&mut self.temp_blocks, earlier.temp_blocks),
        ] {
            take(sum, part);
        }
        for (sum, part) in [
            (&mut self.expected_rows, earlier.expected_rows),
            (&mut self.self_ms, earlier.self_ms),
            (&mut self.total_ms, earlier.total_ms),
            (&mut self.read_ms, earlier.read_ms),
            (&mut self.temp_ms, earlier.temp_ms),
            (&mut self.lock_ms, earlier.lock_ms),
            (&mut self.wait_ms, earlier.wait_ms),
        ] {
            take(sum, part);
        }
    }

    fn described(node: &PlanNode) -> Node {
        let name = |name: &Option<Box<str>>| name.as_deref().map(str::to_owned);
        Node {
            parent: node.parent,
            depth: node.depth,
            operation: node.operation.clone(),
            object: node.object_name.clone(),
            table: name(&node.table),
            schema: name(&node.schema),
            alias: name(&node.alias),
            processes: 1.0,
            ..Node::default()
        }
    }

    /// Returns the relation or other object that it works on: of an index scan the table.
    pub(super) fn relation(&self) -> Option<&str> {
        self.table.as_deref().or(self.object.as_deref())
    }

    /// Returns how many processes share the work, at least one.
    pub(super) fn processes(&self) -> f64 {
        self.processes.max(1.0)
    }

    /// Returns the blocks that it got from the buffers.
    pub fn gets(&self) -> f64 {
        (self.hit + self.read) as f64
    }

    /// Returns by how many times the planner was wrong; 1 if that is not known. Fewer rows than one count as
    /// one.
    pub(super) fn misestimate(&self) -> f64 {
        if self.expected_rows <= 0.0 {
            return 1.0;
        }
        let least = (self.starts.max(1) as f64 / self.processes()).min(self.expected_rows);
        let ratio = (self.actual_rows as f64).max(least) / self.expected_rows;
        ratio.max(1.0 / ratio)
    }

    /// Returns the node as the sentence names it: `Seq Scan on orders`, `Index Scan using orders_pkey on
    /// orders`.
    pub fn name(&self) -> String {
        match (&self.object, &self.table) {
            (Some(index), Some(table)) => format!("{} using {index} on {table}", self.operation),
            (Some(object), None) => format!("{} on {object}", self.operation),
            (None, _) => self.operation.clone(),
        }
    }
}
