//! The lines above the table: which plan it is, the statement's text, and who ran it when.

use super::format::Shown;
use super::numbers::{decimals, time};
use super::text::{filled, wrapped};
use crate::model::NamedWaits;
use crate::model::partitions::PartitionSum;
use crate::model::{Exemplar, Outcome};

/// The lines of the statement's text that are shown.
const MAX_TEXT_LINES: usize = 20;

/// A text is wrapped to the width of its table, but not to less than this.
const MIN_TEXT_WIDTH: usize = 80;

/// PostgreSQL's default block size.
const DEFAULT_BLOCK_SIZE: u32 = 8192;

/// What the display says about the plan as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Query identifier.
    pub queryid: i64,
    /// Plan identifier.
    pub planid: i64,
    /// The number of recorded executions.
    pub executions: u64,
    /// One call in this many is timed, on average. 0 is no timing.
    pub sampfreq: i32,
    /// The clock that was read; empty if none was.
    pub clock: String,
    /// The statement's text, as far as it is known.
    pub text: String,
    /// The name of the user who ran it; empty if it is not known.
    pub user: String,
    /// The name of the database that it ran in; empty if it is not known.
    pub database: String,
    /// When the first execution ended; empty if it is not known.
    pub first_seen_at: String,
    /// When the last execution ended; empty if it is not known.
    pub last_seen_at: String,
    /// The milliseconds of the last execution, or of all.
    pub elapsed_ms: f64,
    /// The milliseconds before the displayed execution, and those of its commit, if they are shown.
    pub around_ms: Option<[f64; 2]>,
    /// The outcome of the displayed execution.
    pub outcome: Outcome,
    /// Whether the caller of the displayed execution did not read all rows.
    pub unfinished: bool,
    /// Whether EXPLAIN (ANALYZE) ran the displayed execution.
    pub explained: bool,
    /// Which executions the statistics are of. Unless they are totals, the other fields are about that
    /// execution.
    pub shown: Shown,
    /// Executions that an error ended.
    pub failed_calls: u64,
    /// Executions that a cancel request or a timeout ended.
    pub cancelled_calls: u64,
    /// Executions that completed, but whose caller did not read all rows.
    pub unfinished_calls: u64,
    /// The server's block size in bytes; 0 if it is not known. It is shown only if it is not PostgreSQL's
    /// default.
    pub block_size: u32,
    /// Whether the literals in the predicates are those of an earlier execution.
    pub older_literals: bool,
    /// Whether the text is that of an earlier execution.
    pub older_text: bool,
    /// The schemas that the reader need not be told: his search path.
    pub search_path: Vec<String>,
    /// What the reader must know before everything else.
    pub warning: Option<String>,
    /// The waits of the displayed executions, sorted by operation.
    pub waits: Vec<NamedWaits>,
    /// The partitions of folded nodes that took the longest in all executions, sorted by operation.
    pub partitions: Vec<NamedPartition>,
    /// What EXPLAIN says of the triggers that were called in the displayed executions.
    pub triggers: Vec<String>,
    /// Why waits are not counted, if they are not.
    pub waits_missing: Option<String>,
    /// Long calls without I/O may be missed, because there are sessions that no beats reach now.
    pub beats_missing: bool,
    /// What the session does, if the statement still runs. Then the outcome and the number of executions are
    /// not shown.
    pub now: Option<Now>,
}

/// What a partition of a folded node did, or all that are not listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedPartition {
    /// The partition's name.
    pub name: String,
    /// What it did.
    pub sum: PartitionSum,
}

/// What a session does whose statement is displayed while it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Now {
    /// Its process.
    pub pid: i32,
    /// The operation that runs, if one does and if it is known.
    pub node: Option<usize>,
    /// The cursor of the statement is between two fetches.
    pub is_idle: bool,
    /// What the session waits for, such as `Lock:transactionid`; empty if it does not wait.
    pub waits_for: String,
    /// The parallel workers, whose figures are added.
    pub workers: usize,
}

impl Now {
    fn items(&self) -> Vec<String> {
        let state = if self.is_idle {
            "idle in cursor"
        } else {
            "running (*)"
        };
        let mut items = vec![format!("process {}", self.pid), state.to_owned()];
        if !self.waits_for.is_empty() && !self.is_idle {
            items.push(format!("waits for {}", self.waits_for));
        }
        match self.workers {
            0 => {}
            1 => items.push("with 1 parallel worker".to_owned()),
            workers => items.push(format!("with {workers} parallel workers")),
        }
        items
    }
}

impl Header {
    /// Returns the lines, at most `width` columns wide, and the statement's text as wide as the table.
    /// `is_measured` says that the table has statistics.
    pub(super) fn lines(&self, width: usize, table_width: usize, is_measured: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(warning) = &self.warning {
            lines.extend(wrapped(warning, width, 0).into_iter().map(str::to_owned));
        }
        lines.extend(filled(&self.identity(), width));
        lines.extend(text_lines(&self.text, table_width.max(MIN_TEXT_WIDTH).min(width)));
        lines.extend(filled(&self.circumstances(is_measured), width));
        if is_measured {
            lines.extend(filled(&self.response(), width));
            lines.extend(match self.shown {
                Shown::Totals => Some(self.totals()),
                Shown::Last | Shown::Kept(_) => self.ending(),
            });
        }
        lines
    }

    fn identity(&self) -> Vec<String> {
        let Header {
            queryid,
            planid,
            executions,
            sampfreq,
            clock,
            ..
        } = self;
        let mut items = vec![format!("queryid {queryid}"), format!("planid {planid}")];
        if self.now.is_none() {
            items.push(format!("executions {executions}"));
        }
        items.push(format!("sampfreq {sampfreq}"));
        if !clock.is_empty() {
            items.push(format!("clock {clock}"));
        }
        if ![0, DEFAULT_BLOCK_SIZE].contains(&self.block_size) {
            items.push(format!("block size {}", self.block_size));
        }
        items
    }

    /// Returns who ran the statement, when, how it ended, and how long it took.
    fn circumstances(&self, is_measured: bool) -> Vec<String> {
        let one = match self.shown {
            Shown::Totals => None,
            Shown::Last => Some("at"),
            Shown::Kept(Exemplar::Slowest) => Some("slowest at"),
            Shown::Kept(Exemplar::Failed) => Some("last failed at"),
            Shown::Kept(Exemplar::Cancelled) => Some("last cancelled at"),
        };
        let is_one = one.is_some();
        let when = match one {
            Some(label) => &[(label, &self.last_seen_at)][..],
            None => &[("first", &self.first_seen_at), ("last", &self.last_seen_at)],
        };
        let who = [("user", &self.user), ("database", &self.database)];
        let mut items: Vec<String> = who
            .iter()
            .chain(when)
            .filter(|(_, value)| !value.is_empty())
            .map(|(label, value)| format!("{label} {value}"))
            .collect();
        if self.older_text {
            items.insert(0, "text of an earlier execution".to_owned());
        }
        if items.is_empty() || !is_measured {
            return items;
        }
        if let Some(now) = &self.now {
            items.extend(now.items());
        } else if is_one {
            let outcome = match self.outcome {
                Outcome::Completed if self.unfinished => "completed (unfinished: not read to its end)",
                Outcome::Completed => "completed",
                Outcome::Failed => "failed",
                Outcome::Cancelled => "cancelled",
            };
            let by = if self.explained { " (EXPLAIN ANALYZE)" } else { "" };
            items.push(format!("outcome {outcome}{by}"));
        }
        items.push(format!("elapsed {}", duration(self.elapsed_ms)));
        if !is_one && self.executions > 1 {
            items.push(format!(
                "mean {}",
                duration(self.elapsed_ms / self.executions as f64)
            ));
        }
        items
    }

    /// Returns how long the client waited for the execution, and which part of that is what.
    fn response(&self) -> Vec<String> {
        let Some([before, commit]) = self.around_ms else {
            return Vec::new();
        };
        vec![
            format!("response {}", duration(before + self.elapsed_ms + commit)),
            format!("= before {}", duration(before)),
            format!("+ execution {}", duration(self.elapsed_ms)),
            format!("+ commit {}", duration(commit)),
        ]
    }

    fn ending(&self) -> Option<String> {
        let what_happened = match self.outcome {
            Outcome::Completed => return None,
            Outcome::Failed => "statement failed",
            Outcome::Cancelled => "statement was cancelled",
        };
        Some(format!("{what_happened}; statistics up to that moment"))
    }

    fn totals(&self) -> String {
        let plural = if self.executions == 1 { "" } else { "s" };
        let mut line = format!("totals over {} execution{plural}", self.executions);
        let endings = [
            (self.failed_calls, "failed"),
            (self.cancelled_calls, "cancelled"),
            (self.unfinished_calls, "unfinished"),
        ];
        for (calls, ending) in endings {
            if calls > 0 {
                line += &format!(", {calls} {ending}");
            }
        }
        line
    }
}

/// Returns a time with its unit.
pub(super) fn duration(milliseconds: f64) -> String {
    format!("{} ms", time(milliseconds, decimals(milliseconds)))
}

/// Returns the first lines of the statement's text, and a line that says how much is missing.
fn text_lines(text: &str, width: usize) -> Vec<String> {
    let text = text.trim();
    let mut shown = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, next) = rest.split_once('\n').unwrap_or((rest, ""));
        let clean = line
            .trim_end()
            .replace('\t', "    ")
            .replace(char::is_control, " ");
        let broken = wrapped(&clean, width, 0);
        if shown.len() + broken.len() > MAX_TEXT_LINES {
            let room = MAX_TEXT_LINES - shown.len();
            let kept: usize = broken.iter().take(room).map(|part| part.chars().count()).sum();
            shown.extend(broken.into_iter().take(room).map(str::to_owned));
            let missing = rest.chars().count().saturating_sub(kept);
            shown.push(format!("... and {missing} more characters"));
            break;
        }
        shown.extend(broken.into_iter().map(str::to_owned));
        rest = next;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(header: Header) -> String {
        header.lines(120, 0, true).get(1).cloned().unwrap_or_default()
    }

    fn header() -> Header {
        Header {
            executions: 1,
            shown: Shown::Last,
            ..Header::default()
        }
    }

    #[test]
    fn the_header_names_the_outcome() {
        assert_eq!(second(header()), "");
        assert_eq!(
            second(Header {
                outcome: Outcome::Cancelled,
                ..header()
            }),
            "statement was cancelled; statistics up to that moment"
        );
        assert_eq!(
            second(Header {
                outcome: Outcome::Failed,
                ..header()
            }),
            "statement failed; statistics up to that moment"
        );
        let total = Header {
            shown: Shown::Totals,
            executions: 12,
            outcome: Outcome::Failed,
            ..header()
        };
        assert_eq!(second(total.clone()), "totals over 12 executions");
        assert_eq!(
            second(Header {
                failed_calls: 1,
                cancelled_calls: 2,
                ..total.clone()
            }),
            "totals over 12 executions, 1 failed, 2 cancelled"
        );
        assert_eq!(
            second(Header {
                executions: 1,
                ..total
            }),
            "totals over 1 execution"
        );
    }

    fn complete() -> Header {
        Header {
            queryid: -9_009_352_746_022_187_286,
            planid: 9_015_912_833_488_383_009,
            sampfreq: 128,
            clock: "tsc".to_owned(),
            text: "select count(*)\n  from test\twhere id < 10;\n".to_owned(),
            user: "ada".to_owned(),
            database: "shop".to_owned(),
            first_seen_at: "2026-11-20 13:00:00+00".to_owned(),
            last_seen_at: "2026-11-22 03:40:00+00".to_owned(),
            elapsed_ms: 4559.8012,
            ..header()
        }
    }

    #[test]
    fn the_header_shows_the_text_and_the_circumstances() {
        let expected = "\
queryid -9009352746022187286  planid 9015912833488383009  executions 1  sampfreq 128  clock tsc
select count(*)
  from test    where id < 10;
user ada  database shop  at 2026-11-22 03:40:00+00  outcome completed  elapsed 4559.801 ms";
        assert_eq!(complete().lines(120, 0, true).join("\n"), expected);
        let narrow = complete().lines(80, 0, true);
        assert!(narrow.iter().all(|line| line.len() <= 80), "{narrow:#?}");
        assert_eq!(narrow.len(), 6);
    }

    #[test]
    fn the_header_names_a_kept_execution() {
        for (which, label) in [
            (Exemplar::Slowest, "slowest at"),
            (Exemplar::Failed, "last failed at"),
            (Exemplar::Cancelled, "last cancelled at"),
        ] {
            let kept = Header {
                shown: Shown::Kept(which),
                ..complete()
            };
            let line = &kept.lines(120, 0, true)[3];
            let expected = format!("database shop  {label} 2026-11-22 03:40:00+00  outcome completed");
            assert!(line.contains(&expected), "{line}");
        }
    }

    #[test]
    fn the_header_tells_the_parts_of_the_response_time() {
        let kept = Header {
            shown: Shown::Kept(Exemplar::Slowest),
            around_ms: Some([45_003.25, 0.5]),
            ..complete()
        };
        assert_eq!(
            kept.lines(120, 0, true)[4],
            "response 49563.55 ms  = before 45003.25 ms  + execution 4559.801 ms  + commit 0.500 ms"
        );
        assert_eq!(kept.lines(120, 0, false).len(), 4);
    }

    #[test]
    fn the_header_of_totals_shows_the_period_and_the_mean() {
        let totals = Header {
            shown: Shown::Totals,
            executions: 2,
            ..complete()
        };
        assert_eq!(
            totals.lines(120, 0, true)[3..],
            [
                "user ada  database shop  first 2026-11-20 13:00:00+00  last 2026-11-22 03:40:00+00  elapsed 4559.801 ms",
                "mean 2279.901 ms",
                "totals over 2 executions"
            ]
        );
        let unmeasured = totals.lines(120, 0, false);
        assert!(unmeasured.iter().all(|line| !line.contains("elapsed")));
    }

    #[test]
    fn a_warning_comes_first() {
        let warned = Header {
            warning: Some("the last statement was not measured".to_owned()),
            ..header()
        };
        let lines = warned.lines(20, 0, true);
        assert_eq!(lines[..2], ["the last statement", "was not measured"]);
    }

    #[test]
    fn long_texts_are_cut_with_a_mark() {
        let lines = text_lines(&"a\n".repeat(30), 80);
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[20], "... and 19 more characters");
        let lines = text_lines(&"x".repeat(100_000), 80);
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[20], "... and 98400 more characters");
        assert_eq!(text_lines(" \n ", 80), [""; 0]);
        assert_eq!(text_lines(&"y".repeat(1600), 80).len(), 20);
    }

    #[test]
    fn a_statement_that_runs_has_no_outcome() {
        let now = Now {
            pid: 4711,
            node: Some(2),
            waits_for: "Lock:tuple".to_owned(),
            workers: 2,
            ..Now::default()
        };
        let idle = Now {
            is_idle: true,
            workers: 0,
            ..now.clone()
        };
        let lines = |now: &Now| {
            let header = Header {
                user: "u".to_owned(),
                elapsed_ms: 12.0,
                now: Some(now.clone()),
                ..header()
            };
            header.lines(120, 0, true)
        };
        assert_eq!(lines(&now)[0], "queryid 0  planid 0  sampfreq 0");
        assert_eq!(
            lines(&now)[1],
            "user u  process 4711  running (*)  waits for Lock:tuple  with 2 parallel workers  elapsed 12.000 ms"
        );
        assert_eq!(
            lines(&idle)[1],
            "user u  process 4711  idle in cursor  elapsed 12.000 ms"
        );
    }
}
