//! `rowsource_blockers()`: who waited for whom in an interval, from the samples of active sessions.

use super::ash::{self, known};
use super::origin;
use super::samples::{self, Entry, Lookup, Sampled, room_for_one};
use crate::pg::ash::memory::ring;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{memory, query};
use rowsource_core::ash::Moment;
use rowsource_core::compare::Blocker;
use rowsource_core::model::PlanKey;
use rowsource_core::report::activity::overview::Blocked;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// A process: the number of the server's run, and its pid.
type Process = (u64, i32);

/// A wait: the root of its tree, the process that was waited for, and the one that waited.
type Edge = (Process, i32, i32);

/// What was seen of a wait.
#[derive(Clone)]
struct Wait {
    samples: u64,
    us: f64,
    first_at: i64,
    last: Rc<Sampled>,
}

/// The other process of a wait, and the wait.
type Waited = (i32, Wait);

/// The waits of an interval.
#[derive(Default)]
struct Waits {
    all: HashMap<Edge, Wait>,
    /// Of each process that others waited for, the last that was seen.
    blockers: HashMap<Process, Rc<Sampled>>,
    /// The moment that is read, and what the sessions did then.
    at: Option<Moment>,
    moment: HashMap<i32, Rc<Sampled>>,
    /// Only waits of this statement of a user in a database count.
    only: Option<PlanKey>,
}

impl Waits {
    /// Returns the waits of an interval, of all statements or of one. Those that the user may not see are
    /// left out. If the user has said when the interval begins, which is `from`, the client is told what it
    /// lacks.
    fn read(lookup: &mut Lookup, from: Option<i64>, interval: (i64, i64), only: Option<PlanKey>) -> Waits {
        let mut waits = Waits {
            only,
            ..Waits::default()
        };
        samples::each_or_notice(lookup, from, interval, |_, entry| match entry {
            Entry::Stored { .. } => {}
            Entry::Moment(moment, _) => waits.begin_moment(Some(moment)),
            Entry::Sample(sampled) if sampled.is_visible => waits.add(sampled),
            Entry::Sample(_) => {}
        });
        waits.begin_moment(None);
        waits
    }

    /// Returns whether the waits of a session count.
    fn counts(&self, sampled: &Sampled) -> bool {
        let ids = |key: &PlanKey| (key.userid, key.datid, key.queryid);
        self.only
            .as_ref()
            .is_none_or(|only| ids(only) == ids(&sampled.sample.key))
    }

    /// Adds a sample of the moment.
    fn add(&mut self, sampled: Sampled) {
        let pid = sampled.sample.pid;
        if sampled.sample.is_blocker {
            let run = self.at.map_or(0, |at| at.run);
            room_for_one(&mut self.blockers);
            self.blockers.insert((run, pid), Rc::new(sampled));
        } else {
            room_for_one(&mut self.moment);
            self.moment.insert(pid, Rc::new(sampled));
        }
    }

    /// Adds the waits of the moment, and begins the next one.
    fn begin_moment(&mut self, next: Option<Moment>) {
        let Some(at) = std::mem::replace(&mut self.at, next) else {
            return;
        };
        let mut roots = HashMap::new();
        for (pid, sampled) in &self.moment {
            let Some(blocker) = sampled.sample.blocker else {
                continue;
            };
            if let Some(blocking) = self.moment.get(&blocker) {
                room_for_one(&mut self.blockers);
                self.blockers.insert((at.run, blocker), blocking.clone());
            }
            if !self.counts(sampled) {
                continue;
            }
            let root = (at.run, root(&self.moment, &mut roots, *pid));
            room_for_one(&mut self.all);
            let wait = self.all.entry((root, blocker, *pid)).or_insert(Wait {
                samples: 0,
                us: 0.0,
                first_at: at.at,
                last: sampled.clone(),
            });
            wait.samples += at.moments;
            wait.us += at.span as f64;
            wait.last = sampled.clone();
        }
        self.moment.clear();
    }
}

/// Returns the process at the root of the tree in which a process waited. In a deadlock, that is the lowest
/// number of its ring.
fn root(moment: &HashMap<i32, Rc<Sampled>>, roots: &mut HashMap<i32, i32>, pid: i32) -> i32 {
    let blocker = |pid: i32| moment.get(&pid).and_then(|sampled| sampled.sample.blocker);
    let (mut path, mut at) = (HashSet::new(), pid);
    let root = loop {
        if let Some(root) = roots.get(&at) {
            break *root;
        }
        if path.try_reserve(1).is_err() {
            memory::out_of_memory();
        }
        if !path.insert(at) {
            let ring = std::iter::successors(blocker(at), |pid| blocker(*pid).filter(|_| *pid != at));
            break ring.min().unwrap_or(at);
        }
        match blocker(at) {
            Some(blocker) => at = blocker,
            None => break at,
        }
    };
    for pid in path {
        room_for_one(roots);
        roots.insert(pid, root);
    }
    root
}

/// Adds the rows of `rowsource_blockers()`: the trees of an interval.
pub fn rows(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    let columns = columns();
    let mut lookup = Lookup::default();
    let waits = Waits::read(&mut lookup, from, ash::interval(from, to), None);
    each(&mut lookup, &waits, |row| columns.add(rows, row));
}

/// Selects what processes do that are in a transaction and were there at the end of an interval, since when,
/// and what ends that.
const STATES: &str = "
    SELECT pg_catalog.json_build_array(a.pid, pg_catalog.concat(
               a.state, ' since ', pg_catalog.date_trunc('second', a.state_change), ' (',
               pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) a.state_change),
               '), which ', CASE WHEN a.state OPERATOR(pg_catalog.=) 'active' THEN 'pg_cancel_backend' ELSE 'pg_terminate_backend' END,
               '(', a.pid, ') ends'))
      FROM pg_catalog.pg_stat_activity a
     WHERE a.xact_start IS NOT NULL AND a.state IS NOT NULL AND a.backend_start OPERATOR(pg_catalog.<=) {to}";

/// Returns what is said of processes that are in a transaction, as far as the user may see that.
pub fn states(interval: (i64, i64)) -> BTreeMap<i32, String> {
    let mut states = BTreeMap::new();
    query::each(STATES, interval, |row| {
        memory::ensure();
        if let (Some(pid), Some(state)) = (row[0].as_i64(), row[1].as_str()) {
            states.insert(pid as i32, state.to_owned());
        }
    });
    states
}

/// Returns the sessions of the trees of an interval, for a report.
pub fn blocked(interval: (i64, i64)) -> Vec<Blocked> {
    let mut lookup = Lookup::default();
    let waits = Waits::read(&mut lookup, None, interval, None);
    let mut blocked: Vec<Blocked> = Vec::new();
    each(&mut lookup, &waits, |row| {
        if blocked.try_reserve(1).is_err() {
            memory::out_of_memory();
        }
        blocked.push(row.for_report());
    });
    blocked
}

/// Visits the sessions of the trees: the tree with the longest waits first, and each session below the one
/// for which it waited.
fn each(lookup: &mut Lookup, waits: &Waits, mut visit: impl FnMut(&Row)) {
    // Of each tree, the waits for each of its processes, the longest ones first.
    let mut trees: HashMap<Process, Tree> = HashMap::new();
    for ((root, blocker, pid), wait) in &waits.all {
        room_for_one(&mut trees);
        let tree = trees.entry(*root).or_default();
        room_for_one(&mut tree.waits);
        let of_blocker = tree.waits.entry(*blocker).or_default();
        if of_blocker.try_reserve(1).is_err() || tree.pids.try_reserve(1).is_err() {
            memory::out_of_memory();
        }
        of_blocker.push((*pid, wait.clone()));
        tree.pids.insert(*pid);
        tree.us += wait.us;
    }
    let mut sorted: Vec<(Process, Tree)> = memory::with_room(trees.len());
    sorted.extend(trees);
    sorted.sort_unstable_by(|one, other| other.1.us.total_cmp(&one.1.us).then(one.0.cmp(&other.0)));
    for ((run, root), mut tree) in sorted {
        // A process stands below all for which it waited, but those that waited for it only once.
        let room = tree.waits.values().map(Vec::len).sum::<usize>() + 1;
        let mut stack: Vec<(u32, i32, Option<Waited>)> = memory::with_room(room);
        stack.push((0, root, None));
        while let Some((depth, pid, wait)) = stack.pop() {
            memory::ensure();
            let last = wait.as_ref().map(|(_, wait)| wait.last.clone());
            let seen = last.or_else(|| waits.blockers.get(&(run, pid)).cloned());
            let row = Row {
                root,
                blocked: tree.pids.len() - usize::from(tree.pids.contains(&root)),
                blocked_us: tree.us,
                depth,
                pid,
                wait,
                text: seen.as_ref().and_then(|sampled| lookup.text(sampled)),
                seen,
            };
            visit(&row);
            let mut next = tree.waits.remove(&pid).unwrap_or_default();
            next.sort_unstable_by(|one, other| one.1.us.total_cmp(&other.1.us).then(other.0.cmp(&one.0)));
            stack.extend(
                next.into_iter()
                    .map(|(waiter, wait)| (depth + 1, waiter, Some((pid, wait)))),
            );
        }
    }
}

/// Returns the session for which a statement waited longest in an interval, directly or behind others: as far
/// as the sessions are sampled, and the user may see it. Of another server it is not known.
pub fn longest(key: &PlanKey, interval: (i64, i64)) -> Option<Blocker> {
    ring().filter(|_| origin::other().is_none())?;
    let mut lookup = Lookup::default();
    let waits = Waits::read(&mut lookup, None, interval, Some(*key));
    let mut roots: HashMap<Process, f64> = HashMap::new();
    for ((root, ..), wait) in &waits.all {
        room_for_one(&mut roots);
        *roots.entry(*root).or_default() += wait.us;
    }
    let by_time = roots.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let (root, _) = by_time?;
    let seen = waits.blockers.get(&root);
    Some(Blocker {
        pid: root.1,
        application: seen.and_then(|sampled| sampled.application.as_deref().map(str::to_owned)),
        statement: seen.and_then(|sampled| lookup.text(sampled).as_deref().map(str::to_owned)),
    })
}

/// The waits below a root.
#[derive(Default)]
struct Tree {
    /// Who waited for a process.
    waits: HashMap<i32, Vec<Waited>>,
    pids: HashSet<i32>,
    us: f64,
}

/// A process in a tree.
pub struct Row {
    root: i32,
    blocked: usize,
    blocked_us: f64,
    depth: u32,
    pid: i32,
    /// The process that it waited for.
    wait: Option<Waited>,
    seen: Option<Rc<Sampled>>,
    text: Option<Rc<str>>,
}

impl Row {
    /// Returns the user and the database; 0 if there is none.
    fn ids(&self) -> Option<(u32, u32)> {
        let key = &self.seen.as_ref()?.sample.key;
        Some((key.userid, key.datid))
    }

    /// Returns what a report shows of it.
    fn for_report(&self) -> Blocked {
        let seen = self.seen.as_deref();
        let known = |part: Option<&Rc<str>>| part.map(|part| part.to_string());
        let parts = [
            seen.and_then(|sampled| known(sampled.usename.as_ref())),
            seen.and_then(|sampled| known(sampled.application.as_ref())),
        ];
        let who = match self.pid {
            0 => "a prepared transaction".to_owned(),
            pid => std::iter::once(pid.to_string())
                .chain(parts.into_iter().flatten())
                .collect::<Vec<_>>()
                .join(" "),
        };
        let waiting = self.waiting();
        let event = waiting.and_then(Sampled::wait_event).unwrap_or_default();
        let relation = waiting.and_then(|sampled| sampled.object.as_deref());
        Blocked {
            depth: self.depth,
            who,
            waited_for: match relation {
                Some(relation) => format!("{event} on {relation}"),
                None => event.to_owned(),
            },
            seconds: self.waited().map(|wait| wait.us / 1e6),
            statement: self.text.as_deref().unwrap_or_default().to_owned(),
        }
    }

    fn waiting(&self) -> Option<&Sampled> {
        self.seen.as_deref().filter(|_| self.wait.is_some())
    }

    fn waited(&self) -> Option<&Wait> {
        self.wait.as_ref().map(|(_, wait)| wait)
    }
}

/// The columns of `rowsource_blockers()`.
pub fn columns() -> Columns<Row> {
    columns! { |row: &Row|
        /// The session at the root of the tree: all the others in it waited for it
        root_pid: int = row.root;
        /// How many sessions waited for the root, directly or behind others
        blocked_sessions: bigint = row.blocked;
        /// Milliseconds that all these waited, added up
        blocked_time: float8 = row.blocked_us / 1e3;
        /// 0 for the root, 1 for those that waited for it, 2 for those that waited for these
        depth: int = row.depth;
        /// The process of the session; 0 is a prepared transaction
        pid: int = row.pid;
        /// The process that it waited for; NULL for the root
        blocking_pid: int = row.wait.as_ref().map(|(blocker, _)| *blocker);
        /// The OID of its user; NULL, as is what follows, if that is not known, or if you may not see what
        /// the session did
        userid: oid = row.ids().map(|(user, _)| user);
        /// Its user
        usename: name = row.seen.as_ref().and_then(|sampled| sampled.usename.as_deref().map(str::to_owned));
        /// The OID of its database
        datid: oid = row.ids().map(|(_, database)| database);
        /// Its database
        datname: name = row.seen.as_ref().and_then(|sampled| sampled.datname.as_deref().map(str::to_owned));
        /// The name of its application
        application_name: text = row.seen.as_ref().and_then(|sampled| sampled.application.as_deref());
        /// The event that it waited for: the kind of the lock
        wait_event: text = row.waiting().and_then(|sampled| sampled.wait_event());
        /// The mode in which it waited to lock that
        mode: text = row.waiting().and_then(|sampled| sampled.mode.as_deref());
        /// The relation that it waited to lock, or on which its node worked; of another database, its OID
        relation: text = row.waiting().and_then(|sampled| sampled.object.as_deref());
        /// When it was first seen waiting
        first_seen_at: timestamptz = row.waited().map(|wait| wait.first_at);
        /// When it was last seen waiting
        last_seen_at: timestamptz = row.waited().map(|wait| wait.last.sample.at);
        /// How often it was seen waiting. A sample that stands for many moments counts as many
        samples: bigint = row.waited().map(|wait| wait.samples);
        /// Milliseconds that it waited, which is what the samples stand for
        wait_time: float8 = row.waited().map(|wait| wait.us / 1e3);
        /// Identifies its statement, or its last one if it was idle
        queryid: bigint = row.seen.as_ref().and_then(|sampled| known(sampled.sample.key.queryid));
        /// The text of that statement, or what kind of command it was
        query: text = row.text.as_deref();
    }
}
