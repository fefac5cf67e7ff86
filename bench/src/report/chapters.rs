//! The figures of the book: tables and single values of the records, between marks in its chapters.
//!
//! `<!-- bench EXPERIMENT: TITLE -->` is followed by the first table of the experiment whose title begins so,
//! and `<!-- end -->`. `; rows: A | B` chooses some rows. `; cell: ROW | COLUMN` is one value, within a
//! sentence.

use super::{files, table};
use crate::model::record::Record;
use crate::model::table::Table;
use std::path::Path;

/// The files with marks, relative to the checkout.
const CHAPTERS: [&str; 3] = ["README.md", "docs/cost.md", "docs/time.md"];
const BEGIN: &str = "<!-- bench ";
const END: &str = "<!-- end -->";

/// Writes the figures of the records into the chapters of a checkout.
pub fn write(checkout: &Path, records: &[Record]) -> Result<(), String> {
    for chapter in CHAPTERS {
        let path = checkout.join(chapter);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{chapter}: {error}"))?;
        let fresh = filled(&text, records).map_err(|error| format!("{chapter}: {error}"))?;
        if fresh != text {
            files::replace(&path, &fresh)?;
        }
    }
    Ok(())
}

/// Returns a text with the figures of the records between its marks.
fn filled(text: &str, records: &[Record]) -> Result<String, String> {
    let mut parts = text.split(BEGIN);
    let mut fresh = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (wanted, rest) = part.split_once(" -->").ok_or("a mark does not end")?;
        let (_, after) = rest
            .split_once(END)
            .ok_or_else(|| format!("no {END} after {wanted}"))?;
        let figures = figures(wanted, records)?;
        fresh += &format!("{BEGIN}{wanted} -->{figures}{END}{after}");
    }
    Ok(fresh)
}

/// Returns what belongs between two marks.
fn figures(wanted: &str, records: &[Record]) -> Result<String, String> {
    let missing = || format!("the records have no {wanted}");
    let (experiment, wanted) = wanted.split_once(": ").ok_or_else(missing)?;
    let (title, choice) = wanted.split_once("; ").unwrap_or((wanted, ""));
    let record = records.iter().find(|record| record.experiment == experiment);
    let table = record
        .and_then(|record| record.tables.iter().find(|table| table.title.starts_with(title)))
        .ok_or_else(missing)?;
    if let Some(place) = choice.strip_prefix("cell: ") {
        return cell(table, place).ok_or_else(missing);
    }
    let mut chosen = Table::new("", "", &[]);
    chosen.columns.clone_from(&table.columns);
    chosen.rows.clone_from(&table.rows);
    if let Some(rows) = choice.strip_prefix("rows: ") {
        let rows: Vec<&str> = rows.split(" | ").collect();
        chosen.rows.retain(|row| rows.contains(&row[0].as_str()));
        if chosen.rows.len() != rows.len() {
            return Err(missing());
        }
    } else if !choice.is_empty() {
        return Err(missing());
    }
    Ok(format!("\n\n{}\n\n", table::markdown(&chosen)))
}

/// Returns a value without its range. Ratios have two decimals in sentences.
fn cell(table: &Table, place: &str) -> Option<String> {
    // A row may be named by several cells.
    let (row, column) = place.rsplit_once(" | ")?;
    let row: Vec<&str> = row.split(" | ").collect();
    let row = table
        .rows
        .iter()
        .find(|cells| cells.iter().zip(&row).all(|(cell, name)| cell == name))?;
    let value = &row[table.columns.iter().position(|name| name == column)?];
    match value.split_once(" (") {
        Some((ratio, _)) => Some(format!("{:.2}", ratio.parse::<f64>().ok()?)),
        None => Some(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
    }

    fn records() -> Vec<Record> {
        super::super::load(&checkout().join("bench/results"), crate::experiments::names()).expect("records")
    }

    #[test]
    fn chapters_have_the_figures_of_the_records() {
        let records = records();
        for chapter in CHAPTERS {
            let text = std::fs::read_to_string(checkout().join(chapter)).expect("a chapter");
            assert!(text.contains(BEGIN), "{chapter} has no marks");
            let fresh = filled(&text, &records).expect(chapter);
            assert!(
                fresh == text,
                "{chapter} has other figures: run rowsource-bench report"
            );
        }
    }

    #[test]
    fn marks_are_filled() {
        let records = records();
        let filled = |text: &str| filled(text, &records);
        let of_one = filled(
            "It takes <!-- bench sampfreq: full scan; cell: not loaded | CPU ratio -->9<!-- end --> times.",
        );
        assert_eq!(
            of_one.as_deref(),
            Ok(
                "It takes <!-- bench sampfreq: full scan; cell: not loaded | CPU ratio -->1.00<!-- end --> times."
            )
        );
        let table = filled("a <!-- bench sampfreq: full scan; rows: basic | sampfreq 16 -->\n<!-- end --> b")
            .expect("a table");
        assert!(
            table.starts_with("a <!-- bench sampfreq: full scan; rows: basic | sampfreq 16 -->\n\n|  "),
            "{table}"
        );
        assert!(
            table.contains("\n| sampfreq 16 ") && !table.contains("\n| sampfreq 8 "),
            "{table}"
        );
        assert!(table.ends_with(" |\n\n<!-- end --> b"), "{table}");
    }

    #[test]
    fn marks_that_name_nothing_are_errors() {
        let records = records();
        for wanted in [
            "sampfreq",
            "sampfreq: no such table",
            "none: full scan",
            "sampfreq: full scan; rows: basic | no such row",
            "sampfreq: full scan; cell: not loaded | no such column",
            "sampfreq: full scan; cell: no such row | CPU ratio",
            "sampfreq: full scan; other",
        ] {
            let error = filled(&format!("{BEGIN}{wanted} -->{END}"), &records);
            assert_eq!(error, Err(format!("the records have no {wanted}")), "{wanted}");
        }
        assert!(filled(&format!("{BEGIN}sampfreq: full scan -->"), &records).is_err());
    }
}
