//! The report: README.md and plots beside the records, made from the records alone.

use crate::experiments;
use crate::plot;
use crate::record::{Check, Record, Verdict, write_whole};
use std::fmt::Write;
use std::path::Path;

/// Makes the report of a folder of records.
pub fn write(folder: &Path) -> Result<(), String> {
    let records: Vec<Record> = experiments::ALL
        .iter()
        .filter_map(|experiment| Record::load(folder, experiment.name).ok())
        .collect();
    if records.is_empty() {
        return Err(format!("{}: no records", folder.display()));
    }
    for bars in records.iter().flat_map(|record| &record.plots) {
        write_whole(&folder.join(format!("{}.svg", bars.name)), &plot::svg(bars)?)?;
    }
    write_whole(&folder.join("README.md"), &text(&records))
}

fn text(records: &[Record]) -> String {
    let mut text = String::from("# Results of `make bench`\n\n");
    text.push_str(
        "Made by `rowsource-bench report` from the records (JSON, with all raw values) in this folder. \
         What is measured and how: [bench/README.md](../README.md).\n\n\
         Ratios are medians over interleaved rounds, each variant to the one it stood beside in the same round, \
         with the lowest and the highest in parentheses.\n\n",
    );
    if records.iter().any(|record| record.sizes.quick) {
        text.push_str("**These are of quick runs: they show that all works, not how long it takes.**\n\n");
    }
    text.push_str(&of_checks(records));
    for record in records {
        text.push_str(&of_record(record));
    }
    text
}

/// All goals that depend on times, with where they stand, and whether all is as it must be.
fn of_checks(records: &[Record]) -> String {
    let mut text = String::from("| experiment | goal | wanted | found | |\n|---|---|---|---|---|\n");
    let (mut exact, mut failed) = (0, 0);
    for record in records {
        for check in &record.checks {
            if check.must {
                exact += 1;
                failed += usize::from(check.verdict == Verdict::Missed);
                continue;
            }
            let _ = writeln!(
                text,
                "| [{0}](#{0}) | {1} | {2} | {3} | {4} |",
                record.experiment,
                check.what,
                check.wanted,
                check.found,
                check.words()
            );
        }
    }
    let _ = write!(
        text,
        "\nBesides these, {} of {exact} checks of exact figures are met; they stand with each experiment.\n\n",
        exact - failed
    );
    text
}

/// The checks of exact figures, folded.
fn of_exact_checks(record: &Record) -> String {
    let exact: Vec<&Check> = record.checks.iter().filter(|check| check.must).collect();
    if exact.is_empty() {
        return String::new();
    }
    let met = exact.iter().filter(|check| check.verdict == Verdict::Met).count();
    let mut text = format!(
        "<details><summary>Exact figures: {met} of {} as they must be</summary>\n\n\
         | what | wanted | found | |\n|---|---|---|---|\n",
        exact.len()
    );
    for check in exact {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            check.what,
            check.wanted,
            check.found,
            check.words()
        );
    }
    text + "\n</details>\n\n"
}

fn of_record(record: &Record) -> String {
    let mut text = format!("## {}\n\n{}\n\n", record.experiment, record.question);
    for table in &record.tables {
        if !table.title.is_empty() {
            let _ = write!(text, "**{}**\n\n", table.title);
        }
        let _ = write!(text, "{}\n\n", table.to_markdown());
        if !table.note.is_empty() {
            let _ = write!(text, "{}\n\n", table.note);
        }
    }
    for bars in &record.plots {
        let _ = write!(text, "![{}]({}.svg)\n\n", bars.title, bars.name);
    }
    for sentence in &record.findings {
        let _ = writeln!(text, "- {sentence}");
    }
    if !record.findings.is_empty() {
        text.push('\n');
    }
    text.push_str(&of_exact_checks(record));
    let mut settings: Vec<String> = record
        .settings
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    settings.extend([
        format!("scale {}", record.sizes.scale),
        format!("repeat {}", record.sizes.repeat),
    ]);
    let machine = &record.machine;
    let _ = write!(
        text,
        "<sub>{}, {:.0} s; PostgreSQL {}, pg_rowsource {} ({}); {}, {} cores{}, {} MB, Linux {}, clocksource {}, \
         load before {:.2}; {}. Record: [{}.json]({}.json)</sub>\n\n",
        record.date,
        record.seconds,
        record.versions.postgresql,
        record.versions.pg_rowsource,
        record.versions.commit,
        machine.cpu,
        machine.cores,
        if machine.hypervisor { " (virtual)" } else { "" },
        machine.memory_mb,
        machine.kernel,
        machine.clocksource,
        machine.load,
        settings.join("; "),
        record.experiment,
        record.experiment,
    );
    text
}
