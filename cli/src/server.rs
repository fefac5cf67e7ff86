//! Asks a server: each question is one message, which a pooler of transactions passes on as a whole.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_postgres::error::Severity;
use tokio_postgres::{CancelToken, Client, SimpleQueryMessage, SimpleQueryRow};

use crate::connect::{self, text_of};
use crate::model::{Part, Server, Snapshot, UNKNOWN};
use crate::queries::{OWN, SERVER, Want, info, rows_of};
use crate::raw::{self, Form};
use crate::signals::{self, Addressee, Signal};

/// How long a server may work for a question of the screens, in milliseconds.
const STATEMENT_TIMEOUT: u32 = 500;
/// The same for a list that may take seconds: nothing else waits for it.
const SLOW_TIMEOUT: u32 = 10_000;
/// The same for the commands that print what a function writes, unless the user has set another time.
const COMMAND_TIMEOUT: u32 = 60_000;
/// How long the program waits for an answer, which may have a long way. Unit tests have no way.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 4_000 });

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// The server said why.
    Refused(String),
    /// The connection is gone.
    Gone(String),
    /// No answer came in time. The connection is given up, but the server may still work for it.
    Silent(String),
    /// The answer has texts that are not UTF-8.
    NotUtf8(String),
}

impl Failure {
    /// Returns the reason.
    pub fn text(&self) -> &str {
        let (Self::Refused(text) | Self::Gone(text) | Self::Silent(text) | Self::NotUtf8(text)) = self;
        text
    }

    /// Returns whether there is no connection any more.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::Silent(_))
    }
}

/// A connection.
pub struct Connection {
    client: Client,
    /// How long the server may work for a question, in milliseconds.
    limit: u32,
    /// What the server said last of itself.
    last: Option<(Server, f64)>,
    /// When the statistics were reset, and how many plans were evicted, as it said last.
    store: (Option<f64>, f64),
    /// Whether it had no time to say that in this refresh.
    is_store_late: bool,
    /// How long the server has worked for the questions of a refresh: without the way there and back.
    worked: Cell<Duration>,
}

impl Connection {
    /// Takes a connection over.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            limit: STATEMENT_TIMEOUT,
            last: None,
            store: (None, 0.0),
            is_store_late: false,
            worked: Cell::default(),
        }
    }

    /// Lets the server work for seconds.
    pub fn patient(self) -> Self {
        Self {
            limit: SLOW_TIMEOUT,
            ..self
        }
    }

    /// Returns what cancels its question.
    pub fn cancel_token(&self) -> CancelToken {
        self.client.cancel_token()
    }

    /// Returns whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Sends one message of several statements, which are one transaction, and returns the first column of
    /// the results.
    async fn ask(&self, sql: &str, wait: Duration) -> Result<Vec<String>, Failure> {
        let begin = Instant::now();
        let messages = self.messages(sql, wait).await;
        let elapsed = begin.elapsed();
        let rows = messages.as_deref().unwrap_or_default().iter();
        let rows = rows.filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let worked = rows.clone().next_back().and_then(worked_for);
        let worked = worked.map_or(elapsed, |worked| worked.min(elapsed));
        self.worked.set(self.worked.get() + worked);
        let texts = rows.map(|row| row.try_get(0).map(|text| text.unwrap_or("").to_owned()));
        let texts = texts.collect::<Result<_, _>>();
        messages.and(texts.map_err(|error| Failure::NotUtf8(text_of(&error))))
    }

    async fn messages(&self, sql: &str, wait: Duration) -> Result<Vec<SimpleQueryMessage>, Failure> {
        let Ok(answer) = tokio::time::timeout(wait, self.client.simple_query(sql)).await else {
            return Err(Failure::Silent(format!("no answer for {} s", wait.as_secs())));
        };
        answer.map_err(|error| match error.as_db_error() {
            Some(cause) if raw::is_about_encoding(cause) => Failure::NotUtf8(text_of(&error)),
            // Its name is in the server's language.
            Some(cause) if cause.parsed_severity().is_none_or(|it| it != Severity::Fatal) => {
                Failure::Refused(text_of(&error))
            }
            _ => Failure::Gone(text_of(&error)),
        })
    }

    /// The same for a message that may be asked in two forms: if not all texts of the answer are UTF-8, it
    /// asks once more, for their bytes.
    async fn ask_texts(&self, sql: impl Fn(Form) -> String, wait: Duration) -> Result<Vec<String>, Failure> {
        match self.ask(&sql(Form::Text), wait).await {
            Err(Failure::NotUtf8(_)) => {
                let lines = self.ask(&sql(Form::Bytes), wait).await?;
                Ok(lines.iter().map(|line| raw::text_of_hex(line)).collect())
            }
            answer => answer,
        }
    }

    /// Returns the rows of a query as JSON.
    async fn rows(&self, query: &str) -> Result<Value, Failure> {
        self.rows_within(self.limit, query).await
    }

    /// The same for a query that may take these milliseconds.
    async fn rows_within(&self, limit: u32, query: &str) -> Result<Value, Failure> {
        let mut rows = self.rows_of_each(limit, &[query.to_owned()]).await?;
        Ok(rows.pop().unwrap_or_default())
    }

    /// The same for queries that are asked in one message, one after the other.
    async fn rows_of_each(&self, limit: u32, queries: &[String]) -> Result<Vec<Value>, Failure> {
        let sql = |form| message(limit, queries, form);
        let more = limit.saturating_sub(STATEMENT_TIMEOUT);
        let answer = self.ask_texts(sql, wait_for(more)).await?;
        let rows = answer.iter().map(|text| serde_json::from_str(text));
        rows.collect::<Result<_, _>>()
            .map_err(|error| Failure::Refused(format!("an answer that is no JSON: {error}")))
    }

    /// Returns the lines of a function that writes text. It may take these milliseconds; without a limit,
    /// what the user has set for `statement_timeout`, or a minute.
    pub async fn lines(&self, call: &str, limit: Option<u32>) -> Result<Vec<String>, Failure> {
        let limit = match limit {
            Some(limit) => limit,
            None => self.limit_of_user().await?,
        };
        let (server, _) = self.describe_within(limit.max(self.limit)).await?;
        let Some(schema) = server.schema.as_deref().filter(|_| server.loaded) else {
            return Err(Failure::Refused(missing_extension(&server)));
        };
        let set = set_timeout(limit);
        let sql = |form: Form| {
            format!(
                "{set}; SET LOCAL transaction_read_only = on; {}{OWN} {}",
                form.setting(),
                form.value(&format!("{schema}.{call}"))
            )
        };
        let mut lines = self.ask_texts(sql, wait_for(limit)).await?;
        // The timeout.
        lines.drain(..lines.len().min(1));
        Ok(lines)
    }

    /// Returns how many milliseconds the user lets a statement take, or a minute if that is without an end.
    async fn limit_of_user(&self) -> Result<u32, Failure> {
        let answer = self.ask(LIMIT_OF_USER, wait_for(COMMAND_TIMEOUT)).await?;
        let limit = answer.first().and_then(|limit| limit.parse().ok());
        Ok(limit.filter(|limit| *limit > 0).unwrap_or(COMMAND_TIMEOUT))
    }

    /// Returns the session of a process.
    pub async fn addressee(&self, pid: i64) -> Result<Option<Addressee>, Failure> {
        let rows = self.rows(&signals::query(pid)).await?;
        let found: Vec<Addressee> = serde_json::from_value(rows)
            .map_err(|error| Failure::Refused(format!("an answer about process {pid}: {error}")))?;
        Ok(found.into_iter().next())
    }

    /// Sends a signal to a session, and says what came of it.
    pub async fn signal(&self, signal: Signal, session: &Addressee) -> Result<String, Failure> {
        let answers = self.ask(&session.statements(signal), ANSWER_TIMEOUT).await?;
        Ok(session.outcome(&answers))
    }

    /// Describes the server, and returns its clock.
    async fn describe(&self) -> Result<(Server, f64), Failure> {
        self.describe_within(self.limit).await
    }

    /// The same, which may take these milliseconds.
    async fn describe_within(&self, limit: u32) -> Result<(Server, f64), Failure> {
        let rows = self.rows_within(limit, SERVER).await?;
        let row = rows.get(0).cloned().unwrap_or_default();
        let at = row["at"].as_f64().unwrap_or(0.0);
        Ok((serde_json::from_value(row).unwrap_or_default(), at))
    }

    /// Describes the server and its store, and returns its clock. If it has no time for what the store says
    /// of itself, that is what it was: nothing else depends on it.
    async fn server(&mut self) -> Result<(Server, f64), Failure> {
        let (mut server, at) = self.describe().await?;
        if let Some(schema) = server.schema.clone().filter(|_| server.loaded) {
            let rows = self.rows(&info(&schema)).await;
            self.is_store_late = rows.is_err();
            match rows {
                Ok(rows) => {
                    let evictions = rows[0]["evictions"].as_f64();
                    self.store = (rows[0]["reset"].as_f64(), evictions.unwrap_or(0.0));
                }
                Err(failure) if failure.is_end() => return Err(failure),
                Err(_) => {}
            }
            (server.reset, server.evictions) = self.store;
        }
        Ok((server, at))
    }

    /// Returns what is wanted, or the sessions of a server without the extension. What the server refuses is
    /// listed as missing.
    pub async fn snapshot(&mut self, wants: &[Want]) -> Result<Snapshot, Failure> {
        self.worked.set(Duration::ZERO);
        // Texts belong to the refresh before.
        let is_more = wants.iter().all(|want| matches!(want, Want::Texts(_)));
        let (server, at) = match self.last.take().filter(|_| is_more && !wants.is_empty()) {
            Some(last) => last,
            None => self.server().await?,
        };
        self.last = Some((server.clone(), at));
        let mut snapshot = Snapshot {
            at,
            ..Snapshot::default()
        };
        // Every server has these.
        let has_extension = server.has_extension();
        let wants = if has_extension {
            wants
        } else {
            &[Want::Sessions(None)]
        };
        for want in wants {
            let (query, part) = want.query(&server);
            // Plans may be evicted until these have been read.
            let is_plans = matches!(want, Want::Plans(_));
            let store = server.schema.as_deref();
            let store = store.filter(|_| is_plans && !self.is_store_late);
            if is_plans {
                snapshot.evictions_after = Some(UNKNOWN);
            }
            let queries: Vec<String> = [query].into_iter().chain(store.map(info)).collect();
            match self.rows_of_each(self.limit, &queries).await {
                Ok(mut answers) => {
                    let evictions = answers.get(1).and_then(|store| store[0]["evictions"].as_f64());
                    snapshot.evictions_after = evictions.or(snapshot.evictions_after);
                    let rows = answers.drain(..).next().unwrap_or_default();
                    let came = rows.as_array().map_or(0, Vec::len) as u64;
                    let total = rows[0]["total"].as_u64().filter(|total| *total > came);
                    snapshot
                        .totals
                        .extend(total.map(|total| (part.to_owned(), total)));
                    match serde_json::from_value::<Part>(serde_json::json!({ part: rows })) {
                        Ok(part) => snapshot.parts.push(part),
                        Err(error) => snapshot.missing.push(format!("{part}: {error}")),
                    }
                }
                Err(failure) if failure.is_end() => return Err(failure),
                Err(failure) => snapshot.missing.push(format!("{part}: {}", failure.text())),
            }
        }
        snapshot.server = server;
        snapshot.took = self.worked.get();
        Ok(snapshot)
    }
}

/// Returns how long a server has worked for a question, as the row of its answer says. Its clock may be set
/// back meanwhile.
fn worked_for(row: &SimpleQueryRow) -> Option<Duration> {
    let seconds: f64 = row.try_get(1).ok()??.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns the message that asks for the rows of queries, for which the server has these milliseconds each.
pub fn message(limit: u32, queries: &[String], form: Form) -> String {
    let queries: Vec<String> = queries.iter().map(|query| rows_of(query, form)).collect();
    format!(
        "SET LOCAL statement_timeout = {limit}; SET LOCAL transaction_read_only = on;
             SET LOCAL search_path = pg_catalog, pg_temp;
             {}{}",
        form.setting(),
        queries.join("; ")
    )
}

/// Returns what sets the timeout of a function that writes text.
pub fn set_timeout(limit: u32) -> String {
    format!("{OWN} pg_catalog.set_config('statement_timeout', '{limit}', true)")
}

/// Asks for `statement_timeout` in milliseconds.
pub const LIMIT_OF_USER: &str = "SELECT /* rowsource */ pg_catalog.int8(1000 * pg_catalog.date_part('epoch',
  pg_catalog.current_setting('statement_timeout')::pg_catalog.interval))";

/// Returns how long to wait for the answer to a question that may take the server these milliseconds.
fn wait_for(limit: u32) -> Duration {
    ANSWER_TIMEOUT + Duration::from_millis(u64::from(limit))
}

/// Says what a server lacks for the figures of plans.
pub fn missing_extension(server: &Server) -> String {
    if server.loaded {
        format!(
            "database \"{}\" has no extension pg_rowsource: CREATE EXTENSION pg_rowsource",
            server.database
        )
    } else {
        "the server has not loaded pg_rowsource: add it to shared_preload_libraries and restart the server"
            .to_owned()
    }
}

/// Connects, and says why not.
pub async fn connect(target: &connect::Target) -> Result<Connection, Failure> {
    target
        .connect()
        .await
        .map(Connection::new)
        .map_err(|failure| match failure {
            connect::Failure::PasswordNeeded => Failure::Gone("the server wants a password".to_owned()),
            connect::Failure::NotThisWay(text) | connect::Failure::Other(text) => Failure::Gone(text),
            connect::Failure::Silent(text) => Failure::Silent(text),
        })
}
