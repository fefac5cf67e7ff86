//! Signals to sessions: whom a signal is for, and the statements that send it.

use serde::Deserialize;

use crate::format::one_line;
use crate::queries::OWN;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Cancel,
    Terminate,
}

/// A session, as it was when the user was asked. Times are microseconds since 1970, and are missing where the
/// user may not see them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Addressee {
    pub pid: i64,
    pub server_start: i64,
    pub backend_start: Option<i64>,
    pub query_start: Option<i64>,
    pub state: Option<String>,
    pub usename: Option<String>,
    pub application: Option<String>,
    pub query: Option<String>,
    /// Whether its process answers the program now: a pooler gives its sessions to all who ask.
    pub is_own: bool,
}

/// Writes a time as exactly as the server has it, whatever the style of dates is.
fn micros(time: &str) -> String {
    format!("(extract(epoch FROM {time}) * 1000000)::int8")
}

/// Returns the query for a session.
pub fn query(pid: i64) -> String {
    format!(
        "SELECT pid, {} AS server_start, {} AS backend_start, {} AS query_start, state, usename, application_name AS application, left(query, 400) AS query,
           pid = pg_backend_pid() AS is_own
         FROM pg_stat_activity WHERE pid = {pid}",
        micros("pg_postmaster_start_time()"),
        micros("backend_start"),
        micros("query_start")
    )
}

impl Signal {
    fn function(self) -> &'static str {
        match self {
            Self::Cancel => "pg_cancel_backend",
            Self::Terminate => "pg_terminate_backend",
        }
    }

    /// Returns what it does, for a question.
    pub fn does(self) -> &'static str {
        match self {
            Self::Cancel => "cancel the statement",
            Self::Terminate => "terminate the session",
        }
    }

    /// The same in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
        }
    }
}

impl Addressee {
    /// Returns the statements that send a signal if the session is still the same, and, to cancel, if it
    /// still runs the same statement. The session that sends it gets none: the statement that a pooler gave
    /// it before has ended. The first one returns whether it was sent, and no row if the session has changed;
    /// the second one whether there is such a session.
    pub fn statements(&self, signal: Signal) -> String {
        let same = |time: &str, value: Option<i64>| {
            let value = value.map_or_else(|| "NULL".to_owned(), |value| value.to_string());
            format!("{} IS NOT DISTINCT FROM {value}", micros(time))
        };
        // Without it, nothing would tell a session from the next one of the same process.
        let begin = self
            .backend_start
            .map_or_else(|| "false".to_owned(), |start| same("backend_start", Some(start)));
        let session = format!(
            "FROM pg_stat_activity WHERE pid = {} AND {} AND {}",
            self.pid,
            begin,
            same("pg_postmaster_start_time()", Some(self.server_start))
        );
        let and_statement = match signal {
            // A statement that has ended leaves its start behind.
            Signal::Cancel if self.state.is_some() => {
                format!(
                    " AND {} AND state = 'active'",
                    same("query_start", self.query_start)
                )
            }
            _ => String::new(),
        };
        format!(
            "SET LOCAL statement_timeout = 500; SET LOCAL search_path = pg_catalog, pg_temp;
             {OWN} {}(pid) {session} AND pid <> pg_backend_pid(){and_statement}; {OWN} count(*) > 0 {session}",
            signal.function()
        )
    }

    /// Says what came of the statements, by what they returned.
    pub fn outcome(&self, answers: &[String]) -> String {
        let pid = self.pid;
        match answers.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["t", _] => format!("sent to process {pid}"),
            ["t"] => format!("nothing was sent: this statement of process {pid} has ended"),
            _ => format!("nothing was sent: process {pid} is gone"),
        }
    }

    /// Says whose session it is, and what it runs. Long names are cut, so that the statement has room in a
    /// line of this width.
    pub fn describe(&self, width: usize) -> String {
        let most = (width / 5).max(8);
        let cut = |name: &str| {
            let name = one_line(name);
            match name.char_indices().nth(most) {
                Some((end, _)) => format!("{}~", &name[..end]),
                None => name,
            }
        };
        let user = self.usename.as_deref().map_or_else(|| "no user".to_owned(), cut);
        let query = self.query.as_deref().map(one_line).unwrap_or_default();
        let state = self.state.as_deref().unwrap_or("unknown state");
        let application = self.application.as_deref().filter(|name| !name.is_empty());
        let application = application.map_or_else(String::new, |name| format!(" ({})", cut(name)));
        format!("{user}{application}, {state}: {query}")
    }
}
