//! A simulated backend: plans whose nodes take known times, driven through the sampler as the wrapper drives it.
//!
//! Time passes in simulated nanoseconds. Own work of a node, stalls, clock readings, the bookkeeping after a
//! reading and the tick's handler all let it pass; the last three are not part of a node's true time.

pub mod plans;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::sampler::{BOOKKEEPING_NS, Config, Estimate, NodeTimer, Proofs, TimedCall};

/// What a node does in one call: lets time pass with [`Run::work`] and calls children with [`Run::call`].
pub type Body = Box<dyn Fn(&mut Run, usize)>;

/// The machine and the settings.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub sampfreq: u32,
    pub reading_ns: f64,
    pub bookkeeping_ns: f64,
    /// The clock moves in steps of this many nanoseconds.
    pub step_ns: f64,
    pub ticks_per_ns: f64,
    pub tick: bool,
    pub handler_ns: f64,
    /// Mean nanoseconds between stalls, and their shortest and longest.
    pub stalls: Option<(f64, f64, f64)>,
    /// Chance that the clock steps back at a reading, and how far at most.
    pub steps_back: Option<(f64, f64)>,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            sampfreq: 128,
            reading_ns: 8.7,
            bookkeeping_ns: 40.0,
            step_ns: 0.0,
            ticks_per_ns: 2.4,
            tick: true,
            handler_ns: 4000.0,
            stalls: None,
            steps_back: None,
        }
    }
}

/// One node's timer, and what only the simulation knows of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Node {
    pub timer: NodeTimer,
    /// The node that called it.
    pub parent: Option<usize>,
    before: u64,
    pub running: bool,
    pub starts: u64,
    pub calls: u64,
    pub true_ns: f64,
    pub true_startup_ns: f64,
    /// The time that its timer took.
    pub spent_ns: f64,
    /// Sampling at fixed intervals, as in Oracle: the first call, and each `sampfreq`th times `sampfreq`.
    pub fixed_ns: f64,
}

/// One statement being run.
pub struct Run<'a> {
    pub random: Xoroshiro128PlusPlus,
    gaps: Xoroshiro128PlusPlus,
    machine: Machine,
    config: Config,
    bodies: &'a [Body],
    pub nodes: Vec<Node>,
    caller: Option<usize>,
    now: f64,
    overhead: f64,
    back: f64,
    proofs: Proofs,
    readings: u64,
    io: bool,
    ticks: u32,
    period: Option<usize>,
    next_tick: f64,
    next_stall: f64,
}

/// As in the extension's `tick`.
const PERIODS: [(u32, f64); 3] = [(20, 1e6), (500, 2e6), (u32::MAX, 4e6)];

impl<'a> Run<'a> {
    pub fn new(machine: Machine, bodies: &'a [Body], seed: u64) -> Self {
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(seed);
        let gaps = Xoroshiro128PlusPlus::seed_from_u64(random.random());
        let mut node = Node {
            starts: 1,
            ..Node::default()
        };
        node.timer.start();
        let now = 1e9 + random.random::<f64>() * 1e7;
        let mut run = Run {
            random,
            gaps,
            machine,
            config: Config::new(
                machine.sampfreq,
                1.0 / machine.ticks_per_ns,
                machine.reading_ns * machine.ticks_per_ns,
                machine.reading_ns,
                BOOKKEEPING_NS,
                machine.step_ns.max(1.0),
            ),
            bodies,
            nodes: vec![node; bodies.len()],
            caller: None,
            now,
            overhead: 0.0,
            back: 0.0,
            proofs: Proofs::default(),
            readings: 0,
            io: false,
            ticks: 0,
            period: None,
            next_tick: f64::INFINITY,
            next_stall: f64::INFINITY,
        };
        run.plan_stall();
        run.read();
        run
    }

    fn plan_stall(&mut self) {
        if let Some((mean, _, _)) = self.machine.stalls {
            self.next_stall = self.now + self.exponential(mean);
        }
    }

    /// An exponentially distributed number.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.random::<f64>()).ln()
    }

    /// The clock's value at a moment.
    fn clock(&self, at: f64) -> u64 {
        let mut ns = at - self.back;
        if self.machine.step_ns > 0.0 {
            ns = (ns / self.machine.step_ns).floor() * self.machine.step_ns;
        }
        (ns.max(0.0) * self.machine.ticks_per_ns) as u64
    }

    fn read(&mut self) -> u64 {
        if let Some((chance, most)) = self.machine.steps_back
            && self.random.random::<f64>() < chance
        {
            self.back += self.random.random::<f64>() * most;
        }
        self.overhead(self.machine.reading_ns / 2.0);
        let value = self.clock(self.now);
        self.overhead(self.machine.reading_ns / 2.0);
        self.proofs.last = value;
        self.readings += 1;
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
        while self.now >= self.next_tick
            && let Some(at) = self.period
        {
            // A late one is not made up for: the signal is pending once.
            let missed = ((self.now - self.next_tick) / PERIODS[at].1).floor();
            self.proofs.last = self.clock(self.next_tick + missed * PERIODS[at].1);
            self.proofs.ticked = self.proofs.last;
            self.next_tick += (missed + 1.0) * PERIODS[at].1;
            self.ticks += 1;
            self.now += self.machine.handler_ns;
            self.overhead += self.machine.handler_ns;
        }
    }

    fn tick_wanted(&mut self) {
        if !self.machine.tick {
            return;
        }
        let next = match self.period {
            None => {
                self.ticks = 0;
                0
            }
            Some(at) if self.ticks >= PERIODS[at].0 => at + 1,
            Some(_) => return,
        };
        self.next_tick = self.now + PERIODS[next].1;
        self.period = Some(next);
        self.proofs.period = PERIODS[next].1 * self.machine.ticks_per_ns;
    }

    /// Own work of the node that runs.
    pub fn work(&mut self, ns: f64) {
        self.pass(ns);
    }

    /// Own work whose length varies by `spread` either way.
    pub fn about(&mut self, ns: f64, spread: f64) {
        let factor = 1.0 + spread * (2.0 * self.random.random::<f64>() - 1.0);
        self.pass(ns * factor);
    }

    /// A read by the node that runs.
    pub fn read_block(&mut self, ns: f64) {
        self.io = true;
        self.pass(ns);
    }

    /// The node begins anew at its next call.
    pub fn rescan(&mut self, i: usize) {
        if self.nodes[i].running {
            self.nodes[i].running = false;
            self.nodes[i].starts += 1;
        }
    }

    /// Calls a node through its wrapper.
    pub fn call(&mut self, i: usize) {
        // What the caller read so far is booked to it.
        self.io = false;
        let entered = self.now - self.overhead;
        let first_of_start = !self.nodes[i].running;
        self.nodes[i].calls += 1;
        self.nodes[i].timer.countdown -= 1;
        if self.nodes[i].timer.countdown == 0 {
            self.call_sampled(i, first_of_start);
        } else {
            let before = self.proofs.last;
            self.nodes[i].before = before;
            self.real(i);
            if self.io || self.proofs.last != before {
                self.leave_moved(i, before, first_of_start);
            }
        }
        self.io = false;
        let took = self.now - self.overhead - entered;
        let sampfreq = u64::from(self.machine.sampfreq);
        let node = &mut self.nodes[i];
        node.running = true;
        node.true_ns += took;
        if first_of_start {
            node.true_startup_ns += took;
        }
        if node.calls == 1 {
            node.fixed_ns += took;
        } else if node.calls.is_multiple_of(sampfreq) {
            node.fixed_ns += took * sampfreq as f64;
        }
    }

    fn real(&mut self, i: usize) {
        let bodies = self.bodies;
        let caller = self.caller.replace(i);
        self.nodes[i].parent = caller;
        bodies[i](self, i);
        self.caller = caller;
    }

    fn leave_moved(&mut self, i: usize, before: u64, first_of_start: bool) {
        let node = &self.nodes[i];
        let (mut timer, config, mut proofs) = (node.timer, self.config, self.proofs);
        let timed = timer.timed_calls;
        timer.record_untimed(&config, before, self.io, first_of_start, &mut proofs, || {
            self.read()
        });
        self.proofs.noticed = proofs.noticed;
        self.nodes[i].timer = timer;
        if timer.timed_calls > timed {
            self.nodes[i].spent_ns += self.machine.reading_ns + self.machine.bookkeeping_ns / 4.0;
            self.overhead(self.machine.bookkeeping_ns / 4.0);
        }
    }

    fn call_sampled(&mut self, i: usize, first_of_start: bool) {
        let before = self.proofs.last;
        let start = self.read();
        self.nodes[i].before = start;
        let readings = self.readings;
        self.real(i);
        let inside = self.proofs;
        let nested_readings = self.readings - readings;
        let end = self.read();
        let timed = TimedCall {
            before,
            start,
            end,
            nested_readings,
            did_io: self.io,
            first_of_start,
        };
        self.nodes[i].spent_ns += 2.0 * self.machine.reading_ns + self.machine.bookkeeping_ns;
        self.overhead(self.machine.bookkeeping_ns);
        let mut proofs = inside;
        let wanted = self.nodes[i]
            .timer
            .record_timed(&self.config, &mut self.gaps, &timed, &mut proofs);
        self.proofs.noticed = proofs.noticed;
        if wanted {
            self.tick_wanted();
        }
    }

    /// A node's estimate, in nanoseconds.
    pub fn estimate(&self, i: usize) -> Estimate {
        let node = &self.nodes[i];
        let ticks = node.timer.estimate(node.starts as f64, None);
        let ns = 1.0 / self.machine.ticks_per_ns;
        Estimate {
            total: ticks.total * ns,
            startup: ticks.startup * ns,
            error: ticks.error * ns,
        }
    }
}

/// A body that does the same at each call.
pub fn body(f: impl Fn(&mut Run, usize) + 'static) -> Body {
    Box::new(f)
}

/// How one node fared over all seeds.
#[derive(Clone, Debug)]
pub struct Fared {
    /// Mean true time.
    pub true_ns: f64,
    /// Median of |estimate/true - 1|.
    pub median: f64,
    /// 95th percentile of it.
    pub p95: f64,
    /// Mean of estimate/true - 1.
    pub bias: f64,
    /// The same as `median`, for sampling at fixed intervals.
    pub fixed: f64,
    /// Share of the runs whose true time lies within two standard errors, and 1 % for what the timer itself took.
    pub covered: f64,
    /// Median of |estimate/true - 1| of the startup time.
    pub startup: f64,
    /// The timer's share of the node's true time, on the mean.
    pub cost: f64,
    /// Mean share of calls that were timed.
    pub timed: f64,
    /// Steps back that its timer saw, over all runs.
    pub backsteps: u64,
}

fn percentile(sorted: &[f64], p: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * p).round() as usize]
}

/// Runs a plan whose root is node 0 and is called until it has been called `calls` times, for each seed.
pub fn simulate(name: &str, machine: Machine, bodies: &[Body], calls: u64, seeds: u64) -> Vec<Fared> {
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
            let fared = Fared {
                true_ns: mean(&|(n, _)| n.true_ns),
                median: percentile(&off, 0.5),
                p95: percentile(&off, 0.95),
                bias: mean(&|(n, e)| e.total / n.true_ns - 1.0),
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
                100.0 * fared.median,
                100.0 * fared.p95,
                100.0 * fared.bias,
                100.0 * fared.fixed,
                100.0 * fared.covered,
                100.0 * fared.startup,
                100.0 * fared.cost,
                100.0 * fared.timed,
            );
            fared
        })
        .collect()
}
