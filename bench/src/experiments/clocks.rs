//! The original's table of clock modes: the same scans with every call timed, for each clock source.

use crate::measure::context::ExperimentContext;
use crate::measure::narrow::{self, Run, readings_of_every_call};
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::measure::session::Session;
use crate::model::chart::{BarChart, BarSeries};
use crate::model::number::count;
use crate::model::table::Table;
use rowsource_tests::session::texts;
use rowsource_tests::statistics::median;

/// The original's full index scan with 40,000,640 timer calls: the source by its name here, and CPU seconds.
const ORIGINAL: [(&str, f64); 3] = [("syscall", 11.50), ("system", 5.12), ("coarse", 5.40)];
/// The original's CPU seconds at sampfreq 0.
const ORIGINAL_AT_0: f64 = 2.62;
const SAMPFREQS: [u32; 2] = [1, 128];

pub fn run(context: &mut ExperimentContext) {
    let rounds = context.sizes.rounds(2, 7);
    context.setting("rounds", rounds);
    let (server, rows) = narrow::server(context, "clocks");
    let mut plain = Session::new(&server);
    let mut loaded = Session::loaded(&server);
    let sources = survey(context, &mut loaded);
    let variants: Vec<(&str, u32)> = sources
        .iter()
        .flat_map(|source| SAMPFREQS.map(|sampfreq| (source.as_str(), sampfreq)))
        .collect();
    let names: Vec<String> = std::iter::once("not loaded".to_string())
        .chain(
            variants
                .iter()
                .map(|(source, sampfreq)| format!("{source}, 1/{sampfreq}")),
        )
        .collect();
    for (at, (scan, settings, statement)) in narrow::SCANS.into_iter().enumerate() {
        let (from, to) = [(0.15, 0.5), (0.5, 1.0)][at];
        context.begin_part(from, to);
        plain.run(settings);
        loaded.run(settings);
        let series = interleave(context, scan, &names, rounds, |variant| {
            if variant == 0 {
                return Run::unmeasured(plain.time(statement));
            }
            let (source, sampfreq) = variants[variant - 1];
            let settings =
                format!("SET pg_rowsource.clock_source = {source}; SET pg_rowsource.sampfreq = {sampfreq}");
            Run::measured(&mut loaded, &settings, statement)
        });
        let cpu = |run: &Run| run.elapsed.cpu_s;
        let ratios = ratios_to_first(&series, cpu);
        let mut table = Table::new(
            &format!("{scan}, {} rows: `{statement}`", count(rows as f64)),
            "CPU time as a ratio to nothing loaded. Original: Oracle 11g, full index scan of 10 million rows with twice as many \
             readings, as a ratio to its own sampfreq 0.",
            &[
                "",
                "CPU s",
                "CPU ratio",
                "clock readings",
                "original: CPU s",
                "ratio",
            ],
        );
        for (variant, line) in series.iter().enumerate() {
            let original = variant
                .checked_sub(1)
                .map(|of| variants[of])
                .filter(|&(_, sampfreq)| at == 1 && sampfreq == 1)
                .and_then(|(source, _)| ORIGINAL.iter().find(|(name, _)| *name == source));
            table.row([
                line.name.clone(),
                format!("{:.3}", median(&line.of(cpu))),
                ratios[variant].as_ratio(),
                count(median(&line.of(|run| run.timer_calls))),
                original.map(|(_, cpu)| format!("{cpu:.2}")).unwrap_or_default(),
                original
                    .map(|(_, cpu)| format!("{:.2}", cpu / ORIGINAL_AT_0))
                    .unwrap_or_default(),
            ]);
            context.measured(scan, &line.name, "CPU s", &line.of(cpu));
            context.measured(scan, &line.name, "elapsed s", &line.of(|run| run.elapsed.wall_s));
            if variant > 0 && variants[variant - 1].1 == 1 {
                let wanted = readings_of_every_call(rows) as f64;
                let found = line.of(|run| run.timer_calls);
                context.assert_exact(
                    format!("{scan}: clock readings by {}", line.name),
                    count(wanted),
                    count(median(&found)),
                    found.iter().all(|&calls| calls == wanted),
                );
            }
        }
        context.table(table);
        context.plot(BarChart {
            name: format!("clocks-{}", scan.replace(' ', "-")),
            title: format!("CPU time, {scan}, by clock source, as a ratio to nothing loaded"),
            axis: "ratio".to_string(),
            logarithmic: true,
            groups: sources.clone(),
            series: SAMPFREQS
                .iter()
                .enumerate()
                .map(|(which, sampfreq)| BarSeries {
                    name: format!("sampfreq {sampfreq}"),
                    values: (0..sources.len())
                        .map(|source| Some(ratios[1 + source * SAMPFREQS.len() + which]))
                        .collect(),
                })
                .collect(),
        });
    }
}

/// Returns the usable sources. Records a table of all sources.
fn survey(context: &mut ExperimentContext, session: &mut Session) -> Vec<String> {
    let columns = [
        "clock_source",
        "usable",
        "reason",
        "auto",
        "reading_ns",
        "resolution_ns",
        "backward_steps",
    ];
    let mut table = Table::new("`rowsource_clocks()`", "", &columns);
    let rows = texts(
        &mut session.client,
        "SELECT clock_source, usable, reason, auto, round(reading_ns::numeric, 1), round(resolution_ns::numeric, 1),
                backward_steps
         FROM rowsource_clocks()",
    );
    let mut usable = Vec::new();
    for row in rows {
        let cells: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
        if cells[1] == "t" {
            usable.push(cells[0].clone());
        }
        table.row(cells);
    }
    context.table(table);
    usable
}
