//! The table of the plan that a process runs, or has run.

use std::collections::BTreeMap;

use crate::data::Data;
use crate::format::{clock, node_name, time};
use crate::last_run::{LastRun, is_node};
use crate::model::{LiveNode, Running};
use crate::table::{Cell, Order, Row, Table, Target};
use crate::title::Title;

impl Data {
    /// Returns the plan that a process had when it was last seen, if it runs none any more.
    pub fn ended_run(&self, pid: i64) -> Option<&LastRun> {
        let run = &self.last_run;
        let is_shown = run.at > 0.0 && run.pid == pid && !self.lacks("LivePlan");
        let runs = sum_processes(&self.live_plan, pid).next().is_some();
        (is_shown && !runs).then_some(run)
    }

    /// Returns the text of the statement whose running plan is shown.
    pub fn text_of_run(&self, pid: i64) -> Option<&str> {
        if let Some(run) = self.ended_run(pid) {
            return run.query.as_deref();
        }
        let running = self.live.iter().find(|row| row.pid == pid);
        running?.query.as_deref()
    }
}

/// Its columns.
const COLUMNS: &[(&str, u16, u16)] = &[
    ("id", 5, 0),
    ("node", 30, 0),
    ("starts", 6, 0),
    ("rows", 7, 0),
    ("expected", 8, 0),
    ("self", 9, 0),
    ("total", 9, 0),
    ("reads", 6, 100),
    ("temp", 6, 100),
    ("processes", 9, 130),
    // On the screen an arrow at the number stands for it.
    ("runs", 4, u16::MAX),
    ("wait", 14, 0),
];

/// The plan that a process runs. Processes of a parallel statement add up.
pub fn live_plan(data: &Data, pid: i64) -> Table {
    let mut table = Table::new(format!("Plan that process {pid} runs"), COLUMNS, Order::Fixed);
    let ended = data.ended_run(pid);
    let nodes = if ended.is_some() {
        table.title = Title::new([
            format!(
                "Process {pid}: its statement has ended; its plan at {} UTC",
                clock(data.last_run.at)
            ),
            format!("Process {pid}: ended; at {} UTC", clock(data.last_run.at)),
        ]);
        // Whether the process is still there.
        table.notes.extend(nothing_runs(data, pid).into_iter().take(1));
        &data.last_run.nodes
    } else {
        if let Some(row) = data.live.iter().find(|row| row.pid == pid) {
            table.title = live_title(row);
        }
        &data.live_plan
    };
    table
        .notes
        .extend(data.text_of_run(pid).map(crate::format::one_line));
    let rows: Vec<_> = sum_processes(nodes, pid).collect();
    let most = rows
        .iter()
        .filter_map(|(node, ..)| node.own_time)
        .fold(0.0, f64::max);
    for (node, processes, wait) in rows {
        let ran = data.last_run.ran.get(&(node.nesting, node.node_id));
        let runs = ended.is_none() && (node.running || ran.is_some());
        let cells = vec![
            if runs {
                Cell::Active(node.node_id)
            } else {
                Cell::Id(node.node_id)
            },
            Cell::Text(node_name(node.depth, &node.operation, node.object.as_deref())),
            Cell::Count(node.starts),
            Cell::Count(node.rows),
            Cell::some(
                node.plan_rows.map(|rows| rows * node.starts.max(1.0)),
                Cell::Count,
            ),
            Cell::some(node.own_time, Cell::Time),
            Cell::some(node.time, Cell::Time),
            Cell::Count(node.reads),
            Cell::Count(node.temp),
            Cell::Count(f64::from(processes)),
            Cell::text(runs.then_some("yes")),
            Cell::text(wait.as_deref().filter(|_| ended.is_none())),
        ];
        let target = Target {
            pid: Some(pid),
            node_id: Some(node.node_id),
            queryid: node.queryid.filter(|_| ended.is_some()),
            planid: node.planid.filter(|_| ended.is_some()),
            ..Target::default()
        };
        table.add(Row {
            is_marked: most > 0.0 && node.own_time == Some(most),
            depth: Some(node.depth.max(0) as usize),
            ..Row::new(format!("{}/{}", node.nesting, node.node_id), cells, target)
        });
    }
    if table.rows.is_empty() {
        table.notes.extend(nothing_runs(data, pid));
    }
    table
}

/// Says why a process has no running plan: that it runs none, with its last statement, or that this is not
/// known.
fn nothing_runs(data: &Data, pid: i64) -> Vec<String> {
    if data.is_replay {
        return vec![format!(
            "the recording has no running plan of process {pid} now: it has those that were open while it was made"
        )];
    }
    if data.lacks("LivePlan") {
        return Vec::new();
    }
    if data.live_plan.iter().any(|node| node.pid == pid) {
        return vec![format!(
            "process {pid} runs a statement whose nodes {} may not see, or for which there was no shared memory",
            data.server.user
        )];
    }
    let sessions = data.sessions.iter().filter(|_| data.knows_sessions());
    let session = { sessions }.find(|session| session.pid == pid);
    if session.is_none() && data.knows_sessions() {
        return vec![format!("the server has no process {pid} now")];
    }
    if session.is_some_and(|session| session.is_own) {
        return vec![format!(
            "process {pid} works for rowsource now, behind a pooler: it runs nothing else"
        )];
    }
    let mut notes = vec![format!("process {pid} runs no measured statement now")];
    if let Some((session, query)) = session.and_then(|it| Some((it, it.query.as_deref()?))) {
        let state = session.state.as_deref().unwrap_or("");
        let what = if state == "active" {
            "its statement"
        } else {
            "its last statement"
        };
        notes.push(format!("{state}; {what}: {}", crate::format::one_line(query)));
    }
    notes
}

/// Says how long a statement runs, and how far it is: with fewer words, the narrower the terminal is.
fn live_title(row: &Running) -> Title {
    let (pid, state) = (row.pid, row.state.as_deref().unwrap_or("running"));
    let elapsed = row.elapsed.map(time);
    let runs = elapsed
        .as_deref()
        .map_or_else(String::new, |it| format!(" for {it}"));
    let whole = format!("Process {pid}: {state}{runs}");
    let short = format!("Process {pid}, {}", elapsed.as_deref().unwrap_or(state));
    if let Some(blocked) = row.blocked() {
        return Title::new([
            format!("{whole}, {blocked}: b shows more"),
            format!("{whole}, {blocked}"),
            format!("{short}, {blocked}"),
            short,
        ]);
    }
    let (Some(percent), Some(low), Some(high)) = (row.percent, row.low, row.high) else {
        return Title::new([whole, short]);
    };
    let left = row.left.map(time);
    let left = |before: &str| {
        left.as_deref()
            .map_or_else(String::new, |it| format!("{before}{it} left"))
    };
    let bar = Cell::Bar(percent).show();
    let range = format!("{low:.0} to {high:.0} %");
    Title::new([
        format!("{whole}  {bar}  ({range} done{})", left(", about ")),
        format!("{whole}  {percent:.0}%  ({range} done{})", left(", about ")),
        format!("{short}, {percent:.0}% ({range} done){}", left(", ")),
        format!("{short}, {percent:.0}%{}", left(", ")),
        short,
    ])
}

/// Adds up the processes of each node of the statement that a process runs, in the order of the nodes: the
/// sum, how many they are, and what one of them waits for.
fn sum_processes(
    nodes: &[LiveNode],
    pid: i64,
) -> impl Iterator<Item = (LiveNode, u32, Option<String>)> + use<> {
    let mut sums: BTreeMap<_, (LiveNode, u32, Option<String>)> = BTreeMap::new();
    // What came last may be of another process.
    let is_of_process = |node: &&LiveNode| node.pid == pid || node.leader == Some(pid);
    for node in nodes.iter().filter(is_of_process).filter(|node| is_node(node)) {
        let Some((sum, processes, wait)) = sums.get_mut(&(node.nesting, node.node_id)) else {
            sums.insert((node.nesting, node.node_id), (node.clone(), 1, node.wait.clone()));
            continue;
        };
        *processes += 1;
        sum.starts += node.starts;
        sum.rows += node.rows;
        sum.reads += node.reads;
        sum.temp += node.temp;
        sum.running |= node.running;
        sum.time = add(sum.time, node.time);
        sum.own_time = add(sum.own_time, node.own_time);
        *wait = wait.take().or_else(|| node.wait.clone());
    }
    sums.into_values()
}

fn add(sum: Option<f64>, value: Option<f64>) -> Option<f64> {
    match (sum, value) {
        (Some(sum), Some(value)) => Some(sum + value),
        (sum, value) => sum.or(value),
    }
}
