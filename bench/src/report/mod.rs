//! The report: README.md and plots beside the records, and the figures of the book, made from the records
//! alone.

mod chapters;
pub mod files;
mod markdown;
mod svg;
mod table;
pub mod terminal;

use crate::model::record::Record;
use std::path::Path;

/// The folder whose records are those of the book.
pub const RESULTS: &str = "bench/results";

/// Writes the report of a folder of records, and the figures of the book if they are its own. `order` lists
/// the experiments as the report shows them.
pub fn write<'a>(folder: &Path, order: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let records = load(folder, order)?;
    for chart in records.iter().flat_map(|record| &record.plots) {
        files::replace(&folder.join(format!("{}.svg", chart.name)), &svg::draw(chart)?)?;
    }
    files::replace(&folder.join("README.md"), &markdown::report(&records))?;
    if folder == Path::new(RESULTS) {
        chapters::write(Path::new("."), &records)?;
    }
    Ok(())
}

fn load<'a>(folder: &Path, order: impl IntoIterator<Item = &'a str>) -> Result<Vec<Record>, String> {
    let records: Vec<Record> = order
        .into_iter()
        .filter_map(|experiment| files::load(folder, experiment).ok())
        .collect();
    if records.is_empty() {
        return Err(format!("{}: no records", folder.display()));
    }
    Ok(records)
}
