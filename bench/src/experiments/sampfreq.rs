//! The original's table of sampling frequencies on the same data: CPU time, elapsed time and clock readings.

use crate::measure::context::ExperimentContext;
use crate::measure::narrow::{self, Run, readings_of_every_call};
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::measure::session::Session;
use crate::model::chart::{BarChart, BarSeries};
use crate::model::check::Goal;
use crate::model::number::count;
use crate::model::spread::{ratio, spread};
use crate::model::table::Table;
use rowsource_tests::statistics::median;

/// What the original reports for one frequency. Each pair holds CPU seconds and timer calls.
struct Original {
    sampfreq: u32,
    scan: (f64, f64),
    index: (f64, f64),
}

const fn original(sampfreq: u32, scan: (f64, f64), index: (f64, f64)) -> Original {
    Original {
        sampfreq,
        scan,
        index,
    }
}

#[expect(clippy::approx_constant, reason = "6.28 are seconds")]
/// Oracle 11g, 10 million rows. The index scan is two row sources there.
const ORIGINAL: [Original; 7] = [
    original(0, (0.57, 5.0), (2.62, 7.0)),
    original(128, (0.64, 156_262.0), (2.69, 312_519.0)),
    original(16, (1.02, 1_250_015.0), (3.32, 2_500_021.0)),
    original(8, (1.32, 2_500_017.0), (4.31, 5_000_025.0)),
    original(4, (2.02, 5_000_019.0), (5.28, 10_000_029.0)),
    original(2, (3.41, 10_000_025.0), (7.92, 20_000_041.0)),
    original(1, (6.28, 20_000_033.0), (13.06, 40_000_057.0)),
];

/// The variants that stand before those of [`ORIGINAL`].
const UNMEASURED: [&str; 2] = ["not loaded", "basic"];

/// The variants that stand after those of [`ORIGINAL`]: the measuring of PostgreSQL's core.
const EXPLAINS: [(&str, &str); 2] = [
    (
        "EXPLAIN, TIMING OFF",
        "EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF) ",
    ),
    ("EXPLAIN, TIMING ON", "EXPLAIN (ANALYZE, TIMING ON, BUFFERS OFF) "),
];

/// The variant that stands last: rows and starts alone.
const ROWS_ONLY: &str = "sampfreq 3, rows only";

#[derive(Clone, Copy)]
enum Variant {
    NotLoaded,
    Basic,
    /// Has an index into [`ORIGINAL`].
    Sampled(usize),
    /// Has the text before the statement.
    Explain(&'static str),
    RowsOnly,
}

pub fn run(context: &mut ExperimentContext) {
    let rounds = context.sizes.rounds(2, 9);
    context.setting("rounds", rounds);
    let (server, rows) = narrow::server(context, "sampfreq");
    let mut plain = Session::new(&server);
    let mut loaded = Session::loaded(&server);
    let mut variants = vec![Variant::NotLoaded, Variant::Basic];
    variants.extend((0..ORIGINAL.len()).map(Variant::Sampled));
    variants.extend(EXPLAINS.map(|(_, prefix)| Variant::Explain(prefix)));
    variants.push(Variant::RowsOnly);
    let names: Vec<String> = UNMEASURED
        .iter()
        .map(|name| name.to_string())
        .chain(ORIGINAL.iter().map(|line| format!("sampfreq {}", line.sampfreq)))
        .chain(EXPLAINS.iter().map(|(name, _)| name.to_string()))
        .chain([ROWS_ONLY.to_string()])
        .collect();
    for (at, (scan, settings, statement)) in narrow::SCANS.into_iter().enumerate() {
        let (from, to) = [(0.12, 0.42), (0.42, 1.0)][at];
        context.begin_part(from, to);
        plain.run(settings);
        loaded.run(settings);
        let series = interleave(context, scan, &names, rounds, |variant| match variants[variant] {
            Variant::NotLoaded => Run::unmeasured(plain.time(statement)),
            Variant::Basic => Run::unmeasured(loaded.time(statement)),
            Variant::Explain(prefix) => Run::unmeasured(plain.time(&format!("{prefix}{statement}"))),
            Variant::RowsOnly => Run::measured(&mut loaded, "SET pg_rowsource.sampfreq = 3", statement),
            Variant::Sampled(which) => {
                let settings = format!("SET pg_rowsource.sampfreq = {}", ORIGINAL[which].sampfreq);
                Run::measured(&mut loaded, &settings, statement)
            }
        });
        let cpu = |run: &Run| run.elapsed.cpu_s;
        let to_plain = ratios_to_first(&series, cpu);
        let elapsed = ratios_to_first(&series, |run| run.elapsed.wall_s);
        let zero = series[UNMEASURED.len()].of(cpu);
        let mut table = Table::new(
            &format!("{scan}, {} rows: `{statement}`", count(rows as f64)),
            "CPU ratio: to nothing loaded. To 0: to sampfreq 0, as in the original. Original: Oracle 11g, 10 million rows, other \
             hardware. The index scan is two row sources in the original and one node here.",
            &[
                "",
                "CPU s",
                "CPU ratio",
                "to 0",
                "elapsed ratio",
                "clock readings",
                "original: CPU s",
                "to 0",
                "readings",
            ],
        );
        for (variant, line) in series.iter().enumerate() {
            let sampled = match variants[variant] {
                Variant::Sampled(which) => Some(which),
                _ => None,
            };
            let original = sampled.map(|of| {
                if at == 0 {
                    ORIGINAL[of].scan
                } else {
                    ORIGINAL[of].index
                }
            });
            let original_at_0 = if at == 0 {
                ORIGINAL[0].scan.0
            } else {
                ORIGINAL[0].index.0
            };
            let cell = |text: Option<String>| text.unwrap_or_default();
            table.row([
                line.name.clone(),
                format!("{:.3}", median(&line.of(cpu))),
                to_plain[variant].as_ratio(),
                cell(original.map(|_| format!("{:.3}", ratio(&line.of(cpu), &zero).median))),
                elapsed[variant].as_ratio(),
                cell(original.map(|_| count(median(&line.of(|run| run.timer_calls))))),
                cell(original.map(|(cpu, _)| format!("{cpu:.2}"))),
                cell(original.map(|(cpu, _)| format!("{:.2}", cpu / original_at_0))),
                cell(original.map(|(_, calls)| count(calls))),
            ]);
            context.measured(scan, &line.name, "CPU s", &line.of(cpu));
            context.measured(scan, &line.name, "elapsed s", &line.of(|run| run.elapsed.wall_s));
            context.measured(
                scan,
                &line.name,
                "clock readings",
                &line.of(|run| run.timer_calls),
            );
        }
        context.table(table);
        context.plot(BarChart {
            name: format!("sampfreq-{}", scan.replace(' ', "-")),
            title: format!("CPU time, {scan}, as a ratio to sampfreq 0"),
            axis: "ratio".to_string(),
            logarithmic: true,
            groups: ORIGINAL[1..]
                .iter()
                .map(|line| format!("1/{}", line.sampfreq))
                .collect(),
            series: vec![
                BarSeries {
                    name: "pg_rowsource".to_string(),
                    values: series[UNMEASURED.len() + 1..UNMEASURED.len() + ORIGINAL.len()]
                        .iter()
                        .map(|line| Some(ratio(&line.of(cpu), &zero)))
                        .collect(),
                },
                BarSeries {
                    name: "the original".to_string(),
                    values: ORIGINAL[1..]
                        .iter()
                        .map(|line| match at {
                            0 => line.scan.0 / ORIGINAL[0].scan.0,
                            _ => line.index.0 / ORIGINAL[0].index.0,
                        })
                        .map(|ratio| Some(spread(&[ratio])))
                        .collect(),
                },
            ],
        });
        let wanted = readings_of_every_call(rows) as f64;
        let every = series[UNMEASURED.len() + ORIGINAL.len() - 1].of(|run| run.timer_calls);
        context.assert_exact(
            format!("{scan}: clock readings at sampfreq 1"),
            count(wanted),
            count(median(&every)),
            every.iter().all(|&calls| calls == wanted),
        );
        let none = series[UNMEASURED.len()].of(|run| run.timer_calls);
        context.assert_exact(
            format!("{scan}: clock readings at sampfreq 0"),
            0,
            count(median(&none)),
            none.iter().all(|&calls| calls == 0.0),
        );
        let rows_only = to_plain[variants.len() - 1];
        let goal = Goal::at_most(1.016).with_note("the best known patch to core");
        context.goal(format!("{scan}: CPU ratio with rows only"), &goal, &rows_only);
        for (of, most, original) in [(1, 1.03, 1.12), (6, 1.25, 11.0)] {
            let found = to_plain[UNMEASURED.len() + of];
            let sampfreq = ORIGINAL[of].sampfreq;
            let goal = Goal::at_most(most);
            let goal = if at == 0 {
                goal.with_note(&format!("the original: {original}"))
            } else {
                goal
            };
            context.goal(format!("{scan}: CPU ratio at sampfreq {sampfreq}"), &goal, &found);
        }
    }
}
