//! A record as text for the terminal.

use super::table;
use crate::model::record::Record;
use std::fmt::Write;

/// Formats the tables, findings and checks of a record.
pub fn text(record: &Record) -> String {
    let mut text = format!(
        "\n## {}: {} ({:.0} s)\n",
        record.experiment, record.question, record.seconds
    );
    for table in &record.tables {
        let _ = write!(text, "\n{}\n{}\n", table.title, table::markdown(table));
    }
    for sentence in &record.findings {
        let _ = writeln!(text, "- {sentence}");
    }
    for check in &record.checks {
        let (what, wanted, found) = (&check.what, &check.wanted, &check.found);
        let _ = writeln!(text, "{}: {what}: {found} (wanted: {wanted})", check.words());
    }
    text
}
