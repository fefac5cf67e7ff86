//! The columns of the rows that SQL functions return. Each is declared once: its name, its type, what it
//! means, and its value.

use super::sql_types::SqlType;
use super::srf::{Rows, Value};
use std::borrow::Cow;
use std::rc::Rc;

/// What is declared of a column.
#[derive(Clone)]
pub struct Declared {
    pub name: Cow<'static, str>,
    pub sql_type: &'static str,
    /// What it means, with its unit.
    pub comment: Cow<'static, str>,
    /// The constraints of a column of a table.
    pub constraint: &'static str,
}

impl Declared {
    /// Declares a column without constraints.
    pub fn new<T: SqlType>(name: &'static str, comment: &'static str) -> Self {
        Declared {
            name: name.into(),
            sql_type: T::NAME,
            comment: comment.into(),
            constraint: "",
        }
    }
}

type Read<R> = Rc<dyn Fn(&R) -> Value>;

/// The columns of rows that are made of an `R`.
pub struct Columns<R>(Vec<(Declared, Read<R>)>);

impl<R> Columns<R> {
    /// Begins a list.
    pub fn new() -> Self {
        Columns(Vec::new())
    }

    /// Adds a column.
    pub fn column<T: SqlType>(
        mut self,
        name: &'static str,
        comment: &'static str,
        value: impl Fn(&R) -> Value + 'static,
    ) -> Self {
        self.0.push((Declared::new::<T>(name, comment), Rc::new(value)));
        self
    }

    /// Adds columns that several functions have. `part` returns what they are made of.
    pub fn with<S: 'static>(mut self, columns: Columns<S>, part: impl Fn(&R) -> &S + Copy + 'static) -> Self {
        for (declared, value) in columns.0 {
            self.0.push((declared, Rc::new(move |row| value(part(row)))));
        }
        self
    }

    /// Adds each of these columns twice: of all executions, and as `last_...` of the last one.
    pub fn pairs<S: 'static>(
        mut self,
        columns: Columns<S>,
        all: impl Fn(&R) -> &S + Copy + 'static,
        last: impl Fn(&R) -> &S + Copy + 'static,
    ) -> Self {
        for (declared, value) in columns.0 {
            let of_last = Declared {
                name: format!("last_{}", declared.name).into(),
                comment: format!("{} of the last execution", declared.name).into(),
                ..declared.clone()
            };
            let of_all = value.clone();
            self.0.push((declared, Rc::new(move |row| of_all(all(row)))));
            self.0.push((of_last, Rc::new(move |row| value(last(row)))));
        }
        self
    }

    /// Adds to each comment, after its first part, what the columns are about.
    pub fn about(mut self, what: &str) -> Self {
        for (declared, _) in &mut self.0 {
            let comment = &declared.comment;
            let (first, rest) = comment.split_at(comment.find(';').unwrap_or(comment.len()));
            declared.comment = format!("{first}, {what}{rest}").into();
        }
        self
    }

    /// Adds the columns of another list.
    pub fn and(mut self, columns: Columns<R>) -> Self {
        self.0.extend(columns.0);
        self
    }

    /// Adds a row to a result. May be cancelled.
    pub fn add(&self, rows: &mut Rows, row: &R) {
        rows.add(self.0.iter().map(|(_, value)| value(row)));
    }

    /// Returns what is declared.
    pub fn declared(&self) -> Vec<Declared> {
        self.0.iter().map(|(declared, _)| declared.clone()).collect()
    }
}

/// Lists columns: for each what it means, its name, its type, and its value, which is made of a row.
macro_rules! columns {
    (|$row:ident: &$from:ty| $($(#[doc = $comment:literal])+ $name:ident: $kind:ident = $value:expr;)+) => {
        $crate::pg::server::columns::Columns::<$from>::new()$(
            .column::<$crate::pg::server::sql_types::$kind>(
                stringify!($name),
                concat!($($comment),+).trim_ascii(),
                move |$row: &$from| {
                    // Some values do not depend on the row.
                    let _ = $row;
                    $crate::pg::server::sql_types::Make::<$crate::pg::server::sql_types::$kind>::make($value)
                },
            )
        )+
    };
}
pub(crate) use columns;
