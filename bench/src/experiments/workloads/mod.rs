//! The original's two procedures full of cursors, one OLTP-like and one warehouse-like, for each frequency
//! and clock. Also counts where the cost of measuring them comes from.

mod origin;
pub mod procedures;

use self::procedures::create;
use crate::measure::context::ExperimentContext;
use crate::measure::rounds::{Series, interleave, median_added, ratios_to_first};
use crate::measure::session::{Elapsed, Session};
use crate::model::chart::{BarChart, BarSeries};
use crate::model::number::count;
use crate::model::spread::ratios;
use crate::model::table::Table;
use postgres::Client;
use rowsource_tests::oltp::CURSORS;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::statistics::median;
use rowsource_tests::{SHIPPED, Server};

const SETTINGS: [&str; 5] = [
    SHIPPED,
    "shared_buffers = '512MB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "plan_cache_mode = force_generic_plan",
];
const SAMPFREQS: [u32; 4] = [128, 16, 4, 1];

struct Workload {
    name: &'static str,
    call: String,
    loops: u64,
    /// PL/pgSQL fetches a cursor's rows one by one if the procedure could commit. Inside a transaction block
    /// it fetches them by tens; the original's procedures fetch by hundreds.
    one_by_one: bool,
    /// Elapsed hundredths of a second in the original, with measuring off and on.
    original: (f64, f64),
}

impl Workload {
    /// Calls the procedure once.
    fn time(&self, session: &mut Session) -> Elapsed {
        if self.one_by_one {
            return session.time(&self.call);
        }
        session.run("BEGIN");
        let elapsed = session.time(&self.call);
        session.run("COMMIT");
        elapsed
    }
}

struct Run {
    elapsed: Elapsed,
    /// Clock readings.
    timer_calls: f64,
    /// Measured statements.
    statements: f64,
}

pub fn run(context: &mut ExperimentContext) {
    let oltp_loops = context.sizes.of(200, 5000);
    let periods = context.sizes.of(2, 24);
    let warehouse_loops = context.sizes.of(2, 8);
    let rounds = context.sizes.rounds(1, 5);
    context.setting("OLTP loops", oltp_loops);
    context.setting("warehouse loops", warehouse_loops);
    context.setting("rounds", rounds);
    context.at(0.0, "loading");
    let mut bare = Server::start("bare", &SETTINGS);
    context.server(&bare);
    create(&mut bare.connect(), periods);
    bare.stop();
    let mut all = vec!["shared_preload_libraries = 'pg_rowsource'"];
    all.extend(SETTINGS);
    let mut measuring = Server::copy_of(&bare, "rowsource", &all);
    run_each(&mut measuring.connect(), "CREATE EXTENSION pg_rowsource");
    bare.launch();
    let workloads = [
        Workload {
            name: "OLTP-like",
            call: format!("CALL oltp({oltp_loops})"),
            loops: oltp_loops,
            one_by_one: false,
            original: (2770.0, 5235.0),
        },
        Workload {
            name: "warehouse-like",
            call: format!("CALL warehouse({warehouse_loops}, {periods})"),
            loops: warehouse_loops,
            one_by_one: false,
            original: (2721.0, 5560.0),
        },
        Workload {
            name: "OLTP-like, rows fetched one by one",
            call: format!("CALL oltp({oltp_loops})"),
            loops: oltp_loops,
            one_by_one: true,
            original: (2770.0, 5235.0),
        },
    ];
    let (plain, mut loaded) = (Session::new(&bare), Session::loaded(&measuring));
    let clocks = clocks(&mut loaded.client);
    let mut sessions = (plain, loaded);
    for (at, workload) in workloads.iter().enumerate() {
        let (from, to) = [(0.05, 0.38), (0.38, 0.71), (0.71, 0.8)][at];
        context.begin_part(from, to);
        // One clock is enough to show the cost of fetching one by one.
        let clocks = if workload.one_by_one {
            &clocks[..1]
        } else {
            &clocks[..]
        };
        compare(context, workload, &mut sessions, clocks, rounds);
    }
    drop(sessions);
    context.begin_part(0.8, 1.0);
    bare.stop();
    measuring.stop();
    origin::run(context, &bare, &measuring);
}

/// Returns the usable sources and the nanoseconds of a reading. The source that `auto` picks comes first.
fn clocks(client: &mut Client) -> Vec<(String, f64)> {
    texts(
        client,
        // Takes the fastest of several, because other work can only make a reading longer.
        "SELECT clock_source, min(reading_ns) FROM generate_series(1, 7), LATERAL rowsource_clocks(100000)
         WHERE usable GROUP BY clock_source, auto ORDER BY NOT auto, clock_source",
    )
    .into_iter()
    .map(|row| {
        let mut cells = row.into_iter().map(Option::unwrap_or_default);
        let (source, ns) = (cells.next(), cells.next());
        let ns = ns.and_then(|ns| ns.parse().ok());
        (source.expect("a name"), ns.expect("nanoseconds"))
    })
    .collect()
}

/// Runs one workload with all variants and reports it.
fn compare(
    context: &mut ExperimentContext,
    workload: &Workload,
    (plain, loaded): &mut (Session, Session),
    clocks: &[(String, f64)],
    rounds: usize,
) {
    let variants: Vec<(&(String, f64), u32)> = clocks
        .iter()
        .flat_map(|clock| SAMPFREQS.map(|sampfreq| (clock, sampfreq)))
        .collect();
    let mut names = vec!["nothing loaded".to_string(), "basic".to_string()];
    names.extend(
        variants
            .iter()
            .map(|((source, _), sampfreq)| format!("{source}, 1/{sampfreq}")),
    );
    let series = interleave(context, workload.name, &names, rounds, |at| {
        let unmeasured = |elapsed| Run {
            elapsed,
            timer_calls: 0.0,
            statements: 0.0,
        };
        match at {
            0 => unmeasured(workload.time(plain)),
            1 => unmeasured(workload.time(loaded)),
            _ => {
                let ((source, _), sampfreq) = variants[at - 2];
                loaded.run(&format!(
                    "SELECT rowsource_reset(); SET pg_rowsource.track = 'all'; SET pg_rowsource.clock_source = {source};
                     SET pg_rowsource.sampfreq = {sampfreq}; SET pg_rowsource.statistics_level = typical"
                ));
                let elapsed = workload.time(loaded);
                loaded.run("SET pg_rowsource.statistics_level = basic");
                let mut sum = |sql: &str| value::<i64>(&mut loaded.client, sql) as f64;
                Run {
                    elapsed,
                    timer_calls: sum("SELECT sum(timer_calls)::bigint FROM pg_stat_rowsource"),
                    statements: sum(
                        "SELECT sum(calls)::bigint FROM pg_stat_rowsource_plans WHERE NOT toplevel",
                    ),
                }
            }
        }
    });
    let statements = (workload.loops * CURSORS.len() as u64) as f64;
    let good = series[2..].iter().flat_map(|line| &line.values);
    let found = median(&series[2].of(|run| run.statements));
    context.assert_exact(
        format!(
            "{}: statements of the procedure that the view counts",
            workload.name
        ),
        count(statements),
        count(found),
        good.map(|run| run.statements).all(|found| found == statements),
    );
    report(context, workload, &series, &variants, statements);
}

fn report(
    context: &mut ExperimentContext,
    workload: &Workload,
    series: &[Series<Run>],
    variants: &[(&(String, f64), u32)],
    statements: f64,
) {
    let cpu = |run: &Run| run.elapsed.cpu_s;
    let cpu_ratios = ratios_to_first(series, cpu);
    let elapsed_ratios = ratios_to_first(series, |run| run.elapsed.wall_s);
    let (off, on) = workload.original;
    let mut table = Table::new(
        &format!("{}: `{}`", workload.name, workload.call),
        &format!(
            "Ratios to nothing loaded. Readings: clock readings for nodes. Their share: their own time as a share of the CPU time \
             that measuring added. The original took {:.2} times as long when traced, at every frequency and with every clock.",
            on / off
        ),
        &[
            "",
            "CPU s",
            "CPU ratio",
            "elapsed ratio",
            "added us a statement",
            "readings a statement",
            "their share",
        ],
    );
    for (at, line) in series.iter().enumerate() {
        let added_us = median_added(series, at, cpu) * 1e6 / statements;
        let readings = median(&line.of(|run| run.timer_calls)) / statements;
        let of_reading = at.checked_sub(2).map(|of| variants[of].0.1 * readings / 1000.0);
        table.row([
            line.name.clone(),
            format!("{:.3}", median(&line.of(cpu))),
            cpu_ratios[at].as_ratio(),
            elapsed_ratios[at].as_ratio(),
            if at == 0 {
                String::new()
            } else {
                format!("{added_us:+.2}")
            },
            of_reading.map_or(String::new(), |_| format!("{readings:.1}")),
            of_reading.map_or(String::new(), |us| {
                if added_us > 0.0 {
                    format!("{:.0} %", 100.0 * us / added_us)
                } else {
                    String::new()
                }
            }),
        ]);
        context.measured(workload.name, &line.name, "CPU s", &line.of(cpu));
        context.measured(
            workload.name,
            &line.name,
            "elapsed s",
            &line.of(|run| run.elapsed.wall_s),
        );
        context.measured(
            workload.name,
            &line.name,
            "clock readings",
            &line.of(|run| run.timer_calls),
        );
    }
    context.table(table);
    let sources = variants.len() / SAMPFREQS.len();
    context.plot(BarChart {
        name: format!(
            "workloads-{}",
            workload
                .name
                .to_lowercase()
                .replace([',', ' '], "-")
                .replace("--", "-")
        ),
        title: format!("{}: CPU time as a ratio to nothing loaded", workload.name),
        axis: "ratio".to_string(),
        logarithmic: false,
        groups: SAMPFREQS.iter().map(|sampfreq| format!("1/{sampfreq}")).collect(),
        series: (0..sources)
            .map(|source| BarSeries {
                name: variants[source * SAMPFREQS.len()].0.0.clone(),
                values: (0..SAMPFREQS.len())
                    .map(|which| Some(cpu_ratios[2 + source * SAMPFREQS.len() + which]))
                    .collect(),
            })
            .collect(),
    });
    let finer = ratios(&series[2 + SAMPFREQS.len() - 1].of(cpu), &series[2].of(cpu));
    context.finding(format!(
        "{}: timing every call takes {:.3} times the CPU time of timing one call in 128. Measuring at 1/128 takes {:.3} times \
         the CPU time of nothing loaded. The original: {:.2} for both.",
        workload.name,
        median(&finer),
        cpu_ratios[2].median,
        on / off
    ));
}
