//! Tables: what each screen consists of, to be drawn, printed, sorted, filtered and written as JSON.

use serde_json::{Map, Value, json};
use unicode_width::UnicodeWidthStr;

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    None,
    Text(String),
    Id(i64),
    Count(f64),
    /// Milliseconds.
    Time(f64),
    Percent(f64),
    Bytes(f64),
    /// A figure with two decimals.
    Decimal(f64),
    /// How much is done in percent, drawn as a bar.
    Bar(f64),
}

impl Cell {
    /// Makes a cell of a text that may be missing.
    pub fn text(text: Option<&str>) -> Self {
        text.map_or(Self::None, |text| Self::Text(one_line(text)))
    }

    /// Makes a cell of a number that may be missing.
    pub fn some(value: Option<f64>, make: fn(f64) -> Self) -> Self {
        value.map_or(Self::None, make)
    }

    /// Makes a cell of a name that may be missing.
    pub fn id(id: Option<i64>) -> Self {
        id.map_or(Self::None, Self::Id)
    }

    /// Writes it.
    pub fn show(&self) -> String {
        match self {
            Self::None => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Id(id) => id.to_string(),
            Self::Count(value) => count(*value),
            Self::Time(ms) => time(*ms),
            Self::Percent(value) => format!("{value:.1}"),
            Self::Bytes(value) => bytes(*value),
            Self::Decimal(value) => format!("{value:.2}"),
            Self::Bar(percent) => bar(*percent),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Text(text) => json!(text),
            Self::Id(id) => json!(id),
            Self::Count(value)
            | Self::Time(value)
            | Self::Percent(value)
            | Self::Bytes(value)
            | Self::Decimal(value)
            | Self::Bar(value) => json!(value),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::None | Self::Text(_) => None,
            Self::Id(id) => Some(*id as f64),
            Self::Count(value)
            | Self::Time(value)
            | Self::Percent(value)
            | Self::Bytes(value)
            | Self::Decimal(value)
            | Self::Bar(value) => Some(*value),
        }
    }
}

/// Replaces line breaks and control characters, which would move the cursor of a terminal.
pub fn one_line(text: &str) -> String {
    without_controls(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Replaces each of them by a space.
pub fn without_controls(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

/// Breaks a text between words into at most so many lines of a width. One that is longer ends with a tilde.
pub fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().map_or("", |line| line.as_str());
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            if lines.len() == most {
                if let Some(last) = lines.last_mut() {
                    last.push('~');
                }
                return lines;
            }
            lines.push(String::new());
        }
        if let Some(last) = lines.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

fn count(value: f64) -> String {
    match value.abs() {
        size if size >= 9.95e9 => format!("{:.0}G", value / 1e9),
        size if size >= 9.95e6 => format!("{:.0}M", value / 1e6),
        size if size >= 99_950.0 => format!("{:.0}k", value / 1e3),
        size if size >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

/// Writes milliseconds with a unit.
pub fn time(ms: f64) -> String {
    match ms.abs() {
        size if size >= 3_600_000.0 => format!(
            "{:.0}:{:02.0} h",
            (ms / 3_600_000.0).floor(),
            (ms / 60_000.0).floor() % 60.0
        ),
        size if size >= 60_000.0 => format!(
            "{:.0}:{:02.0} m",
            (ms / 60_000.0).floor(),
            (ms / 1000.0).floor() % 60.0
        ),
        size if size >= 1000.0 => format!("{:.2} s", ms / 1000.0),
        size if size >= 1.0 => format!("{ms:.1} ms"),
        size if size > 0.0 => format!("{:.0} us", ms * 1000.0),
        _ => "0".to_owned(),
    }
}

fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= 9_999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.0} {}", units[unit])
}

fn bar(percent: f64) -> String {
    let full = (percent.clamp(0.0, 100.0) / 10.0).round() as usize;
    format!("{}{} {percent:>3.0}%", "#".repeat(full), ".".repeat(10 - full))
}

/// Says of which interval figures are.
pub fn of_interval(name: &str, seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) => format!("{name}: what was added in the last {seconds:.1} s"),
        None => format!("{name}: sums since they are stored; the interval begins with the next refresh"),
    }
}

/// Writes what a node does, indented by its depth.
pub fn node_name(depth: i64, operation: &str, object: Option<&str>) -> String {
    let indent = " ".repeat(depth.clamp(0, 40) as usize);
    match object {
        Some(object) => format!("{indent}{operation} | {object}"),
        None => format!("{indent}{operation}"),
    }
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its title, which is its key in JSON.
    pub title: &'static str,
    /// How many columns of the terminal it takes at least.
    pub width: u16,
    /// From which width of the terminal on it is shown.
    pub from_width: u16,
}

/// What Enter does in a row, and what its keys concern.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    pub plan: Option<crate::queries::PlanKey>,
    pub node_id: Option<i64>,
    pub pid: Option<i64>,
    pub queryid: Option<i64>,
    /// The function of the server that says more, with its arguments.
    pub call: Option<String>,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    pub cells: Vec<Cell>,
    pub target: Target,
    /// The class of wait by which it is coloured.
    pub class: Option<String>,
    /// Whether it stands out: the node that runs.
    pub is_marked: bool,
}

impl Row {
    /// Makes a row without a colour.
    pub fn new(cells: Vec<Cell>, target: Target) -> Self {
        Self {
            cells,
            target,
            class: None,
            is_marked: false,
        }
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// What stands above it.
    pub title: String,
    /// What stands below it: what is missing, and why.
    pub notes: Vec<String>,
    /// The column by which it is sorted, if the user selects none; nothing if the order has a meaning.
    pub sort: Option<usize>,
}

impl Table {
    /// Makes a table from titles, widths, and the widths of terminals from which on they are shown.
    pub fn new(title: impl Into<String>, columns: &[(&'static str, u16, u16)], sort: Option<usize>) -> Self {
        let columns = columns
            .iter()
            .map(|&(title, width, from_width)| Column {
                title,
                width,
                from_width,
            })
            .collect();
        Self {
            columns,
            title: title.into(),
            sort,
            ..Self::default()
        }
    }

    /// Sorts the rows by a column: numbers fall, texts rise, and what is missing comes last.
    pub fn sort_by(&mut self, column: usize) {
        self.rows.sort_by(|a, b| {
            let (a, b) = (&a.cells[column], &b.cells[column]);
            match (a.number(), b.number()) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (None, None) => (*a == Cell::None)
                    .cmp(&(*b == Cell::None))
                    .then_with(|| a.show().cmp(&b.show())),
                (a, b) => b.is_some().cmp(&a.is_some()),
            }
        });
    }

    /// Keeps the rows that contain a text, in any case of letters.
    pub fn filter(&mut self, text: &str) {
        let text = text.to_lowercase();
        self.rows.retain(|row| {
            row.cells
                .iter()
                .any(|cell| cell.show().to_lowercase().contains(&text))
        });
    }

    /// Leaves out the first columns of the texts.
    pub fn shift(&mut self, columns: usize) {
        for cell in self.rows.iter_mut().flat_map(|row| &mut row.cells) {
            if let Cell::Text(text) = cell {
                *text = text.chars().skip(columns).collect();
            }
        }
    }

    /// Returns it as JSON: times are milliseconds, and nothing is rounded.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let pairs = self.columns.iter().zip(&row.cells);
            pairs
                .map(|(column, cell)| (column.title.to_owned(), cell.json()))
                .collect::<Map<_, _>>()
        });
        json!({ "title": self.title, "rows": rows.collect::<Vec<_>>(), "notes": self.notes })
    }
}
