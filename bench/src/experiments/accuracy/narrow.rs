//! Narrow scans, in which a call takes tens of nanoseconds, too little to burn a known time in it. The truth
//! comes from unmeasured runs: the CPU time of the statement, and the share of it in which samples of the
//! stack find the scan. The samples read no clock in the statement, and add no work to a row.
//!
//! The speed of a virtual machine changes from one run to the next by more than what is to be shown. So the
//! estimate of the scan is compared with that share of the statement's time in the same run, which is exact.
//! That time includes what measuring costs.
//!
//! Beside it stands what the scan takes alone, as a cursor that MOVE runs to its end. It includes the
//! executor's own loop, two or three nanoseconds a row, and misses what the scan and the aggregate cost each
//! other.
//!
//! All times are CPU times, because other work on the machine is not part of the truth. Estimates are of
//! elapsed time; each is multiplied by its run's ratio of CPU time to elapsed time. Where the system allows
//! it, the sessions run before all other processes: a call that is interrupted would be a long one.

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
use rowsource_tests::stack_samples::Samples;
use rowsource_tests::statistics::median;
use rowsource_tests::{MeasuredNode, Server};
use std::time::Duration;

/// The goal for the distance from the truth.
const FAR: f64 = 0.05;
/// The variants that stand before those of [`SAMPFREQS`].
const PARTS: [&str; 3] = [
    "the statement, unmeasured",
    "its scan alone, unmeasured",
    "samples of the stack",
];
/// The function of PostgreSQL that each of the scans is in.
const SCAN: &str = "ExecScan";
const DISTANCE: Duration = Duration::from_micros(400);

struct Run {
    elapsed: Elapsed,
    nodes: Vec<MeasuredNode>,
    samples: Option<Samples>,
}

impl Run {
    fn unmeasured(elapsed: Elapsed) -> Run {
        Run {
            elapsed,
            nodes: Vec::new(),
            samples: None,
        }
    }

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
    plain.prefer();
    loaded.prefer();
    let names: Vec<String> = PARTS
        .iter()
        .map(|part| part.to_string())
        .chain(SAMPFREQS.map(|sampfreq| format!("sampfreq {sampfreq}")))
        .collect();
    let mut columns = ["scan", "node", "truth", "is"].map(String::from).to_vec();
    columns.extend(SAMPFREQS.map(|sampfreq| format!("sampfreq {sampfreq}")));
    let mut table = Table::new(
        &format!(
            "Estimated over true time: narrow scans of {} rows",
            count(rows as f64)
        ),
        "True: the same statement unmeasured, in the same round; its scan alone, as a cursor; and the share of the \
         samples of the unmeasured statement's stack in which the scan runs, of the time of the measured statement itself. All in CPU time.",
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
            0 => Run::unmeasured(plain.time(statement)),
            1 => {
                plain.run("BEGIN");
                plain.run(&format!("DECLARE scan CURSOR FOR {alone}"));
                let elapsed = plain.time("MOVE FORWARD ALL IN scan");
                plain.run("COMMIT");
                Run::unmeasured(elapsed)
            }
            2 => Run {
                samples: plain.sample(statement, SCAN, DISTANCE),
                ..Run::unmeasured(Elapsed {
                    wall_s: 0.0,
                    cpu_s: 0.0,
                })
            },
            _ => {
                loaded.run(&format!(
                    "SET pg_rowsource.sampfreq = {}; SET pg_rowsource.statistics_level = typical",
                    SAMPFREQS[variant - PARTS.len()]
                ));
                let elapsed = loaded.time(statement);
                loaded.run("SET pg_rowsource.statistics_level = basic");
                let nodes = measured_nodes(&mut loaded.client);
                above += children_above_parents(&nodes);
                Run {
                    elapsed,
                    nodes,
                    samples: None,
                }
            }
        });
        let [whole, alone] = [0, 1].map(|part| series[part].of(Run::cpu_ms));
        let samples: Vec<Samples> = series[2].values.iter().filter_map(|run| run.samples).collect();
        let all: usize = samples.iter().map(|samples| samples.all).sum();
        let inside: usize = samples.iter().map(|samples| samples.inside).sum();
        // Each round's samples are few: all of them together tell the share.
        let share = (all > 0).then(|| inside as f64 / all as f64);
        let sampled = share.map(|share| whole.iter().map(|ms| ms * share).collect::<Vec<_>>());
        if let Some(share) = share {
            let error = (share * (1.0 - share) / all as f64).sqrt() / share;
            context.finding(format!(
                "{scan}: the scan runs in {inside} of {} samples of the unmeasured statement ({:.1} %, standard error {:.1} % of that).",
                count(all as f64),
                share * 100.0,
                error * 100.0
            ));
        }
        let mut truths = vec![("statement", whole), ("scan alone, as a cursor", alone)];
        truths.extend(sampled.map(|sampled| ("scan, by samples", sampled)));
        let best = truths.len() - 1;
        for (at, (truth, values)) in truths.into_iter().enumerate() {
            context.measured(scan, truth, "CPU ms", &values);
            let mut row = vec![
                scan.to_string(),
                String::new(),
                truth.to_string(),
                format!("{:.1} ms", median(&values)),
            ];
            for line in &series[PARTS.len()..] {
                // The statement's root is the first node, its scan the last.
                let node = |run: &Run| if at == 0 { 0 } else { run.nodes.len() - 1 };
                let estimates = line.of(|run| run.estimate_ms(node(run)));
                row[1] = line.values[0].nodes[node(&line.values[0])].operation.clone();
                context.measured(format!("{scan}, {}", row[1]), &line.name, "CPU ms", &estimates);
                let found = match share {
                    Some(share) if at == best => {
                        ratio(&estimates, &line.of(|run| run.estimate_ms(0) * share))
                    }
                    _ => ratio(&estimates, &values),
                };
                row.push(found.as_ratio());
                if at == best {
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
