//! A plan in execution: what each node has done, and how the nodes are connected.

use super::kind::{self, Kind};
use crate::plan::PlanNode;

/// The size of the table that a node scans.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its blocks now. While it is scanned, it does not become smaller.
    pub blocks: f64,
    /// The fewest blocks that the table had when the scan began. It may have grown since.
    pub least_blocks: f64,
    /// The most rows that a block can have.
    pub max_rows_per_block: f64,
    /// How many rows a block had when the table was analysed; `None` if it never was.
    pub rows_per_block: Option<f64>,
}

/// A node, and what it has done so far in all processes.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// Its description.
    pub plan: &'a PlanNode,
    /// The rows per start that the planner expects in this execution.
    pub plan_rows: f64,
    /// How often it was started, if that is counted.
    pub starts: Option<u64>,
    /// The rows that it has returned.
    pub rows: u64,
    /// Rows that it has scanned but not returned, because of its conditions.
    pub removed: u64,
    /// Milliseconds that it took alone, if they are measured.
    pub self_ms: Option<f64>,
    /// How many of these it has waited so far in a call that is in progress.
    pub waiting_ms: f64,
    /// The blocks of work files that it and all nodes below it have read and written.
    pub work_files: [f64; 2],
    /// The blocks that it has got, if all of them until now are known.
    pub blocks: Option<f64>,
    /// The table that it scans, if its size is known.
    pub table: Option<Table>,
    /// It is a Limit with a constant number of rows, and without an offset.
    pub has_constant_limit: bool,
}

/// A plan in execution.
pub(super) struct Plan<'a> {
    pub nodes: &'a [Node<'a>],
    pub kinds: Vec<Kind>,
    /// The inputs of each node, and the plans that its expressions run.
    pub children: Vec<Vec<usize>>,
    /// Other processes run the node, too.
    pub is_parallel: Vec<bool>,
    /// The number of parallel workers that run now.
    pub workers: usize,
    /// The description has no conditions and keys.
    pub is_outline: bool,
}

impl<'a> Plan<'a> {
    /// Returns the plan; `None` if it is not one, or if nothing is known of its root.
    pub fn new(nodes: &'a [Node<'a>], workers: usize, is_outline: bool) -> Option<Self> {
        let mut children = vec![Vec::new(); nodes.len()];
        let mut is_parallel = vec![false; nodes.len()];
        let kinds: Vec<Kind> = nodes.iter().map(|node| Kind::of(&node.plan.operation)).collect();
        for (i, node) in nodes.iter().enumerate().skip(1) {
            let parent = node.plan.parent.filter(|parent| *parent < i)?;
            children[parent].push(i);
            is_parallel[i] = is_parallel[parent] || kinds[parent] == Kind::Gather;
        }
        if nodes.is_empty() || nodes.len() == 1 && kinds[0] == Kind::Other {
            return None;
        }
        Some(Plan {
            nodes,
            kinds,
            children,
            is_parallel,
            workers,
            is_outline,
        })
    }

    /// Returns the inputs of a node: its children that no expression runs.
    pub fn inputs(&self, i: usize) -> impl Iterator<Item = usize> {
        let children = self.children[i].iter().copied();
        children.filter(|&child| !kind::is_run_by_expression(self.nodes[child].plan))
    }

    /// Returns the first input of a node.
    pub fn outer(&self, i: usize) -> Option<usize> {
        self.inputs(i).next()
    }

    /// Returns the second input of a node.
    pub fn inner(&self, i: usize) -> Option<usize> {
        self.inputs(i).nth(1)
    }

    /// Returns the rows that a node has returned.
    pub fn rows(&self, i: usize) -> f64 {
        self.nodes[i].rows as f64
    }

    /// Returns the rows that a scan has looked at.
    pub fn scanned(&self, i: usize) -> f64 {
        self.nodes[i].rows as f64 + self.nodes[i].removed as f64
    }

    /// Returns the table of a scan as it was when the scan began, if the statement itself adds rows to it. A
    /// scan reads no block that was added since. Which rows had room in the old blocks is not known: then it
    /// is at least as large as it was before.
    pub fn when_scanned(&self, i: usize, table: Table) -> Table {
        let Some((added, rows_per_block)) = self.rows_added_to_scanned(i).zip(table.rows_per_block) else {
            return table;
        };
        let least = table
            .least_blocks
            .max((self.scanned(i) / table.max_rows_per_block).ceil());
        Table {
            blocks: (table.blocks - (added / rows_per_block.max(1.0)).floor())
                .max(least)
                .min(table.blocks),
            ..table
        }
    }

    /// Returns how many rows the statement itself has added to the table that a node scans; `None` if it adds
    /// none there.
    fn rows_added_to_scanned(&self, i: usize) -> Option<f64> {
        let name = &self.nodes[i].plan.object_name;
        let mut below = i;
        // What an UPDATE reads directly, or as partitions, is what it changes. Its name is that of the
        // partitioned table.
        let mut is_direct = true;
        while let Some(above) = self.nodes[below].plan.parent {
            let plan = self.nodes[above].plan;
            match plan.operation.as_str() {
                "Insert" | "Update" | "Merge" if plan.object_name == *name => return Some(self.rows(below)),
                "Update" if is_direct => return Some(self.rows(i)),
                _ => is_direct &= matches!(self.kinds[above], Kind::Append { .. }),
            }
            below = above;
        }
        None
    }

    /// Returns the most rows that a Limit returns per start, if that is certain.
    pub fn limit(&self, i: usize) -> Option<f64> {
        let node = self.nodes[i];
        let input = self.nodes[self.outer(i)?].plan_rows;
        // The planner expects no more rows than the input has. In a plan for all parameters, it does not know
        // the limit, and expects a tenth of the input.
        let tenth = (input * 0.1).round().max(1.0);
        let is_known = node.plan_rows < input && (node.plan_rows - tenth).abs() > 1e-6 * tenth;
        // It was kept in single precision.
        let rows = (node.plan_rows * (1.0 + f64::from(f32::EPSILON))).ceil();
        (node.has_constant_limit && is_known).then_some(rows.max(1.0))
    }

    /// Returns whether a node has begun.
    pub fn has_begun(&self, i: usize) -> bool {
        self.scanned(i) > 0.0 || self.nodes[i].starts.is_some_and(|starts| starts > 0)
    }

    /// Returns whether a node may test its rows after it has scanned or joined them.
    pub fn may_remove_rows(&self, i: usize) -> bool {
        let mut labels = self.nodes[i].plan.predicates.iter().map(|(label, _)| label);
        self.is_outline || labels.any(|label| label.contains("Filter"))
    }

    /// Returns whether each outer row of a join has at most one match, by its definition or by a unique key.
    pub fn has_one_match(&self, i: usize) -> bool {
        use crate::plan::Attribute::InnerUnique;
        let mut attributes = self.nodes[i].plan.attributes.iter();
        matches!(
            self.kinds[i],
            Kind::Join {
                kept: kind::Kept::OuterOnly,
                ..
            }
        ) || attributes.any(|(attribute, _)| *attribute == InnerUnique)
    }
}
