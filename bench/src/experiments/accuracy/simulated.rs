//! Plans in the simulator of the pure crate. Their true time is known to the nanosecond. They are also
//! sampled as in the original: at fixed intervals, each sample multiplied by the interval.

use super::frequencies::SAMPFREQS;
use crate::measure::context::ExperimentContext;
use crate::model::chart::{BarChart, BarSeries};
use crate::model::spread::spread;
use crate::model::table::Table;
use rowsource_core::reconcile::{Edge, Item, reconcile};
use rowsource_tests::statistics::median;
use simulator::plans;
use simulator::shapes::{GROUPS, Honesty};
use simulator::{Body, Machine, Run};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

#[allow(dead_code, reason = "the estimator's tests use the rest")]
#[path = "../../../../core/tests/simulator/mod.rs"]
mod simulator;

/// The results of one way to sample at one frequency, over all seeds.
#[derive(Default)]
struct Outcome {
    /// The estimate over the truth of each node, one value for each seed.
    ratios: Vec<Vec<f64>>,
    /// How many nodes were above their parents, over all seeds.
    above: usize,
}

impl Outcome {
    /// Adds the totals that one run estimates.
    fn add(&mut self, run: &Run, totals: &[f64]) {
        self.ratios.resize(totals.len(), Vec::new());
        for (i, total) in totals.iter().enumerate() {
            self.ratios[i].push(total / run.nodes[i].true_ns);
            let parent = run.nodes[i].parent.map(|parent| totals[parent]);
            self.above += usize::from(parent.is_some_and(|parent| *total > parent * (1.0 + 1e-9)));
        }
    }

    /// Returns the values of the node that is farthest from the truth.
    fn worst(&self) -> &[f64] {
        let far = |values: &[f64]| (median(values) - 1.0).abs();
        let worst = self.ratios.iter().max_by(|a, b| far(a).total_cmp(&far(b)));
        worst.expect("a plan has nodes")
    }
}

type Plan = (&'static str, fn() -> Vec<Body>);

const PLANS: [Plan; 10] = [
    ("100 of 10M rows", plans::few_long_calls),
    ("few rows of a costly filter", plans::few_rows_of_a_costly_filter),
    ("append over 20 hash joins", plans::append_of_joins),
    ("hash join in 128 batches", plans::hash_join_in_batches),
    ("20 ms each 10,000th row", || {
        plans::rare_long_calls(400_000, 10_000, 20e6)
    }),
    ("2 ms each 1,000th row", || {
        plans::rare_long_calls(400_000, 1_000, 2e6)
    }),
    ("200 us each 100th row", || {
        plans::rare_long_calls(400_000, 100, 2e5)
    }),
    ("inner side called twice", plans::inner_side_called_twice),
    ("narrow scan", plans::narrow_scan),
    ("six nodes over a scan", || plans::deep_pipeline(30.0, 15.0)),
];

pub fn run(context: &mut ExperimentContext) {
    let seeds = context.sizes.rounds(3, 21) as u64;
    context.setting("seeds of the simulations", seeds);
    let mut columns = vec!["plan".to_string()];
    for method in ["pg_rowsource", "fixed"] {
        columns.extend(SAMPFREQS.map(|sampfreq| format!("{method}, {sampfreq}")));
    }
    columns.extend([
        "pg_rowsource: above parent".to_string(),
        "fixed: above parent".to_string(),
    ]);
    let mut table = Table::new(
        "Estimated over true time, simulated: the node that is farthest from the truth",
        &format!(
            "Median over {seeds} seeds, with the lowest and the highest. Fixed: the first call, then each N-th multiplied by N, as \
             in the original, but without the timers nested in a sampled call, which the original counts too. Above parent: how \
             often a node has more time than its parent, over all seeds and frequencies."
        ),
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut above = [0, 0];
    let mut plotted = Vec::new();
    for (at, (name, plan)) in PLANS.into_iter().enumerate() {
        context.at(at as f64 / PLANS.len() as f64, &format!("simulation: {name}"));
        let bodies = plan();
        let mut sampled: [Outcome; SAMPFREQS.len()] = Default::default();
        let mut fixed: [Outcome; SAMPFREQS.len()] = Default::default();
        for (which, sampfreq) in SAMPFREQS.into_iter().enumerate() {
            for seed in 0..seeds {
                let machine = Machine {
                    sampfreq,
                    ..Machine::default()
                };
                let mut run = Run::new(machine, &bodies, 1 + seed);
                run.call(0);
                sampled[which].add(&run, &estimates(&run));
                let totals: Vec<f64> = run.nodes.iter().map(|node| node.fixed_ns).collect();
                fixed[which].add(&run, &totals);
            }
        }
        let mut row = vec![format!("{}. {name}", at + 1)];
        for (method, outcomes) in [("pg_rowsource", &sampled), ("fixed", &fixed)] {
            for (sampfreq, outcome) in SAMPFREQS.iter().zip(outcomes) {
                row.push(spread(outcome.worst()).as_ratio());
                context.measured(
                    format!("simulated: {name}"),
                    &format!("{method}, sampfreq {sampfreq}"),
                    "estimate/truth",
                    outcome.worst(),
                );
            }
        }
        for (which, outcomes) in [&sampled, &fixed].into_iter().enumerate() {
            let found: usize = outcomes.iter().map(|outcome| outcome.above).sum();
            above[which] += found;
            row.push(found.to_string());
        }
        table.row(row);
        plotted.push([&sampled[1], &fixed[1]].map(|outcome| Some(spread(outcome.worst()))));
    }
    context.table(table);
    context.assert_exact(
        "simulated nodes above their parents, pg_rowsource",
        0,
        above[0],
        above[0] == 0,
    );
    context.finding(format!(
        "Simulated nodes above their parents at fixed intervals: {} (pg_rowsource: {}).",
        above[1], above[0]
    ));
    context.plot(BarChart {
        name: "accuracy-simulated".to_string(),
        title: "Simulated plans at 1/128: estimated over true time, the worst node".to_string(),
        axis: "ratio".to_string(),
        logarithmic: false,
        groups: (1..=plotted.len())
            .map(|number| format!("plan {number}"))
            .collect(),
        series: ["pg_rowsource", "fixed intervals"]
            .iter()
            .enumerate()
            .map(|(which, name)| BarSeries {
                name: name.to_string(),
                values: plotted.iter().map(|both| both[which]).collect(),
            })
            .collect(),
    });
}

/// Counts the shapes whose stated errors hold, as docs/time.md promises it.
pub fn honesty(context: &mut ExperimentContext) {
    /// With these, nobody chose how errors are computed.
    const FIRST_SEED: u64 = 90_000_001;
    let seeds = context.sizes.rounds(2, 1000) as u64;
    context.setting("runs of each shape", seeds);
    context.at(0.0, "simulation: stated errors");
    let all = of_each_shape(FIRST_SEED..FIRST_SEED + seeds);
    for (_, name, honesty) in &all {
        for (what, value) in [
            ("within one error", honesty.within[0]),
            ("within two errors", honesty.within[1]),
            ("within three errors", honesty.within[2]),
            ("stated error", honesty.stated),
            ("actual error", honesty.actual),
        ] {
            context.measured(format!("simulated: {name}"), what, "share", &[value]);
        }
    }
    let groups = GROUPS.map(|(group, _)| {
        // Shapes and shapes that hold, of those without the promise and with it.
        let mut counts = [[0; 2]; 2];
        for (_, _, honesty) in all.iter().filter(|(of, _, _)| *of == group) {
            let [all, held] = &mut counts[usize::from(honesty.is_promised())];
            *all += 1;
            *held += usize::from(honesty.holds());
        }
        (group, counts)
    });
    let mut table = Table::new(
        "Shapes whose stated errors hold",
        "The truth lies within two errors in 94 % of the runs and within three in 98.5 %, and the root mean square of the errors \
         is at most 1.5 times that of the actual ones (at least 1 %).",
        &[
            "calls",
            "shapes of which that is promised",
            "it holds",
            "other shapes",
            "it holds",
        ],
    );
    let mut promised = [0; 2];
    for (name, [others, [all, held]]) in groups {
        promised = [promised[0] + all, promised[1] + held];
        let cells = [all, held, others[0], others[1]].map(|count| count.to_string());
        table.row([name.to_string()].into_iter().chain(cells));
    }
    context.table(table);
    context.finding(format!(
        "Of {} simulated shapes of which that is promised, stated errors hold in {}.",
        promised[0], promised[1]
    ));
}

/// Returns the group, the name and the honesty of each shape, in the order of the groups. Each processor
/// takes the next shape that is left, because some take a hundred times as long as others.
fn of_each_shape(seeds: Range<u64>) -> Vec<(&'static str, String, Honesty)> {
    let next = AtomicUsize::new(0);
    let take = || {
        let all = || {
            GROUPS
                .into_iter()
                .flat_map(|(group, shapes)| shapes().into_iter().map(move |shape| (group, shape)))
        };
        let mut shapes = all().enumerate();
        let mut judged = Vec::new();
        let mut left = 0;
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((_, (group, shape))) = shapes.nth(at - left) else {
                return judged;
            };
            left = at + 1;
            judged.push((at, group, shape.name.clone(), Honesty::of(&shape, seeds.clone())));
        }
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a simulation"))
            .collect()
    });
    all.sort_by_key(|(at, ..)| *at);
    all.into_iter()
        .map(|(_, group, name, honesty)| (group, name, honesty))
        .collect()
}

/// Returns the reconciled estimate of each node, which the view would show.
fn estimates(run: &Run) -> Vec<f64> {
    let mut items: Vec<Item> = (0..run.nodes.len())
        .map(|i| Item::new(run.nodes[i].parent, Edge::Sequential, 1.0, run.estimate(i)))
        .collect();
    reconcile(&mut items, &mut [], f64::INFINITY);
    items.iter().map(|item| item.estimate.total).collect()
}
