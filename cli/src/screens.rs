//! The screens: which rows of the server each needs, and which table it makes of them.

use crate::data::Data;
use crate::delta::by_statement;
use crate::model::{Node, Plan};
use crate::queries::{PlanKey, Want};
use crate::table::{Cell, Row, Table, Target, node_name, of_interval};

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
            Self::List(View::Live) => vec![Want::Live],
            Self::List(View::Activity) => vec![Want::Activity],
            Self::List(View::Findings) => vec![Want::Findings],
            Self::List(View::Waits) => vec![Want::Waits],
            Self::List(View::Temp) => vec![Want::Temp],
            Self::List(View::Locks) => vec![Want::Locks],
            Self::List(View::Sessions) => vec![Want::Sessions],
            Self::Plans(_) => vec![data.wanted_plans()],
            Self::Plan(key) | Self::Flame(key) | Self::Node(key, _) => vec![Want::Plan(key.clone())],
            Self::LivePlan(pid) => vec![Want::LivePlan(*pid), Want::Live, Want::Sessions],
            Self::Blocker(_) => vec![Want::Locks],
            Self::Text { .. } => Vec::new(),
        };
        if data.server.loaded && data.server.schema.is_some() {
            wants.extend(data.wanted_texts());
        }
        wants
    }

    /// Returns whether it moves twice a second.
    pub fn is_fast(&self) -> bool {
        matches!(
            self,
            Self::List(View::Live) | Self::LivePlan(_) | Self::Blocker(_)
        )
    }

    /// Makes its table.
    pub fn table(&self, data: &Data) -> Table {
        if data.server.schema.is_none() || !data.server.loaded {
            let mut table = sessions(data);
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
            Self::Plans(key) => plans(data, key),
            Self::Plan(key) => plan(data, key),
            Self::Flame(key) => crate::flame::table(data, key),
            Self::Node(key, node_id) => node(data, key, *node_id),
            Self::LivePlan(pid) => crate::screens_live::live_plan(data, *pid),
            Self::Blocker(pid) => crate::screens_live::blocker(data, *pid),
            Self::Text { title, lines, .. } => text(title, lines.as_deref()),
        };
        if !data.server.sees_all && matches!(self, Self::List(_)) {
            let user = &data.server.user;
            table.notes.push(format!(
                "{user} sees only its own statements: GRANT pg_read_all_stats TO {user}"
            ));
        }
        table
    }
}

fn key_of(plan: &Plan) -> Option<PlanKey> {
    let (queryid, planid) = (plan.queryid?, plan.planid?);
    Some(PlanKey {
        userid: plan.userid,
        datid: plan.datid,
        queryid,
        planid,
        toplevel: plan.toplevel,
    })
}

fn statements(data: &Data) -> Table {
    let mut table = Table::new(
        of_interval("Statements", data.plans.seconds),
        &[
            ("time", 9, 0),
            ("%", 5, 0),
            ("calls", 6, 0),
            ("mean", 8, 0),
            ("wait%", 5, 0),
            ("rows", 6, 90),
            ("reads", 5, 90),
            ("hits", 6, 110),
            ("temp", 5, 110),
            ("wal", 8, 110),
            ("failed", 6, 150),
            ("plans", 5, 110),
            ("user", 10, 150),
            ("database", 10, 150),
            ("queryid", 20, 150),
            ("statement", 20, 0),
        ],
        Some(0),
    );
    let sums = by_statement(&data.plans.added.rows);
    let (own, sums): (Vec<_>, Vec<_>) = sums.into_iter().partition(|(sum, _)| data.is_own(sum.queryid));
    if !own.is_empty() {
        let time: f64 = own.iter().map(|(sum, _)| sum.time).sum();
        table.notes.push(format!(
            "rowsource's own queries are left out: {}",
            crate::table::time(time)
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
    table.rows.extend(rows);
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
    Row::new(cells, target)
}

/// How many times too few or too many rows were expected per start; marked if it is tenfold.
fn misestimate(node: &Node) -> Cell {
    let (Some(expected), true) = (node.plan_rows, node.starts > 0.0) else {
        return Cell::None;
    };
    let (expected, found) = (expected.max(1.0), (node.rows / node.starts).max(1.0));
    Cell::Decimal(found / expected)
}

fn nodes(data: &Data) -> Table {
    let mut table = Table::new(
        of_interval(
            "Nodes of the statements that took the most time",
            data.nodes.seconds,
        ),
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
        Some(0),
    );
    for row in data
        .nodes
        .added
        .rows
        .iter()
        .filter(|row| !data.is_own(row.queryid))
    {
        let (Some(queryid), Some(planid)) = (row.queryid, row.planid) else {
            continue;
        };
        let key = PlanKey {
            userid: row.userid,
            datid: row.datid,
            queryid,
            planid,
            toplevel: row.toplevel,
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
        table.rows.push(Row::new(cells, target));
    }
    table
}

/// Lists the plans of a statement.
fn plans(data: &Data, key: &PlanKey) -> Table {
    let mut table = Table::new(
        of_interval(&format!("Plans of {}", key.queryid), data.plans.seconds),
        &[
            ("planid", 20, 0),
            ("time", 9, 0),
            ("calls", 6, 0),
            ("mean", 8, 0),
            ("wait", 8, 0),
            ("rows", 6, 0),
            ("reads", 5, 0),
            ("hits", 6, 90),
            ("temp", 5, 90),
        ],
        Some(1),
    );
    for row in data.plans_of(key) {
        let target = Target {
            plan: key_of(row),
            queryid: row.queryid,
            ..Target::default()
        };
        let cells = vec![
            Cell::id(row.planid),
            Cell::Time(row.time),
            Cell::Count(row.calls),
            Cell::Time(row.time / row.calls),
            Cell::Time(row.wait),
            Cell::Count(row.rows),
            Cell::Count(row.reads),
            Cell::Count(row.hits),
            Cell::Count(row.temp),
        ];
        table.rows.push(Row::new(cells, target));
    }
    table
        .notes
        .extend(data.text(Some(key.queryid)).map(crate::table::one_line));
    table
}

fn plan(data: &Data, key: &PlanKey) -> Table {
    let rows = data.nodes_of(key);
    let executions = rows.first().map_or(0.0, |node| node.executions);
    let mut table = Table::new(
        format!(
            "Plan {} of {}: {executions:.0} executions since it is stored",
            key.planid, key.queryid
        ),
        &[
            ("id", 3, 0),
            ("node", 30, 0),
            ("%", 5, 0),
            ("self", 9, 0),
            ("total", 9, 0),
            ("starts", 6, 0),
            ("rows", 6, 0),
            ("x est.", 7, 0),
            ("wait", 8, 100),
            ("reads", 6, 100),
            ("hits", 6, 130),
            ("temp", 5, 130),
            ("removed", 7, 130),
        ],
        None,
    );
    let whole: f64 = rows.iter().map(|node| node.own_time).sum();
    let most = rows.iter().map(|node| node.own_time).fold(0.0, f64::max);
    for node in rows {
        let share = if whole > 0.0 {
            Cell::Percent(100.0 * node.own_time / whole)
        } else {
            Cell::None
        };
        let cells = vec![
            Cell::Id(node.node_id),
            Cell::Text(node_name(node.depth, &node.operation, node.object.as_deref())),
            share,
            Cell::Time(node.own_time),
            Cell::Time(node.time),
            Cell::Count(node.starts),
            Cell::Count(node.rows),
            misestimate(node),
            Cell::Time(node.wait),
            Cell::Count(node.reads),
            Cell::Count(node.hits),
            Cell::Count(node.temp),
            Cell::Count(node.removed),
        ];
        let target = Target {
            plan: Some(key.clone()),
            node_id: Some(node.node_id),
            queryid: Some(key.queryid),
            ..Target::default()
        };
        table.rows.push(Row {
            is_marked: most > 0.0 && node.own_time == most,
            ..Row::new(cells, target)
        });
    }
    table
        .notes
        .extend(data.text(Some(key.queryid)).map(crate::table::one_line));
    table
}

fn node(data: &Data, key: &PlanKey, node_id: i64) -> Table {
    let mut table = Table::new(
        format!("Node {node_id} of plan {}", key.planid),
        &[("figure", 24, 0), ("value", 30, 0)],
        None,
    );
    let nodes = data.nodes_of(key);
    let Some(node) = nodes.into_iter().find(|node| node.node_id == node_id) else {
        table.notes.push("the plan is not stored any more".to_owned());
        return table;
    };
    let mut figures = vec![
        ("operation", Cell::Text(node.operation.clone())),
        ("object", Cell::text(node.object.as_deref())),
        ("executions", Cell::Count(node.executions)),
        ("starts", Cell::Count(node.starts)),
        ("rows", Cell::Count(node.rows)),
        ("expected rows per start", Cell::some(node.plan_rows, Cell::Count)),
        ("rows per expected row", misestimate(node)),
        ("rows removed", Cell::Count(node.removed)),
        ("time of the node", Cell::Time(node.own_time)),
        ("time with nodes below", Cell::Time(node.time)),
        ("waits of the node", Cell::Time(node.wait)),
        ("blocks read by the node", Cell::Count(node.reads)),
        ("blocks hit, with below", Cell::Count(node.hits)),
        ("blocks of work files", Cell::Count(node.temp)),
    ];
    let details = node.details.as_object().into_iter().flatten();
    let details: Vec<_> = details
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    for (name, cell) in figures.drain(..) {
        table.rows.push(Row::new(
            vec![Cell::Text(name.to_owned()), cell],
            Target::default(),
        ));
    }
    for (name, value) in details {
        table.rows.push(Row::new(
            vec![Cell::Text(name), Cell::text(Some(&value))],
            Target::default(),
        ));
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
        None,
    );
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
        table.rows.push(Row::new(cells, target));
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
            ("application", 12, 110),
            ("state", 8, 0),
            ("class", 7, 0),
            ("event", 12, 0),
            ("elapsed", 9, 0),
            ("statement", 20, 0),
        ],
        None,
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
            ..Target::default()
        };
        table.rows.push(Row {
            class: row.class.clone(),
            ..Row::new(cells, target)
        });
    }
    table
}

fn text(title: &str, lines: Option<&[String]>) -> Table {
    let mut table = Table::new(title, &[("", 20, 0)], None);
    match lines {
        Some(lines) => table.rows.extend(lines.iter().map(|line| {
            let cell = Cell::Text(crate::table::without_controls(line));
            Row::new(vec![cell], Target::default())
        })),
        None => table.notes.push("the server works on it".to_owned()),
    }
    table
}
