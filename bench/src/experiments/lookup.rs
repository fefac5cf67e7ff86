//! A million lookups of single rows by primary key in a PL/pgSQL loop. In the original, auditing code that
//! audited nothing made such lookups slow. Here pgaudit is loaded and audits nothing.

use crate::measure::context::ExperimentContext;
use crate::measure::phases::{self, Phases};
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::measure::session::{Elapsed, Session};
use crate::model::number::{count, difference};
use crate::model::table::Table;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::statistics::median;
use rowsource_tests::{SHIPPED, Server};

const SETTINGS: [&str; 5] = [
    SHIPPED,
    "shared_buffers = '512MB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "plan_cache_mode = force_generic_plan",
];

struct Variant {
    name: &'static str,
    libraries: &'static str,
    measured: bool,
}

/// The first variant is the base of the ratios.
const VARIANTS: [Variant; 5] = [
    Variant {
        name: "nothing loaded",
        libraries: "",
        measured: false,
    },
    Variant {
        name: "pg_rowsource, basic",
        libraries: "pg_rowsource",
        measured: false,
    },
    Variant {
        name: "pg_rowsource, track all",
        libraries: "pg_rowsource",
        measured: true,
    },
    Variant {
        name: "pgaudit",
        libraries: "pgaudit",
        measured: false,
    },
    Variant {
        name: "pgaudit + pg_rowsource, track all",
        libraries: "pgaudit, pg_rowsource",
        measured: true,
    },
];
/// Variants that the findings compare.
const MEASURED: usize = 2;
const AUDIT: usize = 3;
const BOTH: usize = 4;

struct Run {
    elapsed: Elapsed,
    shown: Option<Shown>,
}

/// What the views show of the lookups, if they were measured: executions, and the milliseconds of the
/// statement and of its node.
#[derive(Clone, Copy)]
struct Shown {
    calls: f64,
    statement_ms: f64,
    node_ms: f64,
}

pub fn run(context: &mut ExperimentContext) {
    let rows = context.sizes.of(10_000, 1_000_000);
    let rounds = context.sizes.rounds(1, 5);
    context.setting("lookups", rows);
    context.setting("rounds", rounds);
    context.at(0.0, "loading");
    let mut original = Server::start("lookup", &SETTINGS);
    context.server(&original);
    let mut client = original.connect();
    run_each(
        &mut client,
        &format!(
            "CREATE TABLE lookup AS SELECT i AS id, md5(i::text) AS v FROM generate_series(1, {rows}) i;
             ALTER TABLE lookup ADD PRIMARY KEY (id); VACUUM (FREEZE, ANALYZE) lookup"
        ),
    );
    client
        .batch_execute(
            "CREATE PROCEDURE lookups(loops int) LANGUAGE plpgsql AS $$DECLARE found text;
             BEGIN FOR i IN 1..loops LOOP SELECT v INTO STRICT found FROM lookup WHERE id = i; END LOOP; END$$",
        )
        .expect("the procedure");
    drop(client);
    original.stop();
    let audited = environment().has_library("pgaudit");
    if !audited {
        context.finding("pgaudit is not installed here and is not compared.");
    }
    let variants = if audited {
        &VARIANTS[..]
    } else {
        &VARIANTS[..AUDIT]
    };
    let mut servers: Vec<Server> = variants
        .iter()
        .enumerate()
        .map(|(at, variant)| {
            let preload = format!("shared_preload_libraries = '{}'", variant.libraries);
            let mut all = vec![preload.as_str()];
            all.extend(SETTINGS);
            let server = Server::copy_of(&original, &format!("lookup{at}"), &all);
            if variant.libraries.contains("pg_rowsource") {
                run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
            }
            server
        })
        .collect();
    let mut sessions: Vec<Session> = servers.iter().map(Session::new).collect();
    for (session, variant) in sessions.iter_mut().zip(variants) {
        if variant.libraries.contains("pg_rowsource") {
            session.run("SET pg_rowsource.statistics_level = basic");
        }
    }
    let call = format!("CALL lookups({rows})");
    let names: Vec<String> = variants.iter().map(|variant| variant.name.to_string()).collect();
    context.begin_part(0.05, 0.85);
    let series = interleave(context, "lookups", &names, rounds, |at| {
        one(&mut sessions[at], &variants[at], &call)
    });
    let cpu = ratios_to_first(&series, |run| run.elapsed.cpu_s);
    let elapsed = ratios_to_first(&series, |run| run.elapsed.wall_s);
    let each_us = |seconds: f64| seconds * 1e6 / rows as f64;
    let mut table = Table::new(
        &format!("{} lookups by primary key in a PL/pgSQL loop", count(rows as f64)),
        "Shown: the mean time of one lookup in pg_stat_rowsource_plans, and of its node in pg_stat_rowsource. A million lookups \
         in the original took 31.0 s in 11.1, 46.2 s in 11.2 with auditing code that audited nothing, and 32.4 s without it.",
        &[
            "",
            "elapsed s",
            "ratio",
            "CPU ratio",
            "us a lookup",
            "shown: statement us",
            "node us",
        ],
    );
    for (at, line) in series.iter().enumerate() {
        let seconds = line.of(|run| run.elapsed.wall_s);
        let shown = |value: fn(&Shown) -> f64| match variants[at].measured {
            true => format!("{:.3}", median(&line.of(|run| shown_us(run, value)))),
            false => String::new(),
        };
        table.row([
            line.name.clone(),
            format!("{:.2}", median(&seconds)),
            elapsed[at].as_ratio(),
            cpu[at].as_ratio(),
            format!("{:.3}", each_us(median(&seconds))),
            shown(|shown| shown.statement_ms),
            shown(|shown| shown.node_ms),
        ]);
        context.measured("lookups", &line.name, "elapsed s", &seconds);
        context.measured("lookups", &line.name, "CPU s", &line.of(|run| run.elapsed.cpu_s));
        if variants[at].measured {
            let statement = line.of(|run| shown_us(run, |shown| shown.statement_ms));
            context.measured("lookups", &line.name, "shown us a statement", &statement);
            let counted = line.of(|run| run.shown.map_or(0.0, |shown| shown.calls));
            context.assert_exact(
                format!("lookups that the view counts, {}", line.name),
                count(rows as f64),
                count(median(&counted)),
                counted.iter().all(|&found| found == rows as f64),
            );
        }
    }
    context.table(table);
    let mut shown_of_audit = None;
    if audited {
        let added = |value: &dyn Fn(&Run) -> f64, with: usize, without: usize| {
            let pairs = series[with].of(value).into_iter().zip(series[without].of(value));
            median(&pairs.map(|(with, without)| with - without).collect::<Vec<_>>())
        };
        let cost = each_us(added(&|run| run.elapsed.cpu_s, AUDIT, 0));
        let shown = added(&|run| shown_us(run, |shown| shown.statement_ms), BOTH, MEASURED);
        shown_of_audit = Some((cost, shown));
    }
    drop(sessions);
    context.begin_part(0.85, 1.0);
    let audit = by_phase(context, variants, &mut servers);
    if let (Some((cost, shown)), Some(audit)) = (shown_of_audit, audit) {
        context.finding(format!(
            "pgaudit, which audits nothing here, adds {cost:+.3} us of CPU time to a lookup: {} instructions, {} of them while \
             the plan runs, which is when pg_rowsource measures. The time that the view shows of a lookup changes by \
             {shown:+.3} us.",
            difference(audit.total()),
            difference(audit.run()),
        ));
    }
}

/// Returns the microseconds of one lookup that the view shows.
fn shown_us(run: &Run, value: fn(&Shown) -> f64) -> f64 {
    run.shown
        .map_or(0.0, |shown| value(&shown) * 1000.0 / shown.calls)
}

/// Runs the lookups once.
fn one(session: &mut Session, variant: &Variant, call: &str) -> Run {
    if !variant.measured {
        return Run {
            elapsed: session.time(call),
            shown: None,
        };
    }
    session.run(
        "SELECT rowsource_reset(); SET pg_rowsource.track = 'all'; SET pg_rowsource.statistics_level = typical",
    );
    let elapsed = session.time(call);
    session.run("SET pg_rowsource.statistics_level = basic");
    let cells = texts(
        &mut session.client,
        "SELECT p.calls, p.total_time, n.total_time
         FROM pg_stat_rowsource_plans p JOIN pg_stat_rowsource n USING (userid, datid, queryid, planid, toplevel)
         WHERE NOT p.toplevel AND n.object_name LIKE '%lookup_pkey%'",
    );
    assert_eq!(cells.len(), 1, "one lookup in the views: {cells:?}");
    let number = |at: usize| -> f64 {
        let cell = cells[0][at].as_deref();
        cell.and_then(|cell| cell.parse().ok()).expect("a number")
    };
    Run {
        elapsed,
        shown: Some(Shown {
            calls: number(0),
            statement_ms: number(1),
            node_ms: number(2),
        }),
    }
}

/// Counts the instructions of one lookup by phase. Stops the servers. Returns what pgaudit adds, if it was
/// counted.
fn by_phase(context: &mut ExperimentContext, variants: &[Variant], servers: &mut [Server]) -> Option<Phases> {
    let mut columns = vec![""];
    columns.extend(phases::NAMES);
    let mut table = Table::new(
        "Instructions of one lookup, by phase of the executor",
        "The first line has all instructions, the others what a library adds to them.",
        &columns,
    );
    let mut base: Option<Phases> = None;
    let mut audit = None;
    for (at, (variant, server)) in variants.iter().zip(servers).enumerate() {
        context.at(
            at as f64 / variants.len() as f64,
            &format!("instructions, {}", variant.name),
        );
        // A quick run counts only what the finding above needs.
        if context.sizes.quick && at != 0 && at != AUDIT {
            continue;
        }
        server.stop();
        let before = match (variant.libraries.contains("pg_rowsource"), variant.measured) {
            (true, true) => "SET pg_rowsource.track = 'all';\n\n",
            (true, false) => "SET pg_rowsource.statistics_level = basic;\n\n",
            _ => "",
        };
        let found = phases::of_one(
            &server.data(),
            &[&format!("shared_preload_libraries={}", variant.libraries)],
            before,
            "found text;",
            "SELECT v INTO STRICT found FROM lookup WHERE id = i;",
        );
        let mut row = vec![variant.name.to_string()];
        match &base {
            None => {
                row.extend(found.0.map(count));
                base = Some(found);
            }
            Some(base) => {
                let over = found.over(base);
                row.extend(over.0.map(difference));
                if at == AUDIT {
                    audit = Some(over);
                }
            }
        }
        table.row(row);
        context.measured("instructions", variant.name, "by phase", &found.0);
    }
    context.table(table);
    audit
}
