//! The files of a results folder.

use crate::model::record::Record;
use std::path::{Path, PathBuf};

fn path(folder: &Path, experiment: &str) -> PathBuf {
    folder.join(format!("{experiment}.json"))
}

/// Reads the record of an experiment.
pub fn load(folder: &Path, experiment: &str) -> Result<Record, String> {
    let path = path(folder, experiment);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes the record of an experiment. An interrupted run keeps the old record.
pub fn save(folder: &Path, record: &Record) -> Result<(), String> {
    let text = serde_json::to_string_pretty(record).expect("a record can be written as JSON") + "\n";
    replace(&path(folder, &record.experiment), &text)
}

/// Writes a file under another name, then renames it: readers see the old text or the new one, never a part.
pub fn replace(path: &Path, text: &str) -> Result<(), String> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, path))
        .map_err(|error| format!("{}: {error}", path.display()))
}
