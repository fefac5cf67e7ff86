//! Types of PostgreSQL, under PostgreSQL's names: how arguments are read, and what values of columns are made
//! of.

#![allow(non_camel_case_types, reason = "SQL's names")]

use super::srf::{self, Call, Value};
use crate::pg::server;
use pgrx::pg_sys;
use std::borrow::Cow;
use std::ffi::CStr;

/// The maximum length of a text that means a moment, in bytes. PostgreSQL reads fewer.
const MAX_MOMENT_BYTES: usize = 1_000;

/// A type of PostgreSQL.
pub trait SqlType {
    /// Its name.
    const NAME: &'static str;
}

/// A type that arguments have.
pub trait Argument: SqlType {
    /// What is read.
    type Read<'a>;

    /// Returns an argument, which has at most `max` bytes or elements.
    fn read(call: &Call, n: usize, max: usize) -> Self::Read<'_>;

    /// Returns the next argument.
    fn next(call: &Call, max: usize) -> Self::Read<'_> {
        Self::read(call, call.next(), max)
    }
}

/// What a value of the type `T` is made of. `None` makes NULL.
pub trait Make<T: SqlType> {
    /// Makes the value.
    fn make(self) -> Value;
}

impl<T: SqlType, M: Make<T>> Make<T> for Option<M> {
    fn make(self) -> Value {
        self.and_then(M::make)
    }
}

/// Declares types: the name, in PostgreSQL if that is no name of Rust; what arguments are read as; and what
/// values are made of.
macro_rules! sql_types {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $(($sql:literal))?
        $(, reads $read:ty = |$call:ident, $n:ident, $max:ident| $reading:expr)?
        $(, from $from:ty = |$value:ident| $made:expr)*;
    )+) => {$(
        $(#[doc = $doc])+
        pub struct $name;

        impl SqlType for $name {
            const NAME: &'static str = [$($sql,)? stringify!($name)][0];
        }

        $(impl Argument for $name {
            type Read<'a> = $read;

            fn read($call: &Call, $n: usize, $max: usize) -> Self::Read<'_> {
                $reading
            }
        })?

        $(impl Make<$name> for $from {
            fn make(self) -> Value {
                let $value = self;
                $made
            }
        })*
    )+};
}

sql_types! {
    /// Yes or no.
    boolean, reads Option<bool> = |call, n, _max| call.argument(n), from bool = |it| srf::value(it);
    /// A small number.
    int, reads Option<i32> = |call, n, _max| call.argument(n),
        from i32 = |it| srf::value(it),
        from u32 = |it| srf::value(it as i32),
        from usize = |it| srf::value(it as i32);
    /// A count.
    bigint, reads Option<i64> = |call, n, _max| call.argument(n),
        from i64 = |it| srf::value(it),
        from u32 = |it| srf::value(i64::from(it)),
        from u64 = |it| srf::value(it as i64),
        from usize = |it| srf::value(it as i64);
    /// A measured number.
    float8, reads Option<f64> = |call, n, _max| call.argument(n), from f64 = |it| srf::value(it);
    /// A text, in Rust in UTF-8.
    text, reads Option<String> = |call, n, max| call.text(n, max),
        from &str = |it| srf::text(it),
        from &String = |it| srf::text(it),
        from String = |it| srf::text(&it),
        from Cow<'_, str> = |it| srf::text(&it);
    /// Texts.
    texts ("text[]"), from &[String] = |it| srf::texts(it);
    /// A text of any length in the encoding of the database, until a row is added.
    statement ("text"), reads Option<&'a CStr> = |call, n, _max| call.database_text(n);
    /// An OID.
    oid, reads Option<pg_sys::Oid> = |call, n, _max| call.argument(n), from u32 = |it| srf::oid(it);
    /// The OID of a relation.
    regclass, reads Option<pg_sys::Oid> = |call, n, _max| call.argument(n);
    /// Microseconds since 2000-01-01 UTC.
    timestamptz, reads Option<i64> = |call, n, _max| call.argument(n), from i64 = |it| srf::timestamp(it);
    /// A text that means a moment, read as microseconds since 2000-01-01 UTC.
    moment ("text"), reads Option<i64> = |call, n, _max| call.text(n, MAX_MOMENT_BYTES).as_deref().map(server::moment::moment);
    /// The same as a value of another type: a timestamp, a date, a time of today, or an interval ago.
    moment_value ("anycompatible"), reads Option<i64> = |call, n, _max| call.moment(n);
    /// Microseconds. A month has 30 days.
    interval, reads Option<i64> = |call, n, _max| call.interval(n);
    /// An object.
    jsonb, from &serde_json::Map<String, serde_json::Value> = |it| srf::json(it);
    /// An address or a network, which must be valid.
    inet, reads Option<String> = |call, n, _max| call.inet(n), from String = |it| srf::inet(&it);
    /// The name of an object.
    name, from String = |it| srf::name(&it);
    /// Bytes.
    bytea, reads Option<Vec<u8>> = |call, n, max| call.bytes(n, max), from &[u8] = |it| srf::bytes(it);
    /// Measured numbers.
    float8s ("float8[]"), reads Vec<Option<f64>> = |call, n, max| call.array(n, max);
    /// Counts.
    bigints ("bigint[]"), reads Vec<Option<i64>> = |call, n, max| call.array(n, max);
}
