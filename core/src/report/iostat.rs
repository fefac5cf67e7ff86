//! Formats the "IOStat by Filetype summary" of an interval, as in Oracle's AWR report.

use super::numbers::bytes;
use super::table::{self, Align, Column};
use serde::Deserialize;

/// The requests of one size in the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Requests {
    /// Their number.
    pub requests: u64,
    /// The bytes read or written.
    pub bytes: u64,
    /// Their total time in milliseconds; `None` if they were not timed.
    pub time: Option<f64>,
}

/// One file type in the interval.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct FileTypeIo {
    /// Its name.
    pub filetype: String,
    /// Reads of one block or less.
    pub small_read: Requests,
    /// Larger reads.
    pub large_read: Requests,
    /// Writes of one block or less.
    pub small_write: Requests,
    /// Larger writes.
    pub large_write: Requests,
}

/// An error: the input cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the interval's statistics cannot be read: {0}")]
pub struct Unreadable(String);

impl Unreadable {
    pub(super) fn new(reason: String) -> Self {
        Unreadable(reason)
    }
}

impl Requests {
    fn and(self, other: Requests) -> Requests {
        let both = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (one, other) => one.or(other),
        };
        Requests {
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
            time: both(self.time, other.time),
        }
    }

    /// Returns the milliseconds per request; empty if there are no requests, or no times.
    fn average(&self) -> String {
        match self.time {
            Some(ms) if self.requests > 0 => format!("{:.3} ms", ms / self.requests as f64),
            _ => String::new(),
        }
    }
}

impl FileTypeIo {
    fn and(&self, other: &FileTypeIo) -> FileTypeIo {
        FileTypeIo {
            filetype: self.filetype.clone(),
            small_read: self.small_read.and(other.small_read),
            large_read: self.large_read.and(other.large_read),
            small_write: self.small_write.and(other.small_write),
            large_write: self.large_write.and(other.large_write),
        }
    }
}

/// Returns a rate; `None` if the interval has no length.
fn per_second(count: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| count as f64 / seconds)
}

/// Returns the report of an interval of `seconds`. `json` is an array of [`FileTypeIo`].
///
/// # Errors
/// `json` is not an array of this type.
pub fn report(seconds: f64, json: &str) -> Result<Vec<String>, Unreadable> {
    let mut rows: Vec<FileTypeIo> =
        serde_json::from_str(json).map_err(|error| Unreadable::new(error.to_string()))?;
    let nothing = FileTypeIo {
        filetype: "TOTAL".to_owned(),
        ..FileTypeIo::default()
    };
    let total = rows.iter().fold(nothing, |sum, row| sum.and(row));
    rows.push(total);
    let column = |heading, align, cell: &dyn Fn(&FileTypeIo) -> String| {
        Column::new(heading, align, 0, rows.iter().map(cell).collect())
    };
    let reads = |row: &FileTypeIo| row.small_read.and(row.large_read);
    let writes = |row: &FileTypeIo| row.small_write.and(row.large_write);
    let requests = |all: Requests| {
        let rate = per_second(all.requests, seconds);
        rate.map(|rate| format!("{rate:.1}")).unwrap_or_default()
    };
    let data = |all: Requests| per_second(all.bytes, seconds).map(bytes).unwrap_or_default();
    Ok(table::lines(
        &[
            column("Filetype", Align::Left, &|row| row.filetype.clone()),
            column("Reads: Data", Align::Right, &|row| bytes(reads(row).bytes as f64)),
            column("Reqs/s", Align::Right, &|row| requests(reads(row))),
            column("Data/s", Align::Right, &|row| data(reads(row))),
            column("Writes: Data", Align::Right, &|row| {
                bytes(writes(row).bytes as f64)
            }),
            column("Reqs/s", Align::Right, &|row| requests(writes(row))),
            column("Data/s", Align::Right, &|row| data(writes(row))),
            column("Small Read", Align::Right, &|row| row.small_read.average()),
            column("Large Read", Align::Right, &|row| row.large_read.average()),
        ],
        1,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"[
        {"filetype": "work file",
         "small_read": {"requests": 1000, "bytes": 8192000, "time": 59.0},
         "large_read": {"requests": 0, "bytes": 0, "time": null},
         "small_write": {"requests": 500, "bytes": 4096000, "time": 1.0},
         "large_write": {"requests": 0, "bytes": 0, "time": 0}},
        {"filetype": "temp table",
         "small_read": {"requests": 1000, "bytes": 8192000, "time": 1.0},
         "large_read": {"requests": 3125, "bytes": 819200000, "time": 184.0},
         "small_write": {"requests": 0, "bytes": 0, "time": 0},
         "large_write": {"requests": 0, "bytes": 0, "time": 0}}]"#;

    #[test]
    fn the_summary_has_rates_averages_and_a_total() {
        let lines = report(10.0, TWO).expect("a report");
        let heading = "| Filetype   | Reads: Data | Reqs/s | Data/s | Writes: Data | Reqs/s | Data/s | Small Read | Large Read |";
        assert_eq!(lines[1], heading);
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect()
        };
        assert_eq!(
            cells(&lines[3]),
            [
                "work file",
                "8000K",
                "100.0",
                "800K",
                "4000K",
                "50.0",
                "400K",
                "0.059 ms",
                ""
            ]
        );
        assert_eq!(
            cells(&lines[4]),
            [
                "temp table",
                "789M",
                "412.5",
                "79M",
                "0",
                "0.0",
                "0",
                "0.001 ms",
                "0.059 ms"
            ]
        );
        assert_eq!(
            cells(&lines[5]),
            [
                "TOTAL", "797M", "512.5", "80M", "4000K", "50.0", "400K", "0.030 ms", "0.059 ms"
            ]
        );
    }

    #[test]
    fn without_a_length_there_are_no_rates_and_without_times_no_averages() {
        let untimed = r#"[{"filetype": "work file", "small_read": {"requests": 9, "bytes": 9},
            "large_read": {"requests": 0, "bytes": 0}, "small_write": {"requests": 0, "bytes": 0},
            "large_write": {"requests": 0, "bytes": 0}}]"#;
        let lines = report(0.0, untimed).expect("a report");
        assert!(!lines[3].contains("NaN") && !lines[3].contains("inf") && !lines[3].contains("ms"));
        assert_eq!(report(1.0, "[]").expect("a report").len(), 5);
        assert!(report(1.0, "nonsense").is_err());
    }
}
