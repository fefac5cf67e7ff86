//! The report as Markdown.

use super::table;
use crate::model::check::{Check, Verdict};
use crate::model::record::Record;
use std::fmt::Write;

/// Formats the whole report.
pub fn report(records: &[Record]) -> String {
    let mut text = String::from("# Results of `make bench`\n\n");
    text.push_str(
        "`rowsource-bench report` made this report from the records (JSON, with all raw values) in this folder. \
         [bench/README.md](../README.md) says what is measured and how.\n\n\
         A ratio is the median over interleaved rounds: each round compares a variant with the base of the same round. \
         The lowest and the highest round stand in parentheses.\n\n",
    );
    if records.iter().any(|record| record.sizes.quick) {
        text.push_str(
            "**These are quick runs. They show that everything works, not how long it takes.**\n\n",
        );
    }
    text.push_str(&goals(records));
    for record in records {
        text.push_str(&section(record));
    }
    text
}

/// Formats all goals that depend on times with their verdicts, and the number of exact values that are met.
fn goals(records: &[Record]) -> String {
    let mut text = String::from("| experiment | goal | wanted | found | |\n|---|---|---|---|---|\n");
    let (mut exact, mut failed) = (0, 0);
    for record in records {
        for check in &record.checks {
            if check.exact {
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
    let is_undecided = |check: &Check| check.verdict == Verdict::Undecided;
    if records.iter().flat_map(|record| &record.checks).any(is_undecided) {
        text.push_str("\nUndecided: some rounds meet the goal and others miss it.\n");
    }
    let _ = write!(
        text,
        "\n{} of {exact} checks of exact values are met. They are listed with each experiment.\n\n",
        exact - failed
    );
    text
}

/// Formats the checks of exact values as a folded list.
fn exact_checks(record: &Record) -> String {
    let exact: Vec<&Check> = record.checks.iter().filter(|check| check.exact).collect();
    if exact.is_empty() {
        return String::new();
    }
    let met = exact.iter().filter(|check| check.verdict == Verdict::Met).count();
    let mut text = format!(
        "<details><summary>Exact values: {met} of {} are met</summary>\n\n\
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

fn section(record: &Record) -> String {
    let mut text = format!("## {}\n\n{}\n\n", record.experiment, record.question);
    for table in &record.tables {
        if !table.title.is_empty() {
            let _ = write!(text, "**{}**\n\n", table.title);
        }
        let _ = write!(text, "{}\n\n", table::markdown(table));
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
    text.push_str(&exact_checks(record));
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
