//! Finds the statements of this program among those of a server. An application may begin its own statements
//! alike: only texts that are those of this program are left out.

use crate::model::Server;
use crate::queries::{LONGEST_TEXT, OWN, PlanKey, SERVER, Want, info, rows_of};
use crate::raw::{self, Form};
use crate::server::{LIMIT_OF_USER, set_timeout};
use crate::signals::{self, Addressee, Signal};

/// How the settings of a message begin.
const SETTINGS: &str = "SET LOCAL statement_timeout = ";

/// The shapes of all queries of this program on a server.
#[derive(Clone, Debug, Default)]
pub struct OwnShapes {
    schema: Option<String>,
    shapes: Vec<String>,
}

impl OwnShapes {
    /// Lists them.
    pub fn new(server: &Server) -> Self {
        let key = PlanKey {
            userid: 1,
            datid: 1,
            queryid: 1,
            planid: 1,
            toplevel: true,
        };
        let wants = [
            Want::Plans(None),
            Want::Plans(Some(1)),
            Want::Texts(vec![1]),
            Want::Nodes(vec![1], None),
            Want::Nodes(vec![1], Some(1)),
            Want::Plan(key),
            Want::Live(None),
            Want::Live(Some(1)),
            Want::LiveOf(1),
            Want::LivePlan(1),
            Want::Working,
            Want::Activity,
            Want::Findings,
            Want::Waits,
            Want::Temp,
            Want::Locks,
            Want::Blockers(1),
            Want::Sessions(None),
            Want::Sessions(Some(1)),
            Want::SessionOf(1),
        ];
        let schema = server.schema.clone();
        let infos = schema.iter().map(|schema| info(schema));
        let queries = { wants.iter() }
            .map(|want| want.query(server).0)
            .chain([SERVER.to_owned(), signals::query(1)])
            .chain(infos);
        let queries = queries.flat_map(|query| [Form::Text, Form::Bytes].map(|form| rows_of(&query, form)));
        let queries = queries.chain(timeouts()).chain(signals_sent());
        Self {
            shapes: queries.map(|query| shape(&query)).collect(),
            schema,
        }
    }

    /// Returns whether they are those of this server.
    pub fn fits(&self, server: &Server) -> bool {
        !self.shapes.is_empty() && self.schema == server.schema
    }

    /// Returns whether a text, which may be cut, is one of them, or calls a function that writes text.
    pub fn has(&self, text: &str) -> bool {
        self.has_part(text, text.len())
    }

    /// Returns whether a message is one of this program's: some of them, with its settings before them.
    pub fn has_message(&self, message: &str) -> bool {
        let is_own = |query: &str| {
            let query = query.trim_end().trim_end_matches(';');
            self.has_part(&format!("{OWN}{query}"), message.len())
        };
        let mut queries = message.split(OWN).skip(1).peekable();
        self.has(message)
            || (message.starts_with(SETTINGS) && queries.peek().is_some() && queries.all(is_own))
    }

    /// The same for the end of a text that has this length.
    fn has_part(&self, text: &str, length: usize) -> bool {
        let Some(call) = text.strip_prefix(OWN) else {
            return false;
        };
        let found = shape(text);
        // The last word of a text that is cut may be a part of one.
        let is_cut = text.ends_with(" ...") && length > LONGEST_TEXT;
        let begin = found.trim_end().rsplit_once(' ').map_or("", |(begin, _)| begin);
        let mut shapes = self.shapes.iter();
        shapes.any(|own| *own == found || is_cut && own.starts_with(begin)) || self.is_call(call.trim())
    }

    /// Returns whether a text is a single call of a function of the extension, with no other in it.
    fn is_call(&self, call: &str) -> bool {
        let Some(schema) = &self.schema else { return false };
        let call = without_literals(call);
        let inner = call
            .strip_prefix(raw::BEGIN)
            .and_then(|call| call.rsplit_once("), "));
        let call = inner.map_or(call.as_str(), |(call, _)| call);
        let name = call.strip_prefix(schema.as_str());
        let name = name.and_then(|call| call.strip_prefix(".rowsource_"));
        name.and_then(|name| name.strip_suffix(')'))
            .and_then(|name| name.split_once('('))
            .is_some_and(|(_, arguments)| !arguments.contains('('))
    }
}

/// Returns what asks for the timeout of a function that writes text, and what sets it.
fn timeouts() -> [String; 2] {
    [LIMIT_OF_USER.to_owned(), set_timeout(1)]
}

/// Returns the statements that send a signal.
fn signals_sent() -> impl Iterator<Item = String> {
    let session = Addressee {
        backend_start: Some(1),
        query_start: Some(1),
        state: Some("active".to_owned()),
        ..Addressee::default()
    };
    let sent = [Signal::Cancel, Signal::Terminate].map(|signal| session.statements(signal));
    let sent = sent.join(";");
    let sent = sent.split(';').map(|sql| sql.trim().to_owned());
    sent.filter(|sql| sql.starts_with(OWN))
        .collect::<Vec<_>>()
        .into_iter()
}

/// Returns the letters of a statement, but for its constants, which a server replaces by parameters.
fn shape(text: &str) -> String {
    const CONSTANTS: [&str; 3] = ["epoch", "true", "false"];
    let text = without_literals(text);
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$' | '.');
    let words = text.split(|letter| !is_letter(letter));
    let begins = |word: &&str| word.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
    let words = words.filter(begins).filter(|word| !CONSTANTS.contains(word));
    let shape: String = words.map(|word| format!("{word} ")).collect();
    // Recordings of older programs do not have it.
    shape.replace(WORKED, "")
}

/// The shape of what asks how long the server has worked.
const WORKED: &str = "extract FROM clock_timestamp statement_timestamp float8 ";

/// Returns a text without what stands in quotes.
fn without_literals(text: &str) -> String {
    text.split('\'').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> OwnShapes {
        OwnShapes::new(&Server {
            schema: Some("public".to_owned()),
            loaded: true,
            ..Server::default()
        })
    }

    /// As PostgreSQL shows it: with parameters for constants, and perhaps cut.
    #[test]
    fn its_own_queries_are_found() {
        let own = shapes();
        let (query, _) = Want::Nodes(vec![-4, 5, 6], Some(1_000)).query(&Server {
            schema: Some("public".to_owned()),
            ..Server::default()
        });
        let shown = rows_of(&query, Form::Text)
            .replace("'[]'", "$1")
            .replace("(1000)", "($2)")
            .replace("'{-4,5,6}'", "$3");
        assert!(shown.contains("queryid = ANY ($3::int8[])"), "{shown}");
        assert!(own.has(&shown), "{shown}");
        let (query, _) = Want::Texts(vec![1; 2_000]).query(&Server::default());
        let query = rows_of(&query, Form::Text).replace("pg_catalog.", "public.");
        assert!(own.has(&format!("{} ...", &query[..LONGEST_TEXT])));
        let server = rows_of(SERVER, Form::Text)
            .replace("epoch", "$1")
            .replace("true", "$9")
            .replace("'server_version'", "$2");
        assert!(own.has(&server), "{server}");
        for signal in [Signal::Cancel, Signal::Terminate] {
            let sql = Addressee {
                pid: 4_711,
                backend_start: Some(7),
                query_start: Some(8),
                state: Some("active".to_owned()),
                ..Addressee::default()
            };
            let sql = sql.statements(signal);
            let sent = sql.split(';').map(str::trim).filter(|sql| sql.starts_with(OWN));
            let sent: Vec<String> = sent.map(|sql| sql.replace("4711", "$1")).collect();
            assert!(sent.len() == 2 && sent.iter().all(|sql| own.has(sql)), "{sent:?}");
        }
        assert!(own.has(&rows_of(&signals::query(4_711), Form::Bytes)));
        assert!(own.has(&format!("{OWN} pg_catalog.set_config($1, $2, $3)")));
        let limit = "pg_catalog.int8($3 * pg_catalog.date_part($1, pg_catalog.current_setting($2)::pg_catalog.interval))";
        assert!(own.has(&format!("{OWN} {limit}")));
        for call in [
            "rowsource_report($1::text, $2::text, $3)",
            "rowsource_display(pid => 7, format => 'a(b)c')",
        ] {
            assert!(own.has(&format!("{OWN} public.{call}")), "{call}");
            let bytes = Form::Bytes.value(&format!("public.{call}"));
            assert!(own.has(&format!("{OWN} {bytes}")), "{call}");
            let bytes = bytes.replace("'hex'", "$4");
            assert!(own.has(&format!("{OWN} {bytes}")), "{call}");
        }
    }

    #[test]
    fn those_of_older_programs_are_found() {
        let query = rows_of(SERVER, Form::Text);
        let worked = ", extract(epoch FROM clock_timestamp() - statement_timestamp())::float8";
        assert!(query.contains(worked), "{query}");
        assert!(shapes().has(&query.replace(worked, "")));
    }

    #[test]
    fn those_of_applications_are_not() {
        let own = shapes();
        for text in [
            "* FROM orders",
            "public.rowsource_report(slow())",
            "slow(public.rowsource_info())",
            "public.rowsource_report($1), slow()",
            "pg_catalog.encode(pg_catalog.textsend(slow()), $1)",
            "pg_catalog.encode(pg_catalog.textsend(public.rowsource_report(slow())), $1)",
            "json_strip_nulls(coalesce(json_agg(x), $1))::text FROM (SELECT * FROM orders) x",
            "json_strip_nulls ...",
        ] {
            assert!(!own.has(&format!("{OWN} {text}")), "{text}");
        }
        assert!(!own.has("SELECT public.rowsource_info()"));
    }
}
