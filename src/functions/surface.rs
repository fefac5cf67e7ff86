//! What the library declares of its functions: their arguments and columns, and views of their rows. `make accept` writes it into the SQL
//! script.

use crate::pg::server::columns::Declared;
use std::fmt::{self, Display, Formatter};

/// Exports functions and declares them: the comment, the name, the arguments with types, limits and defaults, how PostgreSQL may
/// call it, what it returns and how, and a view of its rows. The expressions use the arguments by their names. The symbols in C have
/// a version, because a later library keeps those of earlier scripts; in brackets stands one that is not the function's name.
macro_rules! functions {
    ($(
        $(#[doc = $comment:literal])+
        $name:ident $([$symbol:ident])? ($(
            $argument:ident: $kind:ident $(($max:expr))? $(= $default:literal)?
        ),*) $marks:literal -> $shape:ident ($($result:tt)*) $(, view: $view:expr)?;
    )+) => {
        $($crate::pg::server::srf::export!(
            $crate::functions::surface::functions!(@symbol $name $($symbol)?),
            $crate::functions::surface::functions!(@body [$($argument: $kind [$($max)?]),*] $shape($($result)*))
        );)+

        /// Returns what is declared, in the order of the script.
        fn declared() -> Vec<$crate::functions::surface::Function> {
            vec![$($crate::functions::surface::Function {
                name: stringify!($name),
                symbol: $crate::functions::surface::functions!(@symbol $name $($symbol)?),
                comment: concat!($($comment),+).trim_ascii(),
                arguments: vec![$((
                    stringify!($argument),
                    <$crate::pg::server::sql_types::$kind as $crate::pg::server::sql_types::SqlType>::NAME,
                    None $(.or(Some($default)))?,
                )),*],
                returns: $crate::functions::surface::functions!(@returns $shape($($result)*)),
                marks: $marks,
                view: None $(.or(Some($view)))?,
            }),+]
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
    (@returns lines $result:tt) => { $crate::functions::surface::Returns::One("SETOF text") };
    (@returns void $result:tt) => { $crate::functions::surface::Returns::One("void") };
    (@returns int $result:tt) => { $crate::functions::surface::Returns::One("int") };
    (@returns rows($columns:expr, $($body:tt)+)) => { $crate::functions::surface::Returns::Rows($columns.declared(), "") };
    (@returns row($columns:expr, $($body:tt)+)) => {
        $crate::functions::surface::Returns::Rows($columns.declared(), " ROWS 1")
    };
}
pub(super) use functions;

/// What a function returns.
pub enum Returns {
    /// What has no columns.
    One(&'static str),
    /// Rows of these columns, and what the planner is told of their number.
    Rows(Vec<Declared>, &'static str),
}

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
    /// datname, as the second one.
    Database(&'static str),
}

/// A function that the library declares.
pub struct Function {
    pub name: &'static str,
    pub symbol: &'static str,
    pub comment: &'static str,
    /// The names, the types and the defaults.
    pub arguments: Vec<(&'static str, &'static str, Option<&'static str>)>,
    pub returns: Returns,
    pub marks: &'static str,
    pub view: Option<View>,
}

/// Returns a literal of SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Function {
    /// Writes the view.
    fn write_view(&self, f: &mut Formatter, view: &View, columns: &[Declared]) -> fmt::Result {
        let name = self.name;
        let nulls: Vec<String> = self
            .arguments
            .iter()
            .map(|(_, of, _)| format!("NULL::{of}"))
            .collect();
        let from = format!("FROM {name}({})", nulls.join(", "));
        let (select, added) = match view.adds {
            Adds::Nothing => (format!("SELECT * {from}"), vec![]),
            Adds::Names([user, database]) => (
                format!(
                    "SELECT u.rolname AS usename, d.datname, s.*
      {from} s
           LEFT JOIN pg_catalog.pg_roles u ON u.oid = s.userid
           LEFT JOIN pg_catalog.pg_database d ON d.oid = s.dbid"
                ),
                vec![("usename", user), ("datname", database)],
            ),
            Adds::Database(database) => {
                let rest: String = columns[1..]
                    .iter()
                    .map(|column| format!(", f.{}", column.name))
                    .collect();
                let select = format!(
                    "SELECT f.datid, d.datname{rest}
      {from} f LEFT JOIN pg_catalog.pg_database d ON d.oid = f.datid"
                );
                (select, vec![("datname", database)])
            }
        };
        writeln!(f, "\nCREATE VIEW {name} AS\n    {select};")?;
        writeln!(f, "COMMENT ON VIEW {name} IS {};", quoted(view.comment))?;
        let all = columns.iter().map(|column| (&*column.name, &*column.comment));
        for (column, comment) in added.into_iter().chain(all) {
            writeln!(f, "COMMENT ON COLUMN {name}.{column} IS {};", quoted(comment))?;
        }
        Ok(())
    }
}

/// The statements of the script.
impl Display for Function {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let (returns, columns, rows) = match &self.returns {
            Returns::One(of) => (*of, &[][..], ""),
            Returns::Rows(columns, rows) => ("SETOF record", &columns[..], *rows),
        };
        let mut parts = Vec::new();
        for (name, of, default) in &self.arguments {
            let default = default.map_or_else(String::new, |default| format!(" DEFAULT {default}"));
            parts.push((format!("{name} {of}{default}"), ""));
        }
        for column in columns {
            // PostgreSQL has no comments on the columns of functions.
            let comment = if self.view.is_none() { &*column.comment } else { "" };
            parts.push((format!("OUT {} {}", column.name, column.sql_type), comment));
        }
        let Function {
            name, symbol, marks, ..
        } = self;
        write!(f, "CREATE FUNCTION {name}(")?;
        for (i, (part, comment)) in parts.iter().enumerate() {
            let comma = if i + 1 < parts.len() { "," } else { "" };
            let dashes = if comment.is_empty() { "" } else { " -- " };
            write!(f, "\n    {part}{comma}{dashes}{comment}")?;
        }
        let end = if parts.is_empty() { "" } else { "\n" };
        writeln!(f, "{end}) RETURNS {returns}")?;
        writeln!(f, "AS 'MODULE_PATHNAME', '{symbol}'")?;
        writeln!(f, "LANGUAGE C {marks}{rows};")?;
        let types: Vec<&str> = self.arguments.iter().map(|(_, of, _)| *of).collect();
        writeln!(
            f,
            "COMMENT ON FUNCTION {name}({}) IS {};",
            types.join(", "),
            quoted(self.comment)
        )?;
        match &self.view {
            Some(view) => self.write_view(f, view, columns),
            None => Ok(()),
        }
    }
}
