//! The lists of what runs, waits and is locked now.

use std::collections::BTreeMap;

use crate::data::Data;
use crate::delta::Counted;
use crate::format::{node_name, time, wrap};
use crate::table::{Cell, Order, Row, Table, Target, is_idle};
use crate::title::Title;

/// Running statements.
pub fn live(data: &Data) -> Table {
    let mut table = Table::new(
        "Live: measured statements that run now",
        &[
            ("pid", 7, 0),
            ("elapsed", 9, 0),
            ("done", 18, 0),
            ("left", 9, 0),
            ("node", 22, 0),
            ("wait", 14, 0),
            // On the screen it stands in the place of how far the statement is.
            ("blocked by", 10, u16::MAX),
            ("user", 10, 110),
            ("database", 10, 150),
            ("queryid", 20, 150),
            ("statement", 18, 0),
        ],
        Order::AsIs,
    );
    for row in &data.live {
        let node = row
            .operation
            .as_deref()
            .map(|operation| node_name(0, operation, row.object.as_deref()));
        let blocked = row.blocked();
        let left = row.left.filter(|_| blocked.is_none());
        let cells = vec![
            Cell::Id(row.pid),
            Cell::some(row.elapsed, Cell::Time),
            blocked.map_or_else(
                || Cell::some(row.percent, Cell::Bar),
                |blocked| Cell::Instead(blocked, row.percent),
            ),
            Cell::some(left, Cell::Time),
            Cell::text(node.as_deref().or(row.state.as_deref())),
            Cell::text(row.wait.as_deref()),
            Cell::id(row.blocker.filter(|_| row.blocked().is_some())),
            Cell::text(row.usename.as_deref()),
            Cell::text(row.datname.as_deref()),
            Cell::id(row.queryid),
            Cell::text(row.query.as_deref()),
        ];
        let target = Target {
            pid: Some(row.pid),
            queryid: row.queryid,
            waits: row.blocked().is_some(),
            ..Target::default()
        };
        table.add(Row {
            class: row.wait_type.clone(),
            ..Row::new(format!("{}/{}", row.pid, row.nesting), cells, target)
        });
    }
    table
}

/// What active sessions did.
pub fn activity(data: &Data) -> Table {
    let rows = || { data.activity.iter() }.filter(|row| !data.is_own(row.queryid));
    let sessions: f64 = rows().map(|row| row.sessions).sum();
    let mut table = Table::new(
        format!("Activity of the last minute: {sessions:.2} active sessions on average"),
        &[
            ("active", 7, 0),
            ("%", 5, 0),
            ("class", 9, 0),
            ("event", 18, 0),
            ("node", 24, 0),
            ("queryid", 20, 150),
            ("statement", 20, 0),
        ],
        Order::By(0),
    );
    let mut classes: BTreeMap<&str, f64> = BTreeMap::new();
    for row in rows() {
        *classes.entry(&row.class).or_default() += row.sessions;
        let node = row
            .operation
            .as_deref()
            .map(|operation| node_name(0, operation, row.object.as_deref()));
        let cells = vec![
            Cell::Decimal(row.sessions),
            Cell::Percent(row.percent),
            Cell::text(Some(&row.class)),
            Cell::text(row.event.as_deref()),
            Cell::text(node.as_deref().or(row.object.as_deref())),
            Cell::id(row.queryid),
            Cell::text(data.text(row.queryid)),
        ];
        let key = format!(
            "{}/{:?}/{:?}/{:?}/{:?}/{:?}",
            row.class, row.event, row.queryid, row.planid, row.node_id, node
        );
        let target = Target {
            queryid: row.queryid,
            planid: row.planid,
            node_id: row.node_id,
            ..Target::default()
        };
        table.add(Row {
            class: Some(row.class.clone()),
            ..Row::new(key, cells, target)
        });
    }
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let classes = classes
        .iter()
        .map(|(class, sessions)| format!("{class} {sessions:.2}"))
        .collect::<Vec<_>>();
    if !classes.is_empty() {
        table
            .notes
            .push(format!("active sessions by class: {}", classes.join(", ")));
    }
    table
}

/// The waits of the server.
pub fn waits(data: &Data) -> Table {
    let mut table = Table::new(
        data.waits
            .title(&["Waits that ended, of all processes", "Waits that ended"]),
        &[
            ("time", 9, 0),
            ("waits", 7, 0),
            ("mean", 9, 0),
            ("max ever", 9, 0),
            ("class", 10, 0),
            ("event", 24, 0),
            ("processes", 18, 0),
        ],
        Order::By(0),
    );
    let rows = data.waits.added.rows.iter();
    let (idle, rows): (Vec<_>, Vec<_>) = rows.partition(|row| row.is_idle());
    if !idle.is_empty() {
        table.notes.push(format!(
            "{} events by which background processes are idle are left out (class Activity; Extension of workers)",
            idle.len()
        ));
    }
    for row in rows {
        let cells = vec![
            Cell::Time(row.time),
            Cell::Count(row.waits),
            Cell::Time(row.time / row.waits),
            Cell::some(row.max, Cell::Time),
            Cell::text(row.class.as_deref()),
            Cell::text(row.event.as_deref()),
            Cell::text(row.backend_type.as_deref()),
        ];
        table.add(Row {
            class: row.class.clone(),
            ..Row::new(format!("{:?}", row.key()), cells, Target::default())
        });
    }
    table
}

/// Temporary files.
pub fn temp(data: &Data) -> Table {
    let mut table = Table::new(
        "Temporary files that are there now",
        &[
            ("pid", 7, 0),
            ("bytes", 9, 0),
            ("files", 6, 0),
            ("type", 16, 0),
            ("wait", 9, 0),
            ("wait%", 6, 0),
            ("user", 10, 110),
            ("database", 10, 110),
            ("queryid", 20, 150),
            ("statement", 20, 0),
        ],
        Order::By(1),
    );
    for row in &data.temp {
        let cells = vec![
            Cell::id(row.pid),
            Cell::Bytes(row.bytes),
            Cell::Count(row.files),
            Cell::text(Some(&row.filetype)),
            Cell::some(row.wait, Cell::Time),
            Cell::some(row.percent.map(|it| it.min(100.0)), Cell::Percent),
            Cell::text(row.usename.as_deref()),
            Cell::text(row.datname.as_deref()),
            Cell::id(row.queryid),
            Cell::text(data.text(row.queryid)),
        ];
        let target = Target {
            pid: row.pid,
            queryid: row.queryid,
            ..Target::default()
        };
        table.add(Row::new(format!("{:?}/{}", row.pid, row.filetype), cells, target));
    }
    table
}

/// Who waits for whom.
pub fn locks(data: &Data) -> Table {
    let mut table = Table::new(
        "Locks: below each session, those that wait for it",
        &[
            ("pid", 12, 0),
            ("waits for", 22, 0),
            ("relation", 16, 0),
            ("waited", 9, 0),
            ("state", 19, 0),
            ("open", 9, 110),
            ("application", 12, 110),
            ("user", 10, 150),
            ("statement", 20, 0),
        ],
        Order::Tree,
    );
    for row in &data.locks {
        let depth = row.depth.clamp(0, 1_000) as usize;
        let cells = vec![
            Cell::Indented(depth.min(20), row.pid),
            Cell::text(row.mode.as_deref()),
            Cell::text(row.relation.as_deref()),
            Cell::some(row.waited, Cell::Time),
            Cell::text(row.state.as_deref()),
            Cell::some(row.open, Cell::Time),
            Cell::text(row.application.as_deref()),
            Cell::text(row.usename.as_deref()),
            Cell::text(row.query.as_deref()),
        ];
        let target = Target {
            pid: Some(row.pid),
            queryid: row.queryid,
            waits: row.depth > 0,
            is_idle: is_idle(row.state.as_deref()),
            ..Target::default()
        };
        table.add(Row {
            is_marked: row.depth == 0,
            depth: Some(depth),
            ..Row::new(row.pid.to_string(), cells, target)
        });
    }
    table
}

/// Says for which lock a process waits, and since when.
fn waits_title(data: &Data, pid: i64) -> Title {
    let title = format!("What process {pid} waits for");
    let Some(row) = data.waiter(pid) else {
        return Title::new([title]);
    };
    let wants = row.wanted().unwrap_or_else(|| "a lock".to_owned());
    let waited = row.waited.map(time);
    let waited = waited.map_or_else(String::new, |it| format!(", for {it} now"));
    Title::new([
        format!("Process {pid} waits for {wants}{waited}"),
        format!("Process {pid} waits for {wants}"),
        title,
    ])
}

/// Who blocks a process, up to the session that waits for nobody.
pub fn blocker(data: &Data, pid: i64) -> Table {
    let mut table = Table::new(
        waits_title(data, pid),
        &[("figure", 20, 0), ("value", 56, 0)],
        Order::Fixed,
    );
    for row in data.blockers_of(pid) {
        let is_root = row.depth == 0;
        let key = row.pid.to_string();
        let is_over = is_idle(row.state.as_deref());
        let target = Target {
            pid: Some(row.pid),
            queryid: row.queryid,
            waits: !is_root,
            is_idle: is_over,
            ..Target::default()
        };
        let mut add = |name: &str, cell: Cell| {
            table.add(Row {
                is_marked: is_root,
                ..Row::new(
                    key.clone(),
                    vec![Cell::Text(name.to_owned()), cell],
                    target.clone(),
                )
            });
        };
        let who = [row.usename.as_deref(), row.application.as_deref()];
        let who = who.into_iter().flatten().filter(|name| !name.is_empty());
        let what = if is_root {
            "blocked by, at last"
        } else {
            "blocked by"
        };
        add(what, Cell::Text(format!("process {}", row.pid)));
        add(
            "user, application",
            Cell::Text(who.collect::<Vec<_>>().join(", ")),
        );
        add("state", Cell::text(row.state.as_deref()));
        add("transaction open for", Cell::some(row.open, Cell::Time));
        if !is_root {
            add("waits itself for", Cell::Text(row.wanted().unwrap_or_default()));
        }
        let text = row
            .query
            .as_deref()
            .map(crate::format::one_line)
            .unwrap_or_default();
        let mut name = if is_over {
            "its last statement"
        } else {
            "its statement"
        };
        for line in wrap(&text, 56, 20) {
            add(name, Cell::Text(line));
            name = "";
        }
        if is_root && is_over {
            add(
                "",
                Cell::Text("an earlier one of its transaction may have taken the lock".to_owned()),
            );
        }
    }
    if data.blockers_of(pid).is_empty() && !data.lacks("Blockers") {
        let is_listed = data.locks.iter().any(|row| row.pid == pid);
        table.notes.push(match data.totals.get("Locks") {
            Some(total) if !is_listed => format!(
                "{} of {total} rows of locks are known: whether process {pid} waits for another session is not",
                data.locks.len()
            ),
            _ => format!("process {pid} waits for no other session"),
        });
    }
    table
}
