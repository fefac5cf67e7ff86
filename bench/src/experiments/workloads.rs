//! The original's two procedures full of cursors, one OLTP-like and one warehouse-like, per frequency and clock; and
//! where the cost of measuring them comes from.

use crate::lab::Lab;
use crate::phases::{self, Phases};
use crate::record::{Bars, Series as Bar, Table};
use crate::rounds::{Series, interleave, ratios_to_first};
use crate::session::{Session, Took};
use crate::statistics::{count, difference, ratios};
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
/// Keys of the OLTP-like tables.
const KEYS: u64 = 1000;
/// Rows of the three cursors.
const OLTP_ROWS: [u64; 3] = [22, 63, 10];
const WAREHOUSE_ROWS: [u64; 3] = [25_652, 32_095, 20_788];

/// The OLTP-like cursors: what they are, and their statement for the key `k`.
const CURSORS: [(&str, &str); 3] = [
    ("22 rows by index", "SELECT * FROM few WHERE key = k"),
    ("63 rows by index", "SELECT * FROM many WHERE key = k"),
    (
        "10 rows by nested loop",
        "SELECT h.key, d.v FROM heads h JOIN details d ON d.id = h.detail WHERE h.key = k",
    ),
];

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
    where_from(lab, &bare, &measuring);
}

fn create(client: &mut Client, periods: u64) {
    let [few, many, nested] = OLTP_ROWS;
    let [first, second, third] = WAREHOUSE_ROWS;
    let loop_over = |statement: &str| format!("FOR r IN {statement} LOOP n := n + 1; END LOOP;");
    let oltp: String = CURSORS
        .iter()
        .map(|(_, statement)| loop_over(statement))
        .collect();
    let warehouse: String = [
        "SELECT * FROM first WHERE period = p",
        "SELECT * FROM second WHERE period = p",
        "SELECT t.v, d.v FROM third t JOIN dims d ON d.id = t.dim WHERE t.period = p",
    ]
    .map(loop_over)
    .concat();
    run_each(
        client,
        &format!(
            "CREATE TABLE few AS SELECT k AS key, i, md5(i::text) AS v FROM generate_series(1, {KEYS}) k, generate_series(1, {few}) i;
             CREATE TABLE many AS SELECT k AS key, i, md5(i::text) AS v FROM generate_series(1, {KEYS}) k, generate_series(1, {many}) i;
             CREATE TABLE heads AS SELECT k AS key, k * {nested} + i AS detail FROM generate_series(1, {KEYS}) k, generate_series(1, {nested}) i;
             CREATE TABLE details AS SELECT detail AS id, md5(detail::text) AS v FROM heads;
             CREATE INDEX ON few (key); CREATE INDEX ON many (key); CREATE INDEX ON heads (key);
             ALTER TABLE details ADD PRIMARY KEY (id);
             CREATE TABLE first AS SELECT p AS period, i AS v FROM generate_series(1, {first}) i, generate_series(1, {periods}) p;
             CREATE TABLE second AS SELECT p AS period, i AS v FROM generate_series(1, {second}) i, generate_series(1, {periods}) p;
             CREATE TABLE third AS SELECT p AS period, i % 2000 AS dim, i AS v
                 FROM generate_series(1, {third}) i, generate_series(1, {periods}) p;
             CREATE TABLE dims AS SELECT i AS id, md5(i::text) AS v FROM generate_series(0, 1999) i;
             VACUUM (FREEZE, ANALYZE)"
        ),
    );
    let procedure = |name: &str, arguments: &str, set: &str, body: &str, rows: u64| {
        format!(
            "CREATE PROCEDURE {name}({arguments}) LANGUAGE plpgsql AS $$
             DECLARE r record; n bigint := 0; k int; p int;
             BEGIN
                 FOR i IN 1..loops LOOP {set} {body} END LOOP;
                 IF n <> {rows}::bigint * loops THEN RAISE EXCEPTION '{name} saw % rows', n; END IF;
             END$$"
        )
    };
    let oltp_rows = OLTP_ROWS.iter().sum();
    let warehouse_rows = WAREHOUSE_ROWS.iter().sum();
    for sql in [
        procedure(
            "oltp",
            "loops int",
            &format!("k := i % {KEYS} + 1;"),
            &oltp,
            oltp_rows,
        ),
        procedure(
            "warehouse",
            "loops int, periods int",
            "p := i % periods + 1;",
            &warehouse,
            warehouse_rows,
        ),
    ] {
        client
            .batch_execute(&sql)
            .unwrap_or_else(|error| panic!("{sql}\n{error}"));
    }
    run_each(client, "CHECKPOINT");
}

/// The usable sources and the nanoseconds of a reading, that which `auto` picks first.
fn clocks(client: &mut Client) -> Vec<(String, f64)> {
    texts(
        client,
        "SELECT clock_source, reading_ns FROM rowsource_clocks() WHERE usable ORDER BY NOT auto",
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
                let client = &mut ours.client;
                let all = |client: &mut Client, what: &str| {
                    value::<i64>(
                        client,
                        &format!("SELECT coalesce(sum({what}), 0)::bigint FROM {}", table_of(what)),
                    ) as f64
                };
                Run {
                    took,
                    timer_calls: all(client, "timer_calls"),
                    statements: all(client, "calls"),
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

/// The view that has a figure.
fn table_of(figure: &str) -> &'static str {
    match figure {
        "calls" => "pg_stat_rowsource_plans",
        _ => "pg_stat_rowsource",
    }
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

/// Instructions of the OLTP-like cursors by phase: the answer to where the cost comes from.
fn where_from(lab: &mut Lab, bare: &Server, measuring: &Server) {
    let variants: [(&str, &Server, &str, &str); 3] = [
        ("nothing loaded", bare, "shared_preload_libraries=", ""),
        (
            "basic",
            measuring,
            "shared_preload_libraries=pg_rowsource",
            "SET pg_rowsource.statistics_level = basic;\n\n",
        ),
        (
            "sampfreq 128",
            measuring,
            "shared_preload_libraries=pg_rowsource",
            "SET pg_rowsource.track = 'all';\n\n",
        ),
    ];
    let mut columns = vec!["cursor", ""];
    columns.extend(phases::NAMES);
    let mut table = Table::new(
        "Where from: instructions of one OLTP-like cursor in a loop, by phase of the executor",
        "The first line of each cursor is all of its instructions with nothing loaded, the others are what they add to it. \
         Start, run, finish, end: the executor's four entries, with what the hooks do there; elsewhere: parsing, planning, \
         PL/pgSQL, memory.",
        &columns,
    );
    // What is asked of each cursor: by tens, and of the first two also one by one. A quick run leaves the last out.
    let mut asked: Vec<(&str, &str, bool)> = Vec::new();
    for one_by_one in [false, true] {
        asked.extend(
            CURSORS[..2]
                .iter()
                .map(|&(name, statement)| (name, statement, one_by_one)),
        );
    }
    asked.push((CURSORS[2].0, CURSORS[2].1, false));
    // Level basic too, but in a quick run.
    let (asked, shown) = match lab.sizes.quick {
        true => (&asked[..2], &variants[2..]),
        false => (&asked[..], &variants[1..]),
    };
    let mut added: Vec<Vec<Phases>> = Vec::new();
    for (at, &(cursor, statement, one_by_one)) in asked.iter().enumerate() {
        let fetched = if one_by_one { ", rows one by one" } else { "" };
        let cursor = format!("{cursor}{fetched}");
        let mut count_of = |&(name, server, preload, before): &(&str, &Server, &str, &str)| {
            lab.at(
                at as f64 / asked.len() as f64,
                &format!("instructions of {cursor}, {name}"),
            );
            let begin = if one_by_one { "" } else { "BEGIN;\n\n" };
            let found = phases::of_one(
                &server.data(),
                &[preload],
                &format!("{before}{begin}"),
                "r record; n bigint := 0; k int;",
                &format!("k := i % {KEYS} + 1; FOR r IN {statement} LOOP n := n + 1; END LOOP;"),
            );
            lab.measured(format!("instructions: {cursor}"), name, "by phase", &found.0);
            found
        };
        let base = count_of(&variants[0]);
        let over: Vec<Phases> = shown
            .iter()
            .map(|variant| count_of(variant).over(&base))
            .collect();
        let mut row = vec![cursor.clone(), variants[0].0.to_string()];
        row.extend(base.0.map(count));
        table.row(row);
        for ((name, ..), over) in shown.iter().zip(&over) {
            let mut row = vec![cursor.clone(), name.to_string()];
            row.extend(over.0.map(difference));
            table.row(row);
        }
        added.push(over);
    }
    lab.table(table);
    // The last of those shown is the measured one.
    let measured = |cursor: usize| *added[cursor].last().expect("a variant");
    let rows = (OLTP_ROWS[1] - OLTP_ROWS[0]) as f64;
    let a_row = |few: usize, many: usize| (measured(many).run() - measured(few).run()) / rows;
    let all = measured(0).in_all();
    let of_rows = a_row(0, 1) * OLTP_ROWS[0] as f64;
    lab.finding(format!(
        "Of the {} instructions that measuring at 1/128 adds to the cursor of {} rows, {} are its rows' ({:.0} a row, clock \
         readings included) and {} the statement's own, which it pays once however many rows it has: set-up, the four entries, \
         and the way to the store.",
        count(all),
        OLTP_ROWS[0],
        count(of_rows),
        a_row(0, 1),
        count(all - of_rows),
    ));
    if added.len() > 3 {
        let basic = |cursor: usize| added[cursor][0].run();
        lab.finding(format!(
            "Where PL/pgSQL fetches rows one by one, in procedures that could commit, each row is a run of the executor of its own, \
             and a row costs {:.0} instructions more at 1/128, {:.0} at level basic.",
            a_row(2, 3),
            (basic(3) - basic(2)) / rows,
        ));
    }
}
