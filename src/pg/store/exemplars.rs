//! Keeps executions whole: of each plan the slowest one, and the last ones that failed and were cancelled.
//!
//! A session remembers for each plan how slow the kept execution is, so most statements cost two comparisons.
//! The executions do not pass through the session's buffer. If there is no memory for an execution, it is not
//! kept.

use super::access::{self, Store};
use super::entry::exemplars;
use super::executions;
use super::pending::PlanSlot;
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::contained::Unlocked;
use crate::pg::server::{self, memory};
use rowsource_core::model::{
    Exemplars, KeepLimit, MIN_SLOWEST_MS, NodeStats, Outcome, Outside, Parameters, PlanKey, Run, Sent,
};
use rowsource_core::plan::Costs;
use std::cell::Cell;

/// How often executions are replaced at most, if another process replaces them at the same time.
const ATTEMPTS: usize = 3;

static LIMIT: BackendLocal<Cell<KeepLimit>> = BackendLocal::new(Cell::new(KeepLimit::UNUSED));

/// A statement that ends, as long as PostgreSQL has it.
pub trait LiveStatement {
    /// Copies the text, in the server's encoding.
    fn copy_text(&self, _to: &mut Vec<u8>) {}
    /// Copies what the planner expected of the nodes; nothing if there is no memory.
    fn copy_costs(&self, _to: &mut Vec<Costs>) {}
    /// Returns its parameters, if they are known.
    fn parameters(&self) -> Option<Parameters> {
        None
    }
}

/// A statement that PostgreSQL does not have any more.
pub struct Gone;

impl LiveStatement for Gone {}

/// Returns whether an execution may have to be kept. Each measured statement calls this.
#[inline(always)]
pub(super) fn may_keep(slot: &PlanSlot, run: &Run) -> bool {
    run.response_ms() > slot.slowest_ms.get() || run.outcome != Outcome::Completed
}

/// Keeps an execution of a plan that is in the store, if it is the slowest one, failed or was cancelled.
#[cold]
#[inline(never)]
pub(super) fn keep(
    key: &PlanKey,
    slot: &PlanSlot,
    run: &Run,
    outside: Option<&Outside>,
    nodes: &[NodeStats],
    statement: &dyn LiveStatement,
) {
    let Some(store) = access::store() else { return };
    // SAFETY: executions are recorded where the session holds no lock, and is outside of any boundary.
    let unlocked = &mut unsafe { Unlocked::promised() };
    if server::is_exiting() && !memory::can_map(store.control().mapped_bytes()) {
        return;
    }
    let is_slowest = run.outcome == Outcome::Completed;
    // A session that fails in a loop does not ask the others each time.
    if !is_slowest && !allows(run, f64::INFINITY) {
        return;
    }
    let (enters, threshold_ms) = executions::lets_in(unlocked, key, run);
    let slowest_ms = match is_slowest {
        true => exemplars::slowest_ms(&store, unlocked, key),
        false => None,
    };
    let slowest_ms = slowest_ms.unwrap_or(MIN_SLOWEST_MS);
    let is_wanted = !is_slowest || run.response_ms() > slowest_ms && allows(run, slowest_ms);
    if is_slowest {
        slot.slowest_ms.set(slowest_ms.min(threshold_ms));
    }
    if !enters && !is_wanted {
        return;
    }
    let sent = if key.toplevel() {
        sent(statement)
    } else {
        Sent::default()
    };
    if enters {
        executions::put(unlocked, key, run, nodes, sent.parameters.clone());
    }
    if !is_wanted {
        return;
    }
    let mut one = Exemplars::default();
    let is_kept = one.keep(run, outside, nodes, sent).is_ok() && merge(&store, unlocked, key, &one);
    if is_kept && is_slowest {
        slot.slowest_ms.set(run.response_ms().min(threshold_ms));
    }
}

/// Returns what a client sent, as far as that is to be kept.
fn sent(statement: &dyn LiveStatement) -> Sent {
    let parameters = guc::keep_parameters().then(|| statement.parameters());
    let mut text = Vec::new();
    if guc::keep_constants() {
        statement.copy_text(&mut text);
    }
    Sent {
        text: None,
        parameters: parameters.flatten(),
    }
    .with_text(text)
}

/// Returns whether this session has not kept too many executions lately.
fn allows(run: &Run, slowest_ms: f64) -> bool {
    let mut limit = LIMIT.get();
    let allows = limit.allows(run, slowest_ms);
    LIMIT.set(limit);
    allows
}

/// Adds kept executions to those of a plan that is in the store. Returns whether that was possible. Raises
/// nothing.
pub(super) fn merge(store: &Store, unlocked: &mut Unlocked, key: &PlanKey, more: &Exemplars) -> bool {
    (0..ATTEMPTS).any(|_| {
        exemplars::read(store, unlocked, key).is_some_and(|mut current| {
            current.exemplars.merge(more.clone());
            exemplars::replace(store, unlocked, key, &current)
        })
    })
}
