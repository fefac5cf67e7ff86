//! The report on an interval: what was wrong, what the load consisted of, what changed, and what is not
//! known. Each finding and each statement names the next command.

use super::{Activity, CLASSES, Count, and_more, counted, queryid};
use crate::report::document::{Document, Part};
use crate::report::table::{Align, Column};
use crate::report::text::{narrowed, on_one_line};
use std::collections::{BTreeMap, BTreeSet};

/// How many statements the report shows, and how many sessions that blocked others.
const STATEMENTS: usize = 5;
const BLOCKERS: usize = 3;
/// How many applications.
const APPLICATIONS: usize = 3;
/// How many sessions of the trees of blockers.
const BLOCKED: usize = 15;
/// How many bars the load over time has.
pub const BARS: i64 = 15;
/// A session that blocks others is a finding from this share of all samples on. Unmeasured.
const BLOCKED_SHARE: f64 = 0.01;
/// A statement has changed if it took at least this many times as many samples, or as few, and if the
/// difference is at least this share of the load of the interval with the higher one. Unmeasured.
const CHANGED: f64 = 1.5;
const CHANGED_SHARE: f64 = 0.02;

/// Something that the reader should know, and the command that shows more of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// One sentence.
    pub text: String,
    /// A command to type; empty if there is none.
    pub command: String,
}

/// A session in a tree of those that waited for each other. It stands below the one for which it waited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blocked {
    /// 0 for the root of a tree.
    pub depth: u32,
    /// Its process, user and application.
    pub who: String,
    /// The event that it waited for, and the relation; empty for the root.
    pub waited_for: String,
    /// How long it waited.
    pub seconds: Option<f64>,
    /// Its statement, or its last one if it was idle.
    pub statement: String,
}

/// What a statement did in the interval, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Its executions.
    pub calls: u64,
    /// Milliseconds of one on average.
    pub mean_ms: f64,
}

impl Figures {
    /// Returns the milliseconds of all executions.
    pub fn total_ms(&self) -> f64 {
        self.calls as f64 * self.mean_ms
    }
}

/// A statement that ran in the interval first.
#[derive(Clone, Debug, PartialEq)]
pub struct New {
    /// Its number.
    pub queryid: i64,
    /// When its first execution ended.
    pub first_seen_at: i64,
    /// What it did.
    pub figures: Figures,
    /// Its text.
    pub text: String,
}

/// What a report says that has no findings, but changes, if no snapshot tells the time before apart. Then
/// what became slower with the same plan is found only if it stays so for three quarters of an hour.
const LATER: &str = "no snapshot has the time before, so what is slower with the same plan is found after 45 minutes: until then, see \"What changed\" below";

/// What the report says beside what samples tell.
pub struct Given<'a> {
    /// The name of the extension's schema with a dot, or nothing if the session finds it without.
    pub prefix: &'a str,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// Who waited for whom.
    pub blocked: Vec<Blocked>,
    /// What is said of processes that kept others waiting and still are in a transaction: what they do, since
    /// when, and what ends it.
    pub states: BTreeMap<i32, String>,
    /// What the report cannot know.
    pub missing: Vec<Finding>,
    /// The plans that the reader can show: their queryids and planids.
    pub kept: BTreeSet<(i64, i64)>,
    /// The statements of which the history tells the interval before and this one apart; `None` if it tells
    /// nothing apart.
    pub compared: Option<BTreeSet<i64>>,
    /// What statements did in the interval, by their queryids. Those of which nothing is known are missing.
    pub figures: BTreeMap<i64, Figures>,
    /// How many statements ended in a second, now and before, as far as that is known.
    pub calls_per_second: [Option<f64>; 2],
    /// What did not run before the interval, with the most time first.
    pub new: Vec<New>,
    /// A line about the counters: from when to when they are.
    pub counters: String,
    /// A line about temporary files.
    pub temporary_files: String,
}

/// The samples of a statement, with those of all its plans.
#[derive(Clone, Default)]
struct Load<'a> {
    count: Count,
    /// The plan with the most samples, and how many.
    plan: Option<(i64, u64)>,
    text: &'a str,
}

/// A statement: its queryid, or its text if it has none.
type Statement<'a> = (Option<i64>, &'a str);

/// A statement, its text, and its load before and now.
type Change<'a> = (Statement<'a>, &'a str, [f64; 2]);

impl Activity {
    /// Returns the samples of each statement.
    fn loads(&self) -> BTreeMap<Statement<'_>, Load<'_>> {
        let mut loads: BTreeMap<Statement<'_>, Load<'_>> = BTreeMap::new();
        for ((id, name), (count, text)) in &self.statements {
            let load = loads.entry((id.map(|(queryid, _)| queryid), name)).or_default();
            load.count.samples += count.samples;
            load.count.on_cpu += count.on_cpu;
            if load.text.is_empty() {
                load.text = text;
            }
            if let Some((_, Some(planid))) = id
                && load.plan.is_none_or(|(_, most)| count.samples > most)
            {
                load.plan = Some((*planid, count.samples));
            }
        }
        loads
    }

    /// Returns the seconds that a sample stands for.
    fn seconds(&self, samples: u64) -> f64 {
        let us: i64 = self.covered.iter().map(|(first, last)| last - first).sum();
        us as f64 / 1e6 / self.moments.max(1) as f64 * samples as f64
    }

    /// Returns the report. `before` has the samples of the interval before, which is as long. The report
    /// begins with `title` and `facts`.
    pub fn overview(
        &mut self,
        before: &mut Activity,
        given: &Given<'_>,
        title: String,
        facts: Vec<(&'static str, String)>,
        shown: &dyn Fn(i64) -> String,
    ) -> Document {
        self.end_moment();
        before.end_moment();
        let interval = [self.from, self.to]
            .map(|at| format!("'{}'", shown(at)))
            .join(", ");
        let command = |function: &str| format!("SELECT * FROM {}{function}({interval})", given.prefix);
        let mut findings = given.findings.clone();
        findings.extend(self.blocking(&command("rowsource_blockers"), &given.states));
        let mut parts = vec![Part::Heading("What is wrong".to_owned())];
        let loads = self.loads();
        let changes = self.changes(&loads, before, given, shown);
        if findings.is_empty() {
            parts.push(Part::Text("nothing was found".to_owned()));
            let is_change = |part: &Part| matches!(part, Part::Table(_));
            parts.extend(
                (given.compared.is_none() && changes.iter().any(is_change))
                    .then(|| Part::Text(LATER.to_owned())),
            );
        }
        parts.extend(findings.into_iter().map(Part::from));
        parts.extend(tree(&given.blocked, &command("rowsource_blockers")));
        parts.extend(self.load(before, given, shown));
        parts.extend(self.chart(shown));
        parts.extend(self.top(&loads, before, given));
        parts.extend(self.nodes());
        parts.extend(changes);
        parts.extend(new(&given.new, shown));
        let waits = self.waits();
        if !waits.is_empty() {
            parts.extend(waits);
            parts.push(Part::command(command("rowsource_wait_report")));
        }
        parts.push(Part::Heading("Temporary files".to_owned()));
        parts.push(Part::Text(given.temporary_files.clone()));
        parts.push(Part::command(command("rowsource_tempfile_report")));
        parts.push(Part::Heading("What this report does not know".to_owned()));
        let notes = self.coverage(shown).into_iter().chain(self.resolution(shown));
        parts.extend(notes.chain([given.counters.clone()]).map(Part::Text));
        if self.hidden > 0 {
            parts.push(Part::Text(format!(
                "{} of sessions of which you may not see more",
                counted(self.hidden, "sample")
            )));
        }
        parts.extend(given.missing.iter().cloned().map(Part::from));
        Document::new(title, facts, parts)
    }

    /// Returns the sessions that kept others waiting for long.
    fn blocking(&self, command: &str, states: &BTreeMap<i32, String>) -> Vec<Finding> {
        let mut blockers: Vec<_> = self
            .blockers
            .iter()
            .filter(|(_, blocker)| {
                blocker.count.samples as f64 >= BLOCKED_SHARE * self.all.samples as f64
                    && blocker.count.samples > 0
            })
            .collect();
        blockers.sort_by_key(|(_, blocker)| std::cmp::Reverse(blocker.count.samples));
        let finding = |((run, pid), blocker): (&(u64, i32), &super::Blocker)| {
            let who = match pid {
                0 => "a prepared transaction".to_owned(),
                pid if blocker.session.is_empty() => format!("process {pid}"),
                pid => format!(
                    "process {pid} ({}{})",
                    blocker.session,
                    self.before_a_restart(*run)
                ),
            };
            let statement = match blocker.statement.as_str() {
                "" => String::new(),
                statement => format!(", its last statement: {statement}"),
            };
            let state = states.get(pid).filter(|_| *run == self.moment.run);
            let state = state.map_or_else(String::new, |state| format!(", {state}"));
            Finding {
                text: format!(
                    "{who} kept {} waiting, for {:.1} s in all{state}{statement}",
                    counted(blocker.blocked.len() as u64, "session"),
                    self.seconds(blocker.count.samples)
                ),
                command: command.to_owned(),
            }
        };
        blockers.into_iter().take(BLOCKERS).map(finding).collect()
    }

    /// Returns lines about the load: what sessions did, how many statements ended, and of which applications
    /// they are.
    fn load(&self, before: &Activity, given: &Given<'_>, shown: &dyn Fn(i64) -> String) -> Vec<Part> {
        let mut classes = [0; CLASSES.len()];
        for (samples, _) in self.bars.values() {
            classes
                .iter_mut()
                .zip(samples)
                .for_each(|(class, more)| *class += more);
        }
        let parts: Vec<String> = CLASSES
            .iter()
            .zip(classes)
            .filter(|(_, samples)| *samples > 0)
            .map(|((name, ..), samples)| format!("{:.2} {name}", self.average(samples)))
            .collect();
        let mut line = format!(
            "Load: {:.2} active sessions on average",
            self.average(self.all.samples)
        );
        if !parts.is_empty() {
            line.push_str(&format!(" ({})", parts.join(", ")));
        }
        let earlier = match before.moments {
            0 => format!("nothing is known of the time before, from {}", shown(before.from)),
            _ => format!(
                "the same time before, from {}: {:.2}",
                shown(before.from),
                before.average(before.all.samples)
            ),
        };
        let mut parts = vec![Part::Heading(line), Part::Line(earlier)];
        if let [Some(now), then] = given.calls_per_second {
            let then = then.map_or_else(String::new, |then| format!("; before: {then:.1}"));
            parts.push(Part::Line(format!("statements per second: {now:.1}{then}")));
        }
        parts.extend(self.applications().map(Part::Line));
        parts
    }

    /// Returns a line about the applications with the most samples.
    fn applications(&self) -> Option<String> {
        let mut all: Vec<(&str, u64)> = self
            .applications
            .iter()
            .map(|(name, count)| (name.as_str(), count.samples))
            .collect();
        all.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        let share =
            |samples: u64| format!("{:.0} %", 100.0 * samples as f64 / self.all.samples.max(1) as f64);
        let shown = all.iter().take(APPLICATIONS).map(|(name, samples)| {
            let name = if name.is_empty() { "without a name" } else { name };
            format!(
                "{} {}",
                narrowed(&on_one_line(name), super::NAME_WIDTH),
                share(*samples)
            )
        });
        let mut shown: Vec<String> = shown.collect();
        let others = &all[shown.len()..];
        if !others.is_empty() {
            let samples = others.iter().map(|(_, samples)| samples).sum();
            shown.push(format!("{} more {}", others.len(), share(samples)));
        }
        (!shown.is_empty()).then(|| format!("applications: {}", shown.join(", ")))
    }

    /// Returns the statements with the most samples, and a command for each.
    fn top(
        &self,
        loads: &BTreeMap<Statement<'_>, Load<'_>>,
        before: &Activity,
        given: &Given<'_>,
    ) -> Vec<Part> {
        let mut rows: Vec<(&Statement<'_>, &Load<'_>)> = loads.iter().collect();
        rows.sort_by_key(|(_, load)| std::cmp::Reverse(load.count.samples));
        let others = rows.len().saturating_sub(STATEMENTS);
        rows.truncate(STATEMENTS);
        let earlier = before.loads();
        let figures = |id: &Statement<'_>| given.figures.get(&id.0?);
        let column = |heading, align, cell: &dyn Fn(&Statement<'_>, &Load<'_>) -> String| {
            Column::new(
                heading,
                align,
                0,
                rows.iter().map(|(id, load)| cell(id, load)).collect(),
            )
        };
        let share = |samples: u64| format!("{:.1}", 100.0 * samples as f64 / self.all.samples.max(1) as f64);
        let columns = vec![
            column("Active", Align::Right, &|_, load| {
                format!("{:.2}", self.average(load.count.samples))
            }),
            column("%", Align::Right, &|_, load| share(load.count.samples)),
            column("CPU %", Align::Right, &|_, load| share(load.count.on_cpu)),
            column("Before", Align::Right, &|id, _| match earlier.get(id) {
                Some(load) => format!("{:.2}", before.average(load.count.samples)),
                None if before.moments == 0 => String::new(),
                None => "0.00".to_owned(),
            }),
            column("Calls", Align::Right, &|id, _| {
                figures(id).map_or(String::new(), |figures| figures.calls.to_string())
            }),
            column("Mean ms", Align::Right, &|id, _| {
                figures(id).map_or(String::new(), |figures| format!("{:.3}", figures.mean_ms))
            }),
            column("Statement", Align::Left, &|_, load| load.text.to_owned()),
        ];
        let mut parts = vec![Part::Heading("Top statements".to_owned()), Part::Table(columns)];
        parts.extend(and_more(others));
        parts.extend(rows.iter().filter_map(|((queryid, _), load)| {
            let plan = ((*queryid)?, load.plan?.0);
            given.kept.contains(&plan).then(|| {
                Part::command(format!(
                    "SELECT * FROM {}rowsource_display({}, {}, format => 'ALLSTATS')",
                    given.prefix, plan.0, plan.1
                ))
            })
        }));
        parts
    }

    /// Returns the statements that took much more or less than in the interval before.
    fn changes(
        &self,
        loads: &BTreeMap<Statement<'_>, Load<'_>>,
        before: &Activity,
        given: &Given<'_>,
        shown: &dyn Fn(i64) -> String,
    ) -> Vec<Part> {
        let mut parts = vec![Part::Heading("What changed against the time before".to_owned())];
        if before.moments == 0 || self.moments == 0 {
            parts.push(Part::Text("the time before is not known".to_owned()));
            return parts;
        }
        let earlier = before.loads();
        let average = |of: &Activity, loads: &BTreeMap<Statement<'_>, Load<'_>>, id: &Statement<'_>| {
            loads.get(id).map_or(0.0, |load| of.average(load.count.samples))
        };
        let all = self
            .average(self.all.samples)
            .max(before.average(before.all.samples));
        let mut rows: Vec<Change<'_>> = Vec::new();
        let ids = loads
            .iter()
            .chain(earlier.iter().filter(|(id, _)| !loads.contains_key(*id)));
        for (id, load) in ids {
            let [then, now] = [average(before, &earlier, id), average(self, loads, id)];
            if then.max(now) >= CHANGED * then.min(now) && (now - then).abs() >= CHANGED_SHARE * all {
                rows.push((*id, load.text, [then, now]));
            }
        }
        if rows.is_empty() {
            parts.push(Part::Text("no statement took much more or less".to_owned()));
            return parts;
        }
        rows.sort_by(|(_, _, [then, now]), (_, _, [other_then, other_now])| {
            (other_now - other_then).abs().total_cmp(&(now - then).abs())
        });
        rows.truncate(STATEMENTS);
        let column = |heading, align, cell: &dyn Fn(&Change<'_>) -> String| {
            Column::new(heading, align, 0, rows.iter().map(cell).collect())
        };
        let columns = vec![
            column("Before", Align::Right, &|(_, _, [then, _])| format!("{then:.2}")),
            column("Now", Align::Right, &|(_, _, [_, now])| format!("{now:.2}")),
            column("Change", Align::Right, &|(_, _, [then, now])| {
                format!("{:+.2}", now - then)
            }),
            column("queryid", Align::Right, &|((id, _), _, _)| {
                queryid(&id.map(|id| (id, None)))
            }),
            column("Statement", Align::Left, &|(_, text, _)| (*text).to_owned()),
        ];
        parts.push(Part::Table(columns));
        let sides = [before, self].map(|of| format!("'{}..{}'", shown(of.from), shown(of.to)));
        let is_compared = |queryid: &i64| given.compared.as_ref().is_some_and(|all| all.contains(queryid));
        let compared = rows
            .iter()
            .filter_map(|((queryid, _), ..)| queryid.filter(is_compared));
        parts.extend(compared.map(|queryid| {
            Part::Command(vec![
                format!("SELECT * FROM {}rowsource_compare({queryid},", given.prefix),
                format!("  {}, {})", sides[0], sides[1]),
            ])
        }));
        parts
    }
}

/// Returns the statements that are new.
fn new(all: &[New], shown: &dyn Fn(i64) -> String) -> Vec<Part> {
    if all.is_empty() {
        return Vec::new();
    }
    let column = |heading, align, cell: &dyn Fn(&New) -> String| {
        Column::new(heading, align, 0, all.iter().map(cell).collect())
    };
    let columns = vec![
        column("Since", Align::Left, &|new| shown(new.first_seen_at)),
        column("Calls", Align::Right, &|new| new.figures.calls.to_string()),
        column("Mean ms", Align::Right, &|new| {
            format!("{:.3}", new.figures.mean_ms)
        }),
        column("queryid", Align::Right, &|new| new.queryid.to_string()),
        column("Statement", Align::Left, &|new| {
            narrowed(&on_one_line(&new.text), super::TEXT_WIDTH)
        }),
    ];
    vec![Part::Heading("New since then".to_owned()), Part::Table(columns)]
}

/// Returns the trees of the sessions that waited for each other.
fn tree(blocked: &[Blocked], command: &str) -> Vec<Part> {
    if blocked.is_empty() {
        return Vec::new();
    }
    let shown = &blocked[..blocked.len().min(BLOCKED)];
    let column = |heading, align, cell: &dyn Fn(&Blocked) -> String| {
        Column::new(heading, align, 0, shown.iter().map(cell).collect())
    };
    let short = |text: &str| narrowed(&on_one_line(text), super::TEXT_WIDTH);
    // A page would join spaces.
    let branch = |depth: u32| match depth {
        0 => String::new(),
        depth => format!("\u{2514}{} ", "\u{2500}".repeat(depth.min(10) as usize)),
    };
    let columns = vec![
        column("Session", Align::Left, &|session| {
            format!("{}{}", branch(session.depth), short(&session.who))
        }),
        column("Waited for", Align::Left, &|session| short(&session.waited_for)),
        column("Seconds", Align::Right, &|session| {
            session
                .seconds
                .map_or(String::new(), |seconds| format!("{seconds:.1}"))
        }),
        column("Statement", Align::Left, &|session| short(&session.statement)),
    ];
    let mut parts = vec![Part::Heading("Who blocked whom".to_owned()), Part::Table(columns)];
    parts.extend(and_more(blocked.len() - shown.len()));
    parts.push(Part::command(command));
    parts
}

impl From<Finding> for Part {
    fn from(finding: Finding) -> Part {
        let command = Some(finding.command).filter(|command| !command.is_empty());
        Part::Finding(finding.text, command)
    }
}

#[cfg(test)]
mod tests;
