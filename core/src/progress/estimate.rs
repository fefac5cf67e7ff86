//! Estimates how many rows each node will have returned in the end.
//!
//! The planner's estimate counts less the more of a node's input it has read: then the rows so far say what
//! is to come.

use super::bounds::Bounds;
use super::kind::{Kept, Kind, Method};
use super::plan::Plan;
use crate::plan::Relationship;

/// So many starts count like the planner's estimate of the rows per start.
const PRIOR_STARTS: f64 = 3.0;
/// The planner's estimate has the weight of this part of a node's input.
const PRIOR_READ: f64 = 0.01;
/// How many blocks a scan may have asked for ahead.
const BLOCKS_AHEAD: f64 = 40.0;

/// What is estimated of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// The rows that it returns in all.
    pub rows: f64,
    /// How many rows the planner expected in all, from its own estimates of all nodes.
    planned: f64,
    /// What it has scanned: blocks of a Seq Scan, else rows.
    pub scan_seen: f64,
    /// What it scans in all.
    pub scan_total: f64,
    /// From 0, if the rest of its work rests on the planner, to 1.
    pub support: f64,
}

/// Estimates all nodes.
pub(super) fn of(plan: &Plan, bounds: &Bounds) -> Vec<Estimate> {
    let mut estimates = vec![Estimate::default(); plan.nodes.len()];
    let mut estimator = Estimator {
        plan,
        bounds,
        estimates: &mut estimates,
    };
    estimator.add(0, 1.0, 1.0, 1.0);
    for i in 0..plan.nodes.len() {
        estimator.stop_inputs(i);
    }
    estimates
}

struct Estimator<'a> {
    plan: &'a Plan<'a>,
    bounds: &'a Bounds,
    estimates: &'a mut [Estimate],
}

impl Estimator<'_> {
    /// Estimates a node and all nodes below it. It is expected to be started `starts` times, and the planner
    /// expected `planned_starts`. `support` says how well the number of starts is known.
    fn add(&mut self, i: usize, starts: f64, planned_starts: f64, support: f64) {
        let plan = self.plan;
        let mut outer = None;
        for &child in &plan.children[i] {
            let (starts, planned_starts, support) = match plan.nodes[child].plan.relationship {
                Relationship::InitPlan => (1.0, 1.0, 1.0),
                Relationship::SubPlan => continue,
                _ => match (plan.kinds[i], outer) {
                    (
                        Kind::Join {
                            method: Method::NestedLoop,
                            ..
                        },
                        Some(Estimate {
                            rows,
                            planned,
                            support,
                            ..
                        }),
                    ) => (rows, planned, support),
                    _ => (starts, planned_starts, support),
                },
            };
            self.add(child, starts, planned_starts, support);
            outer = outer.or(Some(self.estimates[child]));
        }
        let mut estimate = self.node(i, starts, planned_starts, support);
        let range = &self.bounds.rows[i];
        if self.bounds.is_complete[i] {
            estimate.support = 1.0;
        }
        estimate.rows = estimate.rows.clamp(range.total_low, range.total_high);
        self.estimates[i] = estimate;
        // How often an expression runs its plan depends on the node's rows.
        for &child in &plan.children[i] {
            if plan.nodes[child].plan.relationship == Relationship::SubPlan {
                let seen = plan.nodes[child].starts.unwrap_or(0) as f64;
                let rows = plan.scanned(i);
                let starts = if seen > 1.0 && rows > 0.0 {
                    seen * (estimate.rows / plan.rows(i).max(1.0)).max(1.0)
                } else {
                    seen.max(1.0)
                };
                self.add(child, starts, starts, estimate.support);
            }
        }
    }

    /// Estimates a node whose inputs are estimated.
    fn node(&self, i: usize, starts: f64, planned_starts: f64, support: f64) -> Estimate {
        let (plan, kind) = (self.plan, self.plan.kinds[i]);
        let planned = plan.nodes[i].plan_rows * planned_starts * self.share(i);
        let inputs: Vec<Estimate> = plan.inputs(i).map(|input| self.estimates[input]).collect();
        let outer = inputs.first();
        let unsupported = |rows| Estimate {
            rows,
            planned,
            ..Estimate::default()
        };
        let seen_starts = plan.nodes[i].starts.unwrap_or(0) as f64;
        // How much of its input such a node has read says more than its starts.
        let streams = outer.is_some()
            && match kind {
                Kind::Join { .. } | Kind::GroupAggregate | Kind::Filter => true,
                // Some of its inputs may be left out at some starts.
                Kind::Append { .. } => plan
                    .inputs(i)
                    .all(|input| plan.nodes[input].starts == plan.nodes[i].starts),
                _ => false,
            };
        if !self.bounds.runs_once[i] && seen_starts > 0.0 && !kind.scans_table() && !streams {
            let (rows, support) = self.repeated(i, starts, planned, support);
            return Estimate {
                rows,
                planned,
                support,
                ..Estimate::default()
            };
        }
        match (kind, outer) {
            _ if kind.scans_table() => self.scan(i, starts, planned, support),
            (Kind::PlainAggregate, _) => Estimate {
                rows: starts,
                planned,
                support,
                ..Estimate::default()
            },
            (Kind::Result, None) => Estimate {
                support,
                ..unsupported(self.grown(i, planned))
            },
            (Kind::Append { .. }, _) => {
                let rows: f64 = inputs.iter().map(|input| input.rows).sum();
                let sum: f64 = inputs.iter().map(|input| input.rows * input.support).sum();
                Estimate {
                    rows,
                    planned,
                    support: if rows > 0.0 { sum / rows } else { 1.0 },
                    ..Estimate::default()
                }
            }
            (Kind::Sort | Kind::Hash | Kind::Gather | Kind::Materialize, Some(outer)) => Estimate {
                rows: outer.rows,
                planned,
                support: outer.support.min(support),
                ..Estimate::default()
            },
            (Kind::HashAggregate, Some(outer)) => {
                let groups = planned.min(outer.rows);
                unsupported(self.grown(i, groups))
            }
            (Kind::Limit, Some(outer)) => {
                let is_bounded = plan.limit(i).is_some();
                Estimate {
                    rows: self.grown(i, planned).min(outer.rows),
                    planned,
                    support: f64::from(u8::from(is_bounded)),
                    ..Estimate::default()
                }
            }
            (Kind::Join { method, kept }, Some(outer)) => {
                let inner = inputs.get(1).copied().unwrap_or_default();
                let mut corrected = planned * ratio(outer.rows, outer.planned);
                if method != Method::NestedLoop {
                    corrected *= ratio(inner.rows, inner.planned);
                    // Both have the error of the planner about the starts.
                    if starts > 0.0 {
                        corrected /= ratio(starts, planned_starts);
                    }
                }
                if kept == Kept::OuterOnly || plan.has_one_match(i) {
                    corrected = corrected.min(outer.rows);
                }
                self.streaming(i, planned, corrected, outer, support)
            }
            (_, Some(outer)) => {
                let corrected = planned * ratio(outer.rows, outer.planned);
                self.streaming(i, planned, corrected.min(outer.rows), outer, support)
            }
            _ => unsupported(self.grown(i, planned)),
        }
    }

    /// Estimates a node that returns rows while it reads its first input. `corrected` is the planner's
    /// estimate for the rows of its input.
    fn streaming(&self, i: usize, planned: f64, corrected: f64, outer: &Estimate, support: f64) -> Estimate {
        let input = self.plan.outer(i).map_or(0.0, |input| self.plan.rows(input));
        let read = if outer.rows > 0.0 {
            (input / outer.rows).min(1.0) * self.batches_read(i)
        } else {
            1.0
        };
        Estimate {
            rows: blended(self.plan.rows(i), read, corrected),
            planned,
            support: (outer.support * read).min(support.max(read)),
            ..Estimate::default()
        }
    }

    /// Returns which part of its input a hash join has joined, of what it has read: it puts the rows of all
    /// batches but the first one into work files, and reads them again.
    fn batches_read(&self, i: usize) -> f64 {
        let Kind::Join {
            method: Method::Hash, ..
        } = self.plan.kinds[i]
        else {
            return 1.0;
        };
        let hash = self.plan.inner(i);
        let inputs = [self.plan.outer(i), hash.and_then(|hash| self.plan.outer(hash))];
        let [read, written] = [0, 1].map(|of| {
            let files = |node: usize| self.plan.nodes[node].work_files[of];
            files(i) - inputs.into_iter().flatten().map(files).sum::<f64>()
        });
        if written > 0.0 {
            (read / written).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }

    /// Estimates a scan of a table.
    fn scan(&self, i: usize, starts: f64, planned: f64, support: f64) -> Estimate {
        let (plan, node) = (self.plan, &self.plan.nodes[i]);
        let (rows, scanned) = (plan.rows(i), plan.scanned(i));
        let is_seq_scan = matches!(plan.kinds[i], Kind::SeqScan { .. });
        let is_one_scan = self.bounds.runs_once[i];
        let scans = match node.starts {
            _ if is_one_scan => Some(1.0),
            // Each start reads the whole table.
            Some(seen) if seen > 0 && !node.plan.may_stop_early && !plan.is_parallel[i] => {
                Some(starts.max(seen as f64))
            }
            _ => None,
        };
        let table = node.table.map(|table| plan.when_scanned(i, table));
        if let (true, Some(scans), Some(table)) = (is_seq_scan, scans, table) {
            let density = if is_one_scan {
                density(scanned, node.blocks.filter(|_| !plan.is_parallel[i]), &table)
            } else {
                table.rows_per_block
            };
            let all = table.blocks * scans;
            let seen = match density {
                _ if self.bounds.is_complete[i] => all,
                Some(density) if density > 0.0 => (scanned / density).min(all),
                _ => node.blocks.unwrap_or(0.0).min(all),
            };
            let seen = if is_one_scan {
                seen
            } else {
                // All starts but the last one have read the whole table.
                let begun = node.starts.unwrap_or(0) as f64;
                seen.clamp((begun - 1.0).max(0.0) * table.blocks, begun * table.blocks)
            };
            let read = if all > 0.0 { seen / all } else { 1.0 };
            return Estimate {
                rows: blended(rows, read, planned),
                planned,
                scan_seen: seen,
                scan_total: all,
                support: if is_one_scan { 1.0 } else { support },
            };
        }
        let (total, support) = if is_one_scan || node.starts.unwrap_or(0) == 0 {
            (self.grown(i, planned), 0.0)
        } else {
            self.repeated(i, starts, planned, support)
        };
        // What its conditions remove is in proportion to what they leave.
        let scan_total = if rows > 0.0 {
            scanned * (total / rows).max(1.0)
        } else {
            total.max(scanned)
        };
        let is_blocks = is_seq_scan && node.table.is_some();
        let unit = match node.table {
            Some(table) if is_blocks => table.rows_per_block.unwrap_or(100.0).max(1.0),
            _ => 1.0,
        };
        Estimate {
            rows: total,
            planned,
            scan_seen: scanned / unit,
            scan_total: scan_total / unit,
            support,
        }
    }

    /// Returns the estimated rows of a node that has begun and is expected to be started `starts` times, and
    /// their support. Its last start may still run, so it does not count as one that has returned all of its
    /// rows.
    fn repeated(&self, i: usize, starts: f64, planned: f64, support: f64) -> (f64, f64) {
        let rows = self.plan.rows(i);
        let seen = self.plan.nodes[i].starts.unwrap_or(0) as f64;
        let complete = (seen - 1.0).max(0.0);
        let per_start = planned / starts.max(1.0);
        let mean = (rows + per_start * PRIOR_STARTS) / (complete + PRIOR_STARTS);
        let rest = (starts - seen).max(0.0);
        let total = (starts.max(seen) * mean).max(rows + rest * mean);
        (total, support * complete / (complete + PRIOR_STARTS))
    }

    /// Returns an estimate for a node of which only the planner says something. If there are more rows
    /// already, it is as far above the rows as these are above the planner's.
    fn grown(&self, i: usize, planned: f64) -> f64 {
        let rows = self.plan.rows(i);
        if rows > planned {
            2.0 * rows - planned
        } else {
            planned
        }
    }

    /// Returns by how much the planner's rows of a node below a Gather must be multiplied: they are those of
    /// one process.
    fn share(&self, i: usize) -> f64 {
        if !self.plan.is_parallel[i] {
            return 1.0;
        }
        let workers = self.plan.workers as f64;
        // As `get_parallel_divisor`.
        workers + (1.0 - 0.3 * workers).max(0.0)
    }

    /// Lowers the estimates of nodes that a Limit stops.
    fn stop_inputs(&mut self, i: usize) {
        if self.plan.kinds[i] != Kind::Limit {
            return;
        }
        let Some(input) = self.plan.outer(i) else { return };
        let (rows, of) = (self.estimates[i].rows, self.estimates[input].rows);
        if rows < of {
            self.stop(input, rows / of);
        }
    }

    /// Lowers the estimate of a node that is stopped after this part of its rows.
    fn stop(&mut self, i: usize, part: f64) {
        let seen = self.plan.rows(i);
        let estimate = &mut self.estimates[i];
        estimate.rows = (estimate.rows * part).max(seen);
        if self.plan.kinds[i].is_blocking() {
            return;
        }
        estimate.scan_total = (estimate.scan_total * part).max(estimate.scan_seen);
        let inputs: Vec<usize> = self.plan.inputs(i).collect();
        for input in inputs {
            if self.plan.kinds[input] != Kind::Hash {
                self.stop(input, part);
            }
        }
    }
}

/// Returns the rows in all, if this part of the input has given `rows`. The rest is expected to give rows at
/// a rate between that and the planner's: their mean on a scale of factors, because the planner is often
/// wrong by a factor.
fn blended(rows: f64, read: f64, planned: f64) -> f64 {
    if read <= 0.0 {
        return planned.max(rows);
    }
    let (planned, seen) = (planned.max(1.0).ln(), ((rows + 1.0) / read).ln());
    let rate = (PRIOR_READ * planned + read * seen) / (PRIOR_READ + read);
    rows + (1.0 - read) * rate.exp()
}

/// Returns a ratio that corrects an estimate.
fn ratio(rows: f64, planned: f64) -> f64 {
    if planned > 0.0 { rows / planned } else { 1.0 }
}

/// Returns how many rows a block has: what statistics say, unless the blocks that a scan has got show that
/// this is wrong.
fn density(scanned: f64, blocks: Option<f64>, table: &super::plan::Table) -> Option<f64> {
    let seen = blocks.filter(|&blocks| blocks > 0.0 && blocks <= table.blocks + BLOCKS_AHEAD);
    let Some(blocks) = seen.filter(|_| scanned > 0.0) else {
        return table.rows_per_block;
    };
    let least = scanned / blocks;
    let most = scanned / (blocks - BLOCKS_AHEAD).max(1.0);
    Some(match table.rows_per_block {
        Some(known) => known.clamp(least, most),
        None => least,
    })
}
