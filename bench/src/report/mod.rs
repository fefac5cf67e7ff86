//! The report: README.md and plots beside the records, made from the records alone.

pub mod files;
mod markdown;
mod svg;
mod table;
pub mod terminal;

use crate::model::record::Record;
use std::path::Path;

/// Writes the report of a folder of records. `order` lists the experiments as the report shows them.
pub fn write<'a>(folder: &Path, order: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let records: Vec<Record> = order
        .into_iter()
        .filter_map(|experiment| files::load(folder, experiment).ok())
        .collect();
    if records.is_empty() {
        return Err(format!("{}: no records", folder.display()));
    }
    for chart in records.iter().flat_map(|record| &record.plots) {
        files::replace(&folder.join(format!("{}.svg", chart.name)), &svg::draw(chart)?)?;
    }
    files::replace(&folder.join("README.md"), &markdown::report(&records))
}
