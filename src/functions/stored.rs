//! The stored plans, and the columns that the views of them have in common.

use super::words::MASKED;
use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::waits;
use crate::session;
use rowsource_core::model::{Buffers, Measured, Plan, Wal};
use rowsource_core::plan::PlanNode;
use std::rc::Rc;

/// A stored plan, and whether the user may see its statement. All users may see its statistics.
pub struct Stored {
    pub plan: Plan,
    pub is_visible: bool,
}

/// Visits the stored plans, one at a time.
pub fn each(visit: impl FnMut(&Rc<Stored>)) {
    each_since(None, visit);
}

/// Visits those that ran since a time in microseconds.
pub fn each_since(since: Option<i64>, mut visit: impl FnMut(&Rc<Stored>)) {
    session::each_plan_since(since.unwrap_or(i64::MIN), |plan| {
        let is_visible = server::may_see(plan.key.userid);
        visit(&Rc::new(Stored { plan, is_visible }));
    });
}

impl Stored {
    /// Returns what identifies it.
    pub fn key(&self) -> Key {
        let key = &self.plan.key;
        Key {
            userid: Some(key.userid),
            datid: Some(key.datid),
            ids: self.is_visible.then_some((key.queryid, key.planid)),
            toplevel: Some(key.toplevel()),
        }
    }

    /// Returns what the node does, if the user may see that.
    pub fn operation<'a>(&self, node: &'a PlanNode) -> &'a str {
        self.text_or_mask(&node.operation)
    }

    /// Returns what the node works on, if the user may see that.
    pub fn object_name<'a>(&self, node: &'a PlanNode) -> Option<&'a str> {
        node.object_name.as_deref().filter(|_| self.is_visible)
    }

    /// Returns a text, if the user may see it.
    pub fn text_or_mask<'a>(&self, text: &'a str) -> &'a str {
        if self.is_visible { text } else { MASKED }
    }
}

/// What is shown of the key of a plan.
#[derive(Default)]
pub struct Key {
    pub userid: Option<u32>,
    pub datid: Option<u32>,
    /// The queryid and the planid.
    pub ids: Option<(i64, i64)>,
    pub toplevel: Option<bool>,
}

/// The first columns of all that is about a stored plan.
pub fn key_columns() -> Columns<Key> {
    columns! { |key: &Key|
        /// The OID of the user who ran the statement
        userid: oid = key.userid;
        /// The OID of the database in which the statement ran
        datid: oid = key.datid;
        /// Identifies the statement, as in pg_stat_statements and pg_stat_activity
        queryid: bigint = key.ids.map(|(queryid, _)| queryid);
        /// Identifies the plan by its nodes, objects and strategies
        planid: bigint = key.ids.map(|(_, planid)| planid);
        /// Whether a client sent the statement; false if another statement ran it: in a function, procedure
        /// or trigger
        toplevel: boolean = key.toplevel;
    }
}

/// The columns of blocks and their times.
pub fn block_columns() -> Columns<Measured<Buffers>> {
    fn of<T>(buffers: &Measured<Buffers>, value: fn(&Buffers) -> T) -> Option<T> {
        buffers.get().as_ref().map(value)
    }
    columns! { |buffers: &Measured<Buffers>|
        /// Blocks of tables and indexes found in shared buffers
        shared_blks_hit: bigint = of(buffers, |b| b.shared_hit);
        /// Blocks of tables and indexes read
        shared_blks_read: bigint = of(buffers, |b| b.shared_read);
        /// Blocks of tables and indexes changed
        shared_blks_dirtied: bigint = of(buffers, |b| b.shared_dirtied);
        /// Blocks of tables and indexes written
        shared_blks_written: bigint = of(buffers, |b| b.shared_written);
        /// Blocks of temporary tables found in local buffers
        local_blks_hit: bigint = of(buffers, |b| b.local_hit);
        /// Blocks of temporary tables read
        local_blks_read: bigint = of(buffers, |b| b.local_read);
        /// Blocks of temporary tables changed
        local_blks_dirtied: bigint = of(buffers, |b| b.local_dirtied);
        /// Blocks of temporary tables written
        local_blks_written: bigint = of(buffers, |b| b.local_written);
        /// Blocks of work files (sorts, hashes, materialised results) read
        temp_blks_read: bigint = of(buffers, |b| b.temp_read);
        /// Blocks of work files written
        temp_blks_written: bigint = of(buffers, |b| b.temp_written);
        /// Milliseconds reading blocks of tables and indexes; 0 without track_io_timing
        shared_blk_read_time: float8 = of(buffers, |b| b.shared_read_ms);
        /// Milliseconds writing blocks of tables and indexes; 0 without track_io_timing
        shared_blk_write_time: float8 = of(buffers, |b| b.shared_write_ms);
        /// Milliseconds reading blocks of temporary tables
        local_blk_read_time: float8 = of(buffers, |b| b.local_read_ms);
        /// Milliseconds writing blocks of temporary tables
        local_blk_write_time: float8 = of(buffers, |b| b.local_write_ms);
        /// Milliseconds reading blocks of work files
        temp_blk_read_time: float8 = of(buffers, |b| b.temp_read_ms);
        /// Milliseconds writing blocks of work files
        temp_blk_write_time: float8 = of(buffers, |b| b.temp_write_ms);
    }
}

/// The columns of WAL.
pub fn wal_columns() -> Columns<Measured<Wal>> {
    columns! { |wal: &Measured<Wal>|
        /// WAL records
        wal_records: bigint = wal.get().map(|wal| wal.records);
        /// Full page images in the WAL
        wal_fpi: bigint = wal.get().map(|wal| wal.fpi);
        /// Bytes of WAL
        wal_bytes: bigint = wal.get().map(|wal| wal.bytes);
    }
}

/// Returns the milliseconds of waits; nothing if waits are not counted.
pub fn wait_time(ms: f64) -> Option<f64> {
    waits::refused().is_none().then_some(ms)
}
