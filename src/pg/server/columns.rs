//! The columns of the rows that SQL functions return. Each is declared once: its name, its type, what it means, and its value.

use super::sql_types::SqlType;
use super::srf::{Rows, Value};

/// What is declared of a column.
#[derive(Clone, Copy)]
pub struct Declared {
    pub name: &'static str,
    pub sql_type: &'static str,
    /// What it means, with its unit.
    pub comment: &'static str,
}

type Read<R> = Box<dyn Fn(&R) -> Value>;

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
        let declared = Declared {
            name,
            sql_type: T::NAME,
            comment,
        };
        self.0.push((declared, Box::new(value)));
        self
    }

    /// Adds columns that several functions have. `part` returns what they are made of.
    pub fn with<S: 'static>(mut self, columns: Columns<S>, part: impl Fn(&R) -> &S + Copy + 'static) -> Self {
        for (declared, value) in columns.0 {
            self.0.push((declared, Box::new(move |row| value(part(row)))));
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
        self.0.iter().map(|(declared, _)| *declared).collect()
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
