//! A comparison of two plans as text: a sentence with two numbers and the cause, and a tree with both.

use super::numbers;
use super::table::{self, Align, Column};
use super::text::{narrowed, on_one_line, wrapped};
use crate::compare::{
    Blocker, Cause, Difference, Gone, LEAST_ERRORS, LEAST_RATIO, Node, NodeParts, SIZE, Side,
    TableStatistics, Verdict, do_the_same,
};
use serde::Serialize;

/// The lines have at most this many columns.
const WIDTH: usize = 120;
/// What the sentence shows of the statement of another session, in columns.
const STATEMENT: usize = 60;
/// Stands for a cause that is not known.
pub const NOT_KNOWN: &str = "not known";
/// The column of the operations has at least this many columns.
const LEAST_NAME: usize = 20;

/// What the tree shows of each node, per execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// The time of the node alone, as the statement waits for it: processes share it.
    #[default]
    SelfTime,
    /// The time of the node and all below it, in all processes.
    TotalTime,
    /// How often it was started.
    Starts,
    /// The rows that it returned.
    Rows,
    /// Blocks found in buffers.
    Hits,
    /// Blocks read.
    Reads,
    /// The time of reads, in all processes.
    ReadTime,
    /// Blocks of temporary files.
    TempBlocks,
    /// The time of waits for locks and others, in all processes.
    WaitTime,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 9] = [
        Metric::SelfTime,
        Metric::TotalTime,
        Metric::Starts,
        Metric::Rows,
        Metric::Hits,
        Metric::Reads,
        Metric::ReadTime,
        Metric::TempBlocks,
        Metric::WaitTime,
    ];

    /// Returns the name: that of the column of the views.
    pub fn name(self) -> &'static str {
        match self {
            Metric::SelfTime => "self_time",
            Metric::TotalTime => "total_time",
            Metric::Starts => "starts",
            Metric::Rows => "rows",
            Metric::Hits => "blks_hit",
            Metric::Reads => "blks_read",
            Metric::ReadTime => "blk_read_time",
            Metric::TempBlocks => "temp_blks",
            Metric::WaitTime => "wait_time",
        }
    }

    /// Returns the metric with this name.
    pub fn from_name(name: &str) -> Option<Metric> {
        Metric::ALL.into_iter().find(|metric| metric.name() == name)
    }

    fn is_time(self) -> bool {
        self.name().ends_with("time")
    }

    /// Returns the mean of a node.
    fn of(self, side: &Side, node: &Node) -> f64 {
        let sum = match self {
            Metric::SelfTime => node.self_ms / node.processes.max(1.0),
            Metric::TotalTime => node.total_ms,
            Metric::Starts => node.starts as f64,
            Metric::Rows => node.rows as f64,
            Metric::Hits => node.hit as f64,
            Metric::Reads => node.read as f64,
            Metric::ReadTime => node.read_ms,
            Metric::TempBlocks => node.temp_blocks as f64,
            Metric::WaitTime => node.lock_ms + node.wait_ms,
        };
        side.per_execution(sum)
    }
}

/// Two sides and their difference.
pub struct Comparison<'a> {
    /// The first side.
    pub first: &'a Side,
    /// The second side.
    pub second: &'a Side,
    /// What [`crate::compare::difference`] has found.
    pub difference: &'a Difference,
}

/// A row of the tree: a node of the first side, of the second one, or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    first: Option<usize>,
    second: Option<usize>,
    depth: usize,
}

/// A comparison as JSON.
#[derive(Serialize)]
struct Json<'a> {
    sentence: String,
    verdict: Verdict,
    /// The name of the cause; nothing if it is not known.
    cause: Option<&'static str>,
    /// The part of the difference that it explains, from 0 to 1.
    share: Option<f64>,
    a_mean_time: f64,
    b_mean_time: f64,
    difference: f64,
    /// The parts of the difference, in milliseconds.
    parts: serde_json::Map<String, serde_json::Value>,
    outside: serde_json::Map<String, serde_json::Value>,
    nodes: Vec<JsonRow>,
    /// Both sides as they can be compared on another server.
    a: &'a Side,
    b: &'a Side,
}

#[derive(Serialize)]
struct JsonRow {
    /// The node's number on each side.
    a: Option<usize>,
    b: Option<usize>,
    name: String,
    /// Milliseconds of an execution.
    difference: f64,
    parts: serde_json::Map<String, serde_json::Value>,
}

impl Comparison<'_> {
    /// Returns the cause, if the sides differ: what stands behind "because" in the sentence, or
    /// [`NOT_KNOWN`].
    pub fn cause(&self) -> Option<String> {
        if self.difference.verdict != Verdict::Differs {
            return None;
        }
        let found = self.difference.cause();
        let largest = self.difference.largest_node(found.map(|(cause, _)| cause));
        Some(match found {
            Some((cause, _)) => on_one_line(&self.reason(cause, largest)),
            None => NOT_KNOWN.to_owned(),
        })
    }

    /// Returns the sentence: `4.1 s -> 38.2 s (9.3x, 12 executions): Seq Scan on orders (id 4) +33.7 s,
    /// because index orders_customer_idx is gone`.
    pub fn sentence(&self) -> String {
        let (before, after) = (self.first.mean_ms(), self.second.mean_ms());
        if self.first.executions == 0 || self.second.executions == 0 {
            return "There is nothing to compare: one side has no executions".to_owned();
        }
        let executions = self.second.count();
        let ratio = if before > 0.0 {
            ratio(after / before) + ", "
        } else {
            String::new()
        };
        let mut text = format!("{} -> {} ({ratio}{executions})", time(before), time(after));
        match self.difference.verdict {
            Verdict::Alike => return text + &format!(": no difference, it is below {LEAST_RATIO}x"),
            Verdict::Chance => {
                let error = time(LEAST_ERRORS * self.difference.error_ms);
                return text + &format!(": no difference, chance explains up to {error}");
            }
            Verdict::Speed => {
                return text
                    + &format!(
                        ": no difference but in speed, the load of the machine explains up to {SIZE}x"
                    );
            }
            Verdict::Mixed => {
                let at = self.second.returned_at.as_deref().unwrap_or_default();
                return text
                    + &format!(
                        ": this says nothing, because executions of B before it took over at {at} are included"
                    );
            }
            Verdict::Differs => {}
        }
        let found = self.difference.cause();
        let largest = self.difference.largest_node(found.map(|(cause, _)| cause));
        if let Some(largest) = largest {
            let (node, ms, id) = match largest {
                Ok(i) => (
                    &self.second.nodes[i],
                    self.difference.second[i].total(),
                    format!("id {i}"),
                ),
                Err(i) => (
                    &self.first.nodes[i],
                    self.difference.first[i].total(),
                    format!("id {i} of A"),
                ),
            };
            text += &format!(": {} ({id}) {}{}", node.name(), sign(ms), time(ms.abs()));
        }
        match found {
            Some((cause, _)) => text += &format!(", because {}", self.reason(cause, largest)),
            None => text += ", the cause is not known",
        }
        on_one_line(&text)
    }

    /// Returns what stands behind "because".
    fn reason(&self, cause: Cause, node: Option<Result<usize, usize>>) -> String {
        let is_slower = self.difference.total.total() >= 0.0;
        let words = |slower: &str, faster: &str| (if is_slower { slower } else { faster }).to_owned();
        let second = node.and_then(Result::ok);
        let pair = second.and_then(|i| Some((self.difference.pairs.first[i]?, i)));
        let nodes = pair.map(|(first, second)| (&self.first.nodes[first], &self.second.nodes[second]));
        let from_to = |of: &dyn Fn(&Side, &Node) -> String| match nodes {
            Some((first, second)) => format!(" ({} -> {})", of(self.first, first), of(self.second, second)),
            None => String::new(),
        };
        match cause {
            Cause::IndexGone => self.index_gone(pair.map(|(first, _)| first)),
            Cause::GenericPlan => "the plan is generic".to_owned(),
            Cause::WrongEstimate => self.wrong_estimate(),
            Cause::AnotherPlan => "the plan is another one".to_owned(),
            Cause::MoreData => {
                let rows = |side: &Side, node: &Node| {
                    format!(
                        "{} rows",
                        numbers::count(side.per_execution(node.handled_rows as f64))
                    )
                };
                let gets = |side: &Side, node: &Node| {
                    format!("{} blocks", numbers::count(side.per_execution(node.gets())))
                };
                // A table with many dead rows has more blocks, and so has what a function reads.
                match nodes {
                    Some((first, second)) if rows(self.first, first) == rows(self.second, second) => {
                        let more = words("it gets more blocks", "it gets fewer blocks");
                        format!("{more} for as many rows{}", from_to(&gets))
                    }
                    _ => words("it handles more data", "it handles less data") + &from_to(&rows),
                }
            }
            Cause::MoreCalls => {
                let starts =
                    |side: &Side, node: &Node| numbers::count(side.per_execution(node.starts as f64));
                words("it is started more often", "it is started less often") + &from_to(&starts)
            }
            Cause::ColdCache => {
                let read = |_: &Side, node: &Node| {
                    let gets = (node.hit + node.read).max(1) as f64;
                    format!("{:.0} %", 100.0 * node.read as f64 / gets)
                };
                words(
                    "more blocks are read instead of found in buffers",
                    "more blocks are in buffers",
                ) + &from_to(&read)
            }
            Cause::SlowerStorage => {
                let each =
                    |_: &Side, node: &Node| format!("{:.3} ms", node.read_ms / node.read.max(1) as f64);
                words("a read takes longer", "a read takes less time") + &from_to(&each)
            }
            Cause::Locks => match self.second.blocker.as_ref().filter(|_| is_slower) {
                Some(blocker) => format!("it waits for locks, blocked by {}", named(blocker)),
                None => words("it waits for locks", "it waits less for locks"),
            },
            Cause::OtherWaits => words("it waits", "it waits less"),
            Cause::Spilling => words("it writes temporary files", "it writes less to temporary files"),
            Cause::LessParallelism => {
                let processes = |_: &Side, node: &Node| format!("{:.1}", node.processes);
                words("fewer processes share the work", "more processes share the work")
                    + &from_to(&processes)
            }
            Cause::CpuPerRow => words(
                "a row takes more processor time",
                "a row takes less processor time",
            ),
            Cause::Outside => words(
                "more time passes outside of the nodes",
                "less time passes outside of the nodes",
            ),
        }
    }

    /// Names the index that is gone: that of a node of the first side, if it is one.
    fn index_gone(&self, node: Option<usize>) -> String {
        let gone = Gone::new(&self.second.gone_indexes);
        let gone_index = |i| self.first.gone_index(i, &gone);
        let name = node.and_then(gone_index);
        let name = name.or_else(|| (0..self.first.nodes.len()).find_map(gone_index));
        format!("index {} is gone", name.unwrap_or_default())
    }

    fn wrong_estimate(&self) -> String {
        let node = self.difference.misestimated_node;
        let Some(node) = node.map(|i| &self.second.nodes[i]) else {
            return "an estimate is wrong".to_owned();
        };
        let known = match &self.second.statistics {
            None => String::new(),
            Some(TableStatistics::NeverAnalysed) => " (the table was never analysed)".to_owned(),
            Some(TableStatistics::Changed(rows)) => {
                format!(
                    " ({} rows of the table changed since it was analysed)",
                    numbers::count(*rows as f64)
                )
            }
            Some(TableStatistics::InDatabase(name)) => {
                format!(
                    " (whether the table was analysed, only the database \"{name}\" knows: connect to it)"
                )
            }
        };
        let [expected, actual] = [node.expected_rows, node.actual_rows as f64]
            .map(|rows| numbers::count(self.second.per_execution(rows)));
        format!(
            "{expected} rows of {} were expected and {actual} came{known}",
            node.name()
        )
    }

    /// Returns the text: the sentence, and the tree with A, B and the difference of a metric.
    pub fn lines(&self, metric: Metric) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut add = |text: &str| lines.extend(wrapped(text, WIDTH, 0).into_iter().map(str::to_owned));
        add(&self.sentence());
        for (side, of) in [("A", self.first), ("B", self.second)] {
            add(&on_one_line(&format!("{side}: {}", of.name)));
        }
        lines.extend(self.table(metric));
        lines
    }

    fn table(&self, metric: Metric) -> Vec<String> {
        let rows = self.rows();
        if rows.is_empty() {
            return Vec::new();
        }
        let value = |side: &Side, i: Option<usize>| Some(metric.of(side, side.nodes.get(i?)?));
        let values: Vec<[Option<f64>; 2]> = rows
            .iter()
            .map(|row| [value(self.first, row.first), value(self.second, row.second)])
            .collect();
        let largest = values.iter().flatten().flatten().fold(0.0, |a: f64, b| a.max(*b));
        let decimals = numbers::decimals(largest);
        let number = |number: f64| {
            if metric.is_time() {
                numbers::time(number, decimals)
            } else {
                numbers::count(number)
            }
        };
        let shown = |side: usize| {
            let cells = values
                .iter()
                .map(|values| values[side].map(number).unwrap_or_default());
            cells.collect::<Vec<_>>()
        };
        let change = |[first, second]: &[Option<f64>; 2]| {
            let change = second.unwrap_or(0.0) - first.unwrap_or(0.0);
            let text = number(change.abs());
            let is_nothing = !text.contains(|digit: char| digit.is_ascii_digit() && digit != '0');
            if is_nothing {
                text
            } else {
                format!("{}{text}", sign(change))
            }
        };
        let mark = |row: &Row| match (row.first, row.second) {
            (Some(_), None) => "-",
            (None, Some(_)) => "+",
            _ => "",
        };
        let id = |i: Option<usize>| i.map(|i| i.to_string()).unwrap_or_default();
        let column = |heading, align, cells| Column::new(heading, align, 0, cells);
        let of_rows = |cell: &dyn Fn(&Row) -> String| rows.iter().map(cell).collect::<Vec<_>>();
        let mut columns = [
            column("", Align::Left, of_rows(&|row| mark(row).to_owned())),
            column("A Id", Align::Right, of_rows(&|row| id(row.first))),
            column("B Id", Align::Right, of_rows(&|row| id(row.second))),
            column("Operation", Align::Left, of_rows(&|row| self.name(row))),
            column("A", Align::Right, shown(0)),
            column("B", Align::Right, shown(1)),
            column("Difference", Align::Right, values.iter().map(change).collect()),
            column(
                "Cause",
                Align::Left,
                of_rows(&|row| self.cause_of(row).to_owned()),
            ),
        ];
        let excess = table::width(&columns, 1).saturating_sub(WIDTH);
        let name_width = columns[3].width().saturating_sub(excess).max(LEAST_NAME);
        columns[3].narrow(name_width, narrowed);
        let unit = if metric.is_time() { " in milliseconds" } else { "" };
        let mut lines = vec![format!("{}{unit}, mean of an execution:", metric.name())];
        lines.extend(table::lines(&columns, 1));
        lines
    }

    /// Returns the operation and its object, indented, and the operation and the index of the first side, if
    /// they are others.
    fn name(&self, row: &Row) -> String {
        let node = self.node(row);
        let mut name = node.map(Node::name).unwrap_or_default();
        let first = row.first.and_then(|i| self.first.nodes.get(i));
        if let (Some(first), Some(node)) = (first, node)
            && !do_the_same(first, node)
        {
            let index = first.object.as_ref().filter(|_| first.table.is_some());
            let index = index.map(|index| format!(" using {index}")).unwrap_or_default();
            name += &format!(" (A: {}{index})", first.operation);
        }
        // A deep node must leave room for its name.
        on_one_line(&format!("{}{name}", " ".repeat(row.depth.min(LEAST_NAME))))
    }

    fn node(&self, row: &Row) -> Option<&Node> {
        match (row.first, row.second) {
            (_, Some(i)) => self.second.nodes.get(i),
            (first, None) => self.first.nodes.get(first?),
        }
    }

    fn parts(&self, row: &Row) -> &NodeParts {
        match (row.first, row.second) {
            (_, Some(i)) => &self.difference.second[i],
            (first, None) => &self.difference.first[first.unwrap_or(0)],
        }
    }

    /// Returns the cause of a node's difference, if that is at least a hundredth of the statement's.
    fn cause_of(&self, row: &Row) -> &'static str {
        let parts = self.parts(row);
        let total = self.difference.total.total();
        let is_small = parts.total().abs() < total.abs() / 100.0;
        let largest = parts
            .largest(parts.total())
            .filter(|_| !is_small && parts.total() * total > 0.0);
        largest.map_or("", |(cause, _)| cause.name())
    }

    /// Returns the rows: the nodes of the second side, and each lone node of the first side behind the node
    /// that it follows there.
    fn rows(&self) -> Vec<Row> {
        let pairs = &self.difference.pairs;
        // What follows each node of the second side; the last list is what comes before all.
        let none = self.second.nodes.len();
        let mut following: Vec<Vec<usize>> = vec![Vec::new(); none + 1];
        let mut last = none;
        for (i, partner) in pairs.second.iter().enumerate() {
            match partner {
                Some(partner) => last = *partner,
                None => following[last].push(i),
            }
        }
        let mut rows = Vec::with_capacity(none + self.first.nodes.len());
        let lone = |rows: &mut Vec<Row>, behind: usize| {
            rows.extend(following[behind].iter().map(|i| Row {
                first: Some(*i),
                second: None,
                depth: self.first.nodes[*i].depth,
            }));
        };
        lone(&mut rows, none);
        for (i, node) in self.second.nodes.iter().enumerate() {
            rows.push(Row {
                first: pairs.first[i],
                second: Some(i),
                depth: node.depth,
            });
            lone(&mut rows, i);
        }
        rows
    }

    /// Returns the comparison as JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let found = self.difference.cause();
        let parts = |parts: &NodeParts| {
            let parts = parts
                .parts()
                .map(|(cause, ms)| (cause.name().to_owned(), ms.into()));
            parts.collect::<serde_json::Map<_, _>>()
        };
        let rows = self.rows().into_iter().map(|row| JsonRow {
            a: row.first,
            b: row.second,
            name: self.node(&row).map(Node::name).unwrap_or_default(),
            difference: self.parts(&row).total(),
            parts: parts(self.parts(&row)),
        });
        serde_json::to_string(&Json {
            sentence: self.sentence(),
            verdict: self.difference.verdict,
            cause: found.map(|(cause, _)| cause.name()),
            share: found.map(|(_, share)| share),
            a_mean_time: self.first.mean_ms(),
            b_mean_time: self.second.mean_ms(),
            difference: self.difference.total.total(),
            parts: parts(&self.difference.total),
            outside: parts(&self.difference.outside),
            nodes: rows.collect(),
            a: self.first,
            b: self.second,
        })
    }
}

/// Returns a session as the sentence names it: `process 4711 (report): LOCK TABLE orders`.
fn named(blocker: &Blocker) -> String {
    let text = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
    let application = text(&blocker.application).map(|name| format!(" ({name})"));
    let statement =
        text(&blocker.statement).map(|text| format!(": {}", narrowed(&on_one_line(&text), STATEMENT)));
    let [application, statement] = [application, statement].map(Option::unwrap_or_default);
    let process = match blocker.pid {
        0 => "a prepared transaction".to_owned(),
        pid => format!("process {pid}"),
    };
    format!("{process}{application}{statement}")
}

fn sign(change: f64) -> char {
    if change < 0.0 { '-' } else { '+' }
}

/// Returns how many times as long something takes: `9.3x`, `120x`.
fn ratio(ratio: f64) -> String {
    match ratio {
        ..0.95 => format!("{ratio:.2}x"),
        ..99.5 => format!("{ratio:.1}x"),
        _ => format!("{ratio:.0}x"),
    }
}

/// Returns a time with its unit: `0.035 ms`, `4.1 s`, `12.5 min`.
fn time(ms: f64) -> String {
    match ms {
        ..0.9995 => format!("{ms:.3} ms"),
        ..99.95 => format!("{ms:.1} ms"),
        ..999.5 => format!("{ms:.0} ms"),
        ..599_950.0 => format!("{:.1} s", ms / 1e3),
        ..36e6 => format!("{:.1} min", ms / 6e4),
        _ => format!("{:.1} h", ms / 36e5),
    }
}

#[cfg(test)]
mod tests;
