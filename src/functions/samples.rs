//! The samples of an interval, with names: those that memory has, and older ones from snapshots.

use super::plan_names::Names;
use super::store::snapshots_elsewhere;
use super::words::sentence;
use super::{origin, wait_names};
use crate::pg::ash::memory;
use crate::pg::compat;
use crate::pg::live;
use crate::pg::server::{self, fail, may_see_activity, memory as process_memory, query};
use crate::pg::waits::{names, slots};
use crate::session;
use pgrx::PgSqlErrorCode;
use rowsource_core::ash::{self, Moment, Ring, SLOT_US, Sample};
use rowsource_core::model::{MAX_NODES, PlanKey};
use rowsource_core::report::activity::coverage::TOLERANCE_US;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::rc::Rc;

/// What a reader of an interval sees, in the order of time, but parts come before their moments.
pub enum Entry {
    /// A part of the interval of which snapshots have the samples, and how many moments it has. Of these,
    /// only those follow at which a session was active.
    Stored {
        first: i64,
        last: i64,
        moments: u64,
    },
    /// A moment, and the slot of which it is one, in microseconds; `None` if it is from a snapshot. Its
    /// samples follow.
    Moment(Moment, Option<i64>),
    Sample(Sampled),
}

/// The type and the name of an event.
pub type Event = (String, String);

/// A sample, and what is known of it.
#[derive(Clone)]
pub struct Sampled {
    /// Its numbers. Those from a snapshot have those of processes, plans and nodes only.
    pub sample: Sample,
    /// How many moments it stands for.
    pub moments: u64,
    /// Whether the user may see what the session did. If not, nothing of the rest is known.
    pub is_visible: bool,
    pub backend_type: Option<Rc<str>>,
    pub usename: Option<Rc<str>>,
    pub datname: Option<Rc<str>>,
    pub application: Option<Rc<str>>,
    /// What the node does.
    pub operation: Option<Rc<str>>,
    /// What the node works on, or the command if it has no plan.
    pub object: Option<Rc<str>>,
    pub event: Option<Rc<Event>>,
    /// The mode in which it waits to lock.
    pub mode: Option<Rc<str>>,
    /// The kind of a command without a plan.
    pub command: Option<Rc<str>>,
}

impl Sampled {
    /// Returns the sample, if the user may see what the session did.
    pub fn seen(&self) -> Option<&Sample> {
        self.is_visible.then_some(&self.sample)
    }

    pub fn wait_event_type(&self) -> Option<&str> {
        self.event.as_ref().map(|event| event.0.as_str())
    }

    pub fn wait_event(&self) -> Option<&str> {
        self.event.as_ref().map(|event| event.1.as_str())
    }
}

/// What is looked up once for many samples.
#[derive(Default)]
pub struct Lookup {
    /// Whether they are of another server, so that nothing of this one may name them.
    is_other: bool,
    plans: HashMap<PlanKey, Option<Rc<Names>>>,
    events: BTreeMap<u32, Option<Rc<Event>>>,
    users: BTreeMap<Option<u32>, bool>,
    /// The names of users and databases.
    names: BTreeMap<(bool, u32), Option<Rc<str>>>,
    backend_types: BTreeMap<u8, Rc<str>>,
    commands: BTreeMap<u32, Option<Rc<str>>>,
    /// The texts of statements by their queryids; `None` until one is wanted.
    texts: Option<HashMap<i64, Rc<str>>>,
    /// Those of statements that only snapshots have.
    stored_texts: HashMap<i64, Rc<str>>,
    /// The plans that run now; `None` until one is wanted.
    running: Option<HashMap<PlanKey, Rc<Names>>>,
    relations: BTreeMap<(u32, u32), Rc<str>>,
    tables: BTreeMap<u32, Option<Rc<str>>>,
    /// Texts of snapshots.
    stored: HashMap<String, Rc<str>>,
    stored_events: HashMap<Event, Rc<Event>>,
}

impl Lookup {
    /// Returns whether the current user may see what a session did.
    fn may_see(&mut self, sample: &Sample) -> bool {
        let user = Some(sample.key.userid).filter(|_| !sample.is_other_role);
        *self.users.entry(user).or_insert_with(|| may_see_activity(user))
    }

    /// Returns what is known of the plan of a sample.
    fn plan(&mut self, key: &PlanKey) -> Option<Rc<Names>> {
        if key.planid == 0 || self.is_other {
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

    /// Returns what is known of the statement of a sample: its text, if any plan of it is stored or if it
    /// runs now; otherwise what kind of command it is, and on which relation it works.
    pub fn text(&mut self, sampled: &Sampled) -> Option<Rc<str>> {
        let key = &sampled.sample.key;
        if let Some(plan) = self.plan(key) {
            return Some(plan.text.clone());
        }
        if !self.is_other {
            let running = self.running.get_or_insert_with(running);
            let texts = self.texts.get_or_insert_with(|| texts(running));
            if let Some(text) = texts.get(&key.queryid) {
                return Some(text.clone());
            }
        }
        if let Some(text) = self.stored_texts.get(&key.queryid) {
            return Some(text.clone());
        }
        match (&sampled.command, &sampled.object) {
            (Some(command), Some(relation)) => Some(format!("{command} on {relation}").into()),
            (command, _) => command.clone(),
        }
    }

    /// Returns the table that a sample is about. Of a plan that is not stored any more, it is what the node
    /// works on, which may be an index.
    pub fn table(&mut self, sampled: &Sampled) -> Option<Rc<str>> {
        let node = sampled.sample.node.map(usize::from);
        match (self.plan(&sampled.sample.key), node) {
            (Some(plan), Some(node)) => plan.nodes.get(node)?.relation.clone(),
            _ => self.qualified(&sampled.sample).or_else(|| sampled.object.clone()),
        }
    }

    /// Returns the name of the relation that a sample without a plan has, as plans have it.
    fn qualified(&mut self, sample: &Sample) -> Option<Rc<str>> {
        let (datid, oid) = (sample.key.datid, sample.command.1);
        if oid == 0 || datid != server::database_id() || self.is_other {
            return None;
        }
        let name = || server::name_in_plans(oid).map(Rc::from);
        self.tables.entry(oid).or_insert_with(name).clone()
    }

    /// Returns the name of the relation that a sample without a plan has.
    fn relation(&mut self, sample: &Sample) -> Option<Rc<str>> {
        let (datid, oid) = (sample.key.datid, sample.command.1);
        let name = || match datid == server::database_id() {
            true => server::shown_relation(oid).into(),
            // Only a session of that database can read its catalog.
            false => format!("{oid}").into(),
        };
        (oid != 0).then(|| self.relations.entry((datid, oid)).or_insert_with(name).clone())
    }

    /// Returns a sample of memory with its names, which the user gets if he may see it, or if he sees all.
    fn sampled(&mut self, sample: Sample, moments: u64, sees_all: bool) -> Sampled {
        let mut sampled = Sampled {
            sample,
            moments,
            is_visible: sees_all || self.may_see(&sample),
            backend_type: None,
            usename: None,
            datname: None,
            application: None,
            operation: None,
            object: None,
            event: None,
            mode: None,
            command: None,
        };
        if !sampled.is_visible {
            return sampled;
        }
        let plan = self.plan(&sample.key);
        let node = sample
            .node
            .and_then(|node| plan.as_ref()?.nodes.get(usize::from(node)));
        (sampled.operation, sampled.object) = match node {
            Some(node) => (Some(node.operation.clone()), node.object.clone()),
            None => (None, self.relation(&sample)),
        };
        let of = sample.backend_type;
        let backend_type = || names::backend_type_name(u32::from(of)).into();
        sampled.backend_type = Some(self.backend_types.entry(of).or_insert_with(backend_type).clone());
        (sampled.usename, sampled.datname) = self.names(&sample.key);
        let application = ring().name(&sample);
        sampled.application = application.map(|name| server::from_database(&name).into());
        let event = || wait_names::name(sample.wait_event).map(Rc::new);
        sampled.event = self.events.entry(sample.wait_event).or_insert_with(event).clone();
        sampled.mode = server::lock_mode_name(sample.lock_mode).map(Rc::from);
        let number = sample.command.0;
        let command = || server::command_name(number).map(Rc::from);
        sampled.command = self.commands.entry(number).or_insert_with(command).clone();
        sampled
    }

    /// Returns the names of the user and the database of a sample of this server.
    fn names(&mut self, key: &PlanKey) -> (Option<Rc<str>>, Option<Rc<str>>) {
        let mut name = |is_user: bool, oid: u32, of: fn(u32) -> Option<String>| {
            let names = self.names.entry((is_user, oid));
            names.or_insert_with(|| of(oid).map(Rc::from)).clone()
        };
        (
            name(true, key.userid, server::user_name),
            name(false, key.datid, server::database_name),
        )
    }

    /// Returns a text of a snapshot, which many samples share.
    fn stored(&mut self, text: &Value) -> Option<Rc<str>> {
        let text = text.as_str()?;
        if let Some(known) = self.stored.get(text) {
            return Some(known.clone());
        }
        room_for_one(&mut self.stored);
        let new: Rc<str> = text.into();
        self.stored.insert(text.to_owned(), new.clone());
        Some(new)
    }

    /// Returns a sample of a snapshot, which [`SAMPLES`] selects.
    fn stored_sample(&mut self, row: &Value) -> Sampled {
        let number = |column: usize| row[column].as_i64();
        let id = |column: usize| number(column).unwrap_or(0);
        let event = row[13].as_str().zip(row[14].as_str());
        let event = event.map(|(of, event)| {
            let event = (of.to_owned(), event.to_owned());
            room_for_one(&mut self.stored_events);
            let shared = self.stored_events.entry(event);
            shared.or_insert_with_key(|event| Rc::new(event.clone())).clone()
        });
        let key = PlanKey::new(
            id(4) as u32,
            id(5) as u32,
            id(7),
            id(8),
            row[9].as_bool() == Some(true),
        );
        let (usename, datname) = match self.is_other {
            true => (self.stored(&row[19]), self.stored(&row[20])),
            false => self.names(&key),
        };
        Sampled {
            sample: Sample {
                at: query::time(&row[0]),
                pid: id(1) as i32,
                leader: number(2).map(|pid| pid as i32),
                backend_type: 0,
                key,
                is_other_role: false,
                application: 0,
                node: number(10).map(|node| node as u16),
                wait_event: 0,
                lock_mode: 0,
                blocker: number(15).map(|pid| pid as i32),
                is_blocker: id(16) == 0,
                command: (0, 0),
            },
            moments: id(16) as u64,
            is_visible: true,
            backend_type: self.stored(&row[3]),
            usename,
            datname,
            application: self.stored(&row[6]),
            operation: self.stored(&row[11]),
            object: self.stored(&row[12]),
            event,
            mode: self.stored(&row[17]),
            command: self.stored(&row[18]),
        }
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
pub fn room_for_one<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.try_reserve(1).is_err() {
        process_memory::out_of_memory();
    }
}

/// Returns the ring. Fails if there is none.
pub fn ring() -> Ring<'static> {
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

/// Visits what is known of an interval: from snapshots what is older than what memory has, and the rest from
/// memory. So no moment is visited twice. Without a beginning, it is what memory has. Of another server, it
/// is what was imported. The user can cancel this. What `visit` allocates at a time must be smaller than the
/// process's reserve.
///
/// # Errors
/// Raises "out of memory".
pub fn each(lookup: &mut Lookup, from: Option<i64>, to: i64, mut visit: impl FnMut(&mut Lookup, Entry)) {
    lookup.is_other = origin::check().is_some();
    if lookup.is_other {
        return each_stored(lookup, from.unwrap_or(i64::MIN), to, &mut visit);
    }
    let mut begin = from.unwrap_or(i64::MIN);
    if let Some(from) = from
        && why_not_stored().is_none()
    {
        // Slots of samples that are stored lie in those of memory, which end before this moment or begin
        // with it.
        begin = from.max(ring().complete_from().unwrap_or(i64::MAX));
        if from < begin {
            each_stored(lookup, from, to.min(begin - 1), &mut visit);
        }
    }
    if begin <= to {
        each_from_tier(0, begin, to, |entry| {
            let entry = match entry {
                ash::Entry::Moment(moment, tier) => Entry::Moment(moment, Some(SLOT_US[tier])),
                ash::Entry::Sample(sample, moments) => Entry::Sample(lookup.sampled(sample, moments, false)),
            };
            visit(lookup, entry);
        });
    }
}

/// Visits the samples of an interval like [`each`]. If the user has said when it begins, tells the client if
/// it lacks the beginning: for functions that return rows, because reports say it themselves.
pub fn each_or_notice(
    lookup: &mut Lookup,
    from: Option<i64>,
    interval: (i64, i64),
    mut visit: impl FnMut(&mut Lookup, Entry),
) {
    let mut first = None;
    each(lookup, Some(interval.0), interval.1, |lookup, entry| {
        match &entry {
            Entry::Stored { first: at, .. } => first = first.or(Some(*at)),
            Entry::Moment(moment, _) => first = first.or(Some(moment.first)),
            Entry::Sample(_) => {}
        }
        visit(lookup, entry);
    });
    let Some(from) = from else { return };
    let what = match first {
        Some(at) if at.saturating_sub(from) <= TOLERANCE_US => return,
        Some(at) => format!("the samples begin at {}", server::shown_time(at)),
        None => "no samples are kept of this interval".to_owned(),
    };
    server::notify(&what, &sentence(&why_no_older()));
}

/// Visits what a tier of the ring and the coarser ones have of an interval.
fn each_from_tier(finest: usize, from: i64, to: i64, mut visit: impl FnMut(ash::Entry)) {
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

/// The tier that has one moment in each tenth of a second, which snapshots store.
const STORED_TIER: usize = 1;

/// Returns since when moments are not stored, if `stored` is the last moment that is.
fn since(stored: Option<i64>) -> i64 {
    // The slot of that moment has been stored with it.
    let slot = SLOT_US[STORED_TIER];
    let next = |at: i64| at.div_euclid(slot).saturating_add(1).saturating_mul(slot);
    stored.map_or(i64::MIN, next)
}

/// About the most samples that a snapshot stores. The next one goes on there.
const MOST_STORED: usize = 100_000;

/// Returns the first and the last moment that the next snapshot is to store, and how many moments there are
/// between them. `stored` is the last that one has.
pub fn moments_to_store(stored: Option<i64>) -> Option<(i64, i64, u64)> {
    let since = since(stored);
    let mut all: Option<(i64, i64, u64)> = None;
    memory::ring()?;
    let mut samples = 0;
    each_from_tier(STORED_TIER, since, i64::MAX, |entry| match entry {
        ash::Entry::Moment(moment, _) if moment.first >= since && samples < MOST_STORED => {
            let (first, _, moments) = all.unwrap_or((moment.first, 0, 0));
            all = Some((first, moment.last, moments + moment.moments));
        }
        ash::Entry::Moment(..) => {}
        ash::Entry::Sample(..) => samples += 1,
    });
    all
}

/// Visits the samples that no snapshot has stored yet, whoever may see them: those of one moment in each
/// tenth of a second, or of fewer. `stored` is the last moment that one has, and `until` the last wanted.
/// Samples of sessions that block others come last in their moment, and stand for none.
pub fn each_to_store(stored: Option<i64>, until: Option<i64>, mut visit: impl FnMut(&Sampled)) {
    let (Some(_), Some(until)) = (memory::ring(), until) else {
        return;
    };
    let since = since(stored);
    let mut lookup = Lookup::default();
    let mut is_new = true;
    let mut blockers: Vec<Sample> = Vec::new();
    let mut add = |sample: Sample, moments| visit(&lookup.sampled(sample, moments, true));
    each_from_tier(STORED_TIER, since, until, |entry| match entry {
        ash::Entry::Moment(moment, _) => {
            blockers.drain(..).for_each(|sample| add(sample, 0));
            // What is only left of it in a longer slot may have been stored in part.
            is_new = moment.first >= since;
        }
        ash::Entry::Sample(sample, _) if is_new && sample.is_blocker => {
            if blockers.try_reserve(1).is_err() {
                process_memory::out_of_memory();
            }
            blockers.push(sample);
        }
        ash::Entry::Sample(sample, moments) if is_new => add(sample, moments),
        ash::Entry::Sample(..) => {}
    });
    blockers.drain(..).for_each(|sample| add(sample, 0));
}

/// Says why the user sees no snapshots, or none of this server; `None` if he does.
pub fn why_not_stored() -> Option<&'static str> {
    if server::is_in_recovery() {
        Some("a standby takes no snapshots, which would have older ones")
    } else if !may_see_activity(None) {
        Some("snapshots may have older ones, for roles with the privileges of pg_read_all_stats")
    } else {
        None
    }
}

/// Says why there may be no older samples.
pub fn why_no_older() -> String {
    if origin::other().is_some() {
        return "no older ones were imported".to_owned();
    }
    match (why_not_stored(), snapshots_elsewhere()) {
        (Some(why), _) => why.to_owned(),
        (None, Some(name)) => {
            format!("the server takes its snapshots in the database \"{name}\": connect to it for older ones")
        }
        (None, None) => "no snapshot has older ones".to_owned(),
    }
}

/// Selects a part of the interval of each snapshot, and the moments in it.
const PARTS: &str = "
    SELECT pg_catalog.json_build_array(pg_catalog.extract('epoch', s.first_sample_at), pg_catalog.extract('epoch', s.last_sample_at),
                                       s.sampled_moments)
      FROM [rowsource_snapshots] s
     WHERE s.sampled_moments OPERATOR(pg_catalog.>) 0 AND s.last_sample_at OPERATOR(pg_catalog.>=) {from}
           AND s.first_sample_at OPERATOR(pg_catalog.<=) {to}
     ORDER BY s.snap_id";
/// Selects the text of each statement of the samples of an interval.
const TEXTS: &str = "
    SELECT pg_catalog.json_build_array(q.queryid, t.query)
      FROM (SELECT DISTINCT a.queryid FROM {}rowsource_snapshot_ash a
             WHERE a.sample_time OPERATOR(pg_catalog.>=) {from} AND a.sample_time OPERATOR(pg_catalog.<=) {to}) q
           CROSS JOIN LATERAL (SELECT pg_catalog.substr(p.query, 1, 1000) AS query FROM {}rowsource_snapshot_plans p
                                WHERE p.queryid OPERATOR(pg_catalog.=) q.queryid ORDER BY p.snap_id DESC LIMIT 1) t";
/// The same of another server, where no index has the plans of a statement.
const OTHER_TEXTS: &str = "
    SELECT pg_catalog.json_build_array(p.queryid, pg_catalog.substr(p.query, 1, 1000)) FROM [rowsource_snapshot_plans] p ORDER BY p.snap_id";
/// Selects the samples of an interval.
const SAMPLES: &str = "
    SELECT pg_catalog.json_build_array(pg_catalog.extract('epoch', a.sample_time), a.pid, a.leader_pid, a.backend_type,
               a.userid::pg_catalog.int8, a.datid::pg_catalog.int8, a.application_name, a.queryid, a.planid, a.toplevel, a.node_id,
               a.operation, a.object_name, a.wait_event_type, a.wait_event, a.blocking_pid, a.moments, a.mode, a.command,
               a.usename, a.datname)
      FROM [rowsource_snapshot_ash] a
     WHERE a.sample_time OPERATOR(pg_catalog.>=) {from} AND a.sample_time OPERATOR(pg_catalog.<=) {to}
     ORDER BY a.sample_time, a.moments DESC, a.pid";

/// Visits what snapshots have of an interval.
fn each_stored(lookup: &mut Lookup, from: i64, to: i64, visit: &mut impl FnMut(&mut Lookup, Entry)) {
    let mut parts: Vec<(i64, i64, f64)> = Vec::new();
    query::each(&origin::rows_of(PARTS), (from, to), |row| {
        let (begin, end) = (query::time(&row[0]), query::time(&row[1]));
        let per_us = row[2].as_f64().unwrap_or(0.0) / (end - begin).max(1) as f64;
        // Two snapshots at one moment may have the same part.
        let after = parts.last().map_or(i64::MIN, |part| part.1 + 1);
        let (first, last) = (begin.max(from).max(after), end.min(to));
        if first <= last {
            if parts.try_reserve(1).is_err() {
                process_memory::out_of_memory();
            }
            parts.push((first, last, per_us));
            let moments = (per_us * (last - first) as f64).round() as u64;
            visit(lookup, Entry::Stored { first, last, moments });
        }
    });
    let texts = if origin::other().is_some() {
        OTHER_TEXTS
    } else {
        TEXTS
    };
    query::each(&origin::rows_of(texts), (from, to), |row| {
        if let (Some(queryid), Some(text)) = (row[0].as_i64(), row[1].as_str()) {
            room_for_one(&mut lookup.stored_texts);
            lookup.stored_texts.insert(queryid, text.into());
        }
    });
    let (run, started_at) = match memory::ring() {
        Some(ring) if !lookup.is_other => (ring.run(), slots::stats_reset().unwrap_or(i64::MIN)),
        _ => (0, i64::MIN),
    };
    let (mut last, mut part) = (None, 0);
    query::each(&origin::rows_of(SAMPLES), (from, to), |row| {
        let sampled = lookup.stored_sample(row);
        let (at, moments) = (sampled.sample.at, sampled.moments);
        // Blocking sessions that are not active may be of another moment of its slot.
        if moments > 0 && last.replace(at) != Some(at) {
            while parts.get(part).is_some_and(|part| part.1 < at) {
                part += 1;
            }
            let per_us = parts.get(part).map_or(f64::INFINITY, |part| part.2);
            let moment = Moment {
                at,
                moments,
                first: at,
                last: at,
                span: (moments as f64 / per_us) as i64,
                // Of earlier runs of the server, only that they are others is known.
                run: if at >= started_at { run } else { 0 },
            };
            visit(lookup, Entry::Moment(moment, None));
        }
        visit(lookup, Entry::Sample(sampled));
    });
}
