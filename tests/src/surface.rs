//! What the library declares of the extension's objects.

use crate::session::{run_each, texts};
use postgres::Client;
use serde_json::Value;

/// An object of the extension.
pub struct Object {
    /// FUNCTION, VIEW or TABLE.
    pub kind: String,
    /// The name, with the types of a function's arguments.
    pub signature: String,
    pub comment: String,
    /// The names, types and defaults of a function's arguments.
    pub arguments: Vec<Vec<Option<String>>>,
    /// The role that may use it besides superusers, or `nobody`.
    pub grantee: String,
    pub returns: String,
    /// The names, types and comments.
    pub columns: Vec<[String; 3]>,
    /// The statements that create it.
    pub statements: String,
}

impl Object {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.signature.split('(').next().unwrap_or_default()
    }

    pub fn is_function(&self) -> bool {
        self.kind == "FUNCTION"
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Returns the elements of an array.
fn all<T>(value: &Value, of: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().expect("an array").iter().map(of).collect()
}

/// Returns what the library declares, in the order of the script. The extension need not be created.
pub fn declared(client: &mut Client) -> Vec<Object> {
    run_each(
        client,
        "CREATE FUNCTION pg_temp.declarations() RETURNS SETOF text AS 'pg_rowsource', 'rowsource_declarations_0_2' LANGUAGE C",
    );
    let rows = texts(client, "SELECT pg_temp.declarations()");
    let objects = rows.into_iter().flatten().flatten().map(|row| {
        let row: Value = serde_json::from_str(&row).expect("an object");
        let text_of = |key: &str| text(&row[key]).unwrap_or_else(|| panic!("no {key}: {row}"));
        Object {
            kind: text_of("kind"),
            signature: text_of("name"),
            comment: text_of("comment"),
            arguments: all(&row["arguments"], |argument| all(argument, text)),
            grantee: text_of("grantee"),
            returns: text_of("returns"),
            columns: all(&row["columns"], |column| {
                [0, 1, 2].map(|place| text(&column[place]).expect("a text"))
            }),
            statements: text_of("statements"),
        }
    });
    objects.collect()
}
