//! The rows of `pg_stat_tempfile_io` and its histogram, and their reset.

use crate::pg::server::srf::{Rows, Value, oid, timestamp, value};
use crate::pg::tempfile::source::{Source, source};
use crate::pg::tempfile::{counters, fallback};
use pgrx::pg_sys;
use rowsource_core::tempfile::counters::OTHERS;
use rowsource_core::tempfile::{FileType, Kind, RequestTimes, Requests};

const NS_PER_MS: f64 = 1e6;

/// Returns the OID of a database; NULL for the databases that share one set of counters.
fn database(number: u32) -> Value {
    (number != OTHERS).then(|| oid(number)).flatten()
}

/// Adds the rows of `pg_stat_tempfile_io`: one per database and file type.
pub fn io_rows(rows: &mut Rows) {
    fallback::add();
    counters::each(|counted| {
        for filetype in FileType::ALL {
            let source = source(filetype);
            let mut row = vec![database(counted.oid), value(filetype.name())];
            let kinds = Kind::all().zip(&counted.kinds);
            for (_, requests) in kinds.filter(|(kind, _)| kind.filetype == filetype) {
                row.extend(request_values(requests, source));
            }
            row.extend([value(source.as_str()), timestamp(counted.reset_at)]);
            rows.add(row);
        }
    });
}

/// Returns the numbers of requests and bytes, and the total, the mean and the maximum time in milliseconds. The times are NULL
/// if the requests were not timed.
fn request_values(requests: &Requests, source: Source) -> [Value; 5] {
    let timed = source == Source::Request || requests.ns > 0 || requests.count == 0;
    let total = requests.ns as f64 / NS_PER_MS;
    let average = (requests.count > 0).then(|| total / requests.count as f64);
    [
        value(requests.count as i64),
        value(requests.bytes as i64),
        timed.then_some(total).and_then(value),
        average.filter(|_| timed).and_then(value),
        (source == Source::Request)
            .then(|| requests.max_ns as f64 / NS_PER_MS)
            .and_then(value),
    ]
}

/// Adds the rows of `pg_stat_tempfile_io_histogram`: one per kind of request and bucket that is not empty.
pub fn histogram_rows(rows: &mut Rows) {
    counters::each(|counted| {
        for (kind, requests) in Kind::all().zip(&counted.kinds) {
            for (bucket, &count) in requests.histogram.iter().enumerate() {
                if count > 0 {
                    let (from_us, to_us) = RequestTimes::bounds_us(bucket);
                    rows.add([
                        database(counted.oid),
                        value(kind.filetype.name()),
                        value(kind.operation.name()),
                        value(kind.size.name()),
                        value(from_us),
                        to_us.and_then(value),
                        value(count as i64),
                    ]);
                }
            }
        }
    });
}

/// Resets the counters of a database, or of all databases if the OID is 0.
pub fn reset(dbid: pg_sys::Oid) {
    fallback::add();
    counters::reset(dbid.to_u32());
}
