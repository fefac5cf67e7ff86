//! What is certain: the fewest and the most rows that each node can return in all.

use super::kind::{Kept, Kind, Method, is_run_by_expression};
use super::plan::Plan;
use crate::plan::Relationship;

/// The most processes that can run a parallel plan: PostgreSQL's limit of workers
/// (`MAX_PARALLEL_WORKER_LIMIT`), and the leader.
const MAX_PROCESSES: f64 = 1025.0;

/// What a node does, from the beginning to its end. The unit is a row or a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    /// The work done so far, lower bound.
    pub seen_low: f64,
    /// The work done so far, upper bound.
    pub seen_high: f64,
    /// The work done at the end, lower bound.
    pub total_low: f64,
    /// The work done at the end, upper bound.
    pub total_high: f64,
}

impl Range {
    /// Returns the range of something of which is known how much was done.
    fn counted(seen: f64, total_low: f64, total_high: f64) -> Self {
        Range {
            seen_low: seen,
            seen_high: seen,
            total_low: total_low.max(seen),
            total_high: total_high.max(seen),
        }
    }
}

/// The bounds of the nodes of a plan.
pub(super) struct Bounds {
    /// The rows that each node returns.
    pub rows: Vec<Range>,
    /// The blocks that a Seq Scan reads, or the rows that another scan looks at. Empty for nodes that are no
    /// scans.
    pub scans: Vec<Range>,
    /// Whether it is certain that a node does nothing more.
    pub is_complete: Vec<bool>,
    /// Whether it is certain that a node is started at most once.
    pub runs_once: Vec<bool>,
}

impl Bounds {
    pub fn of(plan: &Plan) -> Bounds {
        let count = plan.nodes.len();
        let runs_once = runs_once(plan);
        let mut bounds = Bounds {
            rows: vec![Range::default(); count],
            scans: vec![Range::default(); count],
            is_complete: is_complete(plan, &runs_once),
            runs_once,
        };
        bounds.add(plan, 0, 1.0);
        bounds
    }

    /// Computes the bounds of a node that is started at most `starts` times, and of all nodes below it.
    /// Returns how many rows it can return.
    fn add(&mut self, plan: &Plan, i: usize, starts: f64) -> f64 {
        let processes = if plan.kinds[i] == Kind::Gather {
            MAX_PROCESSES
        } else {
            1.0
        };
        let mut outer = 0.0;
        let mut high = Vec::with_capacity(plan.children[i].len());
        for &child in &plan.children[i] {
            let starts = processes * starts_of(plan, i, child, starts, outer);
            let rows = self.add(plan, child, starts);
            if !is_run_by_expression(plan.nodes[child].plan) {
                if high.is_empty() {
                    outer = rows;
                }
                high.push(rows);
            }
        }
        self.scans[i] = self.scan(plan, i, starts);
        let seen = plan.rows(i);
        let high = if self.is_complete[i] {
            seen
        } else {
            let high = self.most_rows(plan, i, starts, &high);
            let one_match = plan.nodes[i]
                .plan
                .parent
                .filter(|&parent| plan.kinds[parent] == Kind::Memoize || is_looked_up_once(plan, parent, i));
            // Each start returns one row, unless the reader tests the rows.
            match one_match {
                Some(parent) if returns_one_row(plan, parent, i) => high.min(starts),
                _ => high,
            }
        };
        let low = match plan.kinds[i] {
            // It returns all rows of its input, which it has read.
            Kind::Sort if self.is_read_to_end(plan, i) => {
                plan.outer(i).map_or(seen, |input| plan.rows(input))
            }
            _ => seen,
        };
        self.rows[i] = Range::counted(seen, low, high.max(low));
        self.rows[i].total_high
    }

    /// Returns the most rows that a node can return in `starts` starts. `inputs` are the most rows of each
    /// input.
    fn most_rows(&self, plan: &Plan, i: usize, starts: f64, inputs: &[f64]) -> f64 {
        let node = &plan.nodes[i];
        let outer = inputs.first().copied();
        // A node that can be started again may return the rows of its input again, without starting it.
        let again = if self.runs_once[i] { 1.0 } else { starts };
        let kind = plan.kinds[i];
        match kind {
            _ if kind.scans_table() => {
                let rows = self.most_scanned_rows(plan, i, starts);
                plan.rows(i) + (rows - plan.scanned(i)).max(0.0)
            }
            Kind::Result => outer.unwrap_or(starts),
            Kind::PlainAggregate => starts,
            Kind::HashAggregate | Kind::GroupAggregate => {
                // Each grouping set has its own key, and may return a row without input.
                let sets = node.plan.keys.len() as f64;
                let is_set_operation = node.plan.operation.contains("SetOp");
                match outer {
                    Some(_) if is_set_operation => product(inputs.iter().sum(), again),
                    Some(rows) if sets == 1.0 => product(rows, again),
                    Some(rows) if sets > 1.0 => product((rows + starts) * sets, again),
                    _ => f64::INFINITY,
                }
            }
            Kind::Sort | Kind::Materialize | Kind::Hash | Kind::Gather | Kind::Filter | Kind::ModifyTable => {
                let rows = outer.map_or(f64::INFINITY, |rows| product(rows, again));
                product(rows, self.repeats(plan, i))
            }
            Kind::Limit => {
                let rows = outer.unwrap_or(f64::INFINITY);
                rows.min(
                    plan.limit(i)
                        .map_or(f64::INFINITY, |limit| product(limit, starts)),
                )
            }
            Kind::Append { .. } => inputs.iter().sum(),
            Kind::OtherScan => product(starts, self.rows_of_cte(plan, i)),
            Kind::Join { method, kept } => match inputs {
                &[outer, inner] => self.most_joined_rows(plan, i, (method, kept), outer, inner),
                _ => f64::INFINITY,
            },
            _ => f64::INFINITY,
        }
    }

    /// Returns how many rows a join can return.
    fn most_joined_rows(
        &self,
        plan: &Plan,
        i: usize,
        (method, kept): (Method, Kept),
        outer: f64,
        inner: f64,
    ) -> f64 {
        if kept == Kept::InnerOnly {
            return inner;
        }
        let seen = plan.rows(i);
        let read = plan.outer(i).map_or(0.0, |input| plan.rows(input));
        let is_counted = self.runs_once[i] && !plan.is_parallel[i];
        // The outer rows that it has not read, and the one that it is at.
        let left = (outer - read + 1.0).max(0.0);
        let unmatched_inner = match kept {
            Kept::Inner | Kept::Both => inner,
            _ => 0.0,
        };
        let unmatched_outer = match kept {
            Kept::Outer | Kept::Both => outer,
            _ => 0.0,
        };
        if plan.has_one_match(i) {
            let all = outer + unmatched_inner;
            return if is_counted {
                all.min(seen + left + unmatched_inner)
            } else {
                all
            };
        }
        if method == Method::NestedLoop {
            // Each row that it returns comes from one of the inner side.
            return inner + unmatched_outer;
        }
        let pairs = product(outer, inner);
        let pairs = if is_counted {
            pairs.min(seen + product(left, inner))
        } else {
            pairs
        };
        pairs + unmatched_outer + unmatched_inner
    }

    /// Returns how many rows the CTE has that a node scans.
    fn rows_of_cte(&self, plan: &Plan, i: usize) -> f64 {
        let node = plan.nodes[i].plan;
        let name = node
            .object_name
            .as_deref()
            .filter(|_| node.operation == "CTE Scan");
        let is_of = |cte: &usize| {
            let subplan = plan.nodes[*cte].plan.subplan_name.as_deref();
            subplan.and_then(|subplan| subplan.strip_prefix("CTE ")) == name
        };
        // A CTE comes before the nodes that scan it. Several may have one name.
        let ctes = (0..i).filter(|cte| name.is_some() && is_of(cte));
        let rows = ctes.map(|cte| self.rows[cte].total_high).reduce(f64::max);
        rows.unwrap_or(f64::INFINITY)
    }

    /// Returns how often a node can return its rows: the inner side of a merge join returns those of equal
    /// keys again.
    fn repeats(&self, plan: &Plan, i: usize) -> f64 {
        let parent = plan.nodes[i].plan.parent;
        match parent.map(|parent| (plan.kinds[parent], plan.inner(parent))) {
            Some((
                Kind::Join {
                    method: Method::Merge,
                    ..
                },
                Some(inner),
            )) if inner == i => f64::INFINITY,
            _ => 1.0,
        }
    }

    /// Returns the most rows that a scan can look at in `starts` starts.
    fn most_scanned_rows(&self, plan: &Plan, i: usize, starts: f64) -> f64 {
        let Some(table) = plan.nodes[i].table else {
            return f64::INFINITY;
        };
        let rows = table.blocks * table.max_rows_per_block;
        product(
            product(self.scans_of_table(plan, i, starts), rows),
            self.repeats(plan, i),
        )
    }

    /// Returns how often the table of a scan can be scanned.
    fn scans_of_table(&self, plan: &Plan, i: usize, starts: f64) -> f64 {
        // All processes share one scan.
        let is_shared = plan.is_parallel[i] && plan.kinds[i].is_shared();
        if is_shared {
            (starts / MAX_PROCESSES).max(1.0)
        } else {
            starts
        }
    }

    /// Returns what a scan reads: blocks of a Seq Scan, else rows.
    fn scan(&self, plan: &Plan, i: usize, starts: f64) -> Range {
        let (node, kind) = (&plan.nodes[i], plan.kinds[i]);
        if !kind.scans_table() {
            return Range::default();
        }
        let is_complete = self.is_complete[i];
        let scanned = plan.scanned(i);
        let (Kind::SeqScan { .. }, Some(table)) = (kind, node.table) else {
            let high = if is_complete {
                scanned
            } else if !plan.may_remove_rows(i) && is_looked_up(plan, i) {
                starts.max(scanned)
            } else {
                self.most_scanned_rows(plan, i, starts)
            };
            return Range::counted(scanned, scanned, high);
        };
        let all = product(table.blocks, self.scans_of_table(plan, i, starts));
        let is_counted = self.runs_once[i] && !plan.is_parallel[i];
        if is_complete {
            let seen = if is_counted || kind.is_shared() {
                table.blocks
            } else {
                scanned / table.max_rows_per_block
            };
            return Range::counted(seen, seen, seen);
        }
        let low = (scanned / table.max_rows_per_block).ceil().min(all);
        Range {
            seen_low: low,
            // It may also have got other blocks, for example of long values.
            seen_high: node
                .blocks
                .filter(|_| is_counted)
                .unwrap_or(all)
                .clamp(low, all.max(low)),
            total_low: if is_counted && self.is_read_to_end(plan, i) {
                table.least_blocks.max(low)
            } else {
                low
            },
            total_high: all.max(low),
        }
    }

    /// Returns whether it is certain that a node that has begun is read to its end.
    fn is_read_to_end(&self, plan: &Plan, mut i: usize) -> bool {
        let is_certain = self.runs_once[i] && !plan.is_parallel[i] && plan.has_begun(i);
        if !is_certain || plan.nodes[i].plan.may_stop_early {
            return false;
        }
        while let Some(parent) = plan.nodes[i].plan.parent {
            match plan.kinds[parent] {
                // A hash join reads an outer row before it builds the hash table. If the table has no rows,
                // it reads no more.
                Kind::Join {
                    method: Method::Hash,
                    kept,
                } if plan.inner(parent) != Some(i) => {
                    let has_rows = plan.inner(parent).is_some_and(|hash| plan.rows(hash) > 0.0);
                    if !has_rows && !matches!(kept, Kept::Outer | Kept::Both) {
                        return false;
                    }
                }
                kind if kind.is_blocking() && plan.has_begun(i) => return true,
                _ => {}
            }
            i = parent;
        }
        true
    }
}

/// Multiplies; nothing times infinity is nothing.
pub(super) fn product(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

/// Returns how often a node can start a child while it is started `starts` times itself. `outer` is the most
/// rows that its first input can return.
fn starts_of(plan: &Plan, parent: usize, child: usize, starts: f64, outer: f64) -> f64 {
    let is_inner = plan.inner(parent) == Some(child);
    match (plan.nodes[child].plan.relationship, plan.kinds[parent]) {
        (Relationship::SubPlan, _) => f64::INFINITY,
        (
            _,
            Kind::Join {
                method: Method::NestedLoop,
                ..
            },
        ) if is_inner => outer,
        (_, Kind::RecursiveUnion) if is_inner => f64::INFINITY,
        (_, Kind::Other) => f64::INFINITY,
        _ => starts,
    }
}

/// Returns for each node whether it is certain that it is started at most once by each process.
fn runs_once(plan: &Plan) -> Vec<bool> {
    let mut once: Vec<bool> = Vec::with_capacity(plan.nodes.len());
    for (i, node) in plan.nodes.iter().enumerate() {
        let runs_once = node.plan.parent.is_none_or(|parent| {
            let is_inner_of_loop = |join: usize, of: usize| {
                matches!(
                    plan.kinds[join],
                    Kind::Join {
                        method: Method::NestedLoop,
                        ..
                    }
                ) && plan.inner(join) == Some(of)
            };
            let above = plan.nodes[parent].plan.parent;
            // A loop reads a materialised inner side again, but what is below it does not depend on the outer
            // rows.
            if plan.kinds[parent] == Kind::Materialize
                && let Some(join) = above.filter(|&join| is_inner_of_loop(join, parent))
            {
                return once[join];
            }
            once[parent]
                && !is_inner_of_loop(parent, i)
                && node.plan.relationship != Relationship::SubPlan
                && !matches!(
                    plan.kinds[parent],
                    Kind::RecursiveUnion | Kind::Other | Kind::Memoize
                )
        });
        // What was started more than once can be started again.
        let is_seen_once = plan.is_parallel[i] || node.starts.is_none_or(|starts| starts <= 1);
        once.push(runs_once && is_seen_once);
    }
    once
}

/// Returns for each node whether it is certain that it does nothing more.
fn is_complete(plan: &Plan, runs_once: &[bool]) -> Vec<bool> {
    let mut complete = vec![false; plan.nodes.len()];
    for i in 0..plan.nodes.len() {
        if let Some(parent) = plan.nodes[i].plan.parent.filter(|&parent| complete[parent]) {
            complete[i] = complete[parent];
            continue;
        }
        if !runs_once[i] || plan.is_parallel[i] {
            continue;
        }
        let returns_rows = plan.scanned(i) > 0.0;
        let (outer, inner) = (plan.outer(i), plan.inner(i));
        match plan.kinds[i] {
            Kind::Hash => {}
            kind if kind.is_blocking() && returns_rows => {
                for input in plan.inputs(i).collect::<Vec<_>>() {
                    complete[input] = true;
                }
            }
            // It reads one outer row before it builds the hash table.
            Kind::Join {
                method: Method::Hash, ..
            } => {
                let is_probing = plan.rows(i) > 0.0 || outer.is_some_and(|outer| plan.rows(outer) > 1.0);
                if let Some(hash) = inner.filter(|_| is_probing) {
                    complete[hash] = true;
                }
            }
            Kind::Append { is_in_order: true } => {
                let inputs: Vec<usize> = plan.inputs(i).collect();
                let last = inputs.iter().rposition(|&input| plan.has_begun(input));
                inputs[..last.unwrap_or(0)]
                    .iter()
                    .for_each(|&input| complete[input] = true);
            }
            _ => {}
        }
    }
    complete
}

/// Returns whether a loop looks a node up once per outer row, and reads one row of it at most: its first row
/// matches.
fn is_looked_up_once(plan: &Plan, join: usize, inner: usize) -> bool {
    let is_loop = matches!(
        plan.kinds[join],
        Kind::Join {
            method: Method::NestedLoop,
            ..
        }
    );
    is_loop && plan.inner(join) == Some(inner) && plan.has_one_match(join) && !plan.may_remove_rows(join)
}

/// Returns whether each start of a node returns one row at most, because its parent asks for no more.
fn returns_one_row(plan: &Plan, parent: usize, i: usize) -> bool {
    is_looked_up_once(plan, parent, i)
        || plan.kinds[parent] == Kind::Memoize
            && plan.nodes[parent]
                .plan
                .parent
                .is_some_and(|join| is_looked_up_once(plan, join, parent))
}

/// Returns whether each start of a scan returns one row at most.
fn is_looked_up(plan: &Plan, i: usize) -> bool {
    let parent = plan.nodes[i].plan.parent;
    parent.is_some_and(|parent| returns_one_row(plan, parent, i))
}
