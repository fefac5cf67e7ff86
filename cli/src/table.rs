//! Tables: what each screen consists of, to be drawn, printed, sorted, filtered and written as JSON.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use unicode_width::UnicodeWidthStr;

use crate::format::{bar, bytes, count, one_line, time, without_controls};
use crate::queries::PlanKey;
use crate::title::Title;

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    None,
    Text(String),
    Id(i64),
    /// The number of a node that works now.
    Active(i64),
    /// The name of what stands in a tree: how deep it is there, and the name.
    Indented(usize, i64),
    Count(f64),
    /// Milliseconds.
    Time(f64),
    Percent(f64),
    Bytes(f64),
    /// A figure with two decimals.
    Decimal(f64),
    /// How much is done in percent, drawn as a bar.
    Bar(f64),
    /// A text in the place of a figure, which JSON and the order of rows have.
    Instead(String, Option<f64>),
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
            Self::Active(id) => format!("-> {id}"),
            Self::Indented(depth, id) => format!("{}{id}", "  ".repeat(*depth)),
            Self::Count(value) => count(*value),
            Self::Time(ms) => time(*ms),
            Self::Percent(value) => format!("{value:.1}"),
            Self::Bytes(value) => bytes(*value),
            Self::Decimal(value) => format!("{value:.2}"),
            Self::Bar(percent) => bar(*percent),
            Self::Instead(text, _) => text.clone(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Text(text) => json!(without_controls(text)),
            Self::Instead(_, value) => json!(value),
            Self::Id(id) | Self::Active(id) | Self::Indented(_, id) => json!(id),
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
            Self::None | Self::Text(_) | Self::Id(_) | Self::Active(_) | Self::Indented(..) => None,
            Self::Instead(_, value) => *value,
            Self::Count(value)
            | Self::Time(value)
            | Self::Percent(value)
            | Self::Bytes(value)
            | Self::Decimal(value)
            | Self::Bar(value) => Some(*value),
        }
    }

    /// Returns the name, which has more digits than a figure has.
    fn name(&self) -> Option<i64> {
        match self {
            Self::Id(id) | Self::Active(id) | Self::Indented(_, id) => Some(*id),
            _ => None,
        }
    }

    /// Compares two values of a column by what they are: figures fall, names and texts rise, and what is
    /// missing comes last.
    fn compare(&self, other: &Self) -> Ordering {
        if let (Some(one), Some(other)) = (self.number(), other.number()) {
            return other.total_cmp(&one);
        }
        if let (Some(one), Some(other)) = (self.name(), other.name()) {
            return one.cmp(&other);
        }
        let is_missing = |cell: &Self| *cell == Self::None;
        let is_text = |cell: &Self| matches!(cell, Self::Text(_));
        is_missing(self)
            .cmp(&is_missing(other))
            .then_with(|| is_text(self).cmp(&is_text(other)))
            .then_with(|| compare_texts(&self.show(), &other.show()))
    }
}

/// Compares texts. Digits that follow each other are a number: `node 9` comes before `node 10`.
fn compare_texts(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let digits = |text: &str| text.len() - text.trim_start_matches(|it: char| it.is_ascii_digit()).len();
        let (a, b) = (digits(one), digits(other));
        if a > 0 && b > 0 {
            let (x, y) = (
                one[..a].trim_start_matches('0'),
                other[..b].trim_start_matches('0'),
            );
            let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
            if order != Ordering::Equal {
                return order;
            }
            (one, other) = (&one[a..], &other[b..]);
            continue;
        }
        let (mut x, mut y) = (one.chars(), other.chars());
        match (x.next(), y.next()) {
            (Some(a), Some(b)) if a == b => (one, other) = (x.as_str(), y.as_str()),
            (a, b) => return a.cmp(&b),
        }
    }
}

/// How narrow a column of texts becomes so that figures have room.
const NARROWEST: u16 = 8;

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
    pub plan: Option<PlanKey>,
    pub node_id: Option<i64>,
    pub pid: Option<i64>,
    pub queryid: Option<i64>,
    pub planid: Option<i64>,
    /// The function of the server that says more, with its arguments.
    pub call: Option<String>,
    /// Whether its session waits for another one.
    pub waits: bool,
    /// Whether its session runs no statement now, so that there is none to cancel.
    pub is_idle: bool,
}

/// Returns whether a session in this state runs no statement.
pub fn is_idle(state: Option<&str>) -> bool {
    state.is_some_and(|state| state.starts_with("idle"))
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    pub cells: Vec<Cell>,
    /// What the row is about: it is the same row after a refresh, wherever it stands then. No other row of
    /// the table has the same.
    pub key: String,
    pub target: Target,
    /// How deep it stands in a tree.
    pub depth: Option<usize>,
    /// The class of wait by which it is coloured.
    pub class: Option<String>,
    /// Whether it stands out: the node that takes the most time.
    pub is_marked: bool,
}

impl Row {
    /// Makes a row without a colour.
    pub fn new(key: impl Into<String>, cells: Vec<Cell>, target: Target) -> Self {
        Self {
            cells,
            key: key.into(),
            target,
            depth: None,
            class: None,
            is_marked: false,
        }
    }

    /// Makes the row of a node of a plan, in the tree of its plan.
    pub fn of_node(key: &PlanKey, node_id: i64, depth: i64, cells: Vec<Cell>) -> Self {
        let target = Target {
            plan: Some(key.clone()),
            node_id: Some(node_id),
            queryid: Some(key.queryid),
            ..Target::default()
        };
        Self {
            depth: Some(depth.max(0) as usize),
            ..Self::new(node_id.to_string(), cells, target)
        }
    }
}

/// The order of rows that nobody has sorted, and what may become of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they came. They may be sorted.
    #[default]
    AsIs,
    /// By a column. They may be sorted by another one.
    By(usize),
    /// A tree: those below the same row may be sorted, and what is below them stays there.
    Tree,
    /// The order says something that would be lost: lines of a text, nodes of a plan.
    Fixed,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// What stands above it.
    pub title: Title,
    /// What stands below it: what is missing, and why.
    pub notes: Vec<String>,
    /// Its order, if the user selects none.
    pub order: Order,
    /// How wide each column is at least.
    pub least: Vec<u16>,
    keys: BTreeSet<String>,
}

impl Table {
    /// Makes a table from titles, widths, and the widths of terminals from which on they are shown.
    pub fn new(title: impl Into<Title>, columns: &[(&'static str, u16, u16)], order: Order) -> Self {
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
            order,
            ..Self::default()
        }
    }

    /// Adds a row. If another one has its key, it gets a number: rows about the same thing are told apart by
    /// their order.
    pub fn add(&mut self, mut row: Row) {
        let key = row.key.clone();
        let mut number = 1;
        while !self.keys.insert(row.key.clone()) {
            number += 1;
            row.key = format!("{key}#{number}");
        }
        self.rows.push(row);
    }

    /// Returns the column by which it is sorted, if the user has selected one, or none.
    pub fn sorted_by(&self, selected: Option<usize>) -> Option<usize> {
        let by = match self.order {
            Order::By(own) => Some(selected.unwrap_or(own)),
            Order::AsIs | Order::Tree => selected,
            Order::Fixed => None,
        };
        by.filter(|column| *column < self.columns.len())
    }

    /// Sorts the rows by a column.
    pub fn sort_by(&mut self, column: usize) {
        if self.order == Order::Tree {
            self.rows = sorted_tree(std::mem::take(&mut self.rows), column);
        } else {
            self.rows
                .sort_by(|a, b| a.cells[column].compare(&b.cells[column]));
        }
    }

    /// Returns the columns that have room on a terminal, and how wide each is. A last one of texts takes what
    /// is left. If figures have no room, texts before them become narrower.
    pub fn layout(&self, width: u16) -> Vec<(usize, u16)> {
        let last = self.columns.len().saturating_sub(1);
        let columns = self.columns.iter().enumerate();
        let mut wanted: Vec<(usize, u16, bool)> =
            { columns.filter(|(_, column)| column.from_width <= width) }
                .map(|(index, column)| {
                    let is_number = self.is_number(index);
                    let takes_rest = index == last && !is_number;
                    let wide = if takes_rest {
                        width
                    } else {
                        self.content_width(index, column, width)
                    };
                    (index, wide, is_number)
                })
                .collect();
        let figures = wanted.iter().rposition(|(.., is_number)| *is_number);
        let before = &mut wanted[..figures.map_or(0, |last| last + 1)];
        let needed: usize = before.iter().map(|(_, wide, _)| usize::from(*wide) + 1).sum();
        for _ in usize::from(width) + 1..needed {
            let texts = before.iter_mut().filter(|(.., is_number)| !is_number);
            match texts.max_by_key(|(_, wide, _)| *wide) {
                Some((_, wide, _)) if *wide > NARROWEST => *wide -= 1,
                _ => break,
            }
        }
        let mut left = width;
        let mut shown = Vec::new();
        for (index, wide, _) in wanted {
            if left > 0 {
                shown.push((index, wide.min(left)));
                left = left.saturating_sub(wide.saturating_add(1));
            }
        }
        shown
    }

    /// Returns whether a column has only numbers, which stand at its right end.
    pub fn is_number(&self, index: usize) -> bool {
        let cells = || self.rows.iter().map(|row| &row.cells[index]);
        let is_text = |cell: &Cell| matches!(cell, Cell::Text(_) | Cell::Indented(..));
        !cells().any(is_text) && cells().any(|cell| *cell != Cell::None)
    }

    /// Returns how wide the longest text of a column is.
    pub fn longest(&self, index: usize) -> u16 {
        let texts = self.rows.iter().map(|row| row.cells[index].show().width());
        let longest = texts.max().unwrap_or(0).max(self.columns[index].title.width());
        u16::try_from(longest).unwrap_or(u16::MAX)
    }

    /// Numbers are shown whole; of texts, as much as the column has room for on this terminal.
    fn content_width(&self, index: usize, column: &Column, width: u16) -> u16 {
        let longest = self
            .longest(index)
            .max(self.least.get(index).copied().unwrap_or(0));
        if self.is_number(index) {
            return longest.max(3);
        }
        let share = u32::from(column.width) * u32::from(width) / 100;
        let most = column.width.max(u16::try_from(share).unwrap_or(u16::MAX));
        longest.clamp(column.width.min(longest.max(3)), most.max(3))
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

    /// Returns its rows as JSON: times are milliseconds, and nothing is rounded.
    pub fn json(&self) -> Vec<Value> {
        let rows = self.rows.iter().map(|row| {
            let pairs = self.columns.iter().zip(&row.cells);
            let depth = row.depth.map(|depth| ("depth".to_owned(), json!(depth)));
            pairs
                .map(|(column, cell)| (column.title.to_owned(), cell.json()))
                .chain(depth)
                .collect::<Map<_, _>>()
        });
        rows.map(Value::Object).collect()
    }
}

/// Sorts the rows that stand below the same row, each with all that is below it.
fn sorted_tree(rows: Vec<Row>, column: usize) -> Vec<Row> {
    let depth = |row: &Row| row.depth.unwrap_or(0);
    let least = rows.iter().map(depth).min().unwrap_or(0);
    let mut trees: Vec<(Row, Vec<Row>)> = Vec::new();
    for row in rows {
        match trees.last_mut() {
            Some((_, below)) if depth(&row) > least => below.push(row),
            _ => trees.push((row, Vec::new())),
        }
    }
    trees.sort_by(|(a, _), (b, _)| a.cells[column].compare(&b.cells[column]));
    let sorted = trees.into_iter().flat_map(|(row, below)| {
        let below = if below.is_empty() {
            below
        } else {
            sorted_tree(below, column)
        };
        std::iter::once(row).chain(below)
    });
    sorted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(order: Order, cells: Vec<(Option<usize>, Cell)>) -> Table {
        let mut table = Table::new("", &[("value", 9, 0)], order);
        for (depth, cell) in cells {
            let key = cell.show();
            table.add(Row {
                depth,
                ..Row::new(key, vec![cell], Target::default())
            });
        }
        table
    }

    fn shown(table: &Table) -> Vec<String> {
        table.rows.iter().map(|row| row.cells[0].show()).collect()
    }

    #[test]
    fn values_are_sorted_and_not_their_texts() {
        let times = [9.0, 10.0, 0.5, 2_000.0].map(|ms| (None, Cell::Time(ms)));
        let mut times = table(Order::AsIs, [times.to_vec(), vec![(None, Cell::None)]].concat());
        times.sort_by(0);
        assert_eq!(shown(&times), ["2.00 s", "10.0 ms", "9.0 ms", "0.500 ms", "-"]);
        let large = 5_764_592_189_921_473_833;
        let ids = [large + 1, large, -1].map(|id| (None, Cell::Id(id)));
        let mut ids = table(Order::AsIs, ids.to_vec());
        ids.sort_by(0);
        assert_eq!(
            ids.rows
                .iter()
                .map(|row| row.cells[0].clone())
                .collect::<Vec<_>>(),
            [-1, large, large + 1].map(Cell::Id)
        );
        let texts =
            ["node 10", "node 9", "node 09b", "", "a"].map(|text| (None, Cell::Text(text.to_owned())));
        let mut texts = table(Order::AsIs, texts.to_vec());
        texts.sort_by(0);
        assert_eq!(shown(&texts), ["", "a", "node 9", "node 09b", "node 10"]);
    }

    #[test]
    fn what_is_below_a_row_of_a_tree_stays_there() {
        let rows = [(0, 30), (1, 9), (2, 4), (1, 7), (0, 10), (1, 8)];
        let rows = rows.map(|(depth, id)| (Some(depth), Cell::Indented(depth, id)));
        let mut tree = table(Order::Tree, rows.to_vec());
        tree.sort_by(0);
        assert_eq!(shown(&tree), ["10", "  8", "30", "  7", "  9", "    4"]);
    }

    #[test]
    fn rows_with_the_same_key_are_told_apart() {
        let rows = ["a", "a", "a#2", "a"].map(|text| (None, Cell::Text(text.to_owned())));
        let table = table(Order::AsIs, rows.to_vec());
        let keys: BTreeSet<_> = table.rows.iter().map(|row| row.key.clone()).collect();
        assert_eq!(keys.len(), 4, "{keys:?}");
    }
}
