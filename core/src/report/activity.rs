//! Formats what sessions did in an interval, from samples of them, as in Oracle's ASH report.

pub mod coverage;
pub mod overview;

use super::document::{Chart, Class, Part, text};
use super::table::{Align, Column};
use super::text::{narrowed, on_one_line};
use crate::ash::Moment;
use std::collections::BTreeMap;

/// How many rows a table shows.
const SHOWN: usize = 10;
/// The width of texts in a table.
const TEXT_WIDTH: usize = 50;
const NAME_WIDTH: usize = 30;
/// What sessions did that ran no node: they planned, sent rows, ran a command without a plan.
const OUTSIDE: &str = "outside the nodes";
/// The most bars that are shown.
const MAX_BARS: i64 = 60;
const MINUTE_US: i64 = 60_000_000;

/// What a session did at a moment. What is not known, or must not be shown, is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// The process.
    pub pid: i32,
    /// What is shown of the session beside its process: its type, user and application.
    pub session: &'a str,
    /// The name of its application.
    pub application: &'a str,
    /// The statement and its plan.
    pub statement: Option<(i64, Option<i64>)>,
    /// The text of the statement.
    pub text: Option<&'a str>,
    /// The node that ran: its number, and its operation and object.
    pub node: Option<(u16, &'a str)>,
    /// The type of the event that it waited for, and the event.
    pub wait: Option<(&'a str, &'a str)>,
    /// The process that blocked it.
    pub blocker: Option<i32>,
    /// The reader may not see what it did.
    pub is_hidden: bool,
}

/// The classes of activity that a bar shows.
const CLASSES: [Class; 6] = [
    ("CPU", '#', "cpu"),
    ("IO", 'I', "io"),
    ("Lock", 'L', "lock"),
    ("LWLock", 'W', "temp"),
    ("Client", 'C', "client"),
    ("other", 'o', "wait"),
];

/// Returns the index of the class of a wait.
fn class(wait: Option<(&str, &str)>, is_hidden: bool) -> usize {
    let name = match wait {
        None if !is_hidden => "CPU",
        None => "other",
        Some((of, _)) => of,
    };
    CLASSES
        .iter()
        .position(|(class, ..)| *class == name)
        .unwrap_or(CLASSES.len() - 1)
}

/// How many samples had something in common.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    samples: u64,
    /// Those that did not wait.
    on_cpu: u64,
}

impl Count {
    /// Adds a sample that stands for `moments` moments.
    fn add(&mut self, seen: &Seen<'_>, moments: u64) {
        self.samples += moments;
        self.on_cpu += moments * u64::from(seen.wait.is_none() && !seen.is_hidden);
    }
}

/// A column of what the samples of a row have in common.
type KeyColumn<'a, K> = (&'static str, Align, &'a dyn Fn(&K) -> String);

type StatementId = Option<(i64, Option<i64>)>;

/// A process, what is known of it, and the samples of those that waited for it.
#[derive(Debug, Default)]
struct Blocker {
    count: Count,
    blocked: BTreeMap<i32, ()>,
    session: String,
    statement: String,
}

/// Adds samples up.
#[derive(Debug)]
pub struct Activity {
    from: i64,
    to: i64,
    /// The microseconds that a bar stands for.
    step: i64,
    all: Count,
    hidden: u64,
    /// How often the sessions were sampled.
    moments: u64,
    /// How many of these moments are kept. For each length of a slot in microseconds, the last time until
    /// which one moment in a slot is kept.
    kept: u64,
    slots: BTreeMap<i64, i64>,
    /// The moment whose samples are added, how many there are, and at the moment before.
    moment: Moment,
    active: u64,
    before: Option<u64>,
    /// The sum of the squared differences from each moment to the next, each times what it stands for.
    differences: f64,
    /// Since when there are samples in memory, and what is said of older ones.
    begun_at: i64,
    older: String,
    /// The parts of the interval in which the sessions were sampled.
    covered: Vec<(i64, i64)>,
    /// Until when the samples are from snapshots.
    stored_until: Option<i64>,
    /// What is not known by a queryid is known by its text.
    statements: BTreeMap<(StatementId, String), (Count, String)>,
    /// What was done outside of the nodes has no number.
    nodes: BTreeMap<(StatementId, Option<u16>, String), Count>,
    applications: BTreeMap<String, Count>,
    waits: BTreeMap<Option<(String, String)>, Count>,
    /// A process is known by the server's run and its pid.
    sessions: BTreeMap<(u64, i32, String), Count>,
    blockers: BTreeMap<(u64, i32), Blocker>,
    /// For each bar, the samples of each class, and how often the sessions were sampled.
    bars: BTreeMap<i64, ([u64; CLASSES.len()], f64)>,
}

impl Activity {
    /// Begins an interval, in microseconds. Memory has samples since `begun_at`, when the server had crashed
    /// or was started first. `older` says what is known of older ones that the interval lacks.
    pub fn new(from: i64, to: i64, begun_at: i64, older: &str) -> Activity {
        Activity {
            from,
            to,
            step: step(from, to, MAX_BARS),
            all: Count::default(),
            hidden: 0,
            moments: 0,
            kept: 0,
            slots: BTreeMap::new(),
            moment: Moment::default(),
            active: 0,
            before: None,
            differences: 0.0,
            begun_at,
            older: older.to_owned(),
            covered: Vec::new(),
            stored_until: None,
            statements: BTreeMap::new(),
            nodes: BTreeMap::new(),
            applications: BTreeMap::new(),
            waits: BTreeMap::new(),
            sessions: BTreeMap::new(),
            blockers: BTreeMap::new(),
            bars: BTreeMap::new(),
        }
    }

    /// Has about as many bars as given. Nothing may have been added yet.
    pub fn with_bars(mut self, bars: i64) -> Activity {
        self.step = step(self.from, self.to, bars);
        self
    }

    /// Returns the beginning of the bar of a time.
    fn bar_of(&self, at: i64) -> i64 {
        at.div_euclid(self.step) * self.step
    }

    /// Adds a sample of the moment.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let Moment { at, moments, run, .. } = self.moment;
        self.all.add(seen, moments);
        self.active += 1;
        let bar = self.bars.entry(self.bar_of(at)).or_default();
        bar.0[class(seen.wait, seen.is_hidden)] += moments;
        if seen.is_hidden {
            self.hidden += moments;
            return;
        }
        let name = seen.text.filter(|_| seen.statement.is_none()).unwrap_or_default();
        let (count, text) = self
            .statements
            .entry((seen.statement, name.to_owned()))
            .or_default();
        count.add(seen, moments);
        // Of a command, some samples have its relation, too.
        let says_more = |known: &&str| known.len() > text.len() && known.starts_with(text.as_str());
        if let Some(known) = seen.text.filter(says_more) {
            *text = narrowed(&on_one_line(known), TEXT_WIDTH);
        }
        let (node, name) = match (seen.node, seen.wait) {
            (Some((node, name)), _) => (Some(node), narrowed(&on_one_line(name), NAME_WIDTH)),
            (None, Some((_, event))) => (None, format!("{OUTSIDE}: {event}")),
            (None, None) => (None, OUTSIDE.to_owned()),
        };
        let count = self.nodes.entry((seen.statement, node, name)).or_default();
        count.add(seen, moments);
        let count = self.applications.entry(seen.application.to_owned());
        count.or_default().add(seen, moments);
        let wait = seen.wait.map(|(of, event)| (of.to_owned(), event.to_owned()));
        self.waits.entry(wait).or_default().add(seen, moments);
        let session = narrowed(&on_one_line(seen.session), TEXT_WIDTH);
        self.sessions
            .entry((run, seen.pid, session))
            .or_default()
            .add(seen, moments);
        if let Some(blocker) = seen.blocker {
            let blocker = self.blockers.entry((run, blocker)).or_default();
            blocker.count.add(seen, moments);
            blocker.blocked.insert(seen.pid, ());
        }
    }

    /// Notes who a process is for which others waited, and what its last statement was, which may go on.
    pub fn name_blocker(&mut self, pid: i32, session: &str, statement: &str) {
        let blocker = self.blockers.entry((self.moment.run, pid)).or_default();
        blocker.session = narrowed(&on_one_line(session), TEXT_WIDTH);
        blocker.statement = narrowed(&on_one_line(statement), TEXT_WIDTH);
    }

    /// Begins a moment of the interval. It is the one of a slot of `slot_us` microseconds; `None` if it is
    /// from a snapshot.
    pub fn add_moment(&mut self, moment: &Moment, slot_us: Option<i64>) {
        self.end_moment();
        if slot_us.is_none() && moment.at.saturating_sub(self.moment.at) > 2 * moment.span {
            // Nothing was active in between.
            self.end_moment();
        }
        self.moment = *moment;
        self.kept += 1;
        let Some(slot_us) = slot_us else { return };
        self.moments += moment.moments;
        let (first, last) = (moment.first.max(self.from), moment.last.min(self.to));
        self.cover(first, last);
        self.slots.insert(slot_us, last);
        self.bars.entry(self.bar_of(moment.at)).or_default().1 += moment.moments as f64;
    }

    /// Returns whether a session kept others waiting.
    pub fn has_blockers(&self) -> bool {
        self.blockers.values().any(|blocker| blocker.count.samples > 0)
    }

    fn end_moment(&mut self) {
        let active = std::mem::take(&mut self.active);
        if self.kept > 0
            && let Some(before) = self.before.replace(active)
        {
            self.differences += (active.abs_diff(before) as f64 * self.moment.moments as f64).powi(2);
        }
    }

    /// Returns how many sessions were active on average, given their number of samples.
    fn average(&self, samples: u64) -> f64 {
        samples as f64 / self.moments.max(1) as f64
    }

    /// Returns the report. `shown` returns a time as text, in the time zone.
    pub fn report(&mut self, time_zone: &str, shown: &dyn Fn(i64) -> String) -> Vec<String> {
        self.end_moment();
        let mut lines = vec![
            format!("Active session history, in the time zone {time_zone}"),
            format!("from  {}", shown(self.from)),
            format!("to    {}", shown(self.to)),
        ];
        lines.extend(self.coverage(shown));
        if self.covered.is_empty() {
            return lines;
        }
        lines.push(format!(
            "{} of active sessions at {}: {:.2} active sessions on average",
            counted(self.all.samples, "sample"),
            counted(self.moments, "moment"),
            self.average(self.all.samples)
        ));
        lines.extend(self.resolution(shown));
        if self.hidden > 0 {
            lines.push(format!(
                "Of sessions of which you may not see more: {}",
                counted(self.hidden, "sample")
            ));
        }
        if self.all.samples == 0 {
            return lines;
        }
        let parts = [
            self.statements(),
            self.nodes(),
            self.waits(),
            self.sessions(),
            self.blockers(),
            self.chart(shown).into_iter().collect(),
        ];
        // Ids and texts are whole, however wide that is.
        lines.extend(text(
            &parts.into_iter().flatten().collect::<Vec<Part>>(),
            usize::MAX,
        ));
        lines
    }

    /// Returns a table of the rows with the most samples, below a heading.
    fn table<K>(
        &self,
        heading: &str,
        counts: impl Iterator<Item = (K, Count)>,
        columns: &[KeyColumn<'_, K>],
    ) -> Vec<Part> {
        // There may be millions, of which only those that are shown are collected.
        let mut rows: Vec<(K, Count)> = Vec::with_capacity(SHOWN + 1);
        let mut others: usize = 0;
        for row in counts {
            // Rows with as many samples stay in the order of their keys.
            let place = rows.partition_point(|(_, count)| count.samples >= row.1.samples);
            rows.insert(place, row);
            if rows.len() > SHOWN {
                rows.pop();
                others += 1;
            }
        }
        if rows.is_empty() {
            return Vec::new();
        }
        let percent =
            |samples: u64| format!("{:.1}", 100.0 * samples as f64 / self.all.samples.max(1) as f64);
        let number = |name, cell: &dyn Fn(&Count) -> String| {
            Column::new(
                name,
                Align::Right,
                0,
                rows.iter().map(|(_, count)| cell(count)).collect(),
            )
        };
        let mut all: Vec<Column> = columns
            .iter()
            .map(|(name, align, cell)| {
                Column::new(name, *align, 0, rows.iter().map(|(key, _)| cell(key)).collect())
            })
            .collect();
        all.push(number("Samples", &|count| count.samples.to_string()));
        all.push(number("%", &|count| percent(count.samples)));
        all.push(number("CPU %", &|count| percent(count.on_cpu)));
        all.push(number("Active", &|count| {
            format!("{:.2}", self.average(count.samples))
        }));
        let mut parts = vec![Part::Heading(heading.to_owned()), Part::Table(all)];
        parts.extend(and_more(others));
        parts
    }

    fn statements(&self) -> Vec<Part> {
        let rows = self
            .statements
            .iter()
            .map(|((id, _), (count, text))| ((*id, text.as_str()), *count));
        self.table(
            "Top statements",
            rows,
            &[
                ("queryid", Align::Right, &|(id, _)| queryid(id)),
                ("planid", Align::Right, &|(id, _)| planid(id)),
                ("Statement", Align::Left, &|(_, text)| (*text).to_owned()),
            ],
        )
    }

    fn nodes(&self) -> Vec<Part> {
        let rows = self
            .nodes
            .iter()
            .map(|((id, node, name), count)| ((*id, *node, name), *count));
        self.table(
            "Top nodes",
            rows,
            &[
                ("queryid", Align::Right, &|(id, ..)| queryid(id)),
                ("planid", Align::Right, &|(id, ..)| planid(id)),
                ("Id", Align::Right, &|(_, node, _)| {
                    node.map(|id| id.to_string()).unwrap_or_default()
                }),
                ("Operation", Align::Left, &|(.., name)| (*name).clone()),
            ],
        )
    }

    fn waits(&self) -> Vec<Part> {
        let rows = self.waits.iter().map(|(wait, count)| (wait.as_ref(), *count));
        self.table(
            "Top events",
            rows,
            &[
                ("Type", Align::Left, &|wait| {
                    wait.map_or_else(|| "CPU".to_owned(), |(of, _)| of.clone())
                }),
                ("Event", Align::Left, &|wait| {
                    wait.map_or_else(
                        || "on CPU, or waiting for it".to_owned(),
                        |(_, event)| event.clone(),
                    )
                }),
            ],
        )
    }

    fn sessions(&self) -> Vec<Part> {
        let rows = self.sessions.iter().map(|(session, count)| (session, *count));
        self.table(
            "Top sessions",
            rows,
            &[
                ("pid", Align::Right, &|(_, pid, _)| pid.to_string()),
                ("Session", Align::Left, &|(run, _, session)| {
                    format!("{session}{}", self.before_a_restart(*run))
                }),
            ],
        )
    }

    fn blockers(&self) -> Vec<Part> {
        let rows = self
            .blockers
            .iter()
            .filter(|(_, blocker)| blocker.count.samples > 0)
            .map(|((run, pid), blocker)| ((*run, *pid, blocker), blocker.count));
        self.table(
            "Blocking sessions",
            rows,
            &[
                ("pid", Align::Right, &|(_, pid, _)| match pid {
                    0 => "prepared transaction".to_owned(),
                    pid => pid.to_string(),
                }),
                ("Session", Align::Left, &|(run, _, blocker)| {
                    format!("{}{}", blocker.session, self.before_a_restart(*run))
                }),
                ("Last statement", Align::Left, &|(_, _, blocker)| {
                    blocker.statement.clone()
                }),
                ("Blocked", Align::Right, &|(_, _, blocker)| {
                    blocker.blocked.len().to_string()
                }),
            ],
        )
    }

    /// Returns what a session of an earlier run of the server has behind its name.
    fn before_a_restart(&self, run: u64) -> &'static str {
        if run < self.moment.run {
            ", before a restart"
        } else {
            ""
        }
    }

    /// Returns a bar for each minute, or for several; nothing if no session was active.
    fn chart(&self, shown: &dyn Fn(i64) -> String) -> Option<Part> {
        let bars = self.bars.iter().filter(|(_, (_, moments))| *moments > 0.0);
        let bars: Vec<(String, Vec<f64>)> = bars
            .map(|(at, (samples, moments))| {
                // A bar of a fraction of a moment would be too long.
                let of = samples.map(|samples| samples as f64 / moments.max(1.0));
                (shown(*at), of.to_vec())
            })
            .collect();
        let per = match self.step / MINUTE_US {
            1 => "minute".to_owned(),
            minutes => format!("{minutes} minutes"),
        };
        let is_active = bars.iter().any(|(_, of)| of.iter().any(|part| *part > 0.0));
        is_active.then(|| {
            Part::Chart(Chart {
                heading: format!("Active sessions on average, per {per}"),
                classes: &CLASSES,
                bars,
            })
        })
    }
}

/// Returns a line that says how many rows a table leaves out, if it does.
fn and_more(others: usize) -> Option<Part> {
    (others > 0).then(|| Part::Line(format!("and {others} more")))
}

/// Returns the microseconds of a bar, in whole minutes. The first and the last bar may be parts of one.
fn step(from: i64, to: i64, bars: i64) -> i64 {
    let minutes = to.saturating_sub(from).max(1) as u64;
    let minutes = minutes.div_ceil(MINUTE_US as u64);
    minutes.div_ceil(bars as u64) as i64 * MINUTE_US
}

fn queryid(id: &StatementId) -> String {
    id.map(|(queryid, _)| queryid.to_string()).unwrap_or_default()
}

fn planid(id: &StatementId) -> String {
    id.and_then(|(_, planid)| planid)
        .map(|planid| planid.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;

/// Returns a number of things.
fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
