//! Computes statistics if times are estimated, or if core measured too.

use super::counts::Counts;
use super::node::{NS_PER_MS, add_core_usage, add_to_parents, add_usage_to_parents, fill_in, list_called};
use super::sample::{Caller, Calls, CoreSample, Mode, NodeSample, Nodes, StatementSample};
use crate::float::at_most;
use crate::model::{Called, Measured, NodeStats, Time};
use crate::reconcile::{Edge, Item, Part, reconcile};
use crate::sampler::Estimate;

/// The memory in which statistics are computed. It is kept between statements, because most are short.
#[derive(Default)]
pub struct Scratch {
    /// The statistics of all nodes, in the order of EXPLAIN.
    pub stats: Vec<NodeStats>,
    /// What InitPlans and subplans used that nodes called, with the indices of these nodes.
    pub called: Vec<(usize, Called)>,
    /// What the nodes counted, if their statistics are not computed.
    pub counts: Box<Counts>,
    /// What the wrappers measured. [`assemble`] fills in this field and all that follow.
    samples: Vec<NodeSample>,
    /// What core measured. Empty if it measured nothing.
    cores: Vec<CoreSample>,
    /// The estimates. Finally they are consistent with each other.
    items: Vec<Item>,
    /// In which nodes the InitPlans and subplans ran.
    parts: Vec<Part>,
    /// For each node, the calls of all nodes below it. Filled in only if every call is timed.
    calls_below: Vec<u64>,
    /// For each node, whether it ran without its wrapper. Filled in only if one of them may have.
    bypassed: Vec<bool>,
}

impl Scratch {
    /// Reserves memory for `count` nodes. Returns `None` if there is none.
    fn reserve(&mut self, count: usize) -> Option<()> {
        fn room<T>(list: &mut Vec<T>, count: usize) -> Option<()> {
            list.clear();
            list.try_reserve(count).ok()
        }
        room(&mut self.stats, count)?;
        room(&mut self.samples, count)?;
        room(&mut self.cores, count)?;
        room(&mut self.items, count)?;
        self.parts.clear();
        self.called.clear();
        room(&mut self.calls_below, count)?;
        room(&mut self.bypassed, count)
    }

    /// Returns the totals of all nodes that have instrumentation, to be written to core's struct.
    pub fn totals(&self) -> impl Iterator<Item = Totals<'_>> {
        let nodes = self.samples.iter().zip(&self.items).zip(&self.stats);
        nodes
            .enumerate()
            .filter(|(_, ((sample, _), _))| sample.is_instrumented)
            .map(|(index, ((sample, item), stats))| Totals {
                index,
                starts: sample.starts(self.cores.get(index)),
                estimate: &item.estimate,
                stats,
            })
    }

    /// Lets no node have used less than its inputs, as it may have in a copy of a session that charges blocks
    /// at that moment: what core counts has them, and the charges, which the nodes above sum up, have not.
    /// Returns `None` if there is no memory.
    pub fn raise_above_inputs(&mut self) -> Option<()> {
        let mut inputs: Vec<NodeStats> = Vec::new();
        inputs.try_reserve(self.stats.len()).ok()?;
        inputs.resize(self.stats.len(), NodeStats::default());
        // Parents come before their children.
        for i in (0..self.stats.len()).rev() {
            self.stats[i].raise_usage_to(&inputs[i]);
            if let Some(parent) = self.samples[i].place.input_of() {
                inputs[parent].use_also(&self.stats[i]);
            }
        }
        Some(())
    }

    /// Removes the root's statistics if EXPLAIN does not show the root. No other node can be hidden.
    pub fn remove_hidden_root(&mut self) {
        if self.samples.first().is_some_and(|root| root.place.hidden) && !self.stats.is_empty() {
            self.stats.remove(0);
            self.called.retain(|(node, _)| *node > 0);
            self.called.iter_mut().for_each(|(node, _)| *node -= 1);
        }
    }
}

/// The totals of one node.
pub struct Totals<'a> {
    /// Its index among the statement's nodes.
    pub index: usize,
    /// The number of its starts.
    pub starts: f64,
    /// Its time, in nanoseconds.
    pub estimate: &'a Estimate,
    /// Its statistics.
    pub stats: &'a NodeStats,
}

/// Computes the statistics of all nodes, including a hidden root, no matter whether the wrappers or core
/// measured them. Returns `None` if there is no memory.
#[inline(never)]
pub fn assemble<N: Nodes>(nodes: &N, statement: &StatementSample, scratch: &mut Scratch) -> Option<()> {
    let count = nodes.count();
    scratch.reserve(count)?;
    let Scratch {
        stats,
        samples,
        cores,
        items,
        parts,
        called,
        calls_below,
        bypassed,
        counts: _,
    } = scratch;
    samples.extend((0..count).map(|i| nodes.sample(i)));
    if statement.core_contributes {
        cores.extend((0..count).map(|i| nodes.core(i)));
        if (0..count).any(|i| nodes.may_be_bypassed(i)) {
            bypassed.extend((0..count).map(|i| is_bypassed(i, nodes, samples, cores)));
        }
    }
    if samples.iter().any(|node| matches!(node.calls, Calls::Every(_))) {
        calls_below.resize(count, 0);
        add_to_parents(
            calls_below,
            |i| samples[i].place.parent,
            |above, below, i| {
                *above += samples[i].calls.count() + below;
            },
        );
    }
    items.extend((0..count).map(|i| item(i, samples, cores.get(i), calls_below, statement)));
    if bypassed.contains(&true) {
        pass_over(bypassed, samples, items);
    }
    if statement.mode != Mode::CoreOnly && samples.iter().any(|sample| sample.place.by_expression) {
        find_parts(nodes, statement.tick_ns, items, parts)?;
    }
    // Parts are known only if wrappers measured.
    let elapsed_ns = if statement.is_timed {
        statement.elapsed_ns
    } else {
        f64::INFINITY
    };
    let self_ns = reconcile(items, parts, elapsed_ns)?;
    for (i, sample) in samples.iter().enumerate() {
        let core = cores.get(i);
        let estimate = &items[i].estimate;
        let time = (statement.is_timed && sample.starts(core) > 0.0).then(|| Time {
            total_ms: estimate.total / NS_PER_MS,
            startup_ms: estimate.startup / NS_PER_MS,
            self_ms: self_ns[i] / NS_PER_MS,
            error_ms: estimate.error / NS_PER_MS,
        });
        stats.push(NodeStats::default());
        fill_in(&mut stats[i], sample, core, statement, time);
        if sample.is_instrumented {
            stats[i].facts = nodes.facts(i);
        }
        let mut own = core.map(|core| core.workers.called).unwrap_or_default();
        if statement.mode != Mode::CoreOnly && sample.used.has_more {
            own += nodes.called(i);
        }
        list_called(called, i, own)?;
        if bypassed.get(i) == Some(&true) {
            stats[i].starts = Measured::default();
            stats[i].estimate.dismiss();
        }
    }
    if statement.mode != Mode::CoreOnly {
        add_usage_to_parents(stats, |i| samples[i].place.input_of());
        for ((stats, sample), core) in stats.iter_mut().zip(&*samples).zip(&*cores) {
            add_core_usage(stats, sample, core);
        }
        // Core shuts subplans down with the nodes that they are shown below. That is in their parents'
        // figures too.
        for (sample, core) in samples.iter().zip(&*cores) {
            if let Some(parent) = sample.place.parent
                && sample.place.by_expression
                && core.worker_loops == 0.0
            {
                let (buffers, wal) = (core.buffers.get_or_zero(), core.wal.get_or_zero());
                list_called(called, parent, Called::of(&buffers, &wal))?;
            }
        }
    }
    if statement.mode == Mode::CoreOnly {
        called_by_parents(stats, samples, called)?;
    }
    Some(())
}

/// Lists what subplans used as called by their parents. Where core measured, nothing else is known of the
/// calls of subplans. Returns `None` if there is no memory.
#[cold]
fn called_by_parents(
    stats: &[NodeStats],
    samples: &[NodeSample],
    called: &mut Vec<(usize, Called)>,
) -> Option<()> {
    for (stats, sample) in stats.iter().zip(samples) {
        let place = &sample.place;
        if let Some(parent) = place.parent
            && place.by_expression
            && place.edge == Edge::Sequential
        {
            let (buffers, wal) = (stats.buffers.get_or_zero(), stats.wal.get_or_zero());
            list_called(called, parent, Called::of(&buffers, &wal))?;
        }
    }
    Some(())
}

/// Finds in which nodes the InitPlans and subplans ran. Returns `None` if there is no memory.
#[inline(never)]
fn find_parts(nodes: &impl Nodes, tick_ns: f64, items: &mut [Item], parts: &mut Vec<Part>) -> Option<()> {
    for (i, item) in items.iter_mut().enumerate() {
        if !nodes.place(i).by_expression {
            continue;
        }
        let within = match nodes.last_caller(i) {
            Caller::Unknown => continue,
            Caller::Node(caller) => Some(caller),
            Caller::Outside => None,
        };
        parts.try_reserve(1).ok()?;
        parts.push(Part::new(i, within, 1.0));
        item.edge = Edge::Elsewhere;
    }
    let last_callers = parts.len();
    for earlier in nodes.earlier_callers() {
        let last = parts[..last_callers].partition_point(|part| part.of < earlier.subplan);
        let Some(last) = parts
            .get(last)
            .filter(|part| part.of == earlier.subplan)
            .map(|_| last)
        else {
            continue;
        };
        let total = items[earlier.subplan].estimate.total;
        let fraction = if total > 0.0 {
            at_most(earlier.ticks * tick_ns / total, parts[last].fraction)
        } else {
            0.0
        };
        parts.try_reserve(1).ok()?;
        parts[last].fraction -= fraction;
        parts.push(Part::new(earlier.subplan, Some(earlier.caller), fraction));
    }
    parts.sort_unstable_by_key(|part| part.of);
    Some(())
}

/// Returns a node's place and its estimated time in nanoseconds, before reconciliation.
fn item(
    i: usize,
    samples: &[NodeSample],
    core: Option<&CoreSample>,
    calls_below: &[u64],
    statement: &StatementSample,
) -> Item {
    let sample = &samples[i];
    let mut estimate = Estimate::default();
    if sample.is_instrumented {
        estimate = own_estimate(sample, core, calls_below.get(i).copied().unwrap_or(0), statement);
        if let Some(core) = core {
            estimate.total += core.total_ns;
            estimate.startup += core.startup_ns;
            estimate.error = (estimate.error.powi(2) + core.workers.error_ns.powi(2)).sqrt();
        }
        // The root ran inside the statement's own runs, whose time is exact.
        if i == 0 && statement.is_timed && statement.mode != Mode::CoreOnly {
            estimate.total = estimate.total.min(statement.elapsed_ns);
        }
    }
    let parent = sample.place.parent;
    let processes = parent.map_or(1.0, |parent| samples[parent].processes);
    let mut item = Item::new(parent, sample.place.edge, processes, estimate);
    // Where core measured, nodes are not known to have waited within what it measured.
    if statement.is_timed && statement.mode != Mode::CoreOnly && !sample.by_core {
        item.waited = sample.waited_ns as i64 as f64;
    }
    item
}

/// Returns whether another extension ran a node without calling its wrapper: nobody has started it, but one
/// of its inputs was started. Or it has no inputs, and its state does not tell that it never ran. What it
/// returned and how long it took is not known then.
fn is_bypassed(i: usize, nodes: &impl Nodes, samples: &[NodeSample], cores: &[CoreSample]) -> bool {
    let has_started = |i: usize| samples[i].starts(cores.get(i)) > 0.0;
    if !nodes.may_be_bypassed(i) || !samples[i].is_instrumented || samples[i].by_core || has_started(i) {
        return false;
    }
    // Nodes come before those below them, and these come together.
    let is_below = |node: &usize| samples[*node].place.parent.is_some_and(|parent| parent >= i);
    let below = (i + 1..samples.len()).take_while(is_below);
    let mut inputs = below
        .filter(|below| samples[*below].place.input_of() == Some(i))
        .peekable();
    match inputs.peek() {
        Some(_) => inputs.any(has_started),
        None => nodes.may_have_run(i),
    }
}

/// Hangs the inputs of nodes that were bypassed below the next node above that was not, whose time includes
/// theirs.
fn pass_over(bypassed: &[bool], samples: &[NodeSample], items: &mut [Item]) {
    // Parents come before their children.
    for i in 1..items.len() {
        let Some(parent) = items[i].parent.filter(|parent| bypassed[*parent]) else {
            continue;
        };
        let above = items[parent];
        items[i].parent = above.parent;
        items[i].processes = above.parent.map_or(1.0, |above| samples[above].processes);
        if items[i].edge == Edge::Sequential {
            items[i].edge = above.edge;
        }
    }
}

/// Returns what this process's wrapper measured, in nanoseconds.
fn own_estimate(
    sample: &NodeSample,
    core: Option<&CoreSample>,
    calls_below: u64,
    statement: &StatementSample,
) -> Estimate {
    let ticks = match &sample.calls {
        Calls::Untimed { .. } => return Estimate::default(),
        Calls::Sampled(timer) => timer.estimate(sample.own_starts(core), sample.interrupted),
        Calls::Every(every) => {
            // Each call below made two readings.
            let overhead = every.calls as f64 * statement.config.empty_interval
                + (2 * calls_below) as f64 * statement.config.reading;
            let total = (every.ticks as f64 - overhead).max(0.0) + sample.interrupted.unwrap_or(0) as f64;
            Estimate {
                total,
                startup: (every.startup_ticks as f64).min(total),
                error: 0.0,
            }
        }
    };
    Estimate {
        total: ticks.total * statement.tick_ns,
        startup: ticks.startup * statement.tick_ns,
        error: ticks.error * statement.tick_ns,
    }
}
