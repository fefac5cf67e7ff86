//! The screens: which rows of the server each needs, and which table it makes of them.

use crate::data::Data;
use crate::delta::{Counted, by_statement};
use crate::format::node_name;
use crate::model::Plan;
use crate::queries::{PlanKey, Want};
use crate::screens_plan::key_of;
use crate::table::{Cell, Order, Row, Table, Target, is_idle};

/// The lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    Statements,
    Nodes,
    Live,
    Activity,
    Findings,
    Waits,
    Temp,
    Locks,
    Sessions,
}

impl View {
    /// All of them, in the order of their keys.
    pub const ALL: [Self; 9] = [
        Self::Statements,
        Self::Nodes,
        Self::Live,
        Self::Activity,
        Self::Findings,
        Self::Waits,
        Self::Temp,
        Self::Locks,
        Self::Sessions,
    ];

    /// Returns the views whose names begin like this.
    pub fn named(typed: &str) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(move |view| view.name().starts_with(typed))
    }

    /// Returns its key, with its name.
    pub fn key(self) -> String {
        let number = Self::ALL.iter().position(|view| *view == self).unwrap_or(0);
        format!("{} {}", number + 1, self.name())
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Statements => "statements",
            Self::Nodes => "nodes",
            Self::Live => "live",
            Self::Activity => "activity",
            Self::Findings => "findings",
            Self::Waits => "waits",
            Self::Temp => "temp",
            Self::Locks => "locks",
            Self::Sessions => "sessions",
        }
    }
}

/// What is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Screen {
    /// A list.
    List(View),
    /// The plans of a statement.
    Plans(PlanKey),
    /// A plan of the store.
    Plan(PlanKey),
    /// How its time is divided among its nodes.
    Flame(PlanKey),
    /// A node of it.
    Node(PlanKey, i64),
    /// The plan that a process runs.
    LivePlan(i64),
    /// Who blocks a process.
    Blocker(i64),
    /// Lines that a function of the server writes; nothing while it works.
    Text {
        title: String,
        /// What else is to be known of the figures.
        note: Option<String>,
        call: String,
        lines: Option<Vec<String>>,
    },
}

impl Screen {
    /// Returns what it needs of the server.
    pub fn wants(&self, data: &mut Data) -> Vec<Want> {
        let mut wants = match self {
            Self::List(View::Statements) => vec![data.wanted_plans()],
            Self::List(View::Nodes) => [Some(data.wanted_plans()), data.wanted_nodes()]
                .into_iter()
                .flatten()
                .collect(),
            Self::List(View::Live) => vec![Want::Live(None)],
            Self::List(View::Activity) => data.wanted_activity().into_iter().collect(),
            Self::List(View::Findings) => vec![Want::Findings],
            Self::List(View::Waits) => vec![Want::Waits],
            Self::List(View::Temp) => vec![Want::Temp],
            Self::List(View::Locks) => vec![Want::Locks],
            Self::List(View::Sessions) => vec![Want::Sessions(None)],
            Self::Plans(_) => vec![data.wanted_plans()],
            Self::Plan(key) | Self::Flame(key) | Self::Node(key, _) => vec![Want::Plan(key.clone())],
            Self::LivePlan(pid) => {
                let runs = data.live_plan.iter().any(|node| node.pid == *pid);
                let session = (!runs).then_some(Want::SessionOf(*pid));
                [Want::LivePlan(*pid), Want::LiveOf(*pid)]
                    .into_iter()
                    .chain(session)
                    .collect()
            }
            Self::Blocker(pid) => vec![Want::Blockers(*pid)],
            Self::Text { .. } => Vec::new(),
        };
        if matches!(
            self,
            Self::List(View::Statements | View::Nodes | View::Live | View::Waits)
        ) {
            wants.extend(data.wanted_working());
        }
        if data.server.has_extension() {
            wants.extend(data.wanted_texts());
        }
        wants
    }

    /// Returns whether it moves twice a second. Who blocks whom takes the server longer to find.
    pub fn is_fast(&self) -> bool {
        matches!(self, Self::List(View::Live) | Self::LivePlan(_))
    }

    /// Returns of how many seconds the figures are; nothing if they are of no interval.
    pub fn seconds(&self, data: &Data) -> Option<f64> {
        match self {
            _ if !data.server.has_extension() => None,
            Self::List(View::Statements) | Self::Plans(_) => data.plans.seconds,
            Self::List(View::Nodes) => data.nodes.seconds,
            Self::List(View::Waits) => data.waits.seconds,
            _ => None,
        }
    }

    /// Returns how many rows the server has, if not all of them came.
    pub fn total(&self, data: &Data) -> Option<u64> {
        let (part, ..) = self.list(data)?;
        data.totals.get(part).copied()
    }

    /// Says that a list has more rows than came, and which came.
    fn cut(&self, data: &Data) -> Option<String> {
        let (_, came, which) = self.list(data)?;
        Some(format!("{came} of {} rows: {which}", self.total(data)?))
    }

    /// Returns the part that it consists of, how many rows came, and which these are.
    fn list(&self, data: &Data) -> Option<(&'static str, usize, &'static str)> {
        Some(match self {
            _ if !data.server.has_extension() => ("Sessions", data.sessions.len(), "those that work longest"),
            Self::List(View::Live) => ("Live", data.live.len(), "those that run longest"),
            Self::List(View::Activity) => ("Activity", data.activity.len(), "what took the most time"),
            Self::List(View::Findings) => ("Findings", data.findings.len(), "the largest that are not over"),
            Self::List(View::Temp) => ("Temp", data.temp.len(), "the largest"),
            Self::List(View::Locks) => ("Locks", data.locks.len(), "below those that block the most"),
            Self::List(View::Sessions) => ("Sessions", data.sessions.len(), "those that work longest"),
            Self::LivePlan(_) => (
                "LivePlan",
                data.live_plan.len(),
                "the first ones; sums lack the others",
            ),
            _ => return None,
        })
    }

    /// Makes its table.
    pub fn table(&self, data: &Data) -> Table {
        if !data.server.has_extension() {
            let mut table = sessions(data);
            table.notes.extend(self.cut(data));
            if data.at > 0.0 {
                table.notes.push(crate::server::missing_extension(&data.server));
            }
            return table;
        }
        let mut table = match self {
            Self::List(View::Statements) => statements(data),
            Self::List(View::Nodes) => nodes(data),
            Self::List(View::Live) => crate::screens_live::live(data),
            Self::List(View::Activity) => crate::screens_live::activity(data),
            Self::List(View::Findings) => findings(data),
            Self::List(View::Waits) => crate::screens_live::waits(data),
            Self::List(View::Temp) => crate::screens_live::temp(data),
            Self::List(View::Locks) => crate::screens_live::locks(data),
            Self::List(View::Sessions) => sessions(data),
            Self::Plans(key) => crate::screens_plan::plans(data, key),
            Self::Plan(key) => crate::screens_plan::plan(data, key),
            Self::Flame(key) => crate::flame::table(data, key),
            Self::Node(key, node_id) => crate::screens_plan::node(data, key, *node_id),
            Self::LivePlan(pid) => crate::live_plan::live_plan(data, *pid),
            Self::Blocker(pid) => crate::screens_live::blocker(data, *pid),
            Self::Text {
                title, note, lines, ..
            } => text(title, note.as_ref(), lines.as_deref()),
        };
        table.notes.extend(match self {
            Self::List(View::Statements | View::Nodes) => crate::working::statements(data),
            Self::List(View::Waits) => crate::working::waits(data),
            Self::List(View::Live) => crate::working::without_plans(data),
            _ => None,
        });
        table.notes.extend(self.cut(data));
        if matches!(self, Self::List(_)) {
            table.notes.extend(missing_privilege(data));
        }
        table
    }
}

/// Says which privilege the user lacks.
pub fn missing_privilege(data: &Data) -> Option<String> {
    let user = &data.server.user;
    (data.at > 0.0 && !data.server.sees_all)
        .then(|| format!("{user} sees only its own statements: GRANT pg_read_all_stats TO {user}"))
}

fn statements(data: &Data) -> Table {
    let mut table = Table::new(
        data.plans.title(&["Statements"]),
        &[
            ("time", 9, 0),
            ("%", 5, 0),
            ("calls", 6, 0),
            ("mean", 8, 0),
            ("wait%", 5, 0),
            ("rows", 6, 90),
            ("reads", 5, 90),
            ("hits", 6, 110),
            ("temp", 5, 0),
            ("wal", 8, 110),
            ("failed", 6, 150),
            ("plans", 5, 110),
            ("user", 10, 150),
            ("database", 10, 150),
            ("queryid", 20, 150),
            ("statement", 20, 0),
        ],
        Order::By(0),
    );
    let sums = by_statement(&data.plans.added.rows);
    let (own, sums): (Vec<_>, Vec<_>) = sums.into_iter().partition(|(sum, _)| data.is_own(sum.queryid));
    if !own.is_empty() {
        let time: f64 = own.iter().map(|(sum, _)| sum.time).sum();
        table.notes.push(format!(
            "rowsource's own queries are left out: {}",
            crate::format::time(time)
        ));
    }
    let whole: f64 = sums
        .iter()
        .filter(|(sum, _)| sum.toplevel)
        .map(|(sum, _)| sum.time)
        .sum();
    let rows = sums
        .iter()
        .map(|(sum, plans)| statement(data, sum, *plans, whole));
    rows.for_each(|row| table.add(row));
    if data.plans.added.anew > 0 {
        let anew = data.plans.added.anew;
        table.notes.push(format!(
            "{anew} plans came back after an eviction or a reset: their figures are since then"
        ));
    }
    table
}

/// Makes the row of a statement. `whole` is the time of all.
fn statement(data: &Data, sum: &Plan, plans: usize, whole: f64) -> Row {
    let share = if sum.toplevel && whole > 0.0 {
        Cell::Percent(100.0 * sum.time / whole)
    } else {
        Cell::None
    };
    let waits = if sum.time > 0.0 {
        Cell::Percent((100.0 * sum.wait / sum.time).min(100.0))
    } else {
        Cell::None
    };
    let text = match (sum.queryid, data.text(sum.queryid)) {
        (None, _) => Cell::Text("others: statements whose plans are not stored".to_owned()),
        (_, Some(text)) => Cell::text(Some(text)),
        (_, None) => Cell::None,
    };
    let target = Target {
        plan: key_of(sum),
        queryid: sum.queryid,
        ..Target::default()
    };
    let cells = vec![
        Cell::Time(sum.time),
        share,
        Cell::Count(sum.calls),
        Cell::Time(sum.time / sum.calls),
        waits,
        Cell::Count(sum.rows),
        Cell::Count(sum.reads),
        Cell::Count(sum.hits),
        Cell::Count(sum.temp),
        Cell::Bytes(sum.wal),
        Cell::Count(sum.failed),
        Cell::Count(plans as f64),
        Cell::text(sum.usename.as_deref()),
        Cell::text(sum.datname.as_deref()),
        Cell::id(sum.queryid),
        text,
    ];
    // Not its plan: which one takes the most time changes.
    let key = format!("{}/{}/{:?}/{}", sum.userid, sum.datid, sum.queryid, sum.toplevel);
    Row::new(key, cells, target)
}

fn nodes(data: &Data) -> Table {
    let mut table = Table::new(
        data.nodes
            .title(&["Nodes of the statements that took the most time", "Nodes"]),
        &[
            ("self", 9, 0),
            ("wait", 8, 0),
            ("starts", 6, 0),
            ("rows", 6, 0),
            ("reads", 5, 0),
            ("hits", 6, 110),
            ("temp", 5, 110),
            ("removed", 7, 110),
            ("id", 3, 0),
            ("node", 24, 0),
            ("queryid", 20, 150),
            ("statement", 20, 0),
        ],
        Order::By(0),
    );
    let (read, all) = data.node_statements();
    if 0 < read && read < all {
        table.notes.push(format!(
            "of {read} of the {all} statements that ran, and those before"
        ));
    }
    for row in data
        .nodes
        .added
        .rows
        .iter()
        .filter(|row| !data.is_own(row.queryid))
    {
        let Some(key) = PlanKey::of_node(row) else {
            continue;
        };
        let target = Target {
            plan: Some(key),
            node_id: Some(row.node_id),
            queryid: row.queryid,
            ..Target::default()
        };
        let cells = vec![
            Cell::Time(row.own_time),
            Cell::Time(row.wait),
            Cell::Count(row.starts),
            Cell::Count(row.rows),
            Cell::Count(row.reads),
            Cell::Count(row.hits),
            Cell::Count(row.temp),
            Cell::Count(row.removed),
            Cell::Id(row.node_id),
            Cell::Text(node_name(0, &row.operation, row.object.as_deref())),
            Cell::id(row.queryid),
            Cell::text(data.text(row.queryid)),
        ];
        let key = format!("{:?}", row.key());
        table.add(Row::new(key, cells, target));
    }
    table
}

fn findings(data: &Data) -> Table {
    let mut table = Table::new(
        "Findings: statements that became slower (rowsource_regressions); Enter compares",
        &[
            ("state", 9, 0),
            ("since", 19, 110),
            ("before", 8, 0),
            ("after", 8, 0),
            ("factor", 7, 0),
            ("extra", 8, 110),
            ("calls", 6, 150),
            ("cause", 24, 0),
            ("basis", 13, 150),
            ("queryid", 20, 200),
            ("statement", 20, 0),
        ],
        Order::AsIs,
    );
    let age = data.findings_at.map_or(0.0, |at| data.at - at);
    if age > 3.0 {
        table.notes.push(format!("as of {age:.0} s ago; r asks again"));
    }
    for row in &data.findings {
        let call = row.command.as_deref().and_then(|command| {
            let at = command.find("rowsource_compare(")?;
            Some(command[at..].to_owned())
        });
        let target = Target {
            queryid: row.queryid,
            call,
            ..Target::default()
        };
        let cells = vec![
            Cell::text(Some(&row.state)),
            Cell::text(row.at.as_deref()),
            Cell::some(row.before, Cell::Time),
            Cell::some(row.after, Cell::Time),
            Cell::some(row.factor, Cell::Decimal),
            Cell::some(row.extra, Cell::Time),
            Cell::some(row.calls, Cell::Count),
            Cell::text(row.cause.as_deref()),
            Cell::text(row.basis.as_deref()),
            Cell::id(row.queryid),
            Cell::text(row.query.as_deref()),
        ];
        table.add(Row::new(row.id.to_string(), cells, target));
    }
    table
}

fn sessions(data: &Data) -> Table {
    let mut table = Table::new(
        "Sessions that are not idle (pg_stat_activity)",
        &[
            ("pid", 7, 0),
            ("user", 10, 0),
            ("database", 10, 110),
            ("application", 12, 0),
            ("state", 10, 0),
            ("class", 7, 110),
            ("event", 12, 0),
            ("elapsed", 9, 0),
            ("statement", 20, 0),
        ],
        Order::AsIs,
    );
    for row in &data.sessions {
        let cells = vec![
            Cell::Id(row.pid),
            Cell::text(row.usename.as_deref()),
            Cell::text(row.datname.as_deref()),
            Cell::text(row.application.as_deref()),
            Cell::text(row.state.as_deref()),
            Cell::text(row.class.as_deref()),
            Cell::text(row.event.as_deref()),
            Cell::some(row.elapsed, Cell::Time),
            Cell::text(row.query.as_deref()),
        ];
        let target = Target {
            pid: Some(row.pid),
            waits: row.class.as_deref() == Some("Lock"),
            is_idle: is_idle(row.state.as_deref()),
            ..Target::default()
        };
        table.add(Row {
            class: row.class.clone(),
            ..Row::new(row.pid.to_string(), cells, target)
        });
    }
    table
}

fn text(title: &str, note: Option<&String>, lines: Option<&[String]>) -> Table {
    let mut table = Table::new(title, &[("", 20, 0)], Order::Fixed);
    table.notes.extend(note.cloned());
    match lines {
        Some(lines) => {
            for (number, line) in lines.iter().enumerate() {
                let cell = Cell::Text(crate::format::without_controls(line));
                table.add(Row::new(number.to_string(), vec![cell], Target::default()));
            }
        }
        None => table.notes.push("the server works on it".to_owned()),
    }
    table
}
