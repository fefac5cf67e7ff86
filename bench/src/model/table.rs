//! Tables of the report.

use serde::{Deserialize, Serialize};

/// A table holds its cells as they are printed.
#[derive(Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    /// An explanation for the reader. It may be empty.
    pub note: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
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

    /// Adds a row, which must have a cell for each column.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.columns.len(), "{}: {cells:?}", self.title);
        self.rows.push(cells);
    }
}
