//! What the library declares of the objects of the extension: names, arguments, columns, comments, and who
//! may use them. `make accept` writes the SQL script and the tables of the book from it.

use crate::pg::server::columns::Declared;
use crate::pg::server::sql_types;
use serde_json::json;
use std::fmt::{self, Display, Formatter};

/// The maximum length of a display format, or of a word, in bytes: several times the length of all words
/// together.
pub const MAX_FORMAT_BYTES: usize = 1_000;
/// The maximum length of a name, in bytes. Those that are longer than PostgreSQL's get an error of their own.
pub const MAX_NAME_BYTES: usize = 1_000;

/// Exports functions and declares them: the comment, the name, the arguments with types, limits and defaults,
/// who may call it, how PostgreSQL may call it, what it returns and how, and a view of its rows, which the
/// same roles may read. `nobody` are superusers only. The expressions use the arguments by their names. The
/// symbols in C have a version, because a later library keeps those of earlier scripts; in brackets stands
/// one that is not the function's name.
macro_rules! functions {
    ($(
        $(#[doc = $comment:literal])+
        $name:ident $([$symbol:ident])? ($(
            $argument:ident: $kind:ident $(($max:expr))? $(= $default:literal)?
        ),*) TO $grantee:ident $marks:literal -> $shape:ident ($($result:tt)*) $(, view: $view:expr)?;
    )+) => {
        $($crate::pg::server::srf::export!(
            $crate::functions::surface::functions!(@symbol $name $($symbol)?),
            |call: &Call| {
                $crate::pg::ash::registration::note_use();
                $crate::functions::surface::functions!(@body [$($argument: $kind [$($max)?]),*] $shape($($result)*))(call)
            }
        );)+

        /// Returns what is declared, in the order of the script.
        pub fn declared() -> Vec<$crate::functions::surface::Object> {
            let mut objects = Vec::new();
            $(
                let (returns, rows, columns) = $crate::functions::surface::functions!(@returns $shape($($result)*));
                let function = $crate::functions::surface::Object {
                    kind: "FUNCTION",
                    name: stringify!($name),
                    comment: concat!($($comment),+).trim_ascii(),
                    arguments: $crate::functions::surface::arguments!($($argument: $kind $(= $default)?),*),
                    grantee: stringify!($grantee),
                    returns,
                    columns,
                    code: format!(
                        "LANGUAGE C {}{rows}\nAS 'MODULE_PATHNAME', '{}'",
                        $marks,
                        $crate::functions::surface::functions!(@symbol $name $($symbol)?),
                    ),
                };
                let view: Option<$crate::functions::surface::View> = None $(.or(Some($view)))?;
                let view = view.map(|view| function.view(view));
                objects.push(function);
                objects.extend(view);
            )+
            objects
        }
    };
    (@symbol $name:ident) => { concat!(stringify!($name), "_0_2") };
    (@symbol $name:ident $symbol:ident) => { concat!(stringify!($symbol), "_0_2") };
    (@body $arguments:tt lines(|$rows:ident| $body:expr)) => {
        |call: &Call| call.returns(Shape::Values, |call, $rows| {
            $crate::functions::surface::functions!(@with call $arguments $body);
        })
    };
    (@body $arguments:tt void($body:expr)) => {
        |call: &Call| {
            $crate::functions::surface::functions!(@with call $arguments $body);
            Datum::from(0)
        }
    };
    (@body $arguments:tt int($body:expr)) => {
        |call: &Call| Datum::from($crate::functions::surface::functions!(@with call $arguments $body))
    };
    (@body $arguments:tt $shape:ident($columns:expr, |$rows:ident| $body:expr)) => {
        |call: &Call| call.returns(Shape::Rows, |call, $rows| {
            $crate::functions::surface::functions!(@with call $arguments $body);
        })
    };
    (@with $call:ident [$($argument:ident: $kind:ident [$($max:expr)?]),*] $body:expr) => {{
        let _ = $call;
        $(let $argument = <$crate::pg::server::sql_types::$kind as $crate::pg::server::sql_types::Argument>::next(
            $call,
            [$($max,)? 0][0],
        );)*
        $body
    }};
    (@returns lines $result:tt) => { ("SETOF text", "", Vec::new()) };
    (@returns void $result:tt) => { ("void", "", Vec::new()) };
    (@returns int $result:tt) => { ("int", "", Vec::new()) };
    (@returns rows($columns:expr, $($body:tt)+)) => { ("SETOF record", "", $columns.declared()) };
    (@returns row($columns:expr, $($body:tt)+)) => { ("SETOF record", " ROWS 1", $columns.declared()) };
}
pub(super) use functions;

/// Declares objects that are written in SQL: the comment, the kind, the name, the arguments of a function
/// with types and defaults, who may use it, how PostgreSQL may call a function and what it returns, the
/// columns, and the SQL: the body of a function, the query of a view, or what follows the creation of a
/// table. A column has what it means, its name, its type, and constraints. One without type is in
/// `sql::common`.
macro_rules! objects {
    ($(
        $(#[doc = $comment:literal])+
        $kind:ident $name:ident $(($($argument:ident: $type:ident $(= $default:literal)?),*))? TO $grantee:ident
        $($marks:literal -> $returns:literal)? { $($columns:tt)* } $($code:literal)?;
    )+) => {
        /// Returns what is declared, in the order of the script.
        pub fn declared() -> Vec<$crate::functions::surface::Object> {
            vec![$($crate::functions::surface::Object {
                kind: stringify!($kind),
                name: stringify!($name),
                comment: concat!($($comment),+).trim_ascii(),
                arguments: $crate::functions::surface::arguments!($($($argument: $type $(= $default)?),*)?),
                grantee: stringify!($grantee),
                returns: concat!($($returns)?),
                columns: $crate::functions::surface::columns_of_sql!($($columns)*),
                code: concat!($("LANGUAGE SQL ", $marks,)? $($code)?).to_owned(),
            }),+]
        }
    };
}
pub(super) use objects;

/// Lists arguments: the names, the types and the defaults.
macro_rules! arguments {
    ($($argument:ident: $type:ident $(= $default:literal)?),*) => {
        vec![$((
            stringify!($argument),
            <$crate::pg::server::sql_types::$type as $crate::pg::server::sql_types::SqlType>::NAME,
            None::<&'static str> $(.or(Some($default)))?,
        )),*]
    };
}
pub(super) use arguments;

/// Lists columns whose values SQL makes.
macro_rules! columns_of_sql {
    ($($(#[doc = $comment:literal])* $name:ident $(: $type:ident)? $($constraint:literal)?;)*) => {
        vec![$($crate::pg::server::columns::Declared {
            constraint: concat!($($constraint)?),
            ..$crate::functions::surface::columns_of_sql!(@one [$($comment)*] $name [$($type)?])
        }),*]
    };
    (@one [] $name:ident []) => { $crate::functions::sql::common::$name() };
    (@one [$($comment:literal)+] $name:ident [$type:ident]) => {
        $crate::pg::server::columns::Declared::new::<$crate::pg::server::sql_types::$type>(
            stringify!($name),
            concat!($($comment),+).trim_ascii(),
        )
    };
}
pub(super) use columns_of_sql;

/// A view of the rows of the function of its name: its comment, and the columns that it adds.
pub struct View {
    pub comment: &'static str,
    pub adds: Adds,
}

/// The columns that a view adds to those of its function, with comments.
pub enum Adds {
    /// None.
    Nothing,
    /// usename and datname, as the first ones.
    Names([&'static str; 2]),
    /// The same, of rows that are sorted.
    Sorted([&'static str; 2], &'static str),
    /// usename, datname, userid and datid of the session with the pid, as the first ones.
    Session,
    /// datname, as the second one.
    Database(&'static str),
}

/// An object of the extension.
pub struct Object {
    /// FUNCTION, VIEW or TABLE.
    pub kind: &'static str,
    pub name: &'static str,
    pub comment: &'static str,
    /// The arguments of a function.
    pub arguments: Vec<(&'static str, &'static str, Option<&'static str>)>,
    /// The role that may call or read it besides superusers, or `nobody`.
    pub grantee: &'static str,
    /// What a function returns.
    pub returns: &'static str,
    pub columns: Vec<Declared>,
    /// The rest of the statement that creates it; for a table, what follows it.
    pub code: String,
}

/// Returns a literal of SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Object {
    /// Returns a view of the rows of this function.
    pub fn view(&self, view: View) -> Object {
        let types = self.arguments.iter().map(|(_, of, _)| format!("NULL::{of}"));
        let from = format!("FROM {}({})", self.name, types.collect::<Vec<_>>().join(", "));
        let mut columns = self.columns.clone();
        let code = match view.adds {
            Adds::Nothing => format!("\n    SELECT * {from}"),
            Adds::Session => {
                let session = [
                    Declared::new::<sql_types::name>("usename", "The user of the session"),
                    Declared::new::<sql_types::name>("datname", "The database of the session"),
                    Declared::new::<sql_types::oid>("userid", "The OID of the user of the session"),
                    Declared::new::<sql_types::oid>("datid", "The OID of the database of the session"),
                ];
                columns.splice(0..0, session);
                format!(
                    "
    SELECT a.usename, a.datname, a.usesysid AS userid, a.datid, s.*
      {from} s
           LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.pid"
                )
            }
            Adds::Names([user, database]) | Adds::Sorted([user, database], _) => {
                let order = match view.adds {
                    Adds::Sorted(_, by) => format!("\n     ORDER BY {by}"),
                    _ => String::new(),
                };
                columns.insert(0, Declared::new::<sql_types::name>("usename", user));
                columns.insert(1, Declared::new::<sql_types::name>("datname", database));
                format!(
                    "
    SELECT u.rolname AS usename, d.datname, s.*
      {from} s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid{order}"
                )
            }
            Adds::Database(database) => {
                let rest = columns[1..].iter().map(|column| format!(", f.{}", column.name));
                let rest: String = rest.collect();
                columns.insert(1, Declared::new::<sql_types::name>("datname", database));
                format!(
                    "
    SELECT f.datid, d.datname{rest}
      {from} f LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid"
                )
            }
        };
        Object {
            kind: "VIEW",
            comment: view.comment,
            arguments: Vec::new(),
            returns: "",
            columns,
            code,
            ..*self
        }
    }

    /// Returns what names it, without its kind.
    pub fn signature(&self) -> String {
        let types: Vec<&str> = self.arguments.iter().map(|(_, of, _)| *of).collect();
        match self.kind {
            "FUNCTION" => format!("{}({})", self.name, types.join(", ")),
            _ => self.name.to_owned(),
        }
    }

    /// Returns its comment, which says how others get the privilege: PostgreSQL's "permission denied" does
    /// not.
    fn comment(&self) -> String {
        let comment = self.comment;
        match self.grantee {
            "PUBLIC" => comment.to_owned(),
            _ if comment.starts_with("Internal") => comment.to_owned(),
            "nobody" => format!(
                "{comment}. For superusers, and for others after GRANT EXECUTE ON FUNCTION {} TO them",
                self.signature()
            ),
            role => {
                format!(
                    "{comment}. For those with the privileges of {role}, and for others after GRANT {role} TO them"
                )
            }
        }
    }

    /// Returns what the tests look at.
    pub fn to_json(&self) -> serde_json::Value {
        let column = |column: &Declared| json!([column.name, column.sql_type, column.comment]);
        json!({
            "kind": self.kind,
            "name": self.signature(),
            "comment": self.comment(),
            "arguments": self.arguments,
            "returns": self.returns,
            "grantee": self.grantee,
            "columns": self.columns.iter().map(column).collect::<Vec<_>>(),
            "statements": self.to_string(),
        })
    }

    /// Returns the lines of the arguments and the columns.
    fn parts(&self) -> String {
        let argument = |(name, of, default): &(&str, &str, Option<&str>)| {
            let default = default.map_or_else(String::new, |default| format!(" DEFAULT {default}"));
            format!("\n    {name} {of}{default}")
        };
        let out = if self.kind == "FUNCTION" { "OUT " } else { "" };
        let column = |column: &Declared| {
            let Declared {
                name,
                sql_type,
                constraint,
                ..
            } = column;
            format!("\n    {out}{name} {sql_type} {constraint}")
                .trim_end()
                .to_owned()
        };
        let arguments = self.arguments.iter().map(argument);
        let parts: Vec<String> = arguments.chain(self.columns.iter().map(column)).collect();
        let end = if parts.is_empty() { "" } else { "\n" };
        parts.join(",") + end
    }
}

/// The statements of the script.
impl Display for Object {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Object {
            kind,
            name,
            code,
            grantee,
            ..
        } = self;
        let signature = self.signature();
        let is_function = *kind == "FUNCTION";
        match *kind {
            "FUNCTION" => writeln!(
                f,
                "CREATE FUNCTION {name}({}) RETURNS {}\n{code};",
                self.parts(),
                self.returns
            )?,
            "VIEW" => writeln!(f, "CREATE VIEW {name} AS{code};")?,
            _ => writeln!(f, "CREATE TABLE {name} ({});{code}", self.parts())?,
        }
        writeln!(f, "COMMENT ON {kind} {signature} IS {};", quoted(&self.comment()))?;
        // PostgreSQL has no comments on the columns of functions.
        for column in self.columns.iter().filter(|_| !is_function) {
            writeln!(
                f,
                "COMMENT ON COLUMN {name}.{} IS {};",
                column.name,
                quoted(&column.comment)
            )?;
        }
        let privilege = if is_function {
            "EXECUTE ON FUNCTION"
        } else {
            "SELECT ON"
        };
        if is_function && *grantee != "PUBLIC" {
            writeln!(f, "REVOKE ALL ON FUNCTION {signature} FROM PUBLIC;")?;
        }
        if *grantee != "nobody" && !(is_function && *grantee == "PUBLIC") {
            writeln!(f, "GRANT {privilege} {signature} TO {grantee};")?;
        }
        Ok(())
    }
}
