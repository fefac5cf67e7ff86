//! Looks for regressions each minute.

use crate::guc;
use crate::pg::server::{self, switch};
use crate::pg::store::{self, SharedHistory};
use rowsource_core::regressions::{Closing, Regression, State, Steady};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How often it looks, in microseconds.
const EACH_US: i64 = 60_000_000;
/// When it looks again, if it was too early.
const AGAIN_US: i64 = 100_000;
/// Who asks it to look means now, and not a moment of a test.
const NOW: i64 = i64::MIN;

/// When it looks next, and what it knows of plans that do not change.
pub struct Judge {
    history: &'static SharedHistory,
    next: i64,
    steady: Steady,
    /// A test has moved the time, and says when to look.
    is_moved: bool,
}

impl Judge {
    pub fn new(history: &'static SharedHistory, now: i64) -> Judge {
        Judge {
            history,
            next: now + EACH_US,
            steady: Steady::default(),
            is_moved: false,
        }
    }

    /// Looks if it is time. Returns when it is. Times are microseconds of a clock that never steps back.
    pub fn tick(&mut self, now: i64) -> i64 {
        // Who asks later waits for another look.
        let asked = self.history.judge_asked.load(Acquire);
        let is_asked = asked != self.history.judged.load(Relaxed);
        let moment = self.history.judge_at.load(Relaxed);
        if is_asked {
            self.is_moved = moment != NOW;
        }
        let is_due = now >= self.next && !self.is_moved && switch::is_on();
        let at = match is_asked && moment != NOW {
            true => Some(moment),
            false => (is_asked || is_due).then(server::now),
        };
        if at.is_some_and(|at| !self.looks(at)) {
            return now + AGAIN_US;
        }
        self.history.judged.store(asked, Release);
        if now >= self.next {
            self.next = now + EACH_US;
        }
        self.next
    }

    /// Looks, as if it were this moment in microseconds since 2000-01-01 UTC. Returns false if it is too
    /// early, because the plans of the last run are still being loaded.
    fn looks(&mut self, at: i64) -> bool {
        let Some(changed) = store::judge(&mut self.steady, at) else {
            return false;
        };
        if guc::log_regressions() {
            changed.iter().for_each(|known| server::log_alone(&line(known)));
        }
        true
    }
}

/// Returns the line of the log.
fn line(known: &Regression) -> String {
    let plan = match known.to == known.from.planid {
        true => format!("planid {}", known.to),
        false => format!("planid {} -> {}", known.from.planid, known.to),
    };
    let what = match known.state {
        State::Over => format!("it is over: {}", known.closing().map_or("", Closing::name)),
        state => format!(
            "it is {}: {:.1} times as long, {:.0} ms more in {} executions",
            state.name(),
            known.ratio,
            known.extra_ms,
            known.after.executions
        ),
    };
    format!(
        "pg_rowsource: regression {} of the statement with queryid {}, {plan}, of user {} in database {}: {what}",
        known.id, known.from.queryid, known.from.userid, known.from.datid
    )
}

/// Lets the worker look for regressions, and waits until it has. With a moment, it looks as if it were that
/// one, and from then on only when it is asked to; without one, it goes on each minute. Returns false if
/// there is no worker.
pub fn judge_now(at: Option<i64>) -> bool {
    let Some(history) = store::shared_history() else {
        return false;
    };
    let runs = || history.worker.pid() != 0 && server::is_alive(history.worker.pid());
    if !runs() {
        return false;
    }
    history.judge_at.store(at.unwrap_or(NOW), Relaxed);
    let ask = history.judge_asked.fetch_add(1, Release) + 1;
    while history.judged.load(Acquire) < ask {
        server::check_for_interrupts();
        if !runs() {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    true
}
