//! The rows of `rowsource_ash` and `rowsource_top_activity`, and the lines of `rowsource_ash_report`.

use super::origin;
use super::samples::{self, Entry, Event, Lookup, Sampled, ring, room_for_one};
use super::store::fail_without_store;
use super::words::choose;
use crate::pg::ash::worker;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail, memory as process_memory};
use pgrx::PgSqlErrorCode;
use rowsource_core::ash::Sample;
use rowsource_core::report::activity::{Activity, Seen};
use std::collections::HashMap;
use std::rc::Rc;

/// The interval of a report without arguments, in microseconds.
const DEFAULT_INTERVAL: i64 = 3_600_000_000;

/// Returns the ids of a sample, which are 0 if they are not known.
pub(super) fn known(id: i64) -> Option<i64> {
    (id != 0).then_some(id)
}

/// Adds the rows of `rowsource_ash()`: the samples of an interval. `None` is its open end: that has no
/// samples of snapshots.
pub fn rows(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    check_interval(from, to);
    let columns = columns();
    let mut lookup = Lookup::default();
    let visit = |_: &mut Lookup, entry| {
        if let Entry::Sample(sampled) = entry
            && !sampled.sample.is_blocker
        {
            columns.add(rows, &sampled);
        }
    };
    let to = to.unwrap_or(i64::MAX);
    match from {
        Some(begin) => samples::each_or_notice(&mut lookup, from, (begin, to), visit),
        None => samples::each(&mut lookup, None, to, visit),
    }
}

/// Adds the rows of `rowsource_ash_to_store()`.
pub fn rows_to_store(rows: &mut Rows, stored: Option<i64>, until: Option<i64>) {
    let columns = columns();
    samples::each_to_store(stored, until, |sampled| columns.add(rows, sampled));
}

/// What a snapshot stores of the moments: the first, the last, and their number.
pub type Moments = (i64, i64, u64);

/// Adds the row of `rowsource_moments_to_store()`, if there is anything to store.
pub fn moments_row(rows: &mut Rows, stored: Option<i64>) {
    if let Some(moments) = samples::moments_to_store(stored) {
        moments_columns().add(rows, &moments);
    }
}

/// The columns of `rowsource_moments_to_store()`.
pub fn moments_columns() -> Columns<Moments> {
    columns! { |row: &Moments|
        /// The first moment at which the sessions were sampled
        first_sample_at: timestamptz = row.0;
        /// The last one
        last_sample_at: timestamptz = row.1;
        /// How many there are
        sampled_moments: bigint = row.2;
    }
}

/// The columns of `rowsource_ash()`.
pub fn columns() -> Columns<Sampled> {
    columns! { |row: &Sampled|
        /// When the session was sampled
        sample_time: timestamptz = row.sample.at;
        /// The process of the session
        pid: int = row.sample.pid;
        /// If the process is a parallel worker, the process of its leader
        leader_pid: int = row.seen().and_then(|sample| sample.leader);
        /// The type of the process; NULL, as all further columns, if you may not see what the session did
        backend_type: text = row.backend_type.as_deref();
        /// The OID of the user of the statement
        userid: oid = row.sample.key.userid;
        /// The OID of the database of the session
        datid: oid = row.sample.key.datid;
        /// The name of the application
        application_name: text = row.application.as_deref();
        /// Identifies the statement that ran, the innermost that is measured; NULL if it is not known
        queryid: bigint = row.seen().and_then(|sample| known(sample.key.queryid));
        /// Identifies its plan; NULL if no measured plan runs: also during parsing, planning and commit, or
        /// while the statement waits for its table
        planid: bigint = row.seen().and_then(|sample| known(sample.key.planid));
        /// Whether a client sent the statement; false if another statement ran it: in a function, procedure
        /// or trigger
        toplevel: boolean = row.seen().filter(|sample| sample.key.queryid != 0).map(|sample| sample.key.toplevel());
        /// The node that ran; NULL if none did: during planning or commit, or while rows were sent
        node_id: int = row.seen().and_then(|sample| sample.node).map(i32::from);
        /// What the node does, as in EXPLAIN; NULL if the plan is not stored any more
        operation: text = row.operation.as_deref();
        /// The table, index, function or other object that the node works on, or a command without a plan
        object_name: text = row.object.as_deref();
        /// The type of the event that the session waited for; NULL if it was on the processor, or waited for
        /// it
        wait_event_type: text = row.wait_event_type();
        /// The event that the session waited for
        wait_event: text = row.wait_event();
        /// The process that the session waited for, if it waited for a heavyweight lock and that is known; 0
        /// is a prepared transaction
        blocking_pid: int = row.seen().and_then(|sample| sample.blocker);
        /// How many moments the sample stands for: more if it is older, because fewer are kept
        moments: int = row.moments as i32;
        /// The mode in which the session waited to lock, if it waited for a heavyweight lock
        mode: text = row.mode.as_deref();
        /// What kind of command ran, if it has no plan: ALTER TABLE
        command: text = row.command.as_deref();
    }
}

/// Raises an error if an interval ends before it begins, or begins in the future.
fn check_interval(from: Option<i64>, to: Option<i64>) {
    let now = server::now();
    let (what, hint) = match (from, to) {
        (Some(from), Some(to)) if to < from => (
            "ends before it begins",
            format!(
                "It begins at {} and ends at {}: give the earlier time first.",
                server::shown_time(from),
                server::shown_time(to)
            ),
        ),
        (Some(from), _) if from > now => (
            "begins in the future",
            format!(
                "It begins at {}, and it is {} now.",
                server::shown_time(from),
                server::shown_time(now)
            ),
        ),
        _ => return,
    };
    fail(
        PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        &format!("the interval {what}"),
        &hint,
    )
}

/// Returns an interval of which the beginning or the end may be missing: by default the last hour.
pub(super) fn interval(from: Option<i64>, to: Option<i64>) -> (i64, i64) {
    check_interval(from, to);
    let to = to.unwrap_or_else(server::now);
    (from.unwrap_or_else(|| to.saturating_sub(DEFAULT_INTERVAL)), to)
}

/// By what samples are divided.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// Statement, plan, node and event together.
    All,
    Statement,
    Plan,
    Node,
    Wait,
    Application,
    User,
    Database,
    Relation,
}

/// The words for them. The first one has none.
const BY: [(&str, By); 8] = [
    ("statement", By::Statement),
    ("plan", By::Plan),
    ("node", By::Node),
    ("wait", By::Wait),
    ("application", By::Application),
    ("user", By::User),
    ("database", By::Database),
    ("relation", By::Relation),
];

/// What the samples of a group have in common.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Group {
    /// The queryid, the planid, and whether a client sent the statement.
    ids: Option<(i64, i64, bool)>,
    userid: Option<u32>,
    datid: Option<u32>,
    node: Option<u16>,
    event: Option<Rc<Event>>,
    application: Option<Rc<str>>,
    /// What a command without a plan works on, or the table of a node.
    relation: Option<Rc<str>>,
}

impl Group {
    /// Returns the group of a sample.
    fn of(sampled: &Sampled, by: By, lookup: &mut Lookup) -> Group {
        let Some(Sample { key, node, .. }) = sampled.seen() else {
            return Group::default();
        };
        if by == By::Relation {
            return Group {
                datid: Some(key.datid),
                relation: lookup.table(sampled),
                ..Group::default()
            };
        }
        let is = |of: &[By]| of.contains(&by);
        let is_of_statement = is(&[By::All, By::Statement, By::Plan, By::Node]);
        let planid = if by == By::Statement { 0 } else { key.planid };
        let node = node.filter(|_| is(&[By::All, By::Node]));
        let relation = sampled.object.clone();
        Group {
            ids: is_of_statement.then_some((key.queryid, planid, key.toplevel())),
            userid: (is_of_statement || by == By::User).then_some(key.userid),
            datid: (is_of_statement || by == By::Database).then_some(key.datid),
            node,
            event: sampled.event.clone().filter(|_| is(&[By::All, By::Wait])),
            application: sampled.application.clone().filter(|_| by == By::Application),
            relation: relation.filter(|_| sampled.sample.node.is_none() && is(&[By::All, By::Node])),
        }
    }
}

/// How many samples a group has, and what its node does, as far as one of them knows it.
#[derive(Default)]
struct Counted {
    samples: u64,
    operation: Option<Rc<str>>,
    object: Option<Rc<str>>,
}

/// Adds the rows of `rowsource_top_activity()`: the samples of an interval by statement, plan, node and
/// event, or by one of them.
pub fn top_rows(rows: &mut Rows, from: Option<i64>, to: Option<i64>, by: Option<&str>) {
    let by = by.map_or(By::All, |by| choose("by", Some(by), &BY));
    let interval = interval(from, to);
    let mut groups: HashMap<Group, Counted> = HashMap::new();
    let (mut samples, mut moments) = (0, 0);
    samples::each_or_notice(
        &mut Lookup::default(),
        from,
        interval,
        |lookup, entry| match entry {
            Entry::Stored { moments: more, .. } => moments += more,
            Entry::Moment(moment, slot) => moments += slot.map_or(0, |_| moment.moments),
            Entry::Sample(sampled) if sampled.sample.is_blocker => {}
            Entry::Sample(sampled) => {
                samples += sampled.moments;
                let group = Group::of(&sampled, by, lookup);
                let has_names = matches!(by, By::All | By::Node);
                room_for_one(&mut groups);
                let relation = group.relation.clone();
                let counted = groups.entry(group).or_default();
                counted.samples += sampled.moments;
                if by == By::Relation {
                    counted.object.clone_from(&relation);
                } else if has_names {
                    counted.operation = sampled.operation.or(counted.operation.take());
                    counted.object = sampled.object.or(counted.object.take());
                }
            }
        },
    );
    let mut sorted: Vec<(Group, Counted)> = process_memory::with_room(groups.len());
    sorted.extend(groups);
    // A stable sort would allocate.
    sorted.sort_unstable_by(|(group, counted), (other_group, other)| {
        other
            .samples
            .cmp(&counted.samples)
            .then_with(|| group.cmp(other_group))
    });
    let columns = top_columns();
    for (group, counted) in sorted {
        process_memory::ensure();
        let top = Top {
            group,
            counted,
            samples,
            moments,
        };
        columns.add(rows, &top);
    }
}

/// The samples of a group, and those of all groups.
pub struct Top {
    group: Group,
    counted: Counted,
    samples: u64,
    moments: u64,
}

/// The columns of `rowsource_top_activity()`.
pub fn top_columns() -> Columns<Top> {
    columns! { |row: &Top|
        /// The OID of the user of the statement; NULL, as all columns up to wait_event, if you may not see
        /// what the sessions did
        userid: oid = row.group.userid;
        /// The OID of the database of the sessions
        datid: oid = row.group.datid;
        /// Identifies the statement that ran; NULL if it is not known
        queryid: bigint = row.group.ids.and_then(|(queryid, ..)| known(queryid));
        /// Identifies its plan; NULL if no measured plan runs: also during parsing, planning and commit, or
        /// while the statement waits for its table
        planid: bigint = row.group.ids.and_then(|(_, planid, _)| known(planid));
        /// Whether a client sent the statement; false if another statement ran it: in a function, procedure
        /// or trigger
        toplevel: boolean = row.group.ids.filter(|(queryid, ..)| *queryid != 0).map(|(_, _, toplevel)| toplevel);
        /// The node that ran; NULL if none did
        node_id: int = row.group.node.map(i32::from);
        /// What the node does; NULL if the plan is not stored any more
        operation: text = row.counted.operation.as_deref();
        /// The table, index, function or other object that the node works on; by relation: its table
        object_name: text = row.counted.object.as_deref();
        /// The type of the event that the sessions waited for; NULL if they were on the processor
        wait_event_type: text = row.group.event.as_ref().map(|event| &event.0);
        /// The event
        wait_event: text = row.group.event.as_ref().map(|event| &event.1);
        /// The name of the application, by application; else NULL
        application_name: text = row.group.application.as_deref();
        /// How often sessions were seen doing this. A sample that stands for many moments counts as many
        samples: bigint = row.counted.samples;
        /// The same in percent of all samples of the interval
        percent: float8 = 100.0 * row.counted.samples as f64 / row.samples.max(1) as f64;
        /// How many sessions did this on average
        average_active_sessions: float8 = row.counted.samples as f64 / row.moments.max(1) as f64;
    }
}

/// Adds the lines of `rowsource_ash_report()`.
pub fn report_lines(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    let (from, to) = interval(from, to);
    origin::begin(rows);
    let mut activity = activity(&mut Lookup::default(), (from, to), None, None);
    for line in activity.report(&server::moment::time_zone(), &server::shown_time) {
        rows.add_line(&line);
    }
}

/// Returns what sessions did in an interval, or what those did that ran the statement `queryid`. `bars` is
/// about how many parts of it are shown, if that matters.
pub(super) fn activity(
    lookup: &mut Lookup,
    (from, to): (i64, i64),
    queryid: Option<i64>,
    bars: Option<i64>,
) -> Activity {
    // What is imported has an end, and nothing is in memory.
    let begun_at = match origin::other() {
        Some(_) => i64::MIN,
        None => ring().begun_at(),
    };
    let mut activity = Activity::new(from, to, begun_at, &samples::why_no_older());
    if let Some(bars) = bars {
        activity = activity.with_bars(bars);
    }
    samples::each(lookup, Some(from), to, |lookup, entry| match entry {
        Entry::Stored { first, last, moments } => activity.add_stored(first, last, moments),
        Entry::Moment(moment, slot_us) => activity.add_moment(&moment, slot_us),
        Entry::Sample(sampled) if is_of(&sampled, queryid) => add_sample(&mut activity, &sampled, lookup),
        Entry::Sample(_) => {}
    });
    activity
}

/// Returns whether a sample is of a statement, or of a session for which others waited. Without a queryid,
/// all are.
fn is_of(sampled: &Sampled, queryid: Option<i64>) -> bool {
    queryid.is_none_or(|queryid| {
        sampled.sample.is_blocker || sampled.seen().is_some_and(|sample| sample.key.queryid == queryid)
    })
}

/// Adds a sample to a report.
fn add_sample(activity: &mut Activity, sampled: &Sampled, lookup: &mut Lookup) {
    let sample = &sampled.sample;
    let Some(Sample { key, .. }) = sampled.seen() else {
        if !sample.is_blocker {
            activity.add(&Seen {
                pid: sample.pid,
                is_hidden: true,
                ..Seen::default()
            });
        }
        return;
    };
    let text = lookup.text(sampled);
    let text = text.as_deref();
    let node = sample.node.map(|node| {
        let name = match (&sampled.operation, &sampled.object) {
            (Some(operation), Some(object)) => format!("{operation} on {object}"),
            (Some(operation), None) => operation.to_string(),
            (None, _) => String::new(),
        };
        (node, name)
    });
    let mut session = sampled.backend_type.as_deref().unwrap_or_default().to_owned();
    for part in [sampled.usename.as_deref(), sampled.application.as_deref()]
        .into_iter()
        .flatten()
    {
        session.push(' ');
        session.push_str(part);
    }
    if sample.is_blocker {
        return activity.name_blocker(sample.pid, &session, text.unwrap_or_default());
    }
    let relation = sampled.object.as_ref().filter(|_| sample.node.is_none());
    let wait = sampled.event.as_ref().map(|event| match relation {
        Some(relation) if event.0 == "Lock" => (event.0.as_str(), format!("{} on {relation}", event.1)),
        _ => (event.0.as_str(), event.1.clone()),
    });
    let planid = known(key.planid);
    activity.add(&Seen {
        pid: sample.pid,
        session: &session,
        application: sampled.application.as_deref().unwrap_or_default(),
        statement: (key.queryid != 0).then_some((key.queryid, planid)),
        text,
        node: node.as_ref().map(|(id, name)| (*id, name.as_str())),
        wait: wait.as_ref().map(|(of, event)| (*of, event.as_str())),
        blocker: sample.blocker,
        is_hidden: false,
    });
}

/// Starts the sampling of a server that has not preloaded the library. Returns the pid of the worker.
pub fn start() -> i32 {
    if let Some(pid) = worker::pid() {
        server::notify(
            &format!("the sessions are sampled already, by process {pid}"),
            "A server that preloads pg_rowsource starts the worker by itself.",
        );
        return pid;
    }
    worker::start().unwrap_or_else(|missing| {
        let (code, message, hint) = match missing {
            worker::Missing::Memory => fail_without_store(
                "the sessions cannot be sampled, because pg_rowsource has no shared memory",
            ),
            worker::Missing::NoPlace => (
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES,
                "there is no place for another background worker",
                "Increase \"max_worker_processes\" and restart the server.",
            ),
            worker::Missing::Ended => (
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the background worker that samples the sessions does not run",
                "The server's log says why. If it preloads pg_rowsource, it starts the worker by itself: check \"max_worker_processes\".",
            ),
        };
        fail(code, message, hint)
    })
}
