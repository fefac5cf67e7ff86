//! Shows how far the run is and how long it will still take.
//!
//! A terminal shows a bar. Elsewhere a line is printed when something new begins, at most one in ten seconds.

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// The bar's units in a second.
const UNITS: f64 = 10.0;
/// The shortest time between two printed lines.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// The weight of the expected pace against the measured one, in seconds of measuring.
const PRIOR_WEIGHT: f64 = 120.0;

pub struct Progress {
    bar: ProgressBar,
    state: RefCell<State>,
}

struct State {
    begun: Instant,
    total: f64,
    /// The expected seconds of all experiments that have ended.
    done: f64,
    name: String,
    expected: f64,
    printed: Option<Instant>,
}

impl Progress {
    pub fn new(seconds: f64) -> Self {
        let bar = ProgressBar::new((seconds * UNITS) as u64);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {elapsed} {wide_msg}");
        bar.set_style(style.expect("a good template"));
        bar.enable_steady_tick(Duration::from_millis(500));
        let now = Instant::now();
        let state = State {
            begun: now,
            total: seconds,
            done: 0.0,
            name: String::new(),
            expected: 0.0,
            printed: None,
        };
        Progress {
            bar,
            state: RefCell::new(state),
        }
    }

    /// Begins an experiment that is expected to take this many seconds.
    pub fn begin(&self, name: &str, expected: f64) {
        {
            let mut state = self.state.borrow_mut();
            state.name = name.to_string();
            state.expected = expected;
            state.printed = None;
        }
        self.at(0.0, "begins");
    }

    /// Shows which share of the experiment is done, from 0 to 1, and what comes next.
    pub fn at(&self, done: f64, what: &str) {
        let mut state = self.state.borrow_mut();
        let done = state.done + state.expected * done.clamp(0.0, 1.0);
        let left = Duration::from_secs_f64(state.left(done));
        let message = format!("{} left; {}: {what}", about(left), state.name);
        self.bar.set_position((done * UNITS) as u64);
        self.bar.set_message(message.clone());
        let recent = state
            .printed
            .is_some_and(|printed| printed.elapsed() < MIN_INTERVAL);
        if self.bar.is_hidden() && !recent {
            println!("[{:>3.0} %] {message}", 100.0 * done / state.total);
            state.printed = Some(Instant::now());
        }
    }

    /// Ends the experiment.
    pub fn end(&self) {
        let mut state = self.state.borrow_mut();
        state.done += state.expected;
        state.expected = 0.0;
    }

    /// Prints a text above the bar.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| println!("{text}"));
    }

    /// Removes the bar and prints how long the run took.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
        let elapsed = self.state.borrow().begun.elapsed();
        println!("The run took {}", HumanDuration(elapsed));
    }
}

impl State {
    /// Estimates the seconds that are left when this many of the expected seconds are done.
    fn left(&self, done: f64) -> f64 {
        let elapsed = self.begun.elapsed().as_secs_f64();
        let pace = (elapsed + PRIOR_WEIGHT) / (done + PRIOR_WEIGHT);
        ((self.total - done) * pace).max(0.0)
    }
}

/// Formats a duration in words.
fn about(left: Duration) -> String {
    match left.as_secs() {
        0..=59 => "under a minute".to_string(),
        60..=89 => "about a minute".to_string(),
        seconds => format!("about {} minutes", (seconds + 30) / 60),
    }
}
