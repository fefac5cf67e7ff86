//! The rows of `pg_stat_rowsource_tempfile_io` and its histogram, and their reset.

use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::tempfile::source::{Source, source};
use crate::pg::tempfile::{counters, fallback};
use pgrx::pg_sys;
use rowsource_core::tempfile::Operation::{self, Read, Write};
use rowsource_core::tempfile::Size::{self, Large, Small};
use rowsource_core::tempfile::counters::{Copied, OTHERS};
use rowsource_core::tempfile::{FileType, Kind, RequestTimes, Requests};
use std::rc::Rc;

const NS_PER_MS: f64 = 1e6;

/// Returns the OID of a database; `None` for the databases that share one set of counters.
fn database(number: u32) -> Option<u32> {
    (number != OTHERS).then_some(number)
}

/// The requests of a database to the files of a type.
pub struct Io {
    counted: Rc<Copied>,
    filetype: FileType,
}

impl Io {
    fn requests(&self, size: Size, operation: Operation) -> &Requests {
        let kind = Kind {
            filetype: self.filetype,
            operation,
            size,
        };
        &self.counted.kinds[kind.index()]
    }

    fn is_each_counted(&self) -> bool {
        source(self.filetype) == Source::Request
    }

    /// Returns the milliseconds of these requests, if they were timed.
    fn total_ms(&self, size: Size, operation: Operation) -> Option<f64> {
        let requests = self.requests(size, operation);
        let timed = self.is_each_counted() || requests.ns > 0 || requests.count == 0;
        timed.then(|| requests.ns as f64 / NS_PER_MS)
    }

    fn average_ms(&self, size: Size, operation: Operation) -> Option<f64> {
        let count = self.requests(size, operation).count;
        let total = self.total_ms(size, operation).filter(|_| count > 0);
        total.map(|total| total / count as f64)
    }

    fn max_ms(&self, size: Size, operation: Operation) -> Option<f64> {
        let requests = self.requests(size, operation);
        self.is_each_counted().then(|| requests.max_ns as f64 / NS_PER_MS)
    }
}

/// Adds the rows of `pg_stat_rowsource_tempfile_io`: one per database and file type.
pub fn io_rows(rows: &mut Rows) {
    fallback::add();
    let columns = io_columns();
    counters::each(|counted| {
        let counted = Rc::new(counted);
        for filetype in FileType::ALL {
            let counted = counted.clone();
            columns.add(rows, &Io { counted, filetype });
        }
    });
}

/// The columns of `pg_stat_rowsource_tempfile_io()`.
pub fn io_columns() -> Columns<Io> {
    columns! { |row: &Io|
        /// The OID of the database; 0 for processes without one, NULL if several databases share one set of
        /// counters
        datid: oid = database(row.counted.oid);
        /// work file (sorts, hashes, materialised results) or temp table
        filetype: text = row.filetype.name();
        /// Read requests of one block or less
        small_reads: bigint = row.requests(Small, Read).count;
        /// Bytes read by these requests
        small_read_bytes: bigint = row.requests(Small, Read).bytes;
        /// Milliseconds of these requests; NULL if they were not timed
        small_read_time: float8 = row.total_ms(Small, Read);
        /// Milliseconds of such a request on average
        small_read_mean_time: float8 = row.average_ms(Small, Read);
        /// Milliseconds of the longest such request; NULL if only blocks were counted
        small_read_max_time: float8 = row.max_ms(Small, Read);
        /// Read requests of more than one block
        large_reads: bigint = row.requests(Large, Read).count;
        /// Bytes read by these requests
        large_read_bytes: bigint = row.requests(Large, Read).bytes;
        /// Milliseconds of these requests; NULL if they were not timed
        large_read_time: float8 = row.total_ms(Large, Read);
        /// Milliseconds of such a request on average
        large_read_mean_time: float8 = row.average_ms(Large, Read);
        /// Milliseconds of the longest such request; NULL if only blocks were counted
        large_read_max_time: float8 = row.max_ms(Large, Read);
        /// Write requests of one block or less
        small_writes: bigint = row.requests(Small, Write).count;
        /// Bytes written by these requests
        small_write_bytes: bigint = row.requests(Small, Write).bytes;
        /// Milliseconds of these requests; NULL if they were not timed
        small_write_time: float8 = row.total_ms(Small, Write);
        /// Milliseconds of such a request on average
        small_write_mean_time: float8 = row.average_ms(Small, Write);
        /// Milliseconds of the longest such request; NULL if only blocks were counted
        small_write_max_time: float8 = row.max_ms(Small, Write);
        /// Write requests of more than one block
        large_writes: bigint = row.requests(Large, Write).count;
        /// Bytes written by these requests
        large_write_bytes: bigint = row.requests(Large, Write).bytes;
        /// Milliseconds of these requests; NULL if they were not timed
        large_write_time: float8 = row.total_ms(Large, Write);
        /// Milliseconds of such a request on average
        large_write_mean_time: float8 = row.average_ms(Large, Write);
        /// Milliseconds of the longest such request; NULL if only blocks were counted
        large_write_max_time: float8 = row.max_ms(Large, Write);
        /// request: each request was counted. counter: core counted the blocks
        source: text = source(row.filetype).as_str();
        /// When these counters were last reset
        stats_reset: timestamptz = row.counted.reset_at;
    }
}

/// The requests of a database, of one kind and in one bucket, and their number.
type Bucket = (u32, Kind, usize, u64);

/// Adds the rows of `pg_stat_rowsource_tempfile_io_histogram`: one per kind of request and bucket that is not
/// empty.
pub fn histogram_rows(rows: &mut Rows) {
    let columns = histogram_columns();
    counters::each(|counted| {
        for (kind, requests) in Kind::all().zip(&counted.kinds) {
            for (bucket, &count) in requests.histogram.iter().enumerate() {
                if count > 0 {
                    columns.add(rows, &(counted.oid, kind, bucket, count));
                }
            }
        }
    });
}

/// The columns of `pg_stat_rowsource_tempfile_io_histogram()`.
pub fn histogram_columns() -> Columns<Bucket> {
    columns! { |row: &Bucket|
        /// The OID of the database; 0 for processes without one, NULL if several databases share one set of
        /// counters
        datid: oid = database(row.0);
        /// work file (sorts, hashes, materialised results) or temp table
        filetype: text = row.1.filetype.name();
        /// read or write
        operation: text = row.1.operation.name();
        /// small: one block or less. large: more than one block
        size: text = row.1.size.name();
        /// The lower bound of the bucket, in microseconds
        from_us: float8 = RequestTimes::bounds_us(row.2).0;
        /// The upper bound of the bucket, in microseconds; NULL if it has none
        to_us: float8 = RequestTimes::bounds_us(row.2).1;
        /// Requests that took this long
        requests: bigint = row.3;
    }
}

/// Resets the counters of a database, or of all databases if the OID is 0.
pub fn reset(datid: pg_sys::Oid) {
    fallback::add();
    if !counters::reset(datid.to_u32()) {
        server::notify(
            &format!("no database has the OID {datid}"),
            "pg_database lists the databases.",
        );
    }
}
