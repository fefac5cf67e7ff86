//! What the SQL trace costs the original's OLTP-like procedure. In the original, a trace took 90 % more, at
//! each frequency.

use super::workloads::procedures::create;
use crate::measure::context::ExperimentContext;
use crate::measure::rounds::{interleave, median_added, ratios_to_first};
use crate::measure::session::{Elapsed, Session};
use crate::model::check::Goal;
use crate::model::number::count;
use crate::model::table::Table;
use rowsource_tests::oltp::CURSORS;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::statistics::median;
use rowsource_tests::{SHIPPED, Server};

const SETTINGS: [&str; 6] = [
    SHIPPED,
    "shared_preload_libraries = 'pg_rowsource'",
    "shared_buffers = '512MB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "plan_cache_mode = force_generic_plan",
];

/// A way to run the procedure: its name, how its statements are measured, and the arguments of the trace's
/// start.
type Variant = (&'static str, &'static str, Option<&'static str>);
const BASIC: &str = "SET pg_rowsource.statistics_level = basic";
const MEASURED: &str = "SET pg_rowsource.track = 'all'; SET pg_rowsource.statistics_level = typical";
/// The first one is what the others are compared with: a trace measures, and so does the session without a
/// trace.
const VARIANTS: [Variant; 4] = [
    ("measured, not traced", MEASURED, None),
    ("neither measured nor traced", BASIC, None),
    ("traced without waits", MEASURED, Some("with_waits => false")),
    ("traced with waits", MEASURED, Some("with_waits => true")),
];
const TRACED: usize = 3;

struct Run {
    elapsed: Elapsed,
    /// The bytes of the file.
    bytes: f64,
    /// Lines that were lost.
    lost: f64,
}

pub fn run(context: &mut ExperimentContext) {
    let loops = context.sizes.of(200, 5000);
    let rounds = context.sizes.rounds(1, 9);
    context.setting("loops", loops);
    context.setting("rounds", rounds);
    context.at(0.0, "loading");
    let server = Server::start("trace-cost", &SETTINGS);
    context.server(&server);
    create(&mut server.connect(), 1);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let mut session = Session::loaded(&server);
    session.run("SET pg_rowsource.sampfreq = 128");
    let call = format!("CALL oltp({loops})");
    let names = VARIANTS.map(|variant| variant.0.to_owned());
    context.begin_part(0.05, 1.0);
    let series = interleave(context, "trace", &names, rounds, |at| {
        one(&mut session, &VARIANTS[at], &call)
    });
    let statements = (loops * CURSORS.len() as u64) as f64;
    let cpu = |run: &Run| run.elapsed.cpu_s;
    let (of_cpu, of_elapsed) = (
        ratios_to_first(&series, cpu),
        ratios_to_first(&series, |run| run.elapsed.wall_s),
    );
    let mut table = Table::new(
        &format!("OLTP-like: `{call}`, {} statements", count(statements)),
        "Ratios to the procedure that is measured and not traced, by pairs of a round. The original took 1.90 times as long when traced.",
        &[
            "",
            "CPU s",
            "CPU ratio",
            "elapsed ratio",
            "added us a statement",
            "bytes a statement",
        ],
    );
    for (at, line) in series.iter().enumerate() {
        let bytes = median(&line.of(|run| run.bytes)) / statements;
        table.row([
            line.name.clone(),
            format!("{:.3}", median(&line.of(cpu))),
            of_cpu[at].as_ratio(),
            of_elapsed[at].as_ratio(),
            if at == 0 {
                String::new()
            } else {
                format!("{:+.2}", median_added(&series, at, cpu) * 1e6 / statements)
            },
            VARIANTS[at].2.map_or(String::new(), |_| count(bytes)),
        ]);
        context.measured("oltp", &line.name, "CPU s", &line.of(cpu));
        context.measured(
            "oltp",
            &line.name,
            "elapsed s",
            &line.of(|run| run.elapsed.wall_s),
        );
        if VARIANTS[at].2.is_some() {
            let lost = line.of(|run| run.lost);
            context.assert_exact(
                format!("{}: lines that were lost", line.name),
                0,
                count(median(&lost)),
                lost.iter().all(|lost| *lost == 0.0),
            );
        }
    }
    context.table(table);
    context.goal(
        "CPU time of the procedure traced with waits at sampfreq 128, as a ratio to the measured one without a trace",
        &Goal::at_most(1.05),
        &of_cpu[TRACED],
    );
}

/// Runs the procedure once. PL/pgSQL fetches the rows of its cursors by tens inside a transaction block.
fn one(session: &mut Session, (_, setting, trace): &Variant, call: &str) -> Run {
    session.run(setting);
    if let Some(arguments) = trace {
        session.run(&format!("SELECT rowsource_trace_start({arguments})"));
    }
    session.run("BEGIN");
    let elapsed = session.time(call);
    session.run("COMMIT");
    let mut run = Run {
        elapsed,
        bytes: 0.0,
        lost: 0.0,
    };
    if trace.is_some() {
        session.run("SELECT rowsource_trace_stop()");
        let mut of_last = |column: &str| -> f64 {
            let found: i64 = value(
                &mut session.client,
                &format!("SELECT {column}::bigint FROM rowsource_trace_files ORDER BY part DESC LIMIT 1"),
            );
            found as f64
        };
        (run.bytes, run.lost) = (of_last("bytes"), of_last("lost_lines"));
    }
    session.run(BASIC);
    run
}
