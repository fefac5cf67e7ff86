//! Columns that several objects have.

use crate::pg::server::columns::Declared;
use crate::pg::server::sql_types;

/// Declares columns: for each what it means, its name and its type.
macro_rules! common {
    ($($(#[doc = $comment:literal])+ $name:ident: $type:ident;)+) => {$(
        $(#[doc = $comment])+
        pub fn $name() -> Declared {
            Declared::new::<sql_types::$type>(stringify!($name), concat!($($comment),+).trim_ascii())
        }
    )+};
}

common! {
    /// Identifies the statement, as in pg_stat_statements and pg_stat_activity
    queryid: bigint;
    /// The database in which the statement ran; NULL if it was dropped
    datname: name;
    /// Identifies the plan by its nodes, objects and strategies
    planid: bigint;
    /// The index, table, function or other object that the node works on
    object_name: text;
    /// The user who ran the statement; NULL if the user was dropped
    usename: name;
    /// Percent of all client statements; NULL inside functions, because the caller already includes it
    percent: float8;
    /// The number of the snapshot
    snap_id: bigint;
    /// The number of the node in the plan, from 0 at the root, in the order of EXPLAIN
    node_id: int;
    /// What the node does, as EXPLAIN calls it
    operation: text;
    /// Processes that ran the node on average: 1, or more below a Gather. The times of all of them add up
    processes: float8;
    /// Milliseconds in the node itself, without the nodes below it. The times of parallel processes add up
    self_time: float8;
    /// One standard error of self_time, in milliseconds
    self_time_error: float8;
    /// The OID of the user who ran the statement
    userid: oid;
    /// The OID of the database in which the statement ran
    datid: oid;
    /// Whether a client sent the statement; false if another statement ran it: in a function, procedure or
    /// trigger
    toplevel: boolean;
}
