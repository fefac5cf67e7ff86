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

/// What the report says beside what samples tell.
pub struct Given<'a> {
    /// The name of the extension's schema with a dot, or nothing if the session finds it without.
    pub prefix: &'a str,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// Who waited for whom.
    pub blocked: Vec<Blocked>,
    /// What the report cannot know.
    pub missing: Vec<Finding>,
    /// The plans that the reader can show: their queryids and planids.
    pub kept: BTreeSet<(i64, i64)>,
    /// Whether the interval before can be compared with this one: the history tells them apart.
    pub can_compare: bool,
    /// What statements did in the interval, by their queryids. Those of which nothing is known are missing.
    pub figures: BTreeMap<i64, Figures>,
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
        findings.extend(self.blocking(&command("rowsource_blockers")));
        let mut parts = vec![Part::Heading("What is wrong".to_owned())];
        match findings.is_empty() {
            true => parts.push(Part::Text("nothing was found".to_owned())),
            false => parts.extend(findings.into_iter().map(Part::from)),
        }
        parts.extend(tree(&given.blocked, &command("rowsource_blockers")));
        parts.extend(self.load(before, shown));
        parts.extend(self.chart(shown));
        let loads = self.loads();
        parts.extend(self.top(&loads, before, given));
        parts.extend(self.nodes());
        parts.extend(self.changes(&loads, before, given, shown));
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
    fn blocking(&self, command: &str) -> Vec<Finding> {
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
            Finding {
                text: format!(
                    "{who} kept {} waiting, for {:.1} s in all{statement}",
                    counted(blocker.blocked.len() as u64, "session"),
                    self.seconds(blocker.count.samples)
                ),
                command: command.to_owned(),
            }
        };
        blockers.into_iter().take(BLOCKERS).map(finding).collect()
    }

    /// Returns a line about the load, by what sessions did.
    fn load(&self, before: &Activity, shown: &dyn Fn(i64) -> String) -> [Part; 2] {
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
        [Part::Heading(line), Part::Line(earlier)]
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
        let compared = rows
            .iter()
            .filter(|_| given.can_compare)
            .filter_map(|((queryid, _), _, [then, now])| (*then > 0.0 && *now > 0.0).then_some((*queryid)?));
        parts.extend(compared.map(|queryid| {
            Part::Command(vec![
                format!("SELECT * FROM {}rowsource_compare({queryid},", given.prefix),
                format!("  {}, {})", sides[0], sides[1]),
            ])
        }));
        parts
    }
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
mod tests {
    use super::*;
    use crate::ash::Moment;
    use crate::report::activity::Seen;

    const SECOND: i64 = 1_000_000;

    fn shown(at: i64) -> String {
        format!("{} s", at / SECOND)
    }

    fn given() -> Given<'static> {
        Given {
            prefix: "r.",
            findings: Vec::new(),
            blocked: Vec::new(),
            missing: Vec::new(),
            kept: BTreeSet::from([(11, 12), (11, 13)]),
            can_compare: true,
            figures: BTreeMap::new(),
            counters: "no counters".to_owned(),
            temporary_files: "none".to_owned(),
        }
    }

    /// Samples of a minute, one a second. `active` returns the sessions of a second.
    fn minute(from: i64, active: impl Fn(i64) -> Vec<Seen<'static>>) -> Activity {
        let mut activity = Activity::new(from, from + 60 * SECOND, i64::MIN, "no older ones").with_bars(BARS);
        for i in 0..60 {
            let at = from + i * SECOND;
            activity.add_moment(
                &Moment {
                    at,
                    moments: 1,
                    first: at,
                    last: at + SECOND - 1,
                    ..Moment::default()
                },
                Some(1),
            );
            active(i).iter().for_each(|seen| activity.add(seen));
        }
        activity
    }

    fn lines(now: &mut Activity, before: &mut Activity, given: &Given<'_>) -> Vec<String> {
        now.overview(before, given, "What happened".to_owned(), Vec::new(), &shown)
            .lines()
    }

    fn query(queryid: i64, planid: i64, text: &'static str) -> Seen<'static> {
        Seen {
            pid: 7,
            session: "client backend alice psql",
            statement: Some((queryid, Some(planid))),
            text: Some(text),
            ..Seen::default()
        }
    }

    #[test]
    fn a_statement_that_took_more_is_a_change_and_has_a_command() {
        let mut before = minute(0, |i| match i {
            0..6 => vec![query(11, 12, "SELECT 1")],
            _ => Vec::new(),
        });
        let mut now = minute(60 * SECOND, |i| match i {
            0..30 => vec![query(11, 12, "SELECT 1")],
            _ => vec![query(11, 13, "SELECT 1"), query(21, 22, "SELECT 2")],
        });
        let mut given = given();
        given.figures.insert(
            11,
            Figures {
                calls: 60,
                mean_ms: 1000.0,
            },
        );
        let lines = lines(&mut now, &mut before, &given);
        let text = lines.join("\n");
        for line in [
            "  nothing was found",
            "Load: 1.50 active sessions on average (1.50 CPU)",
            "the same time before, from 0 s: 0.10",
            "|   1.00 | 66.7 |  66.7 |   0.10 |    60 | 1000.000 | SELECT 1  |",
            "|   0.50 | 33.3 |  33.3 |   0.00 |       |          | SELECT 2  |",
            "|   0.10 | 1.00 |  +0.90 |      11 | SELECT 1  |",
            "|   0.00 | 0.50 |  +0.50 |      21 | SELECT 2  |",
            "  SELECT * FROM r.rowsource_display(11, 12, format => 'ALLSTATS')",
            "  SELECT * FROM r.rowsource_compare(11,",
            "    '0 s..60 s', '60 s..120 s')",
            "  SELECT * FROM r.rowsource_wait_report('60 s', '120 s')",
        ] {
            assert!(lines.iter().any(|it| it == line), "{line}\n{text}");
        }
        // It did not run before, and its plan is not kept.
        assert!(
            !text.contains("rowsource_compare(21") && !text.contains("rowsource_display(21"),
            "{text}"
        );
    }

    #[test]
    fn who_blocks_others_is_a_finding() {
        let waits = |i: i64| match i {
            0..20 => vec![Seen {
                wait: Some(("Lock", "transactionid")),
                blocker: Some(9),
                ..query(11, 12, "UPDATE t")
            }],
            _ => vec![query(21, 22, "SELECT 2")],
        };
        let mut now = minute(60 * SECOND, waits);
        now.name_blocker(9, "client backend bob app", "LOCK TABLE t");
        let mut before = Activity::new(0, 60 * SECOND, i64::MIN, "no older ones");
        let lines = lines(&mut now, &mut before, &given());
        let at = lines
            .iter()
            .position(|line| line == "What is wrong")
            .expect("a heading");
        assert_eq!(
            lines[at + 1..at + 3],
            [
                "  process 9 (client backend bob app) kept 1 session waiting, for 20.0 s in all, its last statement: LOCK TABLE t",
                "    SELECT * FROM r.rowsource_blockers('60 s', '120 s')",
            ]
        );
        assert!(lines.contains(&"  the time before is not known".to_owned()));
    }

    #[test]
    fn who_blocked_whom_is_a_tree() {
        let session = |depth, who: &str, seconds| Blocked {
            depth,
            who: who.to_owned(),
            waited_for: if depth > 0 { "relation on t" } else { "" }.to_owned(),
            seconds,
            statement: "LOCK TABLE t".to_owned(),
        };
        let mut given = given();
        given.blocked = vec![
            session(0, "9 bob app", None),
            session(1, "10 eve", Some(20.0)),
            session(2, "11 joe", Some(1.5)),
        ];
        let (mut now, mut before) = (minute(60 * SECOND, |_| Vec::new()), minute(0, |_| Vec::new()));
        let lines = lines(&mut now, &mut before, &given);
        for line in [
            "Who blocked whom",
            "| 9 bob app |               |         | LOCK TABLE t |",
            "| \u{2514}\u{2500} 10 eve | relation on t |    20.0 | LOCK TABLE t |",
            "| \u{2514}\u{2500}\u{2500} 11 joe | relation on t |     1.5 | LOCK TABLE t |",
        ] {
            let bare = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                lines.iter().any(|it| bare(it) == bare(line)),
                "{line}\n{lines:#?}"
            );
        }
        // What is wide is narrowed.
        given.blocked = vec![session(9, &"x".repeat(100), Some(1.0)); 20];
        let lines = self::lines(&mut now, &mut before, &given);
        assert!(lines.iter().all(|line| line.chars().count() <= 120), "{lines:#?}");
        assert!(lines.contains(&"and 5 more".to_owned()));
    }

    #[test]
    fn no_line_is_wider_than_the_report() {
        let long: &'static str = Box::leak("SELECT ".repeat(100).into_boxed_str());
        let mut now = minute(60 * SECOND, |_| vec![query(i64::MIN, i64::MIN, long)]);
        let mut before = minute(0, |i| {
            if i == 0 {
                vec![query(i64::MIN, 1, long)]
            } else {
                Vec::new()
            }
        });
        let mut given = given();
        given.findings.push(Finding {
            text: "wrong ".repeat(100),
            command: String::new(),
        });
        for line in lines(&mut now, &mut before, &given) {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }

    #[test]
    fn small_changes_are_none() {
        let steady = |i: i64| match i % 2 {
            0 => vec![query(11, 12, "SELECT 1")],
            _ => Vec::new(),
        };
        let (mut before, mut now) = (minute(0, steady), minute(60 * SECOND, steady));
        let lines = lines(&mut now, &mut before, &given());
        assert!(lines.contains(&"  no statement took much more or less".to_owned()));
    }
}
