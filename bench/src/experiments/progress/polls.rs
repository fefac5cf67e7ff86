//! Runs a statement, polls its progress, and compares that with the truth.

use crate::measure::context::ExperimentContext;
use crate::model::table::Table;
use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::SHIPPED;
use rowsource_tests::session::{run_each, value};
use std::time::{Duration, Instant};

pub const SETTINGS: [&str; 8] = [
    SHIPPED,
    "shared_preload_libraries = 'pg_rowsource'",
    "shared_buffers = '512MB'",
    "work_mem = '16MB'",
    "jit = off",
    "autovacuum = off",
    "max_parallel_workers_per_gather = 0",
    "pg_rowsource.statistics_level = typical",
];

/// What the view said at a time.
struct Poll {
    at_s: f64,
    done: f64,
    low: f64,
    high: f64,
    is_rows: bool,
}

/// What the view said of a statement until it ended.
pub struct Polled {
    seconds: f64,
    /// It was cancelled after `seconds`, so nobody knows which part of it was done.
    is_cancelled: bool,
    polls: Vec<Poll>,
}

/// Returns the table to which [`report`] adds rows.
pub fn table(title: &str) -> Table {
    Table::new(
        title,
        "Errors: points of percent_done, against the part of the statement's time that had passed. Width: the mean of percent_high - \
         percent_low. Basis: the share of the polls that rested on counted rows.",
        &[
            "statement",
            "s",
            "polls",
            "mean error",
            "largest",
            "mean width",
            "basis rows",
            "low fell",
        ],
    )
}

/// Runs a statement, and polls its progress until it ends, or until `statement_timeout` cancels it.
pub fn poll(connect: impl Fn() -> Client, settings: &str, text: &str) -> Polled {
    let mut session = connect();
    run_each(&mut session, settings);
    let pid: i32 = value(&mut session, "SELECT pg_backend_pid()");
    let mut observer = connect();
    let query = observer
        .prepare(
            "SELECT percent_done, percent_low, percent_high, basis = 'rows' FROM rowsource_progress
             WHERE pid = $1 AND percent_done IS NOT NULL AND nesting_level = 0",
        )
        .expect("rowsource_progress");
    let text = text.to_owned();
    let begun = Instant::now();
    let runs = std::thread::spawn(move || {
        let result = session.batch_execute(&text);
        let is_cancelled = result
            .as_ref()
            .is_err_and(|error| error.code() == Some(&SqlState::QUERY_CANCELED));
        if !is_cancelled {
            result.expect("the statement");
        }
        (begun.elapsed().as_secs_f64(), is_cancelled)
    });
    let mut polls = Vec::new();
    while !runs.is_finished() {
        std::thread::sleep(Duration::from_millis(100));
        let at_s = begun.elapsed().as_secs_f64();
        let rows = observer.query(&query, &[&pid]).expect("rowsource_progress");
        polls.extend(rows.first().map(|row| Poll {
            at_s,
            done: row.get(0),
            low: row.get(1),
            high: row.get(2),
            is_rows: row.get(3),
        }));
    }
    let (seconds, is_cancelled) = runs.join().expect("the statement");
    Polled {
        seconds,
        is_cancelled,
        polls,
    }
}

pub fn report(context: &mut ExperimentContext, table: &mut Table, name: &str, polled: &Polled) {
    let (seconds, polls) = (polled.seconds, &polled.polls);
    let errors: Vec<f64> = polls
        .iter()
        .map(|poll| (poll.done - 100.0 * poll.at_s / seconds).abs())
        .collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let widths: Vec<f64> = polls.iter().map(|poll| poll.high - poll.low).collect();
    let rows: Vec<f64> = polls
        .iter()
        .map(|poll| f64::from(u8::from(poll.is_rows)) * 100.0)
        .collect();
    let fell = polls.windows(2).filter(|pair| pair[1].low < pair[0].low).count();
    let is_ordered = |poll: &Poll| {
        0.0 <= poll.low && poll.low <= poll.done && poll.done <= poll.high && poll.high <= 100.0
    };
    let wrong = polls.iter().filter(|poll| !is_ordered(poll)).count();
    let error = |of: f64| {
        if polled.is_cancelled {
            "?".to_string()
        } else {
            format!("{of:.1}")
        }
    };
    table.row([
        name.to_string(),
        format!("{}{seconds:.1}", if polled.is_cancelled { "> " } else { "" }),
        polls.len().to_string(),
        error(mean(&errors)),
        error(errors.iter().copied().fold(0.0, f64::max)),
        format!("{:.1}", mean(&widths)),
        format!("{:.0} %", mean(&rows)),
        fell.to_string(),
    ]);
    let column = |of: fn(&Poll) -> f64| polls.iter().map(of).collect::<Vec<f64>>();
    context.measured(name, "time", "s", &column(|poll| poll.at_s));
    context.measured(name, "percent_done", "percent", &column(|poll| poll.done));
    if !polled.is_cancelled {
        context.measured(name, "percent_done", "points of error", &errors);
    }
    context.assert_exact(
        format!("{name}: polls where low <= done <= high does not hold, or low fell"),
        0,
        wrong + fell,
        wrong + fell == 0,
    );
}
