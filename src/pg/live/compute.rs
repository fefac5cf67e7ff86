//! Computes the statistics of a copy of a statement, as the session itself would if an error ended the
//! statement now.

use super::read::Running;
use crate::pg::compat;
use crate::pg::hot::node::Node;
use crate::pg::hot::wrapper::Timed;
use rowsource_core::model::{Buffers, Called, NodeFacts, NodeStats, Wal};
use rowsource_core::results::{
    self, Caller, Calls, CoreSample, EarlierCaller, Mode, NodeSample, Nodes, Place, Scratch, StatementSample,
};

/// The statistics of a statement that runs.
pub struct Computed {
    /// The statistics of the nodes that EXPLAIN shows.
    pub stats: Vec<NodeStats>,
    /// The plan node ids of these nodes.
    pub plan_node_ids: Vec<i32>,
    /// The rows that the nodes' conditions have removed.
    pub removed: Vec<u64>,
    /// The node that runs, if it is known and one does.
    pub running: Option<usize>,
    /// The nanoseconds that its call in progress has lasted, if that is known.
    pub running_ns: Option<f64>,
}

/// The nodes of the copy.
struct Copied<'a> {
    running: &'a Running,
    /// What the nodes used that is not charged to them yet.
    uncharged: Vec<(Buffers, Wal)>,
    counters: Option<(Buffers, Wal)>,
}

impl Running {
    /// Computes the statistics. Returns `None` if there is no memory.
    pub fn compute(mut self) -> Option<(Computed, Running)> {
        let (mut scratch, running) = self.assemble()?;
        scratch.remove_hidden_root();
        let setup = &self.setup;
        let hidden = usize::from(self.nodes.first().is_some_and(|root| root.hidden));
        let shown = || self.nodes.iter().skip(hidden);
        for (node, stats) in shown().zip(&mut scratch.stats) {
            stats.wait_ms = node.waited_ns as f64 / 1e6;
        }
        let computed = Computed {
            stats: scratch.stats,
            plan_node_ids: shown().map(|node| node.plan_node_id).collect(),
            removed: shown()
                .map(|node| (node.instr.nfiltered1 + node.instr.nfiltered2) as u64)
                .collect(),
            running_ns: running
                .filter(|_| setup.timed != Timed::Never as u8)
                .and_then(|node| {
                    let by_wrapper = self.nodes[node].interrupted;
                    by_wrapper.map_or_else(
                        || {
                            let mut instr = self.nodes[node].instr;
                            compat::core_interrupted_ns(&mut instr)
                        },
                        |ticks| Some(ticks as f64 * setup.tick_ns),
                    )
                }),
            running: running.and_then(|node| node.checked_sub(hidden)),
        };
        Some((computed, self))
    }

    /// Assembles the statistics of the nodes, and returns the one that runs, if one does.
    pub(super) fn assemble(&mut self) -> Option<(Scratch, Option<usize>)> {
        let count = self.nodes.len();
        let mut uncharged = vec![(Buffers::default(), Wal::default()); count];
        let hot = self.hot.filter(|_| self.state.is_running);
        let since = |now: (Buffers, Wal), before: (Buffers, Wal)| {
            let (mut buffers, mut wal) = now;
            buffers -= before.0;
            wal -= before.1;
            (buffers, wal)
        };
        let mut running = None;
        if let Some(hot) = hot {
            let counters = hot.counters.unwrap_or(hot.charged);
            let mut account = hot.account;
            running = self.running(account).map(|i| self.called_by_core(i));
            if let Some(i) = self.of_account(account) {
                uncharged[i] = since(counters, hot.charged);
            }
            while let Some(i) = self.of_account(account) {
                if self.nodes[i].interrupted.is_some() {
                    break;
                }
                account = self.nodes[i].caller.usage().addr();
                // Core knows when such a call began.
                if self.is_unwrapped(i) {
                    continue;
                }
                let before = if self.nodes[i].notes_no_reading {
                    hot.before
                } else {
                    self.nodes[i].before
                };
                self.nodes[i].interrupted = Some(self.now.saturating_sub(before));
                // What a subplan uses is also charged to the node that called it, when the call ends.
                if self.nodes[i].by_expression
                    && let Some(caller) = self.of_account(account)
                {
                    let mut instr = self.nodes[i].instr;
                    let entry = compat::common_instrumentation(&mut instr);
                    let entry = (
                        compat::buffers(&entry.bufusage_start),
                        compat::wal(&entry.walusage_start),
                    );
                    let (buffers, wal) = since(counters, entry);
                    uncharged[caller].0 += buffers;
                    uncharged[caller].1 += wal;
                }
            }
        }
        let copied = Copied {
            running: self,
            uncharged,
            counters: hot.and_then(|hot| hot.counters),
        };
        let setup = &self.setup;
        let sample = StatementSample {
            mode: Mode::AlsoForCore,
            has_usage: setup.has_usage != 0,
            is_timed: setup.timed != Timed::Never as u8,
            core_contributes: setup.core_contributes != 0,
            tick_ns: setup.tick_ns,
            config: &setup.config,
            elapsed_ns: self.elapsed_ns(),
        };
        let mut scratch = Scratch::default();
        results::assemble(&copied, &sample, &mut scratch)?;
        scratch.raise_above_inputs()?;
        Some((scratch, running))
    }

    /// Returns the node whose account is the running one. A node without its wrapper leaves its account
    /// behind when its call ends: then its caller runs, which may be such a node too.
    fn running(&self, account: usize) -> Option<usize> {
        let mut i = self.of_account(account)?;
        // There are at most as many callers as nodes.
        for _ in 0..self.nodes.len() {
            if !self.is_unwrapped(i) || compat::is_timing(&self.nodes[i].instr) {
                return Some(i);
            }
            i = self.of_account(self.nodes[i].caller.usage().addr())?;
        }
        None
    }

    /// Returns whether core has replaced a node's wrapper and measures the node itself, as in a Parallel Hash
    /// Join during the Gather's first call. `Statement::note_unwrapped` restores the wrapper afterwards.
    fn is_unwrapped(&self, i: usize) -> bool {
        let node = &self.nodes[i];
        let may_be = node.under_gather && !node.by_core && node.method.is_some() && node.before == 0;
        may_be && compat::is_called_by_core(&mut { node.instr })
    }

    /// Returns the node that core calls now on behalf of a node, or else that node.
    fn called_by_core(&self, node: usize) -> usize {
        let mut below = self.nodes[node].last_by_core as usize;
        // The list is at most as long as there are nodes.
        for _ in 0..self.nodes.len() {
            let Some(called) = self.nodes.get(below).filter(|_| below != 0) else {
                break;
            };
            if compat::is_timing(&called.instr) {
                return below;
            }
            below = called.previous_by_core as usize;
        }
        node
    }
}

impl Copied<'_> {
    fn node(&self, i: usize) -> &Node {
        &self.running.nodes[i]
    }

    /// Returns what the wrapper counted of a node's calls.
    fn calls(&self, node: &Node) -> Calls {
        match self.running.setup.timed {
            timed if timed == Timed::Never as u8 => Calls::Untimed {
                calls: node.every_call.calls,
            },
            timed if timed == Timed::Sampled as u8 => Calls::Sampled(node.timer),
            _ => Calls::Every(node.every_call),
        }
    }
}

impl Nodes for Copied<'_> {
    fn count(&self) -> usize {
        self.running.nodes.len()
    }

    fn place(&self, i: usize) -> Place {
        let node = self.node(i);
        Place {
            // A parent comes before its children.
            parent: usize::try_from(node.parent).ok().filter(|parent| *parent < i),
            edge: node.edge,
            by_expression: node.by_expression,
            hidden: node.hidden && i == 0,
        }
    }

    fn sample(&self, i: usize) -> NodeSample {
        let node = self.node(i);
        let in_progress = if node.instr.running {
            node.instr.tuplecount
        } else {
            0.0
        };
        let (mut buffers, mut wal) = (compat::buffers(&node.usage.buffers), compat::wal(&node.usage.wal));
        buffers += compat::buffers(&node.called.buffers);
        wal += compat::wal(&node.called.wal);
        buffers += self.uncharged[i].0;
        wal += self.uncharged[i].1;
        NodeSample {
            place: self.place(i),
            is_instrumented: node.method.is_some(),
            by_core: node.by_core || self.running.is_unwrapped(i),
            processes: 1.0,
            loops: node.instr.nloops,
            is_running: node.instr.running,
            rows: node.rows,
            core_rows: node.instr.ntuples + in_progress,
            counts_calls: node.counts_calls,
            // It cannot be seen from here.
            is_last_row: false,
            interrupted: node.interrupted,
            calls: self.calls(node),
            used: node.usage.used,
            buffers,
            wal,
            waited_ns: node.waited_ns,
            estimate: node.estimate,
        }
    }

    /// No view shows the blocks that a node of a running statement used itself.
    fn called(&self, _: usize) -> Called {
        Called::default()
    }

    fn last_caller(&self, i: usize) -> Caller {
        let node = self.node(i);
        if node.caller.usage().is_null() {
            return Caller::Unknown;
        }
        let ran_in = self.running.of_account(node.ran_in.addr());
        ran_in.map_or(Caller::Outside, Caller::Node)
    }

    fn earlier_callers(&self) -> impl Iterator<Item = EarlierCaller> {
        let of_node = |(caller, node): (usize, &Node)| {
            let earlier = node.called.earlier.into_iter();
            let earlier = earlier.filter(|earlier| (1..self.count()).contains(&earlier.subplan));
            earlier.map(move |earlier| EarlierCaller {
                subplan: earlier.subplan,
                caller,
                ticks: earlier.ticks,
            })
        };
        self.running.nodes.iter().enumerate().flat_map(of_node)
    }

    fn may_be_bypassed(&self, i: usize) -> bool {
        self.node(i).by_others
    }

    /// The state of a node of another process cannot be read, so it is shown as not started.
    fn may_have_run(&self, _: usize) -> bool {
        false
    }

    fn facts(&self, _: usize) -> NodeFacts {
        NodeFacts::default()
    }

    fn core(&self, i: usize) -> CoreSample {
        let node = self.node(i);
        let mut instr = node.instr;
        let interrupted_ns =
            compat::core_interrupted_ns(&mut instr).filter(|_| self.running.state.is_running);
        let base = compat::common_instrumentation(&mut instr);
        // Core adds to its counts when its call ends. If PostgreSQL's counters cannot be seen, nobody knows
        // what a call in progress has used.
        let is_known = interrupted_ns.is_none() || self.counters.is_some();
        let is_by_core = node.by_core || self.running.is_unwrapped(i);
        let counts = is_known || !is_by_core;
        let mut buffers = (counts && base.need_bufusage).then(|| compat::buffers(&base.bufusage));
        let mut wal = (counts && base.need_walusage).then(|| compat::wal(&base.walusage));
        if interrupted_ns.is_some()
            && let (Some((now, wal_now)), Some(buffers), Some(wal)) = (self.counters, &mut buffers, &mut wal)
        {
            *buffers += now;
            *buffers -= compat::buffers(&base.bufusage_start);
            *wal += wal_now;
            *wal -= compat::wal(&base.walusage_start);
        }
        CoreSample {
            is_interrupted: interrupted_ns.is_some(),
            total_ns: compat::core_total_ns(&mut instr) + interrupted_ns.unwrap_or(0.0),
            startup_ns: compat::core_startup_ns(&mut instr),
            buffers: buffers.into(),
            wal: wal.into(),
            ..CoreSample::default()
        }
    }
}
