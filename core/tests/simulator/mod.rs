//! A simulated backend: plans whose nodes take known times and touch known blocks. Each call goes through the
//! wrapper that the extension runs, [`rowsource_core::wrapper`], built on this backend instead of
//! PostgreSQL's executor.
//!
//! Time is in simulated nanoseconds. A node's own work, stalls, clock readings and the bookkeeping after a
//! reading take time; the last two are not part of a node's true time. The heart that makes beats runs on
//! another processor.

mod executor;
pub mod plans;
pub mod shapes;

use executor::Counters;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::beat::{Beats, Pulse, Session, Wish};
use rowsource_core::sampler::{BOOKKEEPING_NS, Config, Estimate, EveryCall, LongCallEvidence, NodeTimer};
use rowsource_core::wrapper::{self, Accounting, Scope, Timed};

/// The body of a node, run at each call: it takes time with [`Run::work`] and calls children with
/// [`Run::call`].
pub type Body = Box<dyn Fn(&mut Run, usize)>;

/// A compiled wrapper. Returns whether the node returned a row.
type Method = for<'a> fn(&mut Run<'a>, usize) -> bool;

/// The machine and the settings.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub sampfreq: u32,
    pub reading_ns: f64,
    pub bookkeeping_ns: f64,
    /// The clock advances in steps of this many nanoseconds.
    pub step_ns: f64,
    pub ticks_per_ns: f64,
    pub has_heart: bool,
    /// By how many nanoseconds the heart is late at most.
    pub late_ns: f64,
    /// The heart runs and is stopped in turn, for at most this many nanoseconds each; 0 if it always runs.
    pub stopped_ns: f64,
    /// The heart is also awake at a random moment of each this many nanoseconds, for a sample.
    pub sample_ns: f64,
    /// The mean nanoseconds between stalls, and their minimum and maximum length.
    pub stalls: Option<(f64, f64, f64)>,
    /// The probability that the clock steps back at a reading, and the maximum step.
    pub steps_back: Option<(f64, f64)>,
}

impl Machine {
    /// Returns what the server would have measured of its clock.
    fn config(&self) -> Config {
        Config::new(
            self.sampfreq,
            1.0 / self.ticks_per_ns,
            self.reading_ns * self.ticks_per_ns,
            self.reading_ns,
            BOOKKEEPING_NS,
            self.step_ns.max(1.0),
        )
    }
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            sampfreq: 128,
            reading_ns: 8.7,
            bookkeeping_ns: 40.0,
            step_ns: 0.0,
            ticks_per_ns: 2.4,
            has_heart: true,
            late_ns: 100_000.0,
            stopped_ns: 0.0,
            sample_ns: 10e6,
            stalls: None,
            steps_back: None,
        }
    }
}

/// The wrapper's state of one node, and the true values that only the simulation knows.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub timer: NodeTimer,
    pub every: EveryCall,
    /// The calls that the wrapper counted in the histogram, and how many of them read blocks.
    pub histogram: [u64; 2],
    pub rows: u64,
    /// Whether the last call that the wrapper kept returned a row.
    pub is_last_row: bool,
    /// The blocks that the wrapper charged to the node.
    pub used: Counters,
    last_charged_at_entry: Counters,
    /// The account of its caller.
    caller: usize,
    fused_scan: usize,
    method: Method,
    before: u64,
    /// The wrapper's mark that the start has begun; the simulation's own is `running`.
    begun: bool,
    /// Counted as in core: at the rescan after a start that the wrapper marked.
    pub starts: u64,

    /// The node that called it.
    pub parent: Option<usize>,
    pub running: bool,
    pub calls: u64,
    pub true_rows: u64,
    pub true_starts: u64,
    /// Calls in which blocks were read.
    pub true_reading_calls: u64,
    /// The blocks that the node used, including those of the subplans that it called.
    pub true_used: Counters,
    pub true_ns: f64,
    pub true_startup_ns: f64,
    /// The time of calls that took more than 10 us.
    pub true_long_ns: f64,
    /// The time that its timer took.
    pub spent_ns: f64,
    /// Sampling at fixed intervals, as in Oracle: the first call, and each `sampfreq`th times `sampfreq`.
    pub fixed_ns: f64,
}

/// Returns the wish of a session that wishes for beats.
fn wish() -> Wish {
    let words = Beats::new();
    words.wish();
    words.wished()
}

/// One statement being run.
pub struct Run<'a> {
    pub random: Xoroshiro128PlusPlus,
    gaps: Xoroshiro128PlusPlus,
    machine: Machine,
    config: Config,
    bodies: &'a [Body],
    pub nodes: Vec<Node>,
    /// The node that really runs now.
    runs: Option<usize>,
    now: f64,
    overhead: f64,
    back: f64,
    /// The last readings of the clock, as in a process with the extension.
    last: u64,
    ticked: u64,
    /// The last reading before the clock was read inside a call, if that is not noticed yet.
    before_mark: Option<u64>,
    pub readings: u64,
    evidence: LongCallEvidence,
    /// PostgreSQL's counters, now and at the last charge.
    counters: Counters,
    last_charged: Counters,
    /// The running account: that of a node, or an additional one for everything outside of nodes.
    pub running_account: usize,
    /// The blocks charged outside of all nodes.
    pub outside: Counters,
    /// Whether the call that ends now returns a row.
    is_row: bool,
    has_wish: bool,
    wish: Wish,
    pulse: Pulse,
    next_look: f64,
    /// When the heart is stopped next.
    next_stop: f64,
    /// The moment of the next sample, and when its period begins.
    next_sample: f64,
    sample_period: f64,
    /// The beats that are not taken, and the time that the last one stands for.
    beats: u64,
    gap_ns: f64,
    next_stall: f64,
}

impl<'a> Run<'a> {
    pub fn new(machine: Machine, bodies: &'a [Body], seed: u64) -> Self {
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(seed);
        let gaps = Xoroshiro128PlusPlus::seed_from_u64(random.random());
        let mut timer = NodeTimer::default();
        timer.start();
        let outside = bodies.len();
        let node = Node {
            timer,
            every: EveryCall::default(),
            histogram: [0; 2],
            rows: 0,
            is_last_row: false,
            used: Counters::default(),
            last_charged_at_entry: Counters::default(),
            caller: outside,
            fused_scan: usize::MAX,
            method: wrapper::method::<Run<'static>>(
                Timed::Sampled,
                Accounting::Switch,
                Scope::All,
                Scope::All,
                false,
            ),
            before: 0,
            begun: false,
            starts: 0,
            parent: None,
            running: false,
            calls: 0,
            true_rows: 0,
            true_starts: 0,
            true_reading_calls: 0,
            true_used: Counters::default(),
            true_ns: 0.0,
            true_startup_ns: 0.0,
            true_long_ns: 0.0,
            spent_ns: 0.0,
            fixed_ns: 0.0,
        };
        let now = 1e9 + random.random::<f64>() * 1e7;
        let mut run = Run {
            random,
            gaps,
            machine,
            config: machine.config(),
            bodies,
            nodes: vec![node; bodies.len()],
            runs: None,
            now,
            overhead: 0.0,
            back: 0.0,
            last: 0,
            ticked: 0,
            before_mark: None,
            readings: 0,
            evidence: LongCallEvidence::NONE,
            counters: Counters::default(),
            last_charged: Counters::default(),
            running_account: outside,
            outside: Counters::default(),
            is_row: true,
            has_wish: false,
            wish: wish(),
            pulse: Pulse::default(),
            next_look: f64::INFINITY,
            next_stop: f64::INFINITY,
            next_sample: now,
            sample_period: now,
            beats: 0,
            gap_ns: 0.0,
            next_stall: f64::INFINITY,
        };
        run.plan_stall();
        if machine.stopped_ns > 0.0 {
            run.next_stop = now + (run.random.random::<f64>() - 0.5) * machine.stopped_ns;
        }
        run.read();
        run
    }

    /// Chooses the wrapper of a node as a statement's set-up does.
    pub fn wrap(&mut self, i: usize, timed: Timed, accounting: Accounting, is_read_only: bool) {
        let scope = if is_read_only { Scope::Reads } else { Scope::All };
        self.wrap_with(i, timed, accounting, [scope; 2], false);
    }

    /// Chooses the wrapper of a node, whose caller can move the counters of the first scope, and which can
    /// itself move those of the second.
    pub fn wrap_with(
        &mut self,
        i: usize,
        timed: Timed,
        accounting: Accounting,
        [before, after]: [Scope; 2],
        is_drained: bool,
    ) {
        self.nodes[i].method = wrapper::method::<Run<'static>>(timed, accounting, before, after, is_drained);
        if accounting == Accounting::FusedAggregate {
            self.nodes[i].fused_scan = i + 1;
        }
    }

    /// Links each node to its parent, whose account is that of its caller. Needed only if the test checks
    /// blocks.
    pub fn link_accounts(&mut self, parents: &[Option<usize>]) {
        let outside = self.nodes.len();
        for (node, parent) in self.nodes.iter_mut().zip(parents) {
            node.caller = parent.unwrap_or(outside);
        }
    }

    fn plan_stall(&mut self) {
        if let Some((mean, _, _)) = self.machine.stalls {
            self.next_stall = self.now + self.exponential(mean);
        }
    }

    /// Returns an exponentially distributed number.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.random::<f64>()).ln()
    }

    /// Returns the clock's value at a moment.
    fn clock(&self, at: f64) -> u64 {
        let mut ns = at - self.back;
        if self.machine.step_ns > 0.0 {
            ns = (ns / self.machine.step_ns).floor() * self.machine.step_ns;
        }
        (ns.max(0.0) * self.machine.ticks_per_ns) as u64
    }

    /// Reads the clock without recording the reading.
    fn read_unrecorded(&mut self) -> u64 {
        if let Some((chance, most)) = self.machine.steps_back
            && self.random.random::<f64>() < chance
        {
            self.back += self.random.random::<f64>() * most;
        }
        self.overhead(self.machine.reading_ns / 2.0);
        let value = self.clock(self.now);
        self.overhead(self.machine.reading_ns / 2.0);
        value
    }

    fn read(&mut self) -> u64 {
        let value = self.read_unrecorded();
        self.last = value;
        value
    }

    fn overhead(&mut self, ns: f64) {
        self.overhead += ns;
        self.pass(ns);
    }

    fn pass(&mut self, ns: f64) {
        self.now += ns;
        if self.now >= self.next_stall {
            let (_, least, most) = self.machine.stalls.unwrap();
            self.now += least + self.random.random::<f64>() * (most - least);
            self.plan_stall();
        }
        while self.now >= self.next_look {
            if self.next_look >= self.next_stop {
                let [stopped, runs] = [(); 2].map(|()| self.random.random::<f64>() * self.machine.stopped_ns);
                self.next_look = self.next_look.max(self.next_stop + stopped);
                self.next_stop += stopped + runs;
                continue;
            }
            let at = (self.next_look / 1000.0) as i64;
            let random = self.random.random();
            let session = Session {
                wish: self.wish,
                has_taken: self.beats == 0,
            };
            if let Some(gap_ns) = self.pulse.look(session, at, 1, random) {
                self.beats += 1;
                self.gap_ns = gap_ns as f64;
            }
            let late_ns = self.random.random::<f64>() * self.machine.late_ns;
            let due = self.pulse.due_at().expect("it wishes") as f64 * 1000.0 + late_ns;
            while self.next_sample <= self.next_look {
                self.sample_period += self.machine.sample_ns;
                self.next_sample = self.sample_period + self.random.random::<f64>() * self.machine.sample_ns;
            }
            self.next_look = due.min(self.next_sample);
        }
    }

    /// Does own work of the running node.
    pub fn work(&mut self, ns: f64) {
        self.pass(ns);
    }

    /// Does own work whose length varies by `spread` in both directions.
    pub fn about(&mut self, ns: f64, spread: f64) {
        let factor = 1.0 + spread * (2.0 * self.random.random::<f64>() - 1.0);
        self.pass(ns * factor);
    }

    /// Makes the running node use blocks that are in memory.
    pub fn hit_blocks(&mut self, blocks: i64) {
        self.use_blocks(Counters {
            hits: blocks,
            ..Counters::default()
        });
    }

    /// Makes the running node read a block.
    pub fn read_block(&mut self, ns: f64) {
        self.use_blocks(Counters {
            reads: 1,
            ..Counters::default()
        });
        self.pass(ns);
    }

    /// Makes the running node use a block of a temporary table.
    pub fn hit_local_block(&mut self) {
        self.use_blocks(Counters {
            local_hits: 1,
            ..Counters::default()
        });
    }

    fn use_blocks(&mut self, used: Counters) {
        self.counters += used;
        if let Some(i) = self.runs {
            self.nodes[i].true_used += used;
        }
    }

    /// Makes the current call return no row, which ends the start.
    pub fn end(&mut self) {
        self.is_row = false;
    }

    /// Rescans a node: its next call begins a new start.
    pub fn rescan(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        if std::mem::take(&mut node.begun) {
            node.starts += 1;
        }
        if std::mem::take(&mut node.running) {
            node.true_starts += 1;
        }
    }

    /// Calls a node through its wrapper. Returns whether it returned a row.
    pub fn call(&mut self, i: usize) -> bool {
        let entered = self.now - self.overhead;
        let first_of_start = !self.nodes[i].running;
        self.nodes[i].calls += 1;
        let reads = self.counters.reads;
        let is_row = (self.nodes[i].method)(self, i);
        let took = self.now - self.overhead - entered;
        let sampfreq = u64::from(self.machine.sampfreq);
        let did_read = self.counters.reads > reads;
        let node = &mut self.nodes[i];
        node.running = true;
        node.true_reading_calls += u64::from(did_read);
        node.true_rows += u64::from(is_row);
        node.true_ns += took;
        if took > 10_000.0 {
            node.true_long_ns += took;
        }
        if first_of_start {
            node.true_startup_ns += took;
        }
        if node.calls == 1 {
            node.fixed_ns += took;
        } else if node.calls.is_multiple_of(sampfreq) {
            node.fixed_ns += took * sampfreq as f64;
        }
        is_row
    }

    /// Calls the root of a subplan for the running node. The subplan's blocks also belong to that node.
    pub fn call_subplan(&mut self, i: usize) -> bool {
        let before = self.counters;
        let is_row = self.call(i);
        let used = self.counters - before;
        if let Some(asked) = self.runs {
            self.nodes[asked].true_used += used;
        }
        is_row
    }

    /// Ends the statement: counts the last starts, and charges the remaining blocks.
    pub fn end_statement(&mut self) {
        for i in 0..self.nodes.len() {
            self.rescan(i);
        }
        executor::charge_rest(self);
    }

    /// Returns a node's estimate, in nanoseconds.
    pub fn estimate(&self, i: usize) -> Estimate {
        let node = &self.nodes[i];
        // A start that has not ended also counts.
        let starts = node.starts + u64::from(node.begun);
        let ticks = node.timer.estimate(starts as f64, None);
        let ns = 1.0 / self.machine.ticks_per_ns;
        Estimate {
            total: ticks.total * ns,
            startup: ticks.startup * ns,
            error: ticks.error * ns,
        }
    }
}

/// Returns a body that does the same at each call.
pub fn body(f: impl Fn(&mut Run, usize) + 'static) -> Body {
    Box::new(f)
}

/// The accuracy of one node's estimates over all seeds.
#[derive(Clone, Debug)]
pub struct Accuracy {
    /// Mean true time.
    pub true_ns: f64,
    /// Median of |estimate/true - 1|.
    pub median: f64,
    /// 95th percentile of |estimate/true - 1|.
    pub p95: f64,
    /// Mean of estimate/true - 1.
    pub bias: f64,
    /// One standard error of `bias`.
    pub bias_error: f64,
    /// The same as `median`, but for sampling at fixed intervals.
    pub fixed: f64,
    /// Share of the runs whose true time lies within two standard errors, plus 1 % for the time of the timer
    /// itself.
    pub covered: f64,
    /// Median of |estimate/true - 1| of the startup time.
    pub startup: f64,
    /// Mean ratio of the timer's time to the node's true time.
    pub cost: f64,
    /// Mean share of calls that were timed.
    pub timed: f64,
    /// Backward steps of the clock that the node's timer saw, over all runs.
    pub backsteps: u64,
}

fn percentile(sorted: &[f64], p: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * p).round() as usize]
}

/// Runs a plan for each seed: calls its root, node 0, `calls` times.
pub fn simulate(name: &str, machine: Machine, bodies: &[Body], calls: u64, seeds: u64) -> Vec<Accuracy> {
    let mut runs = Vec::new();
    for seed in 0..seeds {
        let mut run = Run::new(machine, bodies, 1 + seed);
        for _ in 0..calls {
            run.call(0);
        }
        let nodes: Vec<(Node, Estimate)> = (0..bodies.len())
            .map(|i| (run.nodes[i], run.estimate(i)))
            .collect();
        for (node, estimate) in &nodes {
            assert_eq!(node.timer.calls(), node.calls, "{name}");
            assert!(estimate.total >= 0.0 && estimate.total.is_finite(), "{name}");
            assert!(
                estimate.startup >= 0.0 && estimate.startup <= estimate.total,
                "{name}"
            );
            assert!(estimate.error >= 0.0 && estimate.error.is_finite(), "{name}");
        }
        runs.push(nodes);
    }
    (0..bodies.len())
        .map(|i| {
            let sorted = |f: &dyn Fn(&(Node, Estimate)) -> f64| {
                let mut all: Vec<f64> = runs.iter().map(|nodes| f(&nodes[i])).collect();
                all.sort_by(f64::total_cmp);
                all
            };
            let mean = |f: &dyn Fn(&(Node, Estimate)) -> f64| {
                runs.iter().map(|nodes| f(&nodes[i])).sum::<f64>() / seeds as f64
            };
            let off = sorted(&|(n, e)| (e.total / n.true_ns - 1.0).abs());
            let bias = mean(&|(n, e)| e.total / n.true_ns - 1.0);
            let variance = mean(&|(n, e)| (e.total / n.true_ns - 1.0 - bias).powi(2));
            let accuracy = Accuracy {
                true_ns: mean(&|(n, _)| n.true_ns),
                median: percentile(&off, 0.5),
                p95: percentile(&off, 0.95),
                bias,
                bias_error: (variance / (seeds - 1) as f64).sqrt(),
                fixed: percentile(&sorted(&|(n, _)| (n.fixed_ns / n.true_ns - 1.0).abs()), 0.5),
                covered: mean(&|(n, e)| {
                    let off = (e.total - n.true_ns).abs();
                    f64::from(e.error == 0.0 || off <= 2.0 * e.error + 0.01 * n.true_ns)
                }),
                startup: percentile(
                    &sorted(&|(n, e)| (e.startup / n.true_startup_ns - 1.0).abs()),
                    0.5,
                ),
                cost: mean(&|(n, _)| n.spent_ns / n.true_ns),
                backsteps: runs.iter().map(|nodes| nodes[i].0.timer.clock_backsteps).sum(),
                timed: mean(&|(n, _)| n.timer.timed_calls as f64 / n.calls as f64),
            };
            println!(
                "{name:<40} {i:>2} calls {:>9} true {:>10.3} ms  median {:>6.2}%  p95 {:>7.2}%  bias {:>7.2}%  fixed {:>8.1}%  covered {:>4.0}%  startup {:>6.1}%  cost {:>5.2}%  timed {:>6.2}%",
                runs[0][i].0.calls,
                runs[0][i].0.true_ns / 1e6,
                100.0 * accuracy.median,
                100.0 * accuracy.p95,
                100.0 * accuracy.bias,
                100.0 * accuracy.fixed,
                100.0 * accuracy.covered,
                100.0 * accuracy.startup,
                100.0 * accuracy.cost,
                100.0 * accuracy.timed,
            );
            accuracy
        })
        .collect()
}
