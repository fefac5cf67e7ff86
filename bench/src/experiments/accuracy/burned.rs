//! Statements that burn a known time in known nodes (`rowsource_tests::adversarial`).

use super::frequencies::SAMPFREQS;
use crate::measure::context::ExperimentContext;
use crate::model::chart::{BarChart, BarSeries};
use crate::model::check::Goal;
use crate::model::spread::Spread;
use crate::model::spread::spread;
use crate::model::table::Table;
use rowsource_tests::SHIPPED;
use rowsource_tests::adversarial::{CASES, ROWS, base_times, create_tables, ratios, with_burning};
use rowsource_tests::measured::children_above_parents;
use rowsource_tests::session::run_each;
use rowsource_tests::{Server, burn, measure};
use std::collections::BTreeMap;

/// The goal for the distance from the truth at every frequency.
const FAR: f64 = 0.10;
/// The number of cases of a quick run.
const FEW: usize = 3;

/// Runs the cases. Returns how many nodes were above their parents.
pub fn run(context: &mut ExperimentContext) -> usize {
    let runs = context.sizes.rounds(2, 5);
    context.setting("runs of each burning statement", runs);
    let cases = if context.sizes.quick { &CASES[..FEW] } else { CASES };
    context.at(0.0, "tables of the burning statements");
    let server = Server::preloaded(
        "accuracy",
        &[SHIPPED, "shared_buffers = '512MB'", "work_mem = '128MB'"],
    );
    context.server(&server);
    burn::create(&mut server.connect());
    create_tables(&mut server.connect(), ROWS);
    let mut columns = vec!["case".to_string(), "node".to_string()];
    columns.extend(SAMPFREQS.map(|sampfreq| format!("sampfreq {sampfreq}")));
    let mut table = Table::new(
        "Estimated over true time: statements that burn a known time",
        "Median over the runs, with the lowest and the highest. True: the time that was burned, plus the time of the plan \
         without burning. A node that burns nothing is listed only if its estimate is more than a twentieth of the \
         statement's time.",
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut plotted: Vec<(String, Vec<Option<Spread>>)> = Vec::new();
    let mut above = 0;
    let mut farthest: [Option<Spread>; SAMPFREQS.len()] = [None; SAMPFREQS.len()];
    for (at, case) in cases.iter().enumerate() {
        let mut client = server.session();
        run_each(
            &mut client,
            "SET max_parallel_workers_per_gather = 0; SET jit = off",
        );
        run_each(&mut client, case.settings);
        context.at(
            (at as f64 + 0.1) / cases.len() as f64,
            &format!("{}, without burning", case.name),
        );
        let base = base_times(&mut client, &with_burning(case.statement, false));
        let statement = with_burning(case.statement, true);
        let mut found: BTreeMap<String, [Vec<f64>; SAMPFREQS.len()]> = BTreeMap::new();
        for run in 0..runs {
            let done = (at as f64 + 0.3 + 0.7 * run as f64 / runs as f64) / cases.len() as f64;
            context.at(done, case.name);
            for (which, sampfreq) in SAMPFREQS.into_iter().enumerate() {
                run_each(&mut client, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
                let (nodes, burned_ms) = burn::during(&mut client, |client| measure(client, &statement));
                assert_eq!(nodes.len(), base.len(), "{}: another plan: {nodes:#?}", case.name);
                above += children_above_parents(&nodes);
                // Nodes with the same name in one run, such as nested aggregates, are distinguished by their
                // order.
                let mut seen: BTreeMap<String, usize> = BTreeMap::new();
                for (node, ratio) in ratios(case, &nodes, &base, burned_ms) {
                    let times = seen
                        .entry(node.clone())
                        .and_modify(|times| *times += 1)
                        .or_insert(1);
                    let name = if *times > 1 {
                        format!("{node} ({times})")
                    } else {
                        node
                    };
                    found.entry(name).or_default()[which].push(ratio);
                }
            }
        }
        for (node, values) in &found {
            let mut row = vec![format!("{}. {}", at + 1, case.name), node.clone()];
            let mut spreads = Vec::new();
            for (which, values) in values.iter().enumerate() {
                context.measured(
                    format!("{}, {node}", case.name),
                    &format!("sampfreq {}", SAMPFREQS[which]),
                    "estimate/truth",
                    values,
                );
                let found = (values.len() > runs / 2).then(|| spread(values));
                if let Some(found) = found {
                    let distance = |spread: &Spread| (spread.median - 1.0).abs();
                    if farthest[which].is_none_or(|farthest| distance(&farthest) < distance(&found)) {
                        farthest[which] = Some(found);
                    }
                }
                row.push(found.map_or(String::new(), |found| found.as_ratio()));
                spreads.push(found);
            }
            if spreads.iter().any(Option::is_some) {
                table.row(row);
            }
            if node == case.burns_in.0 {
                plotted.push((format!("case {}", at + 1), spreads));
            }
        }
    }
    context.table(table);
    for (sampfreq, farthest) in SAMPFREQS.iter().zip(farthest) {
        context.goal(
            format!("burning statements: estimate over truth of the farthest node at sampfreq {sampfreq}"),
            &Goal::one_within(FAR),
            &farthest.expect("every frequency measured a node"),
        );
    }
    context.plot(BarChart {
        name: "accuracy-burned".to_string(),
        title: "Estimated over true time, of the node that burns".to_string(),
        axis: "ratio".to_string(),
        logarithmic: false,
        groups: plotted.iter().map(|(case, _)| case.clone()).collect(),
        series: SAMPFREQS
            .iter()
            .enumerate()
            .map(|(which, sampfreq)| BarSeries {
                name: format!("sampfreq {sampfreq}"),
                values: plotted.iter().map(|(_, spreads)| spreads[which]).collect(),
            })
            .collect(),
    });
    above
}
