//! The original's two procedures full of cursors, one OLTP-like and one warehouse-like, per frequency and clock; and
//! where the cost of measuring them comes from.

mod origin;
mod procedures;

use self::procedures::{CURSORS, create};
use crate::lab::Lab;
use crate::record::{Bars, Series as Bar, Table};
use crate::rounds::{Series, interleave, ratios_to_first};
use crate::session::{Session, Took};
use crate::statistics::{count, ratios};
use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::statistics::median;

const SETTINGS: [&str; 4] = [
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
    /// In a transaction of its own, PL/pgSQL fetches a cursor's rows by tens, as the original's procedures do by
    /// hundreds; where the procedure could commit, one by one.
    one_by_one: bool,
    /// Elapsed hundredths of a second in the original: off and on.
    original: (f64, f64),
}

impl Workload {
    fn time(&self, session: &mut Session) -> Took {
        if self.one_by_one {
            return session.time(&self.call);
        }
        session.run("BEGIN");
        let took = session.time(&self.call);
        session.run("COMMIT");
        took
    }
}

struct Run {
    took: Took,
    /// Clock readings and statements measured.
    timer_calls: f64,
    statements: f64,
}

pub fn run(lab: &mut Lab) {
    let oltp_loops = lab.sizes.of(200, 5000);
    let periods = lab.sizes.of(2, 24);
    let warehouse_loops = lab.sizes.of(2, 8);
    let rounds = lab.sizes.rounds(1, 5);
    lab.setting("OLTP loops", oltp_loops);
    lab.setting("warehouse loops", warehouse_loops);
    lab.setting("rounds", rounds);
    lab.at(0.0, "loading");
    let mut bare = Server::start("bare", &SETTINGS);
    lab.server(&bare);
    create(&mut bare.connect(), periods);
    bare.stop();
    let mut all = vec!["shared_preload_libraries = 'pg_rowsource'"];
    all.extend(SETTINGS);
    let mut measuring = Server::copy_of(&bare, "ours", &all);
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
    let (plain, mut ours) = (Session::new(&bare), Session::loaded(&measuring));
    let clocks = clocks(&mut ours.client);
    let mut sessions = (plain, ours);
    for (at, workload) in workloads.iter().enumerate() {
        let (from, to) = [(0.05, 0.38), (0.38, 0.71), (0.71, 0.8)][at];
        lab.part(from, to);
        // One clock shows what fetching one by one does.
        let clocks = if workload.one_by_one {
            &clocks[..1]
        } else {
            &clocks[..]
        };
        compare(lab, workload, &mut sessions, clocks, rounds);
    }
    drop(sessions);
    lab.part(0.8, 1.0);
    bare.stop();
    measuring.stop();
    origin::run(lab, &bare, &measuring);
}

/// The usable sources and the nanoseconds of a reading, that which `auto` picks first.
fn clocks(client: &mut Client) -> Vec<(String, f64)> {
    texts(
        client,
        // The fastest of several: other work can only make a reading longer.
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

fn compare(
    lab: &mut Lab,
    workload: &Workload,
    (plain, ours): &mut (Session, Session),
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
    let series = interleave(lab, workload.name, &names, rounds, |at| {
        let unmeasured = |took| Run {
            took,
            timer_calls: 0.0,
            statements: 0.0,
        };
        match at {
            0 => unmeasured(workload.time(plain)),
            1 => unmeasured(workload.time(ours)),
            _ => {
                let ((source, _), sampfreq) = variants[at - 2];
                ours.run(&format!(
                    "SELECT rowsource_reset(); SET pg_rowsource.track = 'all'; SET pg_rowsource.clock_source = {source};
                     SET pg_rowsource.sampfreq = {sampfreq}; SET pg_rowsource.statistics_level = typical"
                ));
                let took = workload.time(ours);
                ours.run("SET pg_rowsource.statistics_level = basic");
                let mut sum = |sql: &str| value::<i64>(&mut ours.client, sql) as f64;
                Run {
                    took,
                    timer_calls: sum("SELECT sum(timer_calls)::bigint FROM pg_stat_rowsource"),
                    statements: sum("SELECT sum(calls)::bigint FROM pg_stat_rowsource_plans"),
                }
            }
        }
    });
    let statements = (workload.loops * CURSORS.len() as u64) as f64;
    let good = series[2..].iter().flat_map(|line| &line.values);
    let found = median(&series[2].of(|run| run.statements));
    lab.must(
        format!(
            "{}: statements in the procedure that the view counts",
            workload.name
        ),
        count(statements),
        count(found),
        good.map(|run| run.statements).all(|found| found == statements),
    );
    report(lab, workload, &series, &variants, statements);
}

fn report(
    lab: &mut Lab,
    workload: &Workload,
    series: &[Series<Run>],
    variants: &[(&(String, f64), u32)],
    statements: f64,
) {
    let cpu = |run: &Run| run.took.cpu_s;
    let base = series[0].of(cpu);
    let cpu_ratios = ratios_to_first(series, cpu);
    let elapsed_ratios = ratios_to_first(series, |run| run.took.elapsed_s);
    let (off, on) = workload.original;
    let mut table = Table::new(
        &format!("{}: `{}`", workload.name, workload.call),
        &format!(
            "Ratios to nothing loaded. Readings: of the clock, for nodes, and what they took by themselves, as a share of the CPU \
             time that measuring added. The original took {:.2} times as long when traced, at every frequency and clock alike.",
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
        let added: Vec<f64> = line
            .of(cpu)
            .iter()
            .zip(&base)
            .map(|(own, base)| own - base)
            .collect();
        let added_us = median(&added) * 1e6 / statements;
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
        lab.measured(workload.name, &line.name, "CPU s", &line.of(cpu));
        lab.measured(
            workload.name,
            &line.name,
            "elapsed s",
            &line.of(|run| run.took.elapsed_s),
        );
        lab.measured(
            workload.name,
            &line.name,
            "clock readings",
            &line.of(|run| run.timer_calls),
        );
    }
    lab.table(table);
    let sources = variants.len() / SAMPFREQS.len();
    lab.plot(Bars {
        name: format!(
            "workloads-{}",
            workload
                .name
                .to_lowercase()
                .replace([',', ' '], "-")
                .replace("--", "-")
        ),
        title: format!("{}: CPU time, as a ratio to nothing loaded", workload.name),
        axis: "ratio".to_string(),
        logarithmic: false,
        groups: SAMPFREQS.iter().map(|sampfreq| format!("1/{sampfreq}")).collect(),
        series: (0..sources)
            .map(|source| Bar {
                name: variants[source * SAMPFREQS.len()].0.0.clone(),
                values: (0..SAMPFREQS.len())
                    .map(|which| Some(cpu_ratios[2 + source * SAMPFREQS.len() + which]))
                    .collect(),
            })
            .collect(),
    });
    let finer = ratios(&series[2 + SAMPFREQS.len() - 1].of(cpu), &series[2].of(cpu));
    lab.finding(format!(
        "{}: timing every call instead of one in 128 takes {:.3} times the CPU time; measuring at 1/128 takes {:.3} times that \
         of nothing loaded. The original: {:.2} for both.",
        workload.name,
        median(&finer),
        cpu_ratios[2].median,
        on / off
    ));
}
