//! Narrow scans, in which a call takes tens of nanoseconds, too little to burn a known time in it. The truth comes from
//! unmeasured runs in parts: the whole statement, and its scan alone as a cursor that MOVE runs to its end. The cursor
//! runs only the executor's own loop, which adds two or three nanoseconds a row to the scan's truth.
//!
//! All times are CPU times, because other work on the machine is not part of the truth. Estimates are of elapsed time;
//! each is multiplied by its run's ratio of CPU time to elapsed time.

use super::frequencies::SAMPFREQS;
use crate::measure::context::ExperimentContext;
use crate::measure::narrow::{self, SCANS};
use crate::measure::rounds::interleave;
use crate::measure::session::{Elapsed, Session};
use crate::model::check::Goal;
use crate::model::number::count;
use crate::model::spread::ratio;
use crate::model::table::Table;
use rowsource_tests::explain::first_column;
use rowsource_tests::measured::{children_above_parents, measured_nodes};
use rowsource_tests::statistics::median;
use rowsource_tests::{MeasuredNode, Server};

/// The goal for the distance from the truth.
const FAR: f64 = 0.10;
/// The variants that stand before those of [`SAMPFREQS`].
const PARTS: [&str; 2] = ["the statement, unmeasured", "its scan alone, unmeasured"];

struct Run {
    elapsed: Elapsed,
    nodes: Vec<MeasuredNode>,
}

impl Run {
    fn cpu_ms(&self) -> f64 {
        self.elapsed.cpu_s * 1000.0
    }

    /// Returns a node's estimate in CPU time.
    fn estimate_ms(&self, node: usize) -> f64 {
        self.nodes[node].total_ms.expect("the node is timed") * self.elapsed.cpu_s / self.elapsed.wall_s
    }
}

/// Runs the scans. Returns how many nodes were above their parents.
pub fn run(context: &mut ExperimentContext) -> usize {
    let rows = context.sizes.of(200_000, 5_000_000);
    let rounds = context.sizes.rounds(2, 7);
    context.setting("rows of the narrow scans", rows);
    context.setting("rounds of the narrow scans", rounds);
    context.at(0.0, "loading narrow rows");
    let server = Server::start("narrow", &narrow::SETTINGS);
    narrow::load(&mut server.connect(), rows);
    let mut plain = Session::new(&server);
    // Makes the planner optimise the cursor for all rows, as it does for the statement.
    plain.run("SET cursor_tuple_fraction = 1");
    let mut loaded = Session::loaded(&server);
    let names: Vec<String> = PARTS
        .iter()
        .map(|part| part.to_string())
        .chain(SAMPFREQS.map(|sampfreq| format!("sampfreq {sampfreq}")))
        .collect();
    let mut columns = vec!["scan".to_string(), "node".to_string(), "truth".to_string()];
    columns.extend(SAMPFREQS.map(|sampfreq| format!("sampfreq {sampfreq}")));
    let mut table = Table::new(
        &format!(
            "Estimated over true time: narrow scans of {} rows",
            count(rows as f64)
        ),
        "True: the same statement unmeasured, or its scan alone, in the same round. All in CPU time.",
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut above = 0;
    let (from, to) = context.part();
    for (at, (scan, settings, statement)) in SCANS.into_iter().enumerate() {
        context.begin_part(
            from + (to - from) * (0.15 + 0.425 * at as f64),
            from + (to - from) * (0.575 + 0.425 * at as f64),
        );
        plain.run(settings);
        loaded.run(settings);
        let alone = statement.replace("count(pad)", "*");
        assert_same_scan(&mut plain, statement, &alone);
        let series = interleave(context, scan, &names, rounds, |variant| match variant {
            0 => Run {
                elapsed: plain.time(statement),
                nodes: Vec::new(),
            },
            1 => {
                plain.run("BEGIN");
                plain.run(&format!("DECLARE scan CURSOR FOR {alone}"));
                let elapsed = plain.time("MOVE FORWARD ALL IN scan");
                plain.run("COMMIT");
                Run {
                    elapsed,
                    nodes: Vec::new(),
                }
            }
            _ => {
                loaded.run(&format!(
                    "SET pg_rowsource.sampfreq = {}; SET pg_rowsource.statistics_level = typical",
                    SAMPFREQS[variant - PARTS.len()]
                ));
                let elapsed = loaded.time(statement);
                loaded.run("SET pg_rowsource.statistics_level = basic");
                let nodes = measured_nodes(&mut loaded.client);
                above += children_above_parents(&nodes);
                Run { elapsed, nodes }
            }
        });
        for (part, line) in series.iter().take(PARTS.len()).enumerate() {
            let truth = line.of(Run::cpu_ms);
            context.measured(scan, &line.name, "CPU ms", &truth);
            let mut row = vec![
                scan.to_string(),
                String::new(),
                format!("{:.1} ms", median(&truth)),
            ];
            for line in &series[PARTS.len()..] {
                // The statement's root is the first node, its scan the last.
                let node = |run: &Run| if part == 0 { 0 } else { run.nodes.len() - 1 };
                let estimates = line.of(|run| run.estimate_ms(node(run)));
                row[1] = line.values[0].nodes[node(&line.values[0])].operation.clone();
                context.measured(format!("{scan}, {}", row[1]), &line.name, "CPU ms", &estimates);
                let found = ratio(&estimates, &truth);
                row.push(found.as_ratio());
                if part == 1 {
                    context.goal(
                        format!("{scan}: {} at {}: estimate over truth", row[1], line.name),
                        &Goal::one_within(FAR),
                        &found,
                    );
                }
            }
            table.row(row);
        }
    }
    context.table(table);
    above
}

/// Checks that the cursor scans as the statement does.
fn assert_same_scan(session: &mut Session, statement: &str, alone: &str) {
    let scan = |session: &mut Session, statement: &str| {
        let plan = first_column(&mut session.client, &format!("EXPLAIN (COSTS OFF) {statement}"));
        let lines: Vec<String> = plan
            .iter()
            .filter(|line| line.contains("Scan"))
            .map(|line| line.trim_start_matches([' ', '-', '>']).to_string())
            .collect();
        lines.join("\n")
    };
    let (with, without) = (scan(session, statement), scan(session, alone));
    assert!(
        with == without && !with.is_empty(),
        "{statement}: {with}\n{alone}: {without}"
    );
}
