//! Traces of other sessions: the targets of `rowsource_trace_start()` and `rowsource_trace_stop()`, and their
//! list.

use super::store::fail_without_store;
use crate::pg::compat;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail};
use crate::pg::store::{self, SharedTargets};
use pgrx::PgSqlErrorCode;
use rowsource_core::sql_trace::target::{MAX_TARGETS, NAME_BYTES, Name, Network, Target};
use std::sync::atomic::Ordering::Relaxed;

const MINUTE_US: i64 = 60_000_000;
/// When a target expires, unless somebody says so.
const DEFAULT_EXPIRY_US: i64 = 10 * MINUTE_US;
const MAX_EXPIRY_US: i64 = 24 * 60 * MINUTE_US;
/// The hint of errors that are about a target.
const LISTED: &str = "rowsource_trace_targets lists the targets.";

/// What a caller asks for. Sessions are traced for which all conditions hold that are given.
pub struct Wanted {
    pub waits: bool,
    pub binds: bool,
    pub pid: Option<i32>,
    pub application_name: Option<String>,
    pub usename: Option<String>,
    pub datname: Option<String>,
    pub client_addr: Option<String>,
    pub queryid: Option<i64>,
    /// In microseconds.
    pub expires_after: Option<i64>,
}

impl Wanted {
    /// Returns whether there is a condition. If not, the caller's own session is meant.
    pub fn has_condition(&self) -> bool {
        self.pid.is_some()
            || self.application_name.is_some()
            || self.usename.is_some()
            || self.datname.is_some()
            || self.client_addr.is_some()
            || self.queryid.is_some()
    }

    /// Returns the target. Raises an error if nothing can fit a condition.
    fn target(&self) -> Target {
        let now = server::now();
        let pid = self.pid.unwrap_or(0);
        Target {
            number: 0,
            pid,
            started: self.pid.map_or(0, started),
            role: self.usename.as_deref().map_or(0, role),
            database: self.datname.as_deref().map_or(0, database),
            queryid: self.queryid.map_or(0, queryid),
            network: self.client_addr.as_deref().map_or(Network::NONE, network),
            application_name: self.application_name.as_deref().map_or(Name::NONE, name),
            waits: self.waits,
            binds: self.binds,
            set_by: server::user_id(),
            since: now,
            expires: now.saturating_add(expiry(self.expires_after)),
        }
    }
}

/// Raises that an argument is not valid.
fn refuse(message: &str, hint: &str) -> ! {
    fail(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message, hint)
}

fn started(pid: i32) -> i64 {
    let started = Some(pid).filter(|pid| *pid > 0).and_then(compat::session_start);
    started.unwrap_or_else(|| {
        refuse(
            &format!("no session of a client has the process id {pid}"),
            "pg_stat_activity lists the sessions. Only those with backend_type \"client backend\" are traced.",
        )
    })
}

fn role(name: &str) -> u32 {
    server::role_oid(name).unwrap_or_else(|| {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!("role \"{name}\" does not exist"),
            "pg_roles lists the roles.",
        )
    })
}

fn database(name: &str) -> u32 {
    server::database_oid(name).unwrap_or_else(|| {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_CATALOG_NAME,
            &format!("database \"{name}\" does not exist"),
            "pg_database lists the databases.",
        )
    })
}

fn queryid(queryid: i64) -> i64 {
    if queryid == 0 {
        refuse(
            "no statement has the queryid 0",
            "pg_stat_rowsource_plans lists the queryids of statements.",
        )
    }
    queryid
}

fn network(text: &str) -> Network {
    Network::parse(text).unwrap_or_else(|| {
        refuse(
            &format!("\"{text}\" is no address of a client"),
            "Give an address like 10.1.2.3, or a network like 10.0.0.0/8.",
        )
    })
}

fn name(text: &str) -> Name {
    if !text.is_ascii() {
        refuse(
            "the name of the application contains other characters than those of ASCII",
            "PostgreSQL replaces these in the names of applications: copy application_name from pg_stat_activity.",
        )
    }
    Name::new(&server::to_database(text)).unwrap_or_else(|| {
        refuse(
            "the name of the application is too long",
            &format!(
                "PostgreSQL cuts these names after {} bytes: see application_name in pg_stat_activity.",
                NAME_BYTES - 1
            ),
        )
    })
}

fn expiry(wanted: Option<i64>) -> i64 {
    let wanted = wanted.unwrap_or(DEFAULT_EXPIRY_US);
    if !(1..=MAX_EXPIRY_US).contains(&wanted) {
        refuse(
            "expires_after must be more than 0, and at most 1 day",
            "A target ends by itself, so that nobody forgets it. Without expires_after, it ends after 10 minutes.",
        )
    }
    wanted
}

fn shared() -> &'static SharedTargets {
    store::shared_targets().unwrap_or_else(|| {
        fail_without_store("other sessions cannot be traced, because pg_rowsource has no shared memory")
    })
}

/// Adds a target, and a row that says its number.
pub fn add(rows: &mut Rows, wanted: &Wanted) {
    let target = wanted.target();
    let shared = shared();
    forget_ended(shared);
    match shared.add(&target) {
        Some(number) => rows.add_line(&shown(number)),
        None => fail(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            &format!("there are already {MAX_TARGETS} targets of traces"),
            "rowsource_trace_targets lists them, and rowsource_trace_stop(target => n) removes one.",
        ),
    }
}

/// Refuses an expiry for the trace of this session, which has none.
pub fn refuse_expiry(wanted: &Wanted) {
    if wanted.expires_after.is_some() {
        refuse(
            "expires_after is given, but no condition",
            "Without a condition, this session is traced until rowsource_trace_stop(). With pid => pg_backend_pid(), its trace expires.",
        )
    }
}

fn shown(number: i32) -> String {
    format!("target {number}")
}

/// Removes a target. Adds a row that says its number.
pub fn remove(rows: &mut Rows, number: i32) {
    let mut is_found = false;
    shared().remove(|target| {
        let is_it = target.number == number;
        is_found |= is_it;
        is_it
    });
    if !is_found {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!("there is no target {number}"),
            &format!("It may have expired. {LISTED}"),
        )
    }
    rows.add_line(&shown(number));
}

/// Removes all targets. Adds a row for each.
pub fn remove_all(rows: &mut Rows) {
    let shared = shared();
    forget_ended(shared);
    let (mut removed, mut count) = ([0; MAX_TARGETS], 0);
    shared.remove(|target| {
        if let Some(place) = removed.get_mut(count) {
            *place = target.number;
            count += 1;
        }
        true
    });
    if count == 0 {
        server::notify(
            "there are no targets",
            "rowsource_trace_start() sets one if it gets a condition.",
        );
    }
    for number in removed.into_iter().take(count) {
        rows.add_line(&shown(number));
    }
}

/// A target, and how many sessions it traces.
type Listed = (Target, u32);

/// Returns a copy of the list.
fn list(shared: &SharedTargets) -> impl Iterator<Item = Listed> {
    let mut found = [(Target::FREE, 0); MAX_TARGETS];
    let mut places = found.iter_mut();
    shared.read(|target, sessions| {
        if let Some(place) = places.next() {
            *place = (*target, sessions.load(Relaxed));
        }
    });
    found.into_iter().filter(|(target, _)| target.number != 0)
}

/// Removes the targets that have expired, and those of a session that has ended.
fn forget_ended(shared: &SharedTargets) {
    let now = server::now();
    let has_ended = |target: &Target| {
        !target.is_set(now) || target.pid != 0 && compat::session_start(target.pid) != Some(target.started)
    };
    let (mut ended, mut count) = ([0; MAX_TARGETS], 0);
    for (target, _) in list(shared).filter(|(target, _)| has_ended(target)) {
        if let Some(place) = ended.get_mut(count) {
            *place = target.number;
            count += 1;
        }
    }
    if count > 0 {
        shared.remove(|target| ended.iter().take(count).any(|number| *number == target.number));
    }
}

/// Adds the rows of `rowsource_trace_targets`.
pub fn rows(rows: &mut Rows) {
    let Some(shared) = store::shared_targets() else {
        return;
    };
    forget_ended(shared);
    let mut found: Vec<Listed> = list(shared).collect();
    found.sort_by_key(|(target, _)| (target.since, target.number));
    let columns = columns();
    for listed in found {
        columns.add(rows, &listed);
    }
}

/// The columns of `rowsource_trace_targets()`.
pub fn columns() -> Columns<Listed> {
    columns! { |row: &Listed|
        /// Its number, for rowsource_trace_stop()
        target: int = row.0.number;
        /// Condition: the process of this session, until it ends
        pid: int = (row.0.pid != 0).then_some(row.0.pid);
        /// Condition: the session's application_name
        application_name: text = row.0.application_name.get().map(server::from_database);
        /// Condition: the OID of the session's user, or of the role that SET ROLE has chosen
        userid: oid = (row.0.role != 0).then_some(row.0.role);
        /// Condition: the OID of the session's database
        datid: oid = (row.0.database != 0).then_some(row.0.database);
        /// Condition: the address of the client, or a network that contains it
        client_addr: inet = row.0.network.is_known().then(|| row.0.network.to_string());
        /// Only this statement is traced, with what it calls
        queryid: bigint = (row.0.queryid != 0).then_some(row.0.queryid);
        /// Whether each wait is listed
        with_waits: boolean = row.0.waits;
        /// Whether the values of parameters are listed
        with_binds: boolean = row.0.binds;
        /// The OID of the role that has set it
        set_by_userid: oid = row.0.set_by;
        /// When it was set
        set_at: timestamptz = row.0.since;
        /// When it expires
        expires_at: timestamptz = row.0.expires;
        /// How many sessions it traces, as far as they have noticed it
        sessions: bigint = row.1;
    }
}
