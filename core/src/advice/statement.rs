//! What concerns a statement as a whole.

use super::subject::{Found, Subject};

/// The share of the planned workers that were not launched. Unmeasured.
const NOT_LAUNCHED: f64 = 0.2;
/// The share of the time that compilation took. Unmeasured.
const JIT: f64 = 0.1;

/// A Gather that got less than four fifths of the workers that the planner wanted.
pub(super) fn workers(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let [planned, launched] = subject.stats(node).facts.workers()?.map(|workers| workers as f64);
    if planned == 0.0 || planned - launched < NOT_LAUNCHED * planned {
        return None;
    }
    let starts = subject.starts(node).max(1.0);
    // The leader does a part of the work.
    let [wanted, had] = [planned, launched].map(|workers| 1.0 + workers / starts);
    Some(Found {
        figures: format!("{launched:.0} of {planned:.0} planned workers were launched in {starts:.0} starts"),
        saves_ms: subject.total_ms(node) * (1.0 - had / wanted),
        try_sql:
            "SHOW max_parallel_workers; -- set more with ALTER SYSTEM; max_worker_processes must be larger"
                .to_owned(),
        index: None,
    })
}

/// A statement that took 10 % of its time to compile.
pub(super) fn jit(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let jit = &subject.plan.statement_sums().facts.jit;
    let ms = jit.total_ms();
    if node > 0 || jit.functions == 0 || ms < JIT * subject.statement_ms() {
        return None;
    }
    Some(Found {
        figures: format!(
            "{} functions were compiled in {ms:.1} ms, {:.0} % of the statement's time",
            jit.functions,
            100.0 * ms / subject.statement_ms().max(f64::MIN_POSITIVE)
        ),
        saves_ms: ms.min(subject.statement_ms()),
        try_sql: "SET jit = off".to_owned(),
        index: None,
    })
}
