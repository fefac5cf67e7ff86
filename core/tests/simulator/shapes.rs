//! Shapes of plans whose true times are known, and how honest the stated errors of their nodes are.

use super::plans::{self, aggregate, pass};
use super::{Body, Machine, Run, body};
use rand::Rng;
use rowsource_core::beat::beats_in;
use std::ops::Range;

/// With at least this number of beats in its long calls, a node's error is promised to hold. With fewer,
/// neither a beat nor a sample may come in any long call.
const BEATS: f64 = 20.0;

/// A node has no long calls if they take less than this part of its time.
const FEW: f64 = 0.01;

/// What is left of a time when nothing is wrong: the cost of the clock is only known so well.
pub const KNOWN: f64 = 0.01;

/// A plan, and the node whose estimates are judged.
pub struct Shape {
    pub name: String,
    machine: Machine,
    plan: Vec<Body>,
    node: usize,
}

/// What came of all runs of a shape. Times are relative to the true ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Honesty {
    true_ms: f64,
    /// The time of calls of more than 10 us, and of the statement.
    long_ms: f64,
    all_ms: f64,
    /// The shares of runs whose truth lies within one, two and three errors.
    pub within: [f64; 3],
    pub stated: f64,
    pub actual: f64,
    pub bias: f64,
}

impl Honesty {
    pub fn of(shape: &Shape, seeds: Range<u64>) -> Honesty {
        let mut all = Honesty::default();
        let n = (seeds.end - seeds.start) as f64;
        for seed in seeds {
            let mut run = Run::new(shape.machine, &shape.plan, seed);
            run.call(0);
            let truth = run.nodes[shape.node].true_ns;
            let estimate = run.estimate(shape.node);
            let (off, error) = (estimate.total / truth - 1.0, estimate.error / truth);
            for (i, within) in all.within.iter_mut().enumerate() {
                *within += f64::from(u8::from(off.abs() <= (i + 1) as f64 * error + KNOWN));
            }
            all.true_ms += truth / 1e6;
            all.long_ms += run.nodes[shape.node].true_long_ns / 1e6;
            all.all_ms += run.nodes[0].true_ns / 1e6;
            all.stated += error * error;
            all.actual += off * off;
            all.bias += off;
        }
        Honesty {
            true_ms: all.true_ms / n,
            long_ms: all.long_ms / n,
            all_ms: all.all_ms / n,
            within: all.within.map(|within| within / n),
            stated: (all.stated / n).sqrt(),
            actual: (all.actual / n).sqrt(),
            bias: all.bias / n,
        }
    }

    pub fn is_promised(&self) -> bool {
        let beats_in_all = beats_in((self.all_ms * 1000.0) as i64);
        self.long_ms <= FEW * self.true_ms || self.long_ms * beats_in_all >= BEATS * self.all_ms
    }

    /// What is promised.
    pub fn holds(&self) -> bool {
        self.within[1] >= 0.94 && self.within[2] >= 0.985 && self.stated <= 1.5 * self.actual.max(KNOWN)
    }
}

impl std::fmt::Display for Honesty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [one, two, three] = self.within.map(|within| 100.0 * within);
        write!(
            f,
            "{:>9.2} ms  within {one:>5.1} {two:>5.1} {three:>5.1} %  stated {:>6.2} %  actual {:>6.2} %  bias {:>6.2} %  {}",
            self.true_ms,
            100.0 * self.stated,
            100.0 * self.actual,
            100.0 * self.bias,
            match (self.is_promised(), self.holds()) {
                (true, true) => "",
                (true, false) => "FAILS",
                (false, true) => "(few beats)",
                (false, false) => "(few beats) FAILS",
            },
        )
    }
}

/// Returns a scan whose calls take about `ns`, and one in `period` of them `long` more: each `period`th one,
/// or at random.
fn bimodal(ns: f64, period: u64, long: f64, at_random: bool) -> Body {
    body(move |run, i| {
        run.about(ns, 0.5);
        let is_long = if at_random {
            run.random.random_range(0..period) == 0
        } else {
            run.nodes[i].calls % period == period / 2
        };
        if is_long {
            run.about(long, 0.1);
        }
    })
}

/// Returns a scan whose calls have a tail: that of a Pareto distribution, up to `most`.
fn pareto(least: f64, alpha: f64, most: f64) -> Body {
    body(move |run, _| {
        let ns = least * (1.0 - run.random.random::<f64>()).powf(-1.0 / alpha);
        run.work(ns.min(most));
    })
}

fn lognormal(median: f64, sigma: f64) -> Body {
    body(move |run, _| {
        let (a, b): (f64, f64) = (run.random.random(), run.random.random());
        let normal = (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        run.work(median * (sigma * normal).exp());
    })
}

fn shape(name: String, node: usize, plan: Vec<Body>) -> Shape {
    Shape {
        name,
        machine: Machine::default(),
        plan,
        node,
    }
}

/// Shapes whose calls are all alike, or change slowly.
pub fn uniform() -> Vec<Shape> {
    let mut all = Vec::new();
    for (calls, ns, own) in [
        (300, 500.0, 50.0),
        (3_000, 300.0, 50.0),
        (20_000, 300.0, 50.0),
        (20_000, 300.0, 1000.0),
        (20_000, 3_000.0, 200.0),
        (200_000, 100.0, 30.0),
        (200_000, 1_000.0, 1_000.0),
        (50_000, 8_000.0, 500.0),
    ] {
        let scan = body(move |run, _| run.about(ns, 0.5));
        let name = format!("uniform {calls} of {ns} ns, {own} ns outside");
        all.push(shape(name, 1, vec![aggregate(1, calls, own), scan]));
    }
    let drift = body(|run, i| {
        let ns = 100.0 + run.nodes[i].calls as f64 * 0.01;
        run.about(ns, 0.5);
    });
    all.push(shape("drift".into(), 1, vec![aggregate(1, 100_000, 50.0), drift]));
    let step = body(|run, i| {
        let ns = if run.nodes[i].calls < 30_000 {
            200.0
        } else {
            2000.0
        };
        run.about(ns, 0.5);
    });
    all.push(shape("step".into(), 1, vec![aggregate(1, 60_000, 50.0), step]));
    let first = body(|run, i| {
        let ns = if run.nodes[i].calls == 1 { 10e6 } else { 500.0 };
        run.about(ns, 0.5);
    });
    all.push(shape(
        "first call long".into(),
        1,
        vec![aggregate(1, 20_000, 50.0), first],
    ));
    let exponential = body(|run, _| {
        let ns = run.exponential(500.0);
        run.work(ns);
    });
    all.push(shape(
        "exponential".into(),
        1,
        vec![aggregate(1, 20_000, 50.0), exponential],
    ));
    all
}

/// Shapes with rare long calls.
pub fn rare() -> Vec<Shape> {
    let mut all = Vec::new();
    for period in [2, 7, 31, 127, 400, 1009, 2500, 10_000] {
        for long in [10e3, 40e3, 100e3, 400e3, 2e6, 20e6] {
            let share = long / period as f64;
            // What is less than a twentieth of the time is no shape of its own.
            if !(15.0..=100_000.0).contains(&share) {
                continue;
            }
            let calls = (100e6 / (300.0 + share)).clamp(2000.0, 100_000.0) as u64;
            for (at_random, own) in [(false, 50.0), (true, 600.0)] {
                let how = if at_random { "at random" } else { "each" };
                let name = format!("{how} {period} of {calls}: {} us", long / 1e3);
                let plan = vec![aggregate(1, calls, own), bimodal(300.0, period, long, at_random)];
                all.push(shape(name, 1, plan));
            }
        }
    }
    // The case of the issue: the same burn() at 20,000 calls.
    for (kind, mean) in [
        (30, 2500.0),
        (127, 2500.0),
        (127, 1000.0),
        (400, 2500.0),
        (400, 1000.0),
        (700, 2500.0),
        (1500, 1000.0),
        (5000, 300.0),
    ] {
        let long = mean * kind as f64 * 0.9;
        let plan = vec![
            aggregate(1, 20_000, 50.0),
            bimodal(100.0 + mean * 0.1, kind, long, false),
        ];
        all.push(shape(format!("case {kind} mean {mean}"), 1, plan));
    }
    all
}

/// Shapes of statements that last 1 to 30 s, where beats come each 12 and 48 ms.
pub fn old() -> Vec<Shape> {
    let mut all = Vec::new();
    for (calls, ns, period, long) in [
        (60_000, 1000.0, 2, 40e3),
        (400_000, 1000.0, 7, 20e3),
        (30_000, 1000.0, 7, 400e3),
        (300_000, 1000.0, 31, 100e3),
        (50_000, 1000.0, 31, 2e6),
        (40_000, 1000.0, 31, 20e6),
        (250_000, 3000.0, 127, 400e3),
        (150_000, 3000.0, 127, 2e6),
        (250_000, 3000.0, 400, 2e6),
        (100_000, 3000.0, 400, 20e6),
        (200_000, 3000.0, 1009, 20e6),
        (200_000, 3000.0, 2500, 20e6),
        (300_000, 3000.0, 10_000, 20e6),
    ] {
        for (at_random, own) in [(false, 50.0), (true, 600.0)] {
            let how = if at_random { "at random" } else { "each" };
            let name = format!("old, {how} {period} of {calls}: {} us", long / 1e3);
            let plan = vec![aggregate(1, calls, own), bimodal(ns, period, long, at_random)];
            all.push(shape(name, 1, plan));
        }
    }
    for (calls, ns) in [(200_000, 6e3), (50_000, 40e3), (20_000, 1e6)] {
        let scan = body(move |run, _| run.about(ns, 0.5));
        let name = format!("old, uniform {calls} of {} us", ns / 1e3);
        all.push(shape(name, 1, vec![aggregate(1, calls, 300.0), scan]));
    }
    for (calls, least, alpha) in [(100_000, 3e3, 1.2), (200_000, 3e3, 1.5), (50_000, 30e3, 1.3)] {
        let name = format!(
            "old, pareto {alpha} of {calls} from {} us up to 20 ms",
            least / 1e3
        );
        all.push(shape(
            name,
            1,
            vec![aggregate(1, calls, 300.0), pareto(least, alpha, 20e6)],
        ));
    }
    for (calls, median, sigma) in [(100_000, 3e3, 2.0), (200_000, 3e3, 1.0)] {
        let name = format!("old, lognormal {sigma} of {calls} of {} us", median / 1e3);
        all.push(shape(
            name,
            1,
            vec![aggregate(1, calls, 300.0), lognormal(median, sigma)],
        ));
    }
    all
}

/// Heavy tails.
pub fn tails() -> Vec<Shape> {
    let mut all = Vec::new();
    for (calls, alpha, most) in [
        (5_000, 1.2, 3e6),
        (20_000, 1.2, 3e6),
        (100_000, 1.2, 3e6),
        (20_000, 1.5, 20e6),
        (20_000, 1.05, 1e6),
        (20_000, 2.0, 20e6),
    ] {
        let plan = vec![aggregate(1, calls, 50.0), pareto(200.0, alpha, most)];
        all.push(shape(
            format!("pareto {alpha} of {calls} up to {} ms", most / 1e6),
            1,
            plan,
        ));
    }
    for (calls, sigma) in [
        (5_000, 1.0),
        (20_000, 1.0),
        (20_000, 2.0),
        (100_000, 2.0),
        (20_000, 3.0),
    ] {
        let plan = vec![aggregate(1, calls, 50.0), lognormal(300.0, sigma)];
        all.push(shape(format!("lognormal {sigma} of {calls}"), 1, plan));
    }
    all
}

/// The hostile plans of `estimator.rs`.
pub fn hostile() -> Vec<Shape> {
    let mut all = vec![
        shape("append: joins".into(), 1, plans::append_of_joins()),
        shape("append: scan".into(), 3, plans::append_of_joins()),
        shape("append: build".into(), 4, plans::append_of_joins()),
        shape("batches".into(), 1, plans::hash_join_in_batches()),
        shape("costly filter".into(), 1, plans::few_rows_of_a_costly_filter()),
        shape("inner, outer side".into(), 1, plans::inner_side_called_twice()),
        shape("inner, inner side".into(), 2, plans::inner_side_called_twice()),
        shape("deep, leaf".into(), 6, plans::deep_pipeline(300.0, 15.0)),
        shape("deep, middle".into(), 3, plans::deep_pipeline(300.0, 15.0)),
    ];
    for (name, own, spread) in [
        ("busy parent, 1 us", 1000.0, 0.0),
        ("busy parent, 10 us", 10_000.0, 0.0),
        ("busy parent, bursts", 300.0, 2e6),
        ("busy parent, bursts of 200 us", 300.0, 2e5),
    ] {
        let root = body(move |run: &mut Run, _| {
            for n in 0..50_000_u64 {
                run.call(1);
                let ns = run.exponential(own);
                run.work(ns);
                if n % 1000 == 999 {
                    run.work(spread);
                }
            }
        });
        let plan = vec![root, pass(2, 30.0), bimodal(40.0, 100, 200.0, false)];
        all.push(shape(name.into(), 2, plan));
    }
    for (name, node) in [("siblings, short", 1), ("siblings, rare long", 2)] {
        let root = body(|run: &mut Run, _| {
            for _ in 0..30_000 {
                run.call(1);
                run.about(30.0, 0.3);
                run.call(2);
                run.about(30.0, 0.3);
            }
        });
        let short = body(|run, _| run.about(400.0, 0.5));
        let plan = vec![root, short, bimodal(200.0, 400, 150e3, true)];
        all.push(shape(name.into(), node, plan));
    }
    let late = Machine {
        late_ns: 10e6,
        ..Machine::default()
    };
    let plan = vec![aggregate(1, 100_000, 50.0), bimodal(300.0, 400, 200e3, false)];
    all.push(Shape {
        machine: late,
        ..shape("late beats".into(), 1, plan)
    });
    let plan = vec![aggregate(1, 1_000_000, 30.0), bimodal(60.0, 100, 300.0, false)];
    all.push(Shape {
        machine: Machine {
            stalls: Some((50e6, 1e6, 1e7)),
            ..Machine::default()
        },
        ..shape("stalls".into(), 1, plan)
    });
    all
}

/// Shapes in which the heart is stopped at times, or does not run at all. The truth lies within three errors,
/// but the errors may be much larger than the actual ones: in which node the time without beats was is not
/// known.
pub fn stopped() -> Vec<Shape> {
    let mut all = Vec::new();
    let seldom = Machine {
        stopped_ns: 100e6,
        ..Machine::default()
    };
    let never = Machine {
        has_heart: false,
        ..Machine::default()
    };
    for (how, machine) in [("stopped at times", seldom), ("no heart", never)] {
        let mut add = |name: &str, machine, node, plan| {
            all.push(Shape {
                machine,
                ..shape(format!("{how}, {name}"), node, plan)
            });
        };
        for (often, stalls) in [("often", (20e6, 1e6, 4e6)), ("seldom", (150e6, 2e6, 8e6))] {
            let stalled = Machine {
                stalls: Some(stalls),
                ..machine
            };
            for (place, node) in [("above", 1), ("below", 2)] {
                let above = body(|run: &mut Run, _| {
                    run.call(2);
                    run.about(1000.0, 0.1);
                });
                let below = body(|run, _| run.about(1000.0, 0.1));
                let plan = vec![aggregate(1, 60_000, 50.0), above, below];
                add(&format!("stalls {often}, {place}"), stalled, node, plan);
            }
        }
        for (each, long, own) in [
            (127, 400e3, 50.0),
            (400, 400e3, 600.0),
            (1009, 2e6, 600.0),
            (7, 40e3, 600.0),
        ] {
            let share = long / each as f64;
            let calls = (100e6 / (300.0 + share)) as u64;
            let plan = vec![aggregate(1, calls, own), bimodal(300.0, each, long, true)];
            add(
                &format!("at random {each} of {calls}: {} us", long / 1e3),
                machine,
                1,
                plan,
            );
        }
        // It is the caller that takes long.
        let caller = body(|run: &mut Run, _| {
            for n in 0..60_000_u64 {
                run.call(1);
                run.about(300.0, 0.3);
                if n % 1009 == 99 {
                    run.work(1e6);
                }
            }
        });
        let plan = vec![caller, body(|run, _| run.about(1000.0, 0.3))];
        add("long calls outside", machine, 1, plan);
        let plan = vec![aggregate(1, 60_000, 50.0), body(|run, _| run.about(1000.0, 0.5))];
        add("uniform", machine, 1, plan);
    }
    all
}

/// What the calls of a group of shapes are like, and the group.
pub type Group = (&'static str, fn() -> Vec<Shape>);

/// What is judged.
pub const GROUPS: [Group; 5] = [
    ("all alike", uniform),
    (
        "rare long ones, of 10 us to 20 ms, each 2nd to each 10,000th",
        rare,
    ),
    (
        "of statements that take 1 to 30 s: alike, rare long ones, heavy tails",
        old,
    ),
    ("with a heavy tail", tails),
    ("the plans of `core/tests/estimator.rs`, and some more", hostile),
];
