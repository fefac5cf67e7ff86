//! Narrow scans, where a call takes tens of nanoseconds and nothing can be burned. The truth is a run in parts that
//! nobody measures: the whole statement, and its scan alone, as a cursor that MOVE runs to its end - the executor's
//! own loop and nothing else, which adds two or three nanoseconds a row to the scan's truth.
//!
//! All in CPU time: what other work on the machine takes from a run is no part of the truth. An estimate, which is
//! of elapsed time, is shrunk by as much as its run was held up.

use super::SAMPFREQS;
use crate::lab::Lab;
use crate::narrow::{self, SCANS};
use crate::record::Table;
use crate::rounds::interleave;
use crate::session::{Session, Took};
use crate::statistics::{count, ratio};
use rowsource_tests::explain::first_column;
use rowsource_tests::measured::{children_above_parents, measured_nodes};
use rowsource_tests::statistics::median;
use rowsource_tests::{MeasuredNode, Server};

/// The goal for the median.
const FAR: f64 = 0.10;
/// The variants before those of [`SAMPFREQS`].
const PARTS: [&str; 2] = ["the statement, unmeasured", "its scan alone, unmeasured"];

struct Run {
    took: Took,
    nodes: Vec<MeasuredNode>,
}

impl Run {
    fn cpu_ms(&self) -> f64 {
        self.took.cpu_s * 1000.0
    }

    /// A node's estimate, in CPU time.
    fn estimate_ms(&self, node: usize) -> f64 {
        self.nodes[node].total_ms.expect("the node is timed") * self.took.cpu_s / self.took.elapsed_s
    }
}

/// Runs the scans, and returns how many nodes were above their parents.
pub fn run(lab: &mut Lab) -> usize {
    let rows = lab.sizes.of(200_000, 5_000_000);
    let rounds = lab.sizes.rounds(2, 7);
    lab.setting("rows of the narrow scans", rows);
    lab.setting("rounds of the narrow scans", rounds);
    lab.at(0.0, "loading narrow rows");
    let server = Server::start("narrow", &narrow::SETTINGS);
    narrow::load(&mut server.connect(), rows);
    let mut plain = Session::new(&server);
    // Else the planner favours what is fast at the start.
    plain.run("SET cursor_tuple_fraction = 1");
    let mut ours = Session::loaded(&server);
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
        "True: the same statement unmeasured, and its scan alone, in the same round. In CPU time.",
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut above = 0;
    let (from, to) = lab.the_part();
    for (at, (scan, settings, statement)) in SCANS.into_iter().enumerate() {
        lab.part(
            from + (to - from) * (0.15 + 0.425 * at as f64),
            from + (to - from) * (0.575 + 0.425 * at as f64),
        );
        plain.run(settings);
        ours.run(settings);
        let alone = statement.replace("count(pad)", "*");
        assert_same_scan(&mut plain, statement, &alone);
        let series = interleave(lab, scan, &names, rounds, |variant| match variant {
            0 => Run {
                took: plain.time(statement),
                nodes: Vec::new(),
            },
            1 => {
                plain.run("BEGIN");
                plain.run(&format!("DECLARE scan CURSOR FOR {alone}"));
                let took = plain.time("MOVE FORWARD ALL IN scan");
                plain.run("COMMIT");
                Run {
                    took,
                    nodes: Vec::new(),
                }
            }
            _ => {
                ours.run(&format!(
                    "SET pg_rowsource.sampfreq = {}; SET pg_rowsource.statistics_level = typical",
                    SAMPFREQS[variant - PARTS.len()]
                ));
                let took = ours.time(statement);
                ours.run("SET pg_rowsource.statistics_level = basic");
                let nodes = measured_nodes(&mut ours.client);
                above += children_above_parents(&nodes);
                Run { took, nodes }
            }
        });
        for (part, line) in series.iter().take(PARTS.len()).enumerate() {
            let truth = line.of(Run::cpu_ms);
            lab.measured(scan, &line.name, "CPU ms", &truth);
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
                lab.measured(format!("{scan}, {}", row[1]), &line.name, "CPU ms", &estimates);
                let found = ratio(&estimates, &truth);
                row.push(found.as_ratio());
                if part == 1 {
                    lab.aim(
                        format!("{scan}: {} at {}: estimate over truth", row[1], line.name),
                        format!("1 by {:.0} %", 100.0 * FAR),
                        found.as_ratio(),
                        (found.median - 1.0).abs() <= FAR,
                    );
                }
            }
            table.row(row);
        }
    }
    lab.table(table);
    above
}

/// The cursor must scan as the statement does.
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
