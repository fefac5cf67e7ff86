//! The tables of the plans of a statement, of a plan, and of a node.

use crate::data::Data;
use crate::format::node_name;
use crate::model::{Node, Plan};
use crate::queries::PlanKey;
use crate::table::{Cell, Order, Row, Table, Target};
use crate::title::Title;

/// What is said of a plan that a recording does not have.
pub const NOT_RECORDED: &str = "the recording has no nodes of this plan until here: it has those of the statements that \
                                took the most time, and of plans that were open while it was made";

/// Returns the key of a plan that is stored.
pub fn key_of(plan: &Plan) -> Option<PlanKey> {
    let (queryid, planid) = (plan.queryid?, plan.planid?);
    Some(PlanKey {
        userid: plan.userid,
        datid: plan.datid,
        queryid,
        planid,
        toplevel: plan.toplevel,
    })
}

/// How many times too few or too many rows were expected per start; marked if it is tenfold.
fn misestimate(node: &Node) -> Cell {
    let (Some(expected), true) = (node.plan_rows, node.starts > 0.0) else {
        return Cell::None;
    };
    let (expected, found) = (expected.max(1.0), (node.rows / node.starts).max(1.0));
    Cell::Decimal(found / expected)
}

/// Lists the plans of a statement.
pub fn plans(data: &Data, key: &PlanKey) -> Table {
    let mut table = Table::new(
        data.plans.title(&[&format!("Plans of {}", key.queryid)]),
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
        Order::By(1),
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
        table.add(Row::new(format!("{:?}", row.planid), cells, target));
    }
    table
        .notes
        .extend(data.text(Some(key.queryid)).map(crate::format::one_line));
    table
}

/// Says that processes that ran at once add up, if some did.
pub fn of_processes(nodes: &[&Node]) -> Option<String> {
    let whole = nodes.first().map_or(0.0, |root| root.time);
    let has_more = nodes.iter().any(|node| node.time > whole * 1.001);
    has_more.then(|| {
        "below a Gather, times are sums of all processes; % is the share of what all nodes took".to_owned()
    })
}

/// Shows the nodes of a plan.
pub fn plan(data: &Data, key: &PlanKey) -> Table {
    let rows = data.nodes_of(key);
    let executions = rows.first().map_or(0.0, |node| node.executions);
    let so_far = format!(
        "{executions:.0} execution{} so far",
        if executions == 1.0 { "" } else { "s" }
    );
    let mut table = Table::new(
        Title::new([
            format!("Plan {} of {}: {so_far}", key.planid, key.queryid),
            format!("Plan {}: {so_far}", key.planid),
            so_far,
        ]),
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
        Order::Fixed,
    );
    if rows.is_empty() && data.is_replay {
        table.notes.push(NOT_RECORDED.to_owned());
    }
    table.notes.extend(of_processes(&rows));
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
        table.add(Row {
            is_marked: most > 0.0 && node.own_time == most,
            ..Row::of_node(key, node.node_id, node.depth, cells)
        });
    }
    table
        .notes
        .extend(data.text(Some(key.queryid)).map(crate::format::one_line));
    table
}

/// Shows all figures of a node.
pub fn node(data: &Data, key: &PlanKey, node_id: i64) -> Table {
    let mut table = Table::new(
        format!("Node {node_id} of plan {}", key.planid),
        &[("figure", 24, 0), ("value", 30, 0)],
        Order::Fixed,
    );
    let nodes = data.nodes_of(key);
    let Some(node) = nodes.into_iter().find(|node| node.node_id == node_id) else {
        if data.is_replay {
            table.notes.push(NOT_RECORDED.to_owned());
        } else if !data.lacks("Plan") {
            table.notes.push("the plan is not stored any more".to_owned());
        }
        return table;
    };
    if data.is_replay && node.details.is_null() {
        table
            .notes
            .push("the recording has its details only if the plan was open while it was made".to_owned());
    }
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
        let cells = vec![Cell::Text(name.to_owned()), cell];
        table.add(Row::new(name, cells, Target::default()));
    }
    for (name, value) in details {
        let cells = vec![Cell::Text(name.clone()), Cell::text(Some(&value))];
        table.add(Row::new(name, cells, Target::default()));
    }
    table
}
