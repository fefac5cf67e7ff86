//! The record of one experiment: all that the report is made of, and the raw values behind it.

use crate::lab::Sizes;
use crate::machine::{Machine, Versions};
use comfy_table::CellAlignment;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
pub struct Record {
    pub experiment: String,
    pub question: String,
    /// UTC, as in RFC 3339.
    pub date: String,
    pub seconds: f64,
    pub sizes: Sizes,
    pub machine: Machine,
    pub versions: Versions,
    /// The experiment's: rows, rounds.
    pub settings: BTreeMap<String, String>,
    /// The server's, where all its servers have them.
    pub server_settings: BTreeMap<String, String>,
    pub findings: Vec<String>,
    pub tables: Vec<Table>,
    pub plots: Vec<Bars>,
    pub checks: Vec<Check>,
    pub samples: Vec<Measured>,
}

/// A table of the report: its cells as they are printed.
#[derive(Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    /// What one must know to read it; may be empty.
    pub note: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A bar chart: groups of bars, one of each series.
#[derive(Serialize, Deserialize)]
pub struct Bars {
    /// The file's name, without ".svg".
    pub name: String,
    pub title: String,
    pub axis: String,
    pub logarithmic: bool,
    pub groups: Vec<String>,
    pub series: Vec<Series>,
}

#[derive(Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    /// One for each group; none where there is nothing.
    pub values: Vec<Option<Spread>>,
}

impl Series {
    /// A series for each variant but the first, which the others are ratios to: `groups` have all variants' ratios.
    pub fn beside_the_first(names: &[String], groups: &[Vec<Spread>]) -> Vec<Series> {
        let others = names.iter().enumerate().skip(1);
        others
            .map(|(at, name)| Series {
                name: name.clone(),
                values: groups.iter().map(|ratios| Some(ratios[at])).collect(),
            })
            .collect()
    }
}

/// A median, and between what the rounds lay.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// One thing that was to be shown.
#[derive(Serialize, Deserialize)]
pub struct Check {
    pub what: String,
    pub wanted: String,
    pub found: String,
    /// Whether it is exact, so that a quick run judges it too.
    pub must: bool,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    Missed,
    NotJudged,
}

/// Raw values, one a round.
#[derive(Serialize, Deserialize)]
pub struct Measured {
    pub of: String,
    pub variant: String,
    pub unit: String,
    pub values: Vec<f64>,
}

impl Table {
    pub fn new(title: &str, note: &str, columns: &[&str]) -> Self {
        Table {
            title: title.to_string(),
            note: note.to_string(),
            columns: columns.iter().map(|column| column.to_string()).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.columns.len(), "{}: {cells:?}", self.title);
        self.rows.push(cells);
    }

    /// As Markdown: words to the left, numbers to the right.
    pub fn to_markdown(&self) -> String {
        let numbers: Vec<bool> = (0..self.columns.len())
            .map(|column| column > 0 && self.rows.iter().all(|row| is_number(&row[column])))
            .collect();
        let mut table = comfy_table::Table::new();
        table
            .load_preset(ASCII_MARKDOWN)
            .set_header(&self.columns)
            .add_rows(&self.rows);
        for (cells, &numbers) in table.column_iter_mut().zip(&numbers) {
            if numbers {
                cells.set_cell_alignment(CellAlignment::Right);
            }
        }
        // The preset does not tell Markdown of the alignment.
        let text = table.to_string();
        let lines: Vec<String> = text
            .lines()
            .enumerate()
            .map(|(at, line)| match at {
                1 => aligned(line, &numbers),
                _ => line.to_string(),
            })
            .collect();
        lines.join("\n")
    }
}

/// The line below the header, with a colon at the right of the columns of numbers.
fn aligned(line: &str, numbers: &[bool]) -> String {
    let cells = line.trim_matches('|').split('|').zip(numbers);
    let cells = cells.map(|(dashes, &numbers)| match numbers {
        true => format!("{}:", &dashes[1..]),
        false => dashes.to_string(),
    });
    format!("|{}|", cells.collect::<Vec<_>>().join("|"))
}

fn is_number(cell: &str) -> bool {
    cell.is_empty() || cell.starts_with(|first: char| first.is_ascii_digit() || "+-<".contains(first))
}

impl Record {
    fn path(folder: &Path, experiment: &str) -> PathBuf {
        folder.join(format!("{experiment}.json"))
    }

    pub fn load(folder: &Path, experiment: &str) -> Result<Record, String> {
        let path = Record::path(folder, experiment);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Written whole or not at all: an interrupted run keeps what was there.
    pub fn save(&self, folder: &Path) -> Result<(), String> {
        let path = Record::path(folder, &self.experiment);
        let text = serde_json::to_string_pretty(self).expect("a record can be written as JSON") + "\n";
        write_whole(&path, &text)
    }

    /// Whether nothing is missed of what must be so.
    pub fn is_as_it_must(&self) -> bool {
        !self
            .checks
            .iter()
            .any(|check| check.must && check.verdict == Verdict::Missed)
    }

    /// For the terminal.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "\n## {}: {} ({:.0} s)\n",
            self.experiment, self.question, self.seconds
        );
        for table in &self.tables {
            let _ = write!(text, "\n{}\n{}\n", table.title, table.to_markdown());
        }
        for sentence in &self.findings {
            let _ = writeln!(text, "- {sentence}");
        }
        for check in &self.checks {
            let (what, wanted, found) = (&check.what, &check.wanted, &check.found);
            let _ = writeln!(text, "{}: {what}: {found} (wanted: {wanted})", check.words());
        }
        text
    }
}

impl Check {
    /// Where it stands.
    pub fn words(&self) -> &'static str {
        match (self.verdict, self.must) {
            (Verdict::Met, _) => "met",
            (Verdict::Missed, true) => "**FAILED**",
            (Verdict::Missed, false) => "**missed**",
            (Verdict::NotJudged, _) => "not judged",
        }
    }
}

/// Writes a file under another name, then renames it.
pub fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_markdown() {
        let mut table = Table::new("", "", &["what", "ratio", "words"]);
        table.row(["first", "1.5", "a"]);
        table.row(["second, longer", "10.25 (10-11)", ""]);
        assert_eq!(
            table.to_markdown(),
            "\
| what           |         ratio | words |
|----------------|--------------:|-------|
| first          |           1.5 | a     |
| second, longer | 10.25 (10-11) |       |"
        );
    }
}
