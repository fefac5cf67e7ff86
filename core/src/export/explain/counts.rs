//! The rows, times, blocks and WAL of a node, as EXPLAIN prints them.

use super::value::{Field, Item, decimal, field};
use crate::model::{Buffers, NodeFacts, NodeKind, NodeStats, Time, Wal};

/// What is printed of all nodes in the same way.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// Sums are divided by this.
    executions: f64,
    /// PostgreSQL's major version.
    pub major: i32,
    /// At least one node was timed.
    timed: bool,
    /// Reading or writing of blocks was timed.
    io_timed: bool,
}

impl Scale {
    pub fn new(executions: f64, major: i32, stats: &[NodeStats]) -> Self {
        Scale {
            executions: if executions >= 1.0 { executions } else { 1.0 },
            major,
            timed: stats.iter().any(|stats| stats.time.get().is_some()),
            io_timed: stats
                .iter()
                .any(|stats| io_ms(&stats.buffers.get_or_zero()) > 0.0),
        }
    }

    /// Returns the scale of what this many plannings did.
    pub fn of_planning(self, plannings: f64) -> Self {
        Scale {
            executions: plannings,
            ..self
        }
    }

    /// Returns the mean of a sum as a whole number.
    pub fn whole(&self, sum: u64) -> u64 {
        (sum as f64 / self.executions).round() as u64
    }

    /// Returns the mean of a sum.
    pub fn mean(&self, sum: f64) -> f64 {
        sum / self.executions
    }

    fn blocks(&self, sum: i64) -> u64 {
        self.whole(u64::try_from(sum).unwrap_or(0))
    }

    /// Returns what is printed of blocks.
    pub fn buffers(&self, buffers: &Buffers) -> Item {
        let groups = [
            (
                "Shared",
                vec![
                    ("Hit", buffers.shared_hit),
                    ("Read", buffers.shared_read),
                    ("Dirtied", buffers.shared_dirtied),
                    ("Written", buffers.shared_written),
                ],
            ),
            (
                "Local",
                vec![
                    ("Hit", buffers.local_hit),
                    ("Read", buffers.local_read),
                    ("Dirtied", buffers.local_dirtied),
                    ("Written", buffers.local_written),
                ],
            ),
            (
                "Temp",
                vec![("Read", buffers.temp_read), ("Written", buffers.temp_written)],
            ),
        ];
        let mut item = Item::default();
        let mut line = Vec::new();
        for (group, counts) in groups {
            let mut words = String::new();
            for (what, sum) in counts {
                let blocks = self.blocks(sum);
                item.fields.push(field(&format!("{group} {what} Blocks"), blocks));
                if blocks > 0 {
                    words += &format!(" {}={blocks}", what.to_lowercase());
                }
            }
            if !words.is_empty() {
                line.push(format!(" {}{words}", group.to_lowercase()));
            }
        }
        if !line.is_empty() {
            item.lines.push(format!("Buffers:{}", line.join(",")));
        }
        if self.io_timed {
            self.add_io_times(buffers, &mut item);
        }
        item
    }

    /// Adds the times of reading and writing blocks. Before PostgreSQL 17, those of shared and local blocks
    /// were one.
    fn add_io_times(&self, buffers: &Buffers, item: &mut Item) {
        let separate = self.major >= 17;
        let (first, label) = if separate {
            ("shared", "Shared I/O")
        } else {
            ("shared/local", "I/O")
        };
        let mut groups = vec![(first, label, buffers.shared_read_ms, buffers.shared_write_ms)];
        if separate {
            groups.push((
                "local",
                "Local I/O",
                buffers.local_read_ms,
                buffers.local_write_ms,
            ));
        }
        groups.push(("temp", "Temp I/O", buffers.temp_read_ms, buffers.temp_write_ms));
        let mut line = Vec::new();
        for (group, label, read, write) in groups {
            let mut words = String::new();
            for (what, ms) in [("Read", read), ("Write", write)] {
                let ms = self.mean(ms);
                item.fields
                    .push(field(&format!("{label} {what} Time"), decimal(ms, 3)));
                if ms > 0.0 {
                    words += &format!(" {}={ms:.3}", what.to_lowercase());
                }
            }
            if !words.is_empty() {
                line.push(format!(" {group}{words}"));
            }
        }
        if !line.is_empty() {
            item.lines.push(format!("I/O Timings:{}", line.join(",")));
        }
    }
}

fn io_ms(buffers: &Buffers) -> f64 {
    buffers.shared_read_ms
        + buffers.shared_write_ms
        + buffers.local_read_ms
        + buffers.local_write_ms
        + buffers.temp_read_ms
        + buffers.temp_write_ms
}

/// The counts of a node.
pub(super) struct Counts<'a> {
    pub scale: Scale,
    stats: Option<&'a NodeStats>,
    /// The facts of the leader, if those of workers are printed by themselves.
    leader: Option<NodeFacts>,
    /// The loops that are printed: a whole number. Rows and times are divided by it, so that a reader who
    /// multiplies them gets the sums.
    loops: f64,
    /// Rows of the node's input.
    input_rows: f64,
}

impl<'a> Counts<'a> {
    pub fn new(scale: Scale, stats: Option<&'a NodeStats>, input: Option<&NodeStats>) -> Self {
        // If starts were not counted, the rows are those of one loop.
        let starts = stats.map_or(0, |stats| stats.starts.get().unwrap_or(1));
        let loops = match scale.mean(starts as f64) {
            0.0 => 0.0,
            mean => mean.round().max(1.0),
        };
        Counts {
            scale,
            stats,
            leader: None,
            loops,
            input_rows: scale.mean(input.map_or(0, |input| input.rows) as f64),
        }
    }

    /// Adds the facts of the leader.
    pub fn of_leader(self, leader: Option<&NodeFacts>) -> Self {
        Counts {
            leader: leader.copied(),
            ..self
        }
    }

    /// Returns what PostgreSQL knows of the node, without what it knows of each worker by itself.
    pub fn own_facts(&self) -> NodeFacts {
        self.leader.unwrap_or_else(|| self.facts())
    }

    /// Returns a sum of these facts.
    pub fn own_sum(&self, slot: usize) -> u64 {
        self.scale.whole(self.own_facts().sums[slot])
    }

    /// Returns what PostgreSQL knows of the node.
    pub fn facts(&self) -> NodeFacts {
        self.stats.map_or(NodeFacts::default(), |stats| stats.facts)
    }

    /// Returns the kind of the node, as far as its facts are known.
    pub fn kind(&self) -> NodeKind {
        self.facts().kind
    }

    /// Returns a sum of the facts.
    pub fn sum(&self, slot: usize) -> u64 {
        self.scale.whole(self.facts().sums[slot])
    }

    /// Returns a sum of the facts for each loop.
    pub fn sum_per_loop(&self, slot: usize) -> f64 {
        if self.loops == 0.0 {
            return 0.0;
        }
        self.scale.mean(self.facts().sums[slot] as f64) / self.loops
    }

    /// Returns how many rows of the input became something else than these.
    pub fn other_input_rows(&self, counted: u64) -> u64 {
        (self.input_rows.round() as u64).saturating_sub(counted)
    }

    fn time(&self) -> Option<Time> {
        self.stats.and_then(|stats| stats.time.get())
    }

    fn per_loop(&self, sum: f64) -> f64 {
        self.scale.mean(sum) / self.loops
    }

    fn rows(&self) -> f64 {
        self.per_loop(self.stats.map_or(0, |stats| stats.rows) as f64)
    }

    /// Returns the parentheses behind a node's costs.
    pub fn actual_text(&self) -> String {
        match self.actual() {
            _ if self.stats.is_none() => String::new(),
            Some(actual) => format!(" ({actual})"),
            None => " (never executed)".to_owned(),
        }
    }

    /// Returns times, rows and loops; `None` if the node was never executed.
    pub fn actual(&self) -> Option<String> {
        if self.loops == 0.0 {
            return None;
        }
        let decimals = if self.scale.major >= 18 { 2 } else { 0 };
        let time = self.time().map(|time| {
            let [first, all] = [time.startup_ms, time.total_ms].map(|ms| self.per_loop(ms));
            format!("time={first:.3}..{all:.3} ")
        });
        Some(format!(
            "actual {}rows={:.decimals$} loops={:.0}",
            time.unwrap_or_default(),
            self.rows(),
            self.loops
        ))
    }

    /// Returns the fields that say the same.
    pub fn actual_fields(&self) -> Vec<Field> {
        if self.stats.is_none() {
            return Vec::new();
        }
        let never = self.loops == 0.0;
        let times = match self.time() {
            _ if never => self.scale.timed.then_some([0.0; 2]),
            time => time.map(|time| [time.startup_ms, time.total_ms].map(|ms| self.per_loop(ms))),
        };
        let mut fields = Vec::new();
        if let Some([first, all]) = times {
            fields.push(field("Actual Startup Time", decimal(first, 3)));
            fields.push(field("Actual Total Time", decimal(all, 3)));
        }
        let decimals = if self.scale.major >= 18 && !never { 2 } else { 0 };
        let rows = if never { 0.0 } else { self.rows() };
        fields.push(field("Actual Rows", decimal(rows, decimals)));
        fields.push(field("Actual Loops", decimal(self.loops, 0)));
        fields
    }

    /// Returns the blocks and the WAL.
    pub fn usage(&self) -> Vec<Item> {
        let Some(stats) = self.stats else {
            return Vec::new();
        };
        let buffers = stats.buffers.get().map(|buffers| self.scale.buffers(&buffers));
        let wal = stats.wal.get().map(|wal| self.wal(&wal));
        buffers.into_iter().chain(wal).collect()
    }

    fn wal(&self, wal: &Wal) -> Item {
        let major = self.scale.major;
        let mut item = Item::default();
        let mut words = String::new();
        for (label, word, since, count) in [
            ("WAL Records", "records", 0, self.scale.blocks(wal.records)),
            ("WAL FPI", "fpi", 0, self.scale.blocks(wal.fpi)),
            ("WAL Bytes", "bytes", 0, self.scale.whole(wal.bytes)),
            ("WAL FPI Bytes", "fpi bytes", 19, self.scale.whole(wal.fpi_bytes)),
            (
                "WAL Buffers Full",
                "buffers full",
                18,
                self.scale.blocks(wal.buffers_full),
            ),
        ] {
            if major < since {
                continue;
            }
            item.fields.push(field(label, count));
            if count > 0 {
                words += &format!(" {word}={count}");
            }
        }
        if !words.is_empty() {
            item.lines.push(format!("WAL:{words}"));
        }
        item
    }
}
