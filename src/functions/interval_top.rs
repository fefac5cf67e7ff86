//! `rowsource_top()`: what ran in an interval, counted, by statement, user, database, node, relation or wait
//! event.

use super::interval_plans::stored_plan;
use super::intervals;
use super::samples::room_for_one;
use super::words::{MASKED, choose};
use super::{ash, origin, wait_names};
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, memory, query};
use crate::pg::store;
use crate::session;
use rowsource_core::lists::{self, By, Figures, Of, Part};
use rowsource_core::model::{Plan, PlanKey};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Selects the plans that ran in an interval, as they were when it ended and when it began. A plan that was
/// evicted or reset meanwhile is there once for each time that it was stored.
const PLANS: &str = "
    WITH i AS [intervals], e AS (
        SELECT (SELECT i.from_snap_id FROM i ORDER BY i.from_at LIMIT 1) AS begin_id,
               (SELECT pg_catalog.max(i.snap_id) FROM i) AS end_id,
               (SELECT pg_catalog.min(i.from_at) FROM i) AS begin_at,
               EXISTS (SELECT FROM i WHERE i.snap_id OPERATOR(pg_catalog.=) 0) AS is_now
    ), during AS (
        SELECT DISTINCT ON (p.userid, p.datid, p.queryid, p.planid, p.toplevel, p.first_seen_at) true AS is_end, p.*
          FROM e JOIN [rowsource_snapshot_plans] p
               ON p.snap_id OPERATOR(pg_catalog.>) e.begin_id AND p.snap_id OPERATOR(pg_catalog.<=) e.end_id
         ORDER BY p.userid, p.datid, p.queryid, p.planid, p.toplevel, p.first_seen_at, p.snap_id DESC
    ), ran AS (
        SELECT d.userid, d.datid, d.queryid, d.planid, d.toplevel FROM during d
        UNION
        SELECT n.userid, n.datid, n.queryid, n.planid, n.toplevel
          FROM e CROSS JOIN LATERAL {}pg_stat_rowsource_plans(e.begin_at) n
         WHERE e.is_now AND n.queryid IS NOT NULL
    ), earlier AS (
        SELECT false AS is_end, l.*
          FROM e CROSS JOIN ran r CROSS JOIN LATERAL (
               SELECT p.* FROM [rowsource_snapshot_plans of r] p
                WHERE p.queryid OPERATOR(pg_catalog.=) r.queryid AND p.planid OPERATOR(pg_catalog.=) r.planid
                      AND p.userid OPERATOR(pg_catalog.=) r.userid AND p.datid OPERATOR(pg_catalog.=) r.datid
                      AND p.toplevel OPERATOR(pg_catalog.=) r.toplevel AND p.snap_id OPERATOR(pg_catalog.<=) e.begin_id
                ORDER BY p.snap_id DESC, p.first_seen_at DESC LIMIT 1) l
    )
    SELECT pg_catalog.json_build_array(p.is_end, p.userid::pg_catalog.int8, p.datid::pg_catalog.int8, p.planid, p.toplevel,
               [description], [statistics], p.queryid,
               pg_catalog.extract('epoch', p.first_seen_at), p.query, p.calls, p.total_time, p.rows,
               p.shared_blks_hit, p.shared_blks_read, p.temp_blks_read OPERATOR(pg_catalog.+) p.temp_blks_written,
               p.usename, p.datname)
      FROM (SELECT * FROM during UNION ALL SELECT * FROM earlier) p
           LEFT JOIN [rowsource_snapshot_descriptions] d
           ON d.queryid OPERATOR(pg_catalog.=) p.queryid AND d.planid OPERATOR(pg_catalog.=) p.planid
              AND d.userid OPERATOR(pg_catalog.=) p.userid AND d.datid OPERATOR(pg_catalog.=) p.datid
              AND d.toplevel OPERATOR(pg_catalog.=) p.toplevel";

/// What of a plan the list needs that only its nodes have.
const NODES: [(&str, &str); 2] = [
    ("[description]", "pg_catalog.encode(d.description, 'hex')"),
    ("[statistics]", "pg_catalog.encode(p.statistics, 'hex')"),
];

/// What plans did until the end of the interval, without what they did until its beginning.
struct Collected {
    by: By,
    /// When the interval begins, if a snapshot was taken then.
    begin: Option<i64>,
    plans: HashMap<PlanKey, Vec<Done>>,
    /// The names of the nodes, if they are shown.
    names: HashMap<PlanKey, Rc<[Name]>>,
    texts: HashMap<(u32, u32, i64), Rc<str>>,
    /// The names of users and of databases, if they are of another server.
    elsewhere: Option<[HashMap<u32, Rc<str>>; 2]>,
}

/// What a node does, and what it works on.
type Name = (Rc<str>, Option<Rc<str>>);

/// What a plan did.
struct Done {
    /// When its first execution ended: later if it was evicted or reset meanwhile.
    first_seen_at: i64,
    parts: Vec<Part>,
    /// Whether it is still stored, with all that it did until now.
    is_of_now: bool,
    /// Whether what it did before the interval is known.
    is_known: bool,
}

impl Collected {
    /// Adds what a plan did until the end of the interval.
    fn add(&mut self, key: PlanKey, first_seen_at: i64, parts: Vec<Part>, is_of_now: bool) {
        room_for_one(&mut self.plans);
        let all = self.plans.entry(key).or_default();
        let is_stored = |done: &Done| done.is_of_now && done.first_seen_at == first_seen_at;
        if !all.iter().any(is_stored) {
            all.push(Done {
                first_seen_at,
                parts,
                is_of_now,
                is_known: self.begin.is_none_or(|begin| first_seen_at >= begin),
            });
        }
    }

    /// Subtracts what a plan did until the beginning of the interval.
    fn subtract(&mut self, key: &PlanKey, first_seen_at: i64, parts: &[Part]) {
        for done in self.plans.get_mut(key).into_iter().flatten() {
            // If it is another one, it came later.
            done.is_known = true;
            if done.first_seen_at == first_seen_at {
                lists::subtract(&mut done.parts, parts);
            }
        }
    }

    /// Notes what is shown of a plan besides its figures.
    fn note(&mut self, plan: &Plan) {
        if self.by == By::Node && !self.names.contains_key(&plan.key) {
            let mut names: Vec<Name> = memory::with_room(plan.description.nodes.len());
            names.extend(plan.description.nodes.iter().map(|node| {
                let object = node.object_name.as_deref().map(Rc::from);
                (Rc::from(node.operation.as_str()), object)
            }));
            room_for_one(&mut self.names);
            self.names.insert(plan.key, names.into());
        }
        self.note_text(&plan.key, &plan.description.text);
    }

    fn note_text(&mut self, key: &PlanKey, text: &str) {
        if self.by == By::Statement {
            room_for_one(&mut self.texts);
            let id = (key.userid, key.datid, key.queryid);
            self.texts.entry(id).or_insert_with(|| text.into());
        }
    }

    /// Returns the parts of a plan.
    fn parts(&mut self, plan: &Plan) -> Vec<Part> {
        memory::ensure_headroom(plan.nodes.len());
        self.note(plan);
        lists::parts(plan, &wait_names::shown(plan, false), self.by)
    }

    /// Adds what the plans that are stored now did. Without their nodes, that is their calls and their time.
    fn add_now(&mut self, has_nodes: bool) {
        let sums = (!has_nodes).then(store::sums).flatten();
        if let Some(sums) = sums {
            for plan in sums {
                let figures = Figures {
                    calls: plan.sums.executions as i64,
                    total_ms: plan.sums.wall_ms,
                    ..Figures::default()
                };
                let parts = lists::unknown_parts(&figures, self.by);
                self.add(plan.key, plan.first_seen_at, parts, true);
            }
            return;
        }
        session::each_plan_since(self.begin.unwrap_or(i64::MIN), |plan| {
            let parts = self.parts(&plan);
            self.add(plan.key, plan.statistics.first_seen_at, parts, true);
        });
    }

    /// Adds a plan that [`PLANS`] selects, or subtracts it if it is one of the beginning.
    fn add_stored(&mut self, row: &Value) {
        server::check_for_interrupts();
        let id = |at: usize| row[at].as_i64().unwrap_or(0);
        let toplevel = row[4].as_bool() == Some(true);
        let key = PlanKey::new(id(1) as u32, id(2) as u32, id(7), id(3), toplevel);
        let first_seen_at = query::time(&row[8]);
        let oids = [key.userid, key.datid];
        for (at, names) in self.elsewhere.iter_mut().flatten().enumerate() {
            if let Some(name) = row[16 + at].as_str() {
                room_for_one(names);
                names.entry(oids[at]).or_insert_with(|| name.into());
            }
        }
        let parts = match stored_plan(key.queryid, row) {
            Some((_, plan)) => self.parts(&plan),
            None => {
                self.note_text(&key, row[9].as_str().unwrap_or_default());
                lists::unknown_parts(&figures(row), self.by)
            }
        };
        match row[0].as_bool() {
            Some(true) => self.add(key, first_seen_at, parts, false),
            _ => self.subtract(&key, first_seen_at, &parts),
        }
    }

    /// Returns the names of the user and the database of a row.
    fn whose(&self, group: &Group) -> [Option<String>; 2] {
        let of = |at: usize, oid: Option<u32>, name: fn(u32) -> Option<String>| match &self.elsewhere {
            Some(names) => names[at].get(&oid?).map(|name| name.to_string()),
            None => name(oid?),
        };
        [
            of(0, group.userid, server::user_name),
            of(1, group.datid, server::database_name),
        ]
    }

    /// Returns what is in a row of a list, for a part of a plan. Who may not see the statement sees no table
    /// of it.
    fn group(&self, key: &PlanKey, of: &Of, is_visible: bool) -> Group {
        let mut group = Group::default();
        match self.by {
            By::Statement => {
                (group.userid, group.datid) = (Some(key.userid), Some(key.datid));
                group.queryid = Some(key.queryid);
            }
            By::User => group.userid = Some(key.userid),
            By::Database => group.datid = Some(key.datid),
            By::Node => {
                (group.userid, group.datid) = (Some(key.userid), Some(key.datid));
                (group.queryid, group.planid) = (Some(key.queryid), Some(key.planid));
                group.toplevel = Some(key.toplevel());
            }
            By::Relation => group.datid = Some(key.datid),
            By::Wait => {}
        }
        group.of = Some(match of {
            Of::Relation(Some(_)) if !is_visible => Of::Relation(Some(MASKED.into())),
            of => of.clone(),
        });
        group
    }
}

/// Returns what a row has of a plan whose nodes are not known.
fn figures(row: &Value) -> Figures {
    let number = |at: usize| row[at].as_i64().unwrap_or(0);
    Figures {
        calls: number(10),
        total_ms: row[11].as_f64().unwrap_or(0.0),
        rows: number(12),
        hit: number(13),
        read: number(14),
        temp: number(15),
        ..Figures::default()
    }
}

/// What the parts of a row have in common.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Group {
    userid: Option<u32>,
    datid: Option<u32>,
    queryid: Option<i64>,
    planid: Option<i64>,
    toplevel: Option<bool>,
    of: Option<Of>,
}

/// The sum of some parts, and that of client statements among them.
#[derive(Clone, Copy, Default)]
struct Sum {
    all: Figures,
    client_ms: f64,
}

/// A row of `rowsource_top()`.
pub struct Row {
    group: Group,
    by: By,
    sum: Sum,
    percent: Option<f64>,
    /// Whether the user may see the statement, if it is of one.
    is_visible: bool,
    name: Option<Name>,
    /// The names of the user and the database.
    whose: [Option<String>; 2],
    text: Option<Rc<str>>,
    from_at: i64,
    to_at: i64,
}

impl Row {
    /// Returns what only some rows have.
    fn only<T>(&self, of: &[By], value: T) -> Option<T> {
        of.contains(&self.by).then_some(value)
    }

    fn operation(&self) -> Option<&str> {
        match &self.group.of {
            Some(Of::Node(None)) => Some("outside the nodes"),
            Some(Of::Node(_)) if !self.is_visible => Some(MASKED),
            _ => self.name.as_ref().map(|(operation, _)| &**operation),
        }
    }

    fn object(&self) -> Option<&str> {
        match &self.group.of {
            Some(Of::Relation(relation)) => relation.as_deref(),
            _ => self.name.as_ref()?.1.as_deref().filter(|_| self.is_visible),
        }
    }

    fn event(&self) -> (Option<&str>, Option<&str>) {
        match &self.group.of {
            Some(Of::Wait(of, event)) => (of.as_deref(), Some(event)),
            _ => (None, None),
        }
    }
}

/// The rows of a list of an interval, in no order.
struct List {
    collected: Collected,
    sums: HashMap<Group, Sum>,
    /// The counted interval.
    from_at: i64,
    to_at: i64,
    /// How many plans are left out, because it is not known what they did before.
    unknown: usize,
}

/// Returns the list of an interval; `None` if nothing of it is counted. Without the nodes of the plans, it
/// has the calls and the time only, and takes less long.
fn list(interval: (i64, i64), by: By, has_nodes: bool) -> Option<List> {
    let ends = intervals::ends(interval, None);
    let (mut from_at, to_at) = ends.moments()?;
    let is_now = ends.to_snap == Some(0);
    // Only some roles may read what snapshots have of plans. All may read the counters of now.
    let is_stored = ends.from_snap.is_some() && server::may_see_activity(None);
    if !is_stored {
        if !is_now {
            return None;
        }
        from_at = store::info()?.reset_at;
    }
    let mut collected = Collected {
        by,
        begin: is_stored.then_some(from_at),
        plans: HashMap::new(),
        names: HashMap::new(),
        texts: HashMap::new(),
        elsewhere: origin::other().map(|_| Default::default()),
    };
    if is_now {
        collected.add_now(has_nodes);
    }
    if is_stored {
        let sql = NODES
            .into_iter()
            .fold(intervals::with_intervals(PLANS), |sql, (name, value)| {
                sql.replace(name, if has_nodes { value } else { "NULL" })
            });
        query::each(&origin::rows_of(&sql), interval, |row| {
            collected.add_stored(row);
        });
    }
    let mut sums: HashMap<Group, Sum> = HashMap::new();
    let mut unknown = 0;
    for (key, all) in &collected.plans {
        server::check_for_interrupts();
        let is_visible = server::may_see(key.userid);
        for done in all {
            if !done.is_known {
                unknown += 1;
                continue;
            }
            for part in &done.parts {
                let group = collected.group(key, &part.of, is_visible);
                add(&mut sums, group, &part.figures, by, key.toplevel());
            }
        }
    }
    if is_now && !is_stored {
        add_others(&mut sums, by);
    }
    Some(List {
        collected,
        sums,
        from_at,
        to_at,
        unknown,
    })
}

/// Returns the calls of each statement in an interval, and their milliseconds, by queryids.
pub fn statements(interval: (i64, i64)) -> BTreeMap<i64, (u64, f64)> {
    let mut statements: BTreeMap<i64, (u64, f64)> = BTreeMap::new();
    let sums = list(interval, By::Statement, false).map(|list| list.sums);
    for (group, sum) in sums.into_iter().flatten() {
        memory::ensure();
        if let (Some(queryid), Ok(calls @ 1..)) = (group.queryid, u64::try_from(sum.all.calls)) {
            let statement = statements.entry(queryid).or_default();
            statement.0 += calls;
            statement.1 += sum.all.total_ms;
        }
    }
    statements
}

/// Adds the rows of `rowsource_top()`, those with the most time first.
///
/// # Errors
/// Raises an error if `by` is no known word, or if this is no interval.
pub fn rows(rows: &mut Rows, from: Option<i64>, to: Option<i64>, by: Option<&str>) {
    let by = choose("by", by, &By::ALL);
    origin::check();
    intervals::check_interval(from, to);
    if !server::may_see_activity(None) {
        server::notify(
            "snapshots are not for you: this is what was counted until now since the statistics were reset",
            "Roles with the privileges of pg_read_all_stats see intervals, and the statements of others.",
        );
    }
    let Some(list) = list(ash::interval(from, to), by, true) else {
        return;
    };
    if list.unknown > 0 {
        server::notify(
            &format!(
                "what {} plans did before the interval is not known, so they are left out",
                list.unknown
            ),
            "The snapshot that had it was deleted, or the history has nothing of their users or databases.",
        );
    }
    let List {
        collected,
        sums,
        from_at,
        to_at,
        ..
    } = list;
    let mut sorted: Vec<(Group, Sum)> = memory::with_room(sums.len());
    sorted.extend(sums.into_iter().filter(|(_, sum)| !sum.all.is_none()));
    // A stable sort would allocate.
    sorted.sort_unstable_by(|(group, one), (other_group, other)| {
        let by_time = by.ms(&other.all).total_cmp(&by.ms(&one.all));
        by_time.then_with(|| group.cmp(other_group))
    });
    let client_ms: f64 = sorted.iter().map(|(_, sum)| sum.client_ms).sum();
    let columns = columns();
    for (group, sum) in sorted {
        memory::ensure();
        let row = Row {
            is_visible: group.userid.is_none_or(server::may_see),
            name: name(&collected, &group),
            whose: collected.whose(&group),
            text: text(&collected, &group),
            group,
            by,
            sum,
            percent: (client_ms > 0.0).then(|| 100.0 * sum.client_ms / client_ms),
            from_at,
            to_at,
        };
        columns.add(rows, &row);
    }
}

fn add(sums: &mut HashMap<Group, Sum>, group: Group, figures: &Figures, by: By, toplevel: bool) {
    memory::ensure();
    room_for_one(sums);
    let sum = sums.entry(group).or_default();
    sum.all += figures;
    if toplevel {
        sum.client_ms += by.ms(figures);
    }
}

/// Adds the executions whose plans are not stored, of all the time since the counters began.
fn add_others(sums: &mut HashMap<Group, Sum>, by: By) {
    for other in session::others() {
        let group = Group {
            datid: Some(other.datid).filter(|datid| *datid != 0 && by.is_of_statements() && by != By::User),
            ..Group::default()
        };
        let waits = other.totals.plan.waits.events();
        let [count, ns] = waits.fold([0, 0], |[count, ns], waits| [count + waits.waits, ns + waits.ns]);
        let figures = lists::of_totals(&other.totals, [count, ns]);
        for part in lists::unknown_parts(&figures, by) {
            let group = Group {
                of: Some(part.of),
                ..group.clone()
            };
            add(sums, group, &part.figures, by, other.toplevel);
        }
    }
}

/// Returns the names of the node of a row.
fn name(collected: &Collected, group: &Group) -> Option<Name> {
    let Some(Of::Node(Some(node))) = group.of else {
        return None;
    };
    let key = PlanKey::new(
        group.userid?,
        group.datid?,
        group.queryid?,
        group.planid?,
        group.toplevel?,
    );
    collected.names.get(&key)?.get(node).cloned()
}

/// Returns the text of the statement of a row.
fn text(collected: &Collected, group: &Group) -> Option<Rc<str>> {
    if collected.by != By::Statement {
        return None;
    }
    match (group.userid, group.datid, group.queryid) {
        (Some(userid), Some(datid), Some(queryid)) => match server::may_see(userid) {
            true => collected.texts.get(&(userid, datid, queryid)).cloned(),
            false => Some(MASKED.into()),
        },
        _ => Some("others".into()),
    }
}

/// The columns of `rowsource_top()`.
pub fn columns() -> Columns<Row> {
    use By::{Database, Node, Relation, Statement, User};
    columns! { |row: &Row|
        /// When the counted interval begins: the snapshot before the wanted beginning was taken then, or the
        /// counters began
        from_at: timestamptz = row.from_at;
        /// When it ends: the snapshot after the wanted end was taken then; now if there is none yet
        to_at: timestamptz = row.to_at;
        /// The user who ran the statement; NULL if the user was dropped, or if a row is of several users
        usename: name = row.whose[0].clone();
        /// The database in which the statement ran; NULL if it was dropped, or if a row is of several
        datname: name = row.whose[1].clone();
        /// The OID of that user
        userid: oid = row.group.userid;
        /// The OID of that database
        datid: oid = row.group.datid;
        /// Identifies the statement; NULL if a row is of several, or if you may not see it
        queryid: bigint = row.group.queryid.filter(|_| row.is_visible);
        /// Identifies the plan; NULL if a row is of several, or if you may not see it
        planid: bigint = row.group.planid.filter(|_| row.is_visible);
        /// Whether a client sent the statement; NULL if a row is of several
        toplevel: boolean = row.group.toplevel;
        /// The node; NULL outside of the nodes, and if a row is not of a node
        node_id: int = match row.group.of { Some(Of::Node(node)) => node, _ => None };
        /// What the node does, as EXPLAIN calls it; outside the nodes: triggers, and sending rows
        operation: text = row.operation();
        /// What the node works on; by relation: the table, of which its indexes are a part, NULL for nodes
        /// that work on none
        object_name: text = row.object();
        /// The type of the event, as in pg_stat_activity; NULL if a row is not of an event
        wait_event_type: text = row.event().0;
        /// The event, as in pg_stat_activity. other: all other events of plans
        wait_event: text = row.event().1;
        /// Executions, including failed and cancelled ones; by statement, user or database
        calls: bigint = row.only(&[Statement, User, Database], row.sum.all.calls);
        /// Milliseconds in which the executor ran them; by statement, user or database
        total_time: float8 = row.only(&[Statement, User, Database], row.sum.all.total_ms);
        /// Milliseconds of an execution on average
        mean_time: float8 = row.only(&[Statement, User, Database], row.sum.all.total_ms)
            .filter(|_| row.sum.all.calls > 0).map(|ms| ms / row.sum.all.calls as f64);
        /// How often nodes were started; by node or relation
        starts: bigint = row.only(&[Node, Relation], row.sum.all.starts);
        /// Milliseconds in the nodes alone; by node or relation. The times of parallel processes add up
        self_time: float8 = row.only(&[Node, Relation], row.sum.all.self_ms);
        /// The part in percent of what client statements took: of total_time, self_time or wait_time
        percent: float8 = row.percent;
        /// Rows that statements returned or changed; by node or relation, rows that nodes returned
        rows: bigint = row.only(&[Statement, User, Database, Node, Relation], row.sum.all.rows);
        /// Rows that filters and rechecks removed; by node or relation
        rows_removed: bigint = row.only(&[Node, Relation], row.sum.all.rows_removed);
        /// Blocks of tables, indexes and temporary tables found in buffers
        blks_hit: bigint = row.only(&[Statement, User, Database, Node, Relation], row.sum.all.hit);
        /// Blocks of tables, indexes and temporary tables read
        blks_read: bigint = row.only(&[Statement, User, Database, Node, Relation], row.sum.all.read);
        /// Blocks of work files (sorts, hashes, materialised results) read and written
        temp_blks: bigint = row.only(&[Statement, User, Database, Node, Relation], row.sum.all.temp);
        /// Bytes of WAL
        wal_bytes: bigint = row.only(&[Statement, User, Database, Node, Relation], row.sum.all.wal_bytes);
        /// Waits, also those of parallel workers
        waits: bigint = row.sum.all.waits;
        /// Milliseconds of these waits. The times of parallel processes add up
        wait_time: float8 = row.sum.all.wait_ms;
        /// The text of the statement; by statement. others: executions whose plans are not stored
        query: text = row.text.as_deref();
    }
}
