//! The rows of `rowsource_ash` and `rowsource_top_activity`, and the lines of `rowsource_ash_report`.

use super::store::fail_without_store;
use super::wait_names;
use crate::pg::ash::{memory, worker};
use crate::pg::compat;
use crate::pg::live;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail, may_see_activity, memory as process_memory};
use crate::pg::waits::names;
use crate::session;
use pgrx::{PgSqlErrorCode, pg_sys};
use rowsource_core::ash::{Entry, Ring, SLOT_US, Sample};
use rowsource_core::model::{MAX_NODES, PlanDescription, PlanKey};
use rowsource_core::report::activity::{Activity, Seen};
use rowsource_core::waits::CLASS;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The interval of a report without arguments, in microseconds.
const DEFAULT_INTERVAL: i64 = 3_600_000_000;

/// What is shown of a plan.
pub struct Names {
    text: Rc<str>,
    /// The operation and the object of each node.
    nodes: Vec<(String, Option<String>)>,
}

impl Names {
    fn of(description: &PlanDescription) -> Names {
        let mut nodes = process_memory::with_room(description.nodes.len());
        let all = description.nodes.iter();
        nodes.extend(all.map(|node| (node.operation.clone(), node.object_name.clone())));
        Names {
            text: description.text.as_str().into(),
            nodes,
        }
    }
}

/// The type and the name of an event.
pub(super) type Event = (String, String);

/// What is looked up once for many samples.
#[derive(Default)]
pub(super) struct Lookup {
    plans: HashMap<PlanKey, Option<Rc<Names>>>,
    events: BTreeMap<u32, Option<Rc<Event>>>,
    users: BTreeMap<Option<u32>, bool>,
    /// The texts of statements by their queryids; `None` until one is wanted.
    texts: Option<HashMap<i64, Rc<str>>>,
    /// The plans that run now; `None` until one is wanted.
    running: Option<HashMap<PlanKey, Rc<Names>>>,
    relations: BTreeMap<(u32, u32), Rc<str>>,
}

impl Lookup {
    /// Returns whether the current user may see what a session did.
    pub(super) fn may_see(&mut self, sample: &Sample) -> bool {
        let user = Some(sample.key.userid).filter(|_| !sample.is_other_role);
        *self.users.entry(user).or_insert_with(|| may_see_activity(user))
    }

    /// Returns what is known of the plan of a sample.
    pub(super) fn plan(&mut self, key: &PlanKey) -> Option<Rc<Names>> {
        if key.planid == 0 {
            return None;
        }
        room_for_one(&mut self.plans);
        let running = &mut self.running;
        let names = self.plans.entry(*key).or_insert_with(|| {
            // The most that a plan in the store has.
            process_memory::ensure_headroom(MAX_NODES);
            let stored = session::plan(key).map(|plan| Rc::new(Names::of(&plan.description)));
            stored.or_else(|| running.get_or_insert_with(self::running).get(key).cloned())
        });
        names.clone()
    }

    /// Returns what is known of the statement of a sample: the text of its plan, or what
    /// [`Lookup::statement`] returns.
    pub(super) fn text(&mut self, sample: &Sample) -> Option<Rc<str>> {
        match self.plan(&sample.key) {
            Some(plan) => Some(plan.text.clone()),
            None => self.statement(sample),
        }
    }

    /// Returns what is known of the statement of a sample: its text, if any plan of it is stored or if it
    /// runs now; otherwise what kind of command it is, and on which relation it works.
    fn statement(&mut self, sample: &Sample) -> Option<Rc<str>> {
        let running = self.running.get_or_insert_with(running);
        let texts = self.texts.get_or_insert_with(|| texts(running));
        if let Some(text) = texts.get(&sample.key.queryid) {
            return Some(text.clone());
        }
        let mut name = server::command_name(sample.command.0)?;
        if let Some(relation) = self.relation(sample) {
            name.push_str(" on ");
            name.push_str(&relation);
        }
        Some(name.into())
    }

    /// Returns the name of the relation that a sample without a plan has.
    pub(super) fn relation(&mut self, sample: &Sample) -> Option<Rc<str>> {
        let (datid, oid) = (sample.key.datid, sample.command.1);
        let name = || match datid == server::database_id() {
            true => server::shown_relation(oid).into(),
            // Only a session of that database can read its catalog.
            false => format!("{oid}").into(),
        };
        (oid != 0).then(|| self.relations.entry((datid, oid)).or_insert_with(name).clone())
    }

    /// Returns the type and the name of the event that a session waited for.
    pub(super) fn event(&mut self, event: u32) -> Option<Rc<Event>> {
        let names = || wait_names::name(event).map(Rc::new);
        self.events.entry(event).or_insert_with(names).clone()
    }
}

/// Returns the plans that run now and that the user may see.
fn running() -> HashMap<PlanKey, Rc<Names>> {
    let mut plans = HashMap::new();
    live::each_running(|running| {
        let key = running.setup.key;
        if let Some(description) = running.description()
            && server::may_see_running(running.pid, key.userid)
        {
            room_for_one(&mut plans);
            plans.insert(key, Rc::new(Names::of(description)));
        }
    });
    plans
}

/// Returns the texts of the statements that the user may see: of stored plans, and of those that run.
fn texts(running: &HashMap<PlanKey, Rc<Names>>) -> HashMap<i64, Rc<str>> {
    let mut texts = HashMap::new();
    let mut add = |queryid: i64, text: &str| {
        room_for_one(&mut texts);
        texts.entry(queryid).or_insert_with(|| Rc::from(text));
    };
    session::each_plan(|plan| {
        if server::may_see(plan.key.userid) {
            add(plan.key.queryid, &plan.description.text);
        }
    });
    running
        .iter()
        .for_each(|(key, names)| add(key.queryid, &names.text));
    texts
}

/// Makes room for one more entry. Raises "out of memory" if there is no memory.
pub(super) fn room_for_one<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>) {
    if map.try_reserve(1).is_err() {
        process_memory::out_of_memory();
    }
}

/// Returns the ring. Fails if there is none.
fn ring() -> Ring<'static> {
    memory::ring().unwrap_or_else(|| {
        let hint = if compat::HAS_REGISTRY {
            "Start it with SELECT rowsource_ash_start(), or add pg_rowsource to \"shared_preload_libraries\" and restart the server."
        } else {
            "Add pg_rowsource to \"shared_preload_libraries\" and restart the server."
        };
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "the sessions are not sampled",
            hint,
        )
    })
}

/// Visits what the ring has of an interval. The user can cancel this. What `visit` allocates at a time must
/// be smaller than the process's reserve.
///
/// # Errors
/// Raises "out of memory".
pub(super) fn each(from: i64, to: i64, visit: impl FnMut(Entry)) {
    each_from_tier(0, from, to, visit);
}

/// The same from a tier and the coarser ones.
fn each_from_tier(finest: usize, from: i64, to: i64, mut visit: impl FnMut(Entry)) {
    let mut entries = 0u32;
    ring().each(finest, from, to, |entry| {
        entries = entries.wrapping_add(1);
        if entries.is_multiple_of(1024) {
            server::check_for_interrupts();
        }
        process_memory::ensure();
        visit(entry);
    });
}

/// Returns the name of the type of a process.
fn backend_type(sample: &Sample) -> String {
    names::backend_type_name(u32::from(sample.backend_type))
}

/// Returns the name of the application of a sample.
pub(super) fn application(sample: &Sample) -> Option<String> {
    let name = ring().name(sample)?;
    Some(server::from_database(&name))
}

/// Returns the ids of a sample, which are 0 if they are not known.
pub(super) fn known(id: i64) -> Option<i64> {
    (id != 0).then_some(id)
}

/// Adds the rows of `rowsource_ash()`: the samples of an interval. `None` is its open end.
pub fn rows(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    check_interval(from, to);
    let columns = columns();
    let mut lookup = Lookup::default();
    each(from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX), |entry| {
        if let Entry::Sample(sample, moments) = entry
            && !sample.is_blocker
        {
            let is_visible = lookup.may_see(&sample);
            columns.add(rows, &Sampled::new(sample, moments, is_visible, &mut lookup));
        }
    });
}

/// Adds the rows of `rowsource_ash_to_store()`: the samples of one moment in each tenth of a second, or of
/// fewer, that no snapshot has stored yet. `stored` is the newest that one has. All are shown, whoever may
/// see them.
pub fn rows_to_store(rows: &mut Rows, stored: Option<i64>) {
    /// The tier that has such moments.
    const TIER: usize = 1;
    if memory::ring().is_none() {
        return;
    }
    // The slot of that sample has been stored with it.
    let slot = SLOT_US[TIER];
    let since = stored.map_or(i64::MIN, |at| {
        at.div_euclid(slot).saturating_add(1).saturating_mul(slot)
    });
    let columns = columns();
    let mut lookup = Lookup::default();
    let mut is_new = true;
    each_from_tier(TIER, since, i64::MAX, |entry| match entry {
        // What is only left of it in a longer slot may have been stored in part.
        Entry::Moment(moment, _) => is_new = moment.first >= since,
        Entry::Sample(sample, moments) => {
            if is_new && !sample.is_blocker {
                columns.add(rows, &Sampled::new(sample, moments, true, &mut lookup));
            }
        }
    });
}

/// A sample, and what is known of it.
pub struct Sampled {
    sample: Sample,
    moments: u64,
    is_visible: bool,
    plan: Option<Rc<Names>>,
    event: Option<Rc<Event>>,
    relation: Option<Rc<str>>,
}

impl Sampled {
    fn new(sample: Sample, moments: u64, is_visible: bool, lookup: &mut Lookup) -> Sampled {
        let seen = is_visible.then_some(&sample);
        Sampled {
            plan: seen.and_then(|sample| lookup.plan(&sample.key)),
            event: seen.and_then(|sample| lookup.event(sample.wait_event)),
            relation: seen.and_then(|sample| lookup.relation(sample)),
            sample,
            moments,
            is_visible,
        }
    }

    /// Returns the sample, if the user may see what the session did.
    fn seen(&self) -> Option<&Sample> {
        self.is_visible.then_some(&self.sample)
    }
}

/// Returns the operation and the object of a node.
pub(super) fn node(plan: Option<&Rc<Names>>, node: Option<u16>) -> Option<&(String, Option<String>)> {
    plan?.nodes.get(usize::from(node?))
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
        backend_type: text = row.seen().map(backend_type);
        /// The OID of the user of the statement
        userid: oid = row.sample.key.userid;
        /// The OID of the database of the session
        datid: oid = row.sample.key.datid;
        /// The name of the application
        application_name: text = row.seen().and_then(application);
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
        operation: text = node(row.plan.as_ref(), row.sample.node).map(|(operation, _)| operation);
        /// The table, index, function or other object that the node works on
        object_name: text = node(row.plan.as_ref(), row.sample.node).and_then(|(_, object)| object.as_deref()).or(row.relation.as_deref());
        /// The type of the event that the session waited for; NULL if it was on the processor, or waited for
        /// it
        wait_event_type: text = row.event.as_ref().map(|event| &event.0);
        /// The event that the session waited for
        wait_event: text = row.event.as_ref().map(|event| &event.1);
        /// The process that the session waited for, if it waited for a heavyweight lock and that is known; 0
        /// is a prepared transaction
        blocking_pid: int = row.seen().and_then(|sample| sample.blocker);
        /// How many moments the sample stands for: more if it is older, because fewer are kept
        moments: int = row.moments as i32;
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

/// What the samples of a group have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Group {
    is_hidden: bool,
    key: Option<PlanKey>,
    node: Option<u16>,
    wait_event: u32,
    relation: Option<Rc<str>>,
}

/// Adds the rows of `rowsource_top_activity()`: the samples of an interval by statement, plan, node and
/// event.
pub fn top_rows(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    let (from, to) = interval(from, to);
    let mut lookup = Lookup::default();
    let mut groups: HashMap<Group, u64> = HashMap::new();
    let (mut samples, mut moments) = (0, 0);
    each(from, to, |entry| match entry {
        Entry::Moment(moment, _) => moments += moment.moments,
        Entry::Sample(sample, _) if sample.is_blocker => {}
        Entry::Sample(sample, of) => {
            samples += of;
            let is_hidden = !lookup.may_see(&sample);
            let group = Group {
                is_hidden,
                key: (!is_hidden).then_some(sample.key),
                node: sample.node.filter(|_| !is_hidden),
                wait_event: if is_hidden { 0 } else { sample.wait_event },
                relation: if is_hidden { None } else { lookup.relation(&sample) },
            };
            room_for_one(&mut groups);
            *groups.entry(group).or_default() += of;
        }
    });
    let mut sorted: Vec<(Group, u64)> = process_memory::with_room(groups.len());
    sorted.extend(groups);
    // A stable sort would allocate.
    sorted.sort_unstable_by_key(|(group, count)| {
        let ids = group
            .key
            .map(|key| (key.queryid, key.planid, key.userid, key.datid));
        (
            std::cmp::Reverse(*count),
            ids,
            group.node,
            group.wait_event,
            group.relation.clone(),
        )
    });
    let columns = top_columns();
    for (group, count) in sorted {
        process_memory::ensure();
        let top = Top {
            plan: group.key.as_ref().and_then(|key| lookup.plan(key)),
            event: lookup.event(group.wait_event),
            group,
            count,
            samples,
            moments,
        };
        columns.add(rows, &top);
    }
}

/// The samples of a group, and those of all groups.
pub struct Top {
    group: Group,
    plan: Option<Rc<Names>>,
    event: Option<Rc<Event>>,
    count: u64,
    samples: u64,
    moments: u64,
}

/// The columns of `rowsource_top_activity()`.
pub fn top_columns() -> Columns<Top> {
    columns! { |row: &Top|
        /// The OID of the user of the statement; NULL, as all columns up to wait_event, if you may not see
        /// what the sessions did
        userid: oid = row.group.key.map(|key| key.userid);
        /// The OID of the database of the sessions
        datid: oid = row.group.key.map(|key| key.datid);
        /// Identifies the statement that ran; NULL if it is not known
        queryid: bigint = row.group.key.and_then(|key| known(key.queryid));
        /// Identifies its plan; NULL if no measured plan runs: also during parsing, planning and commit, or
        /// while the statement waits for its table
        planid: bigint = row.group.key.and_then(|key| known(key.planid));
        /// Whether a client sent the statement; false if another statement ran it: in a function, procedure
        /// or trigger
        toplevel: boolean = row.group.key.filter(|key| key.queryid != 0).map(|key| key.toplevel());
        /// The node that ran; NULL if none did
        node_id: int = row.group.node.map(i32::from);
        /// What the node does; NULL if the plan is not stored any more
        operation: text = node(row.plan.as_ref(), row.group.node).map(|(operation, _)| operation);
        /// The table, index, function or other object that the node works on
        object_name: text = node(row.plan.as_ref(), row.group.node).and_then(|(_, object)| object.as_deref()).or(row.group.relation.as_deref());
        /// The type of the event that the sessions waited for; NULL if they were on the processor
        wait_event_type: text = row.event.as_ref().map(|event| &event.0);
        /// The event
        wait_event: text = row.event.as_ref().map(|event| &event.1);
        /// How often sessions were seen doing this. A sample that stands for many moments counts as many
        samples: bigint = row.count;
        /// The same in percent of all samples of the interval
        percent: float8 = 100.0 * row.count as f64 / row.samples.max(1) as f64;
        /// How many sessions did this on average
        average_active_sessions: float8 = row.count as f64 / row.moments.max(1) as f64;
    }
}

/// Adds the lines of `rowsource_ash_report()`.
pub fn report_lines(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    let (from, to) = interval(from, to);
    let mut lookup = Lookup::default();
    let mut users: BTreeMap<u32, Option<String>> = BTreeMap::new();
    let mut activity = Activity::new(from, to, ring().begun_at());
    each(from, to, |entry| match entry {
        Entry::Moment(moment, tier) => activity.add_moment(&moment, SLOT_US[tier]),
        Entry::Sample(sample, _) if !lookup.may_see(&sample) => {
            if !sample.is_blocker {
                activity.add(&Seen {
                    pid: sample.pid,
                    is_hidden: true,
                    ..Seen::default()
                });
            }
        }
        Entry::Sample(sample, _) => {
            let key = &sample.key;
            let event = lookup.event(sample.wait_event);
            let plan = lookup.plan(key);
            let text = lookup.text(&sample);
            let text = text.as_deref();
            let relation = lookup
                .relation(&sample)
                .filter(|_| sample.wait_event & CLASS == pg_sys::PG_WAIT_LOCK);
            let node = sample.node.map(|node| {
                let names = plan.as_ref().and_then(|plan| plan.nodes.get(usize::from(node)));
                let name = match names {
                    Some((operation, Some(object))) => format!("{operation} on {object}"),
                    Some((operation, None)) => operation.clone(),
                    None => String::new(),
                };
                (node, name)
            });
            let user = users
                .entry(key.userid)
                .or_insert_with(|| server::user_name(key.userid));
            let mut session = backend_type(&sample);
            let application = application(&sample);
            for part in [user.as_deref(), application.as_deref()].into_iter().flatten() {
                session.push(' ');
                session.push_str(part);
            }
            if sample.is_blocker {
                return activity.name_blocker(sample.pid, &session, text.unwrap_or_default());
            }
            let planid = Some(key.planid).filter(|planid| *planid != 0);
            let event = event.map(|event| match relation {
                Some(relation) => (event.0.clone(), format!("{} on {relation}", event.1)),
                None => (*event).clone(),
            });
            activity.add(&Seen {
                pid: sample.pid,
                session: &session,
                statement: (key.queryid != 0).then_some((key.queryid, planid)),
                text,
                node: node.as_ref().map(|(id, name)| (*id, name.as_str())),
                wait: event.as_ref().map(|event| (event.0.as_str(), event.1.as_str())),
                blocker: sample.blocker,
                is_hidden: false,
            });
        }
    });
    for line in activity.report(&server::moment::time_zone(), &server::shown_time) {
        rows.add_line(&line);
    }
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
