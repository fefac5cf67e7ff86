//! What a refresh brings: rows of the server's views, as they are shown, recorded and replayed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many plans were evicted, if the server had no time to say it.
pub const UNKNOWN: f64 = -1.0;

/// One refresh.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The server's clock, in seconds since 1970.
    pub at: f64,
    /// The server.
    pub server: Server,
    /// What was asked for, and came.
    pub parts: Vec<Part>,
    /// How many rows there are, if a part has only the first ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub totals: BTreeMap<String, u64>,
    /// What was asked for and did not come, and why.
    #[serde(default)]
    pub missing: Vec<String>,
    /// How many plans were evicted when the plans had been read, or `UNKNOWN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evictions_after: Option<f64>,
    /// How long the server worked for it.
    #[serde(skip)]
    pub took: Duration,
}

impl Snapshot {
    /// Returns whether a part with this name came, or is missing.
    pub fn lists(&self, name: &str) -> bool {
        self.names().any(|it| it == name)
    }

    /// Returns whether it has nothing but what belongs to the refresh before, or comes beside the refreshes.
    pub fn is_addition(&self) -> bool {
        self.names().count() > 0
            && self
                .names()
                .all(|name| matches!(name, "Texts" | "Findings" | "Lines"))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let missing = self.missing.iter();
        let missing = missing.map(|missing| missing.split(':').next().unwrap_or_default());
        let came = self.parts.iter().map(|part| -> &str { part.name() });
        came.chain(missing)
    }
}

/// The server and its store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Its version, such as `15.13`.
    pub version: String,
    /// When it started, in seconds since 1970.
    pub started: f64,
    /// The database of the connection.
    pub database: String,
    /// The user of the connection.
    pub user: String,
    /// Whether it is a standby.
    pub standby: bool,
    /// Whether the user may see what others do.
    pub sees_all: bool,
    /// The schema of the extension; nothing if the database does not have it.
    pub schema: Option<String>,
    /// Whether the library is loaded.
    pub loaded: bool,
    /// When the statistics were reset.
    pub reset: Option<f64>,
    /// How many plans were evicted.
    pub evictions: f64,
}

impl Server {
    /// Returns whether there is more than what every server has.
    pub fn has_extension(&self) -> bool {
        self.loaded && self.schema.is_some()
    }
}

/// The rows of one view of the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Part {
    /// The counters of the stored plans.
    Plans(Vec<Plan>),
    /// The counters of those that ran since the last refresh.
    ChangedPlans(Vec<Plan>),
    /// The texts of statements.
    Texts(Vec<Text>),
    /// The counters of nodes.
    Nodes(Vec<Node>),
    /// The counters of the nodes of plans that ran since the last refresh.
    ChangedNodes(Vec<Node>),
    /// The nodes of one plan.
    Plan(Vec<Node>),
    /// What running statements do.
    Live(Vec<Running>),
    /// The nodes of the statement that a process runs.
    LivePlan(Vec<LiveNode>),
    /// What processes do now, by what they wait for.
    Working(Vec<Working>),
    /// What active sessions did in the last minute.
    Activity(Vec<Activity>),
    /// Statements that became slower.
    Findings(Vec<Finding>),
    /// The waits of the server.
    Waits(Vec<Wait>),
    /// Temporary files.
    Temp(Vec<Temp>),
    /// Who waits for whom.
    Locks(Vec<Lock>),
    /// A session that waits, and whom it waits for.
    Blockers(Vec<Lock>),
    /// Sessions, as every server shows them.
    Sessions(Vec<Session>),
    /// What a function wrote while this was recorded.
    Lines(Lines),
}

impl Part {
    /// Returns its name, by which a refresh says that it is missing.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Plans(_) => "Plans",
            Self::ChangedPlans(_) => "ChangedPlans",
            Self::Texts(_) => "Texts",
            Self::Nodes(_) => "Nodes",
            Self::ChangedNodes(_) => "ChangedNodes",
            Self::Plan(_) => "Plan",
            Self::Live(_) => "Live",
            Self::LivePlan(_) => "LivePlan",
            Self::Working(_) => "Working",
            Self::Activity(_) => "Activity",
            Self::Findings(_) => "Findings",
            Self::Waits(_) => "Waits",
            Self::Temp(_) => "Temp",
            Self::Locks(_) => "Locks",
            Self::Blockers(_) => "Blockers",
            Self::Sessions(_) => "Sessions",
            Self::Lines(_) => "Lines",
        }
    }
}

/// A plan's counters since it is stored. Times are milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    pub userid: i64,
    pub datid: i64,
    pub queryid: Option<i64>,
    pub planid: Option<i64>,
    pub toplevel: bool,
    pub usename: Option<String>,
    pub datname: Option<String>,
    pub first_seen: f64,
    pub calls: f64,
    pub failed: f64,
    pub time: f64,
    pub wait: f64,
    pub rows: f64,
    pub hits: f64,
    pub reads: f64,
    pub temp: f64,
    pub wal: f64,
}

/// The lines that a function of the server wrote.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lines {
    /// The function, with its arguments.
    pub call: String,
    pub lines: Vec<String>,
}

/// The text of a statement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Text {
    pub queryid: i64,
    pub query: Option<String>,
    /// Whether it is what a session runs, and no statement that is stored.
    pub is_passing: bool,
}

/// A node's counters since its plan is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    pub userid: i64,
    pub datid: i64,
    pub queryid: Option<i64>,
    pub planid: Option<i64>,
    pub toplevel: bool,
    pub node_id: i64,
    pub depth: i64,
    pub operation: String,
    pub object: Option<String>,
    pub plan_rows: Option<f64>,
    pub executions: f64,
    pub starts: f64,
    pub rows: f64,
    pub time: f64,
    pub own_time: f64,
    pub wait: f64,
    pub hits: f64,
    pub reads: f64,
    pub temp: f64,
    pub removed: f64,
    pub details: serde_json::Value,
}

/// A running statement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Running {
    pub pid: i64,
    pub usename: Option<String>,
    pub datname: Option<String>,
    pub queryid: Option<i64>,
    pub planid: Option<i64>,
    pub nesting: i64,
    pub state: Option<String>,
    pub elapsed: Option<f64>,
    pub percent: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub left: Option<f64>,
    pub node_id: Option<i64>,
    pub operation: Option<String>,
    pub object: Option<String>,
    pub wait_type: Option<String>,
    pub wait: Option<String>,
    /// Whom it waits for, if it waits for a lock and that was looked up; 0 is a prepared transaction.
    pub blocker: Option<i64>,
    pub query: Option<String>,
}

impl Running {
    /// Says that it waits for a lock: how far it was says nothing of when it ends.
    pub fn blocked(&self) -> Option<String> {
        match (self.wait_type.as_deref(), self.blocker) {
            (Some("Lock"), Some(0)) => Some("prepared xact".to_owned()),
            (Some("Lock"), Some(pid)) => Some(format!("blocked by {pid}")),
            (Some("Lock"), None) => Some("waits for lock".to_owned()),
            _ => None,
        }
    }
}

/// A node of a running statement, in one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveNode {
    pub pid: i64,
    pub leader: Option<i64>,
    pub nesting: i64,
    pub node_id: i64,
    pub depth: i64,
    pub operation: String,
    pub object: Option<String>,
    pub plan_rows: Option<f64>,
    pub starts: f64,
    pub rows: f64,
    pub time: Option<f64>,
    pub own_time: Option<f64>,
    pub reads: f64,
    pub temp: f64,
    pub running: bool,
    pub wait: Option<String>,
    pub queryid: Option<i64>,
    pub planid: Option<i64>,
}

/// Processes that work now, and wait for the same.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Working {
    pub class: Option<String>,
    pub event: Option<String>,
    pub processes: f64,
    /// How many statements of clients run for a second and longer.
    pub statements: f64,
    /// How many of these have no plan that is measured.
    pub planless: f64,
    /// How long the longest statement of a client runs.
    pub longest: Option<f64>,
}

/// What sessions did, by statement, node and event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    pub class: String,
    pub event: Option<String>,
    pub queryid: Option<i64>,
    pub planid: Option<i64>,
    pub node_id: Option<i64>,
    pub operation: Option<String>,
    pub object: Option<String>,
    pub percent: f64,
    pub sessions: f64,
}

/// A statement that became slower.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    pub id: i64,
    pub state: String,
    pub at: Option<String>,
    pub queryid: Option<i64>,
    pub calls: Option<f64>,
    pub before: Option<f64>,
    pub after: Option<f64>,
    pub factor: Option<f64>,
    pub extra: Option<f64>,
    pub basis: Option<String>,
    pub cause: Option<String>,
    /// The statement of SQL that compares before and after.
    pub command: Option<String>,
    pub query: Option<String>,
}

/// The waits for an event, of all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    pub backend_type: Option<String>,
    pub class: Option<String>,
    pub event: Option<String>,
    pub waits: f64,
    pub time: f64,
    pub max: Option<f64>,
}

impl Wait {
    /// Returns whether a background process waits like this while it has nothing to do. Before 17, workers of
    /// extensions have the class Extension then.
    pub fn is_idle(&self) -> bool {
        let is_worker = self.backend_type.as_deref() == Some("background worker");
        match self.class.as_deref() {
            Some("Activity") => true,
            Some("Extension") => is_worker,
            _ => false,
        }
    }
}

/// Requests to temporary files, or files that are there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Temp {
    pub pid: Option<i64>,
    pub datname: Option<String>,
    pub usename: Option<String>,
    pub queryid: Option<i64>,
    pub filetype: String,
    pub files: f64,
    pub bytes: f64,
    pub wait: Option<f64>,
    pub percent: Option<f64>,
}

/// A session of a tree of sessions that wait for locks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    pub root: i64,
    pub blocked: f64,
    pub depth: i64,
    pub pid: i64,
    pub usename: Option<String>,
    pub application: Option<String>,
    pub state: Option<String>,
    pub mode: Option<String>,
    pub relation: Option<String>,
    pub waited: Option<f64>,
    /// How long its transaction is open.
    pub open: Option<f64>,
    pub queryid: Option<i64>,
    pub query: Option<String>,
}

impl Lock {
    /// Returns the lock that the session waits for, as a screen names it, if anything of it is known.
    pub fn wanted(&self) -> Option<String> {
        let parts = [self.mode.as_deref(), self.relation.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" of "))
    }
}

/// A session of `pg_stat_activity`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    pub pid: i64,
    pub usename: Option<String>,
    pub datname: Option<String>,
    pub application: Option<String>,
    pub state: Option<String>,
    pub class: Option<String>,
    pub event: Option<String>,
    pub elapsed: Option<f64>,
    pub query: Option<String>,
    /// Whether it is the session that was asked, if only one was asked for.
    pub is_own: bool,
}
