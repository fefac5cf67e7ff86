//! The parts of a difference.
//!
//! All is per execution. `A` is the first side and `B` the second one. A node's own time, in all processes,
//! is `W`; divided by its processes `P` it is what the statement waits for it. `W` is the sum of waits for
//! locks, other waits, requests to temporary files, reads, and the rest, which is processor time. The
//! difference `W_B / P_B - W_A / P_A` is divided in this order. They add up exactly. What is counted has the
//! price of `B`, and a change of a price counts for the work of `A` only: prices are times, which the load of
//! the machine changes, and counts are exact.
//!
//! - less parallelism: `W_B / P_B - W_B / P_A`. Starts below a Gather.
//! - locks, other waits, spilling: the difference of their times / `P_A`. Exact waits of the node.
//! - cold cache: `(m_B - m_A) * gets_B * t_B / P_A`: `m` is the part of gets that were reads, `t` the time of
//!   a read. Exact counts and waits.
//! - slower storage: `m_A * gets_A * (t_B - t_A) / P_A`. Exact counts and waits.
//! - more calls: `(starts_B - starts_A) *` what a start took in `A` at the price of `B`, of reads and
//!   processor time. Exact counts.
//! - more data: the units of a start, likewise: rows that it handled, and blocks that it got. Exact counts.
//! - CPU per row: the rest: `units_A * (c_B - c_A) / P_A`, where `c` is the processor time of a unit.
//!   Estimated time.
//!
//! - If the node did not spill before, CPU per row counts as spilling: to sort in a file takes processor
//!   time.
//! - If reads have no times, CPU per row counts as cold cache as far as a larger part of the gets were reads.
//! - A node that does something else, or has no partner, is another plan: all but its waits and its temporary
//!   files. So are more calls and more data of a node that has moved.
//! - Another plan has a reason, the first that holds: an index of it is gone; it is generic and that before
//!   was not; the planner was wrong by [`MISESTIMATE`] times, and was not before.
//! - More data and more calls of a node whose estimate is wrong now, and of the nodes above it, are a wrong
//!   estimate, and so are more calls of any node.
//! - What is left of the statement's time is outside of the nodes. Its waits are exact.
//! - Slower storage, CPU per row and what is outside of the nodes are told by times only. A machine that
//!   others use does the same work more slowly, and [`SIZE`] says by how much: if a read, the processor time
//!   of a row, or what is outside takes less than that many times as long, it is no cause.

use super::cause::{Cause, LEAST_ERRORS, LEAST_EXECUTIONS, LEAST_SHARE, Verdict};
use super::gone::Gone;
use super::matching::{Pairs, above, do_the_same, pairs};
use super::side::{Node, Side};
use crate::regressions::{LEAST_RATIO, SIZE};

/// By how many times an estimate must be wrong to be a cause. Unmeasured.
pub const MISESTIMATE: f64 = 10.0;

const CAUSES: usize = Cause::ALL.len();

/// The parts of a node's difference, or of the statement's, in milliseconds of an execution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeParts {
    /// The part of each cause, in the order of [`Cause::ALL`].
    parts: [f64; CAUSES],
}

impl NodeParts {
    fn add(&mut self, cause: Cause, ms: f64) {
        self.parts[cause as usize] += ms;
    }

    /// Returns the part of a cause.
    pub fn get(&self, cause: Cause) -> f64 {
        self.parts[cause as usize]
    }

    /// Returns the whole difference.
    pub fn total(&self) -> f64 {
        self.parts.iter().sum()
    }

    /// Returns the parts that only times tell.
    fn speed_ms(&self) -> f64 {
        let speed = self.parts().filter(|(cause, _)| cause.is_speed());
        speed.map(|(_, ms)| ms).sum()
    }

    /// Returns the parts that are not zero.
    pub fn parts(&self) -> impl Iterator<Item = (Cause, f64)> + '_ {
        let all = Cause::ALL.into_iter().zip(self.parts);
        all.filter(|(_, ms)| *ms != 0.0)
    }

    /// Returns the largest part in the direction of `sign`.
    pub fn largest(&self, sign: f64) -> Option<(Cause, f64)> {
        let mut largest: Option<(Cause, f64)> = None;
        for (cause, ms) in self.parts() {
            if ms * sign > largest.map_or(0.0, |(_, ms)| ms * sign) {
                largest = Some((cause, ms));
            }
        }
        largest
    }
}

/// The difference of two sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which nodes belong together.
    pub pairs: Pairs,
    /// The parts of each node of the second side, in its order.
    pub second: Vec<NodeParts>,
    /// Those of the nodes of the first side that have no partner; nothing for the others.
    pub first: Vec<NodeParts>,
    /// Those of what is outside of the nodes.
    pub outside: NodeParts,
    /// The sum of all. It is the difference of the mean times.
    pub total: NodeParts,
    /// Which nodes of the second side have an estimate that is wrong now, and was not before.
    pub misestimated: Vec<bool>,
    /// The first of these with none below it: the estimates above it are wrong because its own is.
    pub misestimated_node: Option<usize>,
    /// Whether there is a difference to explain.
    pub verdict: Verdict,
    /// The standard error of the difference, in milliseconds; 0 if nothing is known of it.
    pub error_ms: f64,
    /// What the first side paid at prices that may change.
    timed: Timed,
}

/// What is paid at prices that may change, in milliseconds of an execution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Timed {
    cpu: f64,
    reads: f64,
    outside: f64,
}

impl Difference {
    /// Returns the cause, and the part of the difference that it explains. `None` if that is too little, or
    /// if the sides do not differ.
    pub fn cause(&self) -> Option<(Cause, f64)> {
        if self.verdict != Verdict::Differs {
            return None;
        }
        let total = self.total.total();
        let mut real = self.total;
        Cause::ALL
            .into_iter()
            .filter(|cause| self.is_noise(*cause))
            .for_each(|cause| real.parts[cause as usize] = 0.0);
        let (cause, ms) = real.largest(total)?;
        let share = ms / total;
        (share >= LEAST_SHARE).then_some((cause, share))
    }

    /// Returns whether the load of the machine explains a part.
    fn is_noise(&self, cause: Cause) -> bool {
        let before = match cause {
            Cause::CpuPerRow => self.timed.cpu,
            Cause::SlowerStorage => self.timed.reads,
            Cause::Outside => self.timed.outside,
            _ => return false,
        };
        times(before, before + self.total.get(cause)) < SIZE
    }

    /// Returns whether the load of the machine explains all, or nearly all, of the difference from the mean
    /// time of the first side.
    fn is_of_speed(&self, before_ms: f64) -> bool {
        let counted_ms = self.total.total() - self.total.speed_ms();
        let is_counted = times(before_ms, before_ms + counted_ms) >= LEAST_RATIO;
        !is_counted && self.cause().is_none_or(|(cause, _)| !cause.is_speed())
    }

    /// Returns the node with the largest part: of a cause, or of all. A node of the first side is `Err`.
    pub fn largest_node(&self, cause: Option<Cause>) -> Option<Result<usize, usize>> {
        let sign = self.total.total();
        let part = |parts: &NodeParts| sign * cause.map_or_else(|| parts.total(), |cause| parts.get(cause));
        let second = self
            .second
            .iter()
            .enumerate()
            .map(|(i, parts)| (Ok(i), part(parts)));
        let first = self
            .first
            .iter()
            .enumerate()
            .map(|(i, parts)| (Err(i), part(parts)));
        let all = second.chain(first).filter(|(_, part)| *part > 0.0);
        all.max_by(|(_, one), (_, other)| one.total_cmp(other))
            .map(|(node, _)| node)
    }
}

/// What a node did in one execution of a side.
#[derive(Clone, Copy, Default)]
struct Work {
    /// The time in all processes.
    all_ms: f64,
    processes: f64,
    /// Starts of a process.
    starts: f64,
    units: f64,
    gets: f64,
    reads: f64,
    read_ms: f64,
    temp_ms: f64,
    temp_blocks: i64,
    lock_ms: f64,
    wait_ms: f64,
}

impl Work {
    fn of(side: &Side, node: &Node) -> Work {
        let mean = |sum: f64| side.per_execution(sum);
        Work {
            all_ms: mean(node.self_ms),
            processes: node.processes(),
            starts: mean(node.starts as f64) / node.processes(),
            units: mean(node.handled_rows as f64 + node.gets()),
            gets: mean(node.gets()),
            reads: mean(node.read as f64),
            read_ms: mean(node.read_ms),
            temp_ms: mean(node.temp_ms),
            temp_blocks: node.temp_blocks,
            lock_ms: mean(node.lock_ms),
            wait_ms: mean(node.wait_ms),
        }
    }

    /// Returns the processor time.
    fn cpu_ms(&self) -> f64 {
        self.all_ms - self.lock_ms - self.wait_ms - self.temp_ms - self.read_ms
    }

    /// Returns what the statement waited for it.
    fn elapsed_ms(&self) -> f64 {
        self.all_ms / self.processes.max(1.0)
    }
}

/// Returns a quotient, or `other` if it is none.
fn quotient(dividend: f64, divisor: f64, other: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { other }
}

/// What holds for the whole comparison.
struct Context {
    /// The reason for another plan.
    another_plan: Cause,
    /// The reason for what a wrong estimate brings about.
    estimate: Cause,
    /// Whether there is a wrong estimate.
    is_misestimated: bool,
    /// The time of a read of the first side, if it had any.
    read_ms: Option<f64>,
}

/// How a node of the second side relates to its partner.
struct Relation {
    /// It does the same.
    is_same: bool,
    /// It runs below another node.
    has_moved: bool,
    /// Its estimate, or that of a node below it, is wrong now.
    is_misestimated: bool,
}

/// Compares two sides.
pub fn difference(first: &Side, second: &Side) -> Difference {
    let pairs = pairs(first, second);
    let misestimated = misestimated(first, second, &pairs);
    let context = Context::of(first, second, &misestimated);
    let mut above_misestimated = misestimated.clone();
    let mut origins = misestimated.clone();
    for i in (0..second.nodes.len()).rev() {
        if let (true, Some(parent)) = (above_misestimated[i], second.nodes[i].parent) {
            above_misestimated[parent] = true;
            origins[parent] = false;
        }
    }
    let mut found = Difference {
        second: Vec::with_capacity(second.nodes.len()),
        first: vec![NodeParts::default(); first.nodes.len()],
        outside: NodeParts::default(),
        total: NodeParts::default(),
        misestimated,
        misestimated_node: origins.iter().position(|is_origin| *is_origin),
        verdict: Verdict::Differs,
        error_ms: (first.squared_error() + second.squared_error()).sqrt(),
        timed: Timed::default(),
        pairs,
    };
    for (i, node) in second.nodes.iter().enumerate() {
        let after = Work::of(second, node);
        let partner = found.pairs.first[i];
        let parts = match partner.map(|a| (a, &first.nodes[a])) {
            Some((a, partner)) => {
                let ours = above(second, &found.pairs.first, i).and_then(|above| found.pairs.first[above]);
                let relation = Relation {
                    is_same: do_the_same(partner, node),
                    has_moved: ours != above(first, &found.pairs.second, a),
                    is_misestimated: above_misestimated[i],
                };
                let (parts, timed) = context.parts(&Work::of(first, partner), &after, &relation);
                found.timed.cpu += timed.cpu;
                found.timed.reads += timed.reads;
                parts
            }
            None => context.of_lone(&after, 1.0),
        };
        found.second.push(parts);
    }
    for (i, node) in first.nodes.iter().enumerate() {
        if found.pairs.second[i].is_none() {
            found.first[i] = context.of_lone(&Work::of(first, node), -1.0);
        }
    }
    found.add_outside(first, second);
    found.verdict = match verdict(first, second, found.error_ms) {
        Verdict::Differs if found.is_of_speed(first.mean_ms()) => Verdict::Speed,
        verdict => verdict,
    };
    if found.verdict != Verdict::Differs && second.returned_at.is_some() {
        found.verdict = Verdict::Mixed;
    }
    found
}

/// Returns how many times as long the longer one of two times is.
fn times(one: f64, other: f64) -> f64 {
    let (less, more) = (one.min(other).max(0.0), one.max(other));
    if less == more { 1.0 } else { more / less }
}

/// Says whether two mean times differ, whose difference has this standard error. One execution that took much
/// longer than all others, as the first one on a cold cache, makes that error large: so the logarithms may
/// prove the difference, too. Of two tests the better one counts.
fn verdict(first: &Side, second: &Side, error_ms: f64) -> Verdict {
    let executions = first.executions.min(second.executions);
    let (before, after) = (first.mean_ms(), second.mean_ms());
    if before.max(after) < LEAST_RATIO * before.min(after) {
        return Verdict::Alike;
    }
    let differ = |difference: f64, error: f64| difference.abs() >= LEAST_ERRORS * error;
    let do_logs_differ = || {
        let ((one, error), (other, other_error)) = (first.mean_log()?, second.mean_log()?);
        let difference = (other - one).abs() - LEAST_RATIO.log2();
        let is_same_way = (other > one) == (after > before);
        Some(is_same_way && difference > 0.0 && differ(difference, (error + other_error).sqrt()))
    };
    let is_proved = differ(after - before, error_ms) || do_logs_differ() == Some(true);
    match executions < LEAST_EXECUTIONS || is_proved {
        true => Verdict::Differs,
        false => Verdict::Chance,
    }
}

impl Difference {
    /// Adds up the nodes, and what is outside of them.
    fn add_outside(&mut self, first: &Side, second: &Side) {
        let mut total = NodeParts::default();
        for parts in self.second.iter().chain(&self.first) {
            parts.parts().for_each(|(cause, ms)| total.add(cause, ms));
        }
        let change =
            |sum: fn(&Side) -> f64| second.per_execution(sum(second)) - first.per_execution(sum(first));
        let outside = change(|side| side.total_ms) - total.total();
        let (locks, waits) = (change(|side| side.lock_ms), change(|side| side.wait_ms));
        self.outside.add(Cause::Locks, locks);
        self.outside.add(Cause::OtherWaits, waits);
        self.outside.add(Cause::Outside, outside - locks - waits);
        let of_node = |node| Work::of(first, node).elapsed_ms();
        let nodes: f64 = first.nodes.iter().map(of_node).sum();
        let waited = first.per_execution(first.lock_ms + first.wait_ms);
        self.timed.outside = first.mean_ms() - nodes - waited;
        self.outside.parts().for_each(|(cause, ms)| total.add(cause, ms));
        self.total = total;
    }
}

/// Returns which estimates of the second side are wrong, and were not before. If a node has no partner, none
/// of the first side was.
fn misestimated(first: &Side, second: &Side, pairs: &Pairs) -> Vec<bool> {
    let is_wrong = |node: &Node| node.misestimate() >= MISESTIMATE;
    let was_wrong = first.nodes.iter().any(is_wrong);
    let of = |(node, partner): (&Node, &Option<usize>)| {
        is_wrong(node) && !partner.map_or(was_wrong, |partner| is_wrong(&first.nodes[partner]))
    };
    second.nodes.iter().zip(&pairs.first).map(of).collect()
}

impl Context {
    fn of(first: &Side, second: &Side, misestimated: &[bool]) -> Context {
        let is_generic = |side: &Side| side.generic_plan_executions * 2 > side.executions;
        let gone = Gone::new(&second.gone_indexes);
        let is_gone = |i: usize| first.gone_index(i, &gone).is_some();
        let is_misestimated = misestimated.contains(&true);
        let estimate = if is_generic(second) && !is_generic(first) {
            Cause::GenericPlan
        } else {
            Cause::WrongEstimate
        };
        let another_plan = if (0..first.nodes.len()).any(is_gone) {
            Cause::IndexGone
        } else if estimate == Cause::GenericPlan || is_misestimated {
            estimate
        } else {
            Cause::AnotherPlan
        };
        let sum = |of: fn(&Node) -> f64| first.nodes.iter().map(of).sum::<f64>();
        let reads = sum(|node| node.read as f64);
        Context {
            another_plan,
            estimate,
            is_misestimated,
            read_ms: (reads > 0.0).then(|| sum(|node| node.read_ms) / reads),
        }
    }

    /// Returns the parts of a node without a partner. `sign` is -1 for one of the first side.
    fn of_lone(&self, work: &Work, sign: f64) -> NodeParts {
        let mut parts = NodeParts::default();
        let per_process = sign / work.processes.max(1.0);
        parts.add(Cause::Locks, work.lock_ms * per_process);
        parts.add(Cause::OtherWaits, work.wait_ms * per_process);
        parts.add(Cause::Spilling, work.temp_ms * per_process);
        parts.add(self.another_plan, sign * work.elapsed_ms() - parts.total());
        parts
    }

    /// Returns the parts of a node with a partner, and what its prices are paid for.
    fn parts(&self, before: &Work, after: &Work, relation: &Relation) -> (NodeParts, Timed) {
        let mut parts = NodeParts::default();
        let whole = after.elapsed_ms() - before.elapsed_ms();
        parts.add(
            Cause::LessParallelism,
            after.elapsed_ms() - after.all_ms / before.processes,
        );
        let mut add = |cause, ms: f64| parts.add(cause, ms / before.processes);
        add(Cause::Locks, after.lock_ms - before.lock_ms);
        add(Cause::OtherWaits, after.wait_ms - before.wait_ms);
        add(Cause::Spilling, after.temp_ms - before.temp_ms);
        if relation.is_same {
            let (reads, cpu) = (self.reads(before, after), Shares::of_cpu(before, after));
            let (calls, data) = if relation.has_moved {
                (self.another_plan, self.another_plan)
            } else if self.is_misestimated {
                let data = if relation.is_misestimated {
                    self.estimate
                } else {
                    Cause::MoreData
                };
                (self.estimate, data)
            } else {
                (Cause::MoreCalls, Cause::MoreData)
            };
            add(Cause::ColdCache, reads.cache);
            add(Cause::SlowerStorage, reads.storage);
            add(calls, reads.shares.calls + cpu.calls);
            add(data, reads.shares.data + cpu.data);
        }
        let rest = whole - parts.total();
        let has_spilled = after.temp_blocks > 0 && before.temp_blocks == 0;
        let miss = |work: &Work| quotient(work.reads, work.gets, 0.0);
        let is_untimed = after.reads > 0.0 && after.read_ms == 0.0;
        let cause = match relation.is_same {
            false => self.another_plan,
            true if has_spilled && rest > 0.0 => Cause::Spilling,
            true if is_untimed && rest > 0.0 && miss(after) > miss(before) => Cause::ColdCache,
            true => Cause::CpuPerRow,
        };
        parts.add(cause, rest);
        let is_priced = |price| relation.is_same && (price != Cause::CpuPerRow || cause == price);
        let timed = |price, ms: f64| {
            if is_priced(price) {
                ms / before.processes
            } else {
                0.0
            }
        };
        let timed = Timed {
            cpu: timed(Cause::CpuPerRow, before.cpu_ms()),
            reads: timed(Cause::SlowerStorage, before.read_ms),
            outside: 0.0,
        };
        (parts, timed)
    }

    fn reads(&self, before: &Work, after: &Work) -> Reads {
        let usual = quotient(after.read_ms, after.reads, 0.0);
        let usual = self.read_ms.unwrap_or(usual);
        let time = quotient(before.read_ms, before.reads, usual);
        let now = quotient(after.reads, after.gets, 0.0);
        let miss = quotient(before.reads, before.gets, now);
        let time = quotient(after.read_ms, after.reads, time);
        let each = miss * time;
        let cache = (now - miss) * after.gets * time;
        let more = (after.gets - before.gets) * each;
        Reads {
            cache,
            storage: after.read_ms - before.read_ms - cache - more,
            shares: Shares::of(before.starts, after.starts, before.gets * each, after.gets * each),
        }
    }
}

/// The parts of the time of reads.
struct Reads {
    cache: f64,
    storage: f64,
    shares: Shares,
}

/// How much a time would change because of starts, and because of what a start does.
struct Shares {
    calls: f64,
    data: f64,
}

impl Shares {
    /// `before_ms` and `after_ms` are at the same price.
    fn of(starts_before: f64, starts_after: f64, before_ms: f64, after_ms: f64) -> Shares {
        let calls = if starts_before > 0.0 {
            (starts_after - starts_before) * before_ms / starts_before
        } else {
            after_ms - before_ms
        };
        Shares {
            calls,
            data: after_ms - before_ms - calls,
        }
    }

    fn of_cpu(before: &Work, after: &Work) -> Shares {
        let earlier = quotient(before.cpu_ms(), before.units, 0.0);
        let price = quotient(after.cpu_ms(), after.units, earlier).max(0.0);
        Shares::of(
            before.starts,
            after.starts,
            before.units * price,
            after.units * price,
        )
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
