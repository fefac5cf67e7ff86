//! Records utility statements that run other statements: CALL and DO. With `track = all` also any other in
//! which a statement was measured, for example a COPY that fires triggers. Otherwise the time of those
//! statements would be part of no statement that a client sent.
//!
//! Such a statement has no plan. It is recorded as a plan with one node, which is named after the statement.

use super::listener::{Listen, Utility};
use super::response::{self, Begun, Committed};
use super::statement::{caller, enter_utility, find as find_statement, leave_utility, nested_recorded};
use super::{nesting, own, unmeasured, unnamed};
use crate::guc;
use crate::instrumentation::{InstrumentationLevel, InstrumentationPlan};
use crate::pg::border::{backend_local::BackendLocal, unguarded};
use crate::pg::compat;
use crate::pg::handles::Handle;
use crate::pg::hot::usage::Usage;
use crate::pg::hot::waits::{self, UtilityWaits};
use crate::pg::plan::describe::{self, StatementText};
use crate::pg::server::pg_try::pg_try;
use crate::pg::server::{self, memory, switch};
use crate::pg::store;
use crate::pg::waits::lasting;
use crate::session::{self, KnownPlan};
use pgrx::pg_sys::{self, CommandTag, NodeTag};
use rowsource_core::clock;
use rowsource_core::hint;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{
    LazyDescription, NodeStats, Outcome, Outside, PlanKey, PlanOrigin, Planning, Run, Time,
};
use rowsource_core::stable_hash::StableHasher;
use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        if utility.tag == NodeTag::T_FetchStmt {
            let fetch = utility.node().cast::<pg_sys::FetchStmt>();
            let cursor = fetch.string(|fetch| &fetch.portalname);
            body(utility);
            fetched(cursor);
        } else if nests(utility) {
            nested(utility, || body(utility));
        } else {
            body(utility);
        }
    }
}

/// A running utility statement that may be recorded. An error may cross a frame that holds it.
#[derive(Clone, Copy)]
pub struct Running {
    setting: InstrumentationPlan,
    /// What the switch said when it began.
    switch: switch::State,
    /// It is recorded even if no statement in it is measured.
    is_always_recorded: bool,
    toplevel: bool,
    /// How many nested statements had been recorded before it.
    nested_before: u64,
    /// When it began for its client.
    begun: Begun,
    /// Its place in [`PLANS`].
    place: usize,
    /// The clock when it began.
    start: u64,
    /// The process's counters when it began.
    before: Usage,
}

/// The plan under which a running utility statement will be recorded.
struct Recorded {
    plan: Rc<KnownPlan>,
    description: Rc<LazyDescription>,
    /// What the statement waits, in all statements that it runs.
    waits: Box<UtilityWaits>,
}

/// The plans of the running utility statements. The innermost is the last.
static PLANS: BackendLocal<RefCell<Vec<Recorded>>> = BackendLocal::new(RefCell::new(Vec::new()));

/// Runs `body`, a utility statement, one nesting level deeper, and records it if it runs other statements.
fn nested(utility: &Utility, body: impl FnOnce()) {
    let queryid = unnamed::utility_queryid(utility);
    let running = begin(utility, queryid);
    nesting::enter();
    let outer = enter_utility(queryid);
    let leave = || {
        leave_utility(outer);
        nesting::leave();
    };
    let record = |outcome, completion| {
        if let Some(running) = &running {
            end(running, outcome, completion);
        }
    };
    pg_try(utility.frames, body, leave, |outcome| record(outcome, None));
    leave();
    record(Outcome::Completed, utility.completion());
}

/// Notes that a utility statement begins. Returns `None` if it is not recorded. Raises nothing.
fn begin(utility: &Utility, queryid: i64) -> Option<Running> {
    let kind = utility.tag;
    let is_always_recorded = match kind {
        NodeTag::T_CallStmt | NodeTag::T_DoStmt => true,
        NodeTag::T_TransactionStmt => commits(utility.node().cast()),
        _ => false,
    };
    let may_run_others = !unmeasured::concerns_session(kind) || kind == NodeTag::T_ConstraintsSetStmt;
    let is_recorded = is_always_recorded || guc::track_all() && may_run_others;
    if !is_recorded {
        return None;
    }
    let toplevel = nesting::depth() == 0;
    if !toplevel && own::script_runs(utility.frames) {
        return None;
    }
    let setting = setting(utility)?;
    if memory::is_short() {
        return None;
    }
    let found = server::attempt("measure a statement", || find(utility, queryid, toplevel));
    let place = keep(found.flatten()?)?;
    Some(Running {
        setting,
        switch: switch::state(),
        is_always_recorded,
        toplevel,
        nested_before: nested_recorded(),
        begun: if toplevel { Begun::now() } else { Begun::NESTED },
        place,
        before: Usage {
            buffers: compat::buffers_now(),
            wal: compat::wal_now(),
            ..Usage::zero()
        },
        start: setting.clock.read(),
    })
}

/// Returns whether a statement ends its transaction so that the session waits for the disk, or for standbys.
/// A COMMIT after an error is a ROLLBACK.
fn commits(statement: Handle<pg_sys::TransactionStmt>) -> bool {
    use pg_sys::TransactionStmtKind::*;
    let has_failed = unguarded::IsAbortedTransactionBlockState();
    let kinds = [
        TRANS_STMT_COMMIT,
        TRANS_STMT_PREPARE,
        TRANS_STMT_COMMIT_PREPARED,
        TRANS_STMT_ROLLBACK_PREPARED,
    ];
    kinds.contains(&statement.kind) && !has_failed
}

/// Returns how a utility statement is to be measured. Returns `None` if it is not to be: a client did not
/// send it and `track` is not `all`, or the statistics level is `basic` and it has no hint.
pub fn setting(utility: &Utility) -> Option<InstrumentationPlan> {
    if !(guc::track_all() || nesting::depth() == 0 && server::portal_or_background()) {
        return None;
    }
    InstrumentationPlan::from_settings(|| hint::present(utility.text().commented()))
}

/// Returns whether queries that a utility statement runs count as nested in it. A query that is part of the
/// statement's own text does not.
fn nests(utility: &Utility) -> bool {
    match utility.tag {
        NodeTag::T_ExecuteStmt
        | NodeTag::T_PrepareStmt
        | NodeTag::T_DeallocateStmt
        | NodeTag::T_ExplainStmt
        | NodeTag::T_CreateTableAsStmt
        | NodeTag::T_RefreshMatViewStmt
        | NodeTag::T_DeclareCursorStmt
        | NodeTag::T_FetchStmt
        | NodeTag::T_ClosePortalStmt => false,
        NodeTag::T_CopyStmt => utility.node().cast::<pg_sys::CopyStmt>().query.is_null(),
        _ => true,
    }
}

/// Notes that a client's FETCH has read a cursor. Its statistics are not known before it is closed.
fn fetched(cursor: Option<&CStr>) {
    let cursor = cursor.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the function accepts any name, and null. A portal's query is null or live.
    unsafe {
        let portal = unguarded::GetPortalByName(cursor).as_ref();
        let Some(query) = portal
            .map(|portal| portal.queryDesc)
            .filter(|query| !query.is_null())
        else {
            return;
        };
        if nesting::depth() == 0 && find_statement(query).is_some() {
            unmeasured::cursor_read(Handle::new(query));
        }
    }
}

/// Finds the plan of a utility statement, and describes it if it is new. Returns `None` if there is no
/// memory.
/// May raise.
fn find(utility: &Utility, queryid: i64, toplevel: bool) -> Option<Recorded> {
    let (command, kind) = (command(utility), utility.tag);
    let mut number = StableHasher::new();
    number.bytes(command.bytes());
    let key = PlanKey::new(
        server::user_id(),
        server::database_id(),
        queryid,
        number.finish(),
        toplevel,
    );
    store::attach();
    let known = session::known(&key);
    if let Some(plan) = &known {
        let description = plan.description.borrow().clone();
        if describe::is_of_all(&description) {
            return Some(Recorded {
                plan: plan.clone(),
                description,
                waits: Box::new(UtilityWaits::new()),
            });
        }
    }
    let (bytes, start) = utility.text().statement();
    let text = StatementText {
        bytes: bytes.into(),
        location: Some(start),
        constants: (kind == NodeTag::T_CallStmt && compat::jumble::KNOWS_CONSTANTS_OF_CALL)
            .then(|| super::parsed::constants(queryid))
            .flatten(),
    };
    let description = Rc::new(describe::utility(
        &text,
        &command,
        key.planid,
        kind == NodeTag::T_DoStmt,
    )?);
    let plan = known.unwrap_or_else(|| session::new_plan(key, &description));
    Some(Recorded {
        plan,
        description,
        waits: Box::new(UtilityWaits::new()),
    })
}

/// Returns what PostgreSQL calls a utility statement: `CALL`, for example.
fn command(utility: &Utility) -> String {
    server::command_name(utility.command_tag()).unwrap_or_else(|| "???".to_owned())
}

/// Keeps a plan until its statement ends. Returns its place, or `None` if there is no memory.
fn keep(recorded: Recorded) -> Option<usize> {
    let mut plans = PLANS.try_borrow_mut().ok()?;
    plans.try_reserve(1).ok()?;
    plans.push(recorded);
    note_innermost(&plans);
    Some(plans.len() - 1)
}

/// Takes the plan at this place, and drops those behind it: their statements ended without notice, because
/// memory was short.
fn take(place: usize) -> Option<Recorded> {
    let mut plans = PLANS.try_borrow_mut().ok()?;
    plans.truncate(place + 1);
    let taken = plans.pop();
    note_innermost(&plans);
    taken.filter(|_| plans.len() == place)
}

/// Notes which of the running utility statements is the innermost, because waits are charged to it.
fn note_innermost(plans: &[Recorded]) {
    let innermost = plans
        .last()
        .map_or(std::ptr::null(), |last| &raw const *last.waits);
    // SAFETY: the waits stay in their box until their statement is removed from the list, after which this
    // notes others.
    unsafe { waits::set_utility(innermost) };
}

/// Records a utility statement that has ended. Raises nothing.
fn end(running: &Running, outcome: Outcome, completion: Option<&pg_sys::QueryCompletion>) {
    let copied = completion.filter(|done| done.commandTag == CommandTag::CMDTAG_COPY);
    let rows = copied.map_or(0, |done| done.nprocessed);
    server::attempt("record a statement", || {
        let recorded = take(running.place);
        if !running.switch.is_still_on() {
            return unmeasured::ended_while_off();
        }
        if let Some(recorded) = recorded
            && (running.is_always_recorded || nested_recorded() != running.nested_before)
        {
            record(running, &recorded, outcome, rows);
        }
    });
}

fn record(running: &Running, recorded: &Recorded, outcome: Outcome, rows: u64) {
    let Running { setting, .. } = running;
    let tick_ns = setting.clock.scale().ns_per_tick();
    let ticks = clock::elapsed(running.start, setting.clock.read()).unwrap_or(0);
    let elapsed_ms = ticks as i64 as f64 * tick_ns / 1e6;
    let mut node = NodeStats::default();
    // What the process waited before and after the statement, it waited for it too.
    let mut waits = recorded.waits.copy();
    if running.toplevel {
        waits.merge(&waits::take_outside());
    }
    waits.renumber(lasting::lasting);
    let outside = Outside {
        waits: Some(&waits),
        ..Outside::default()
    };
    let in_node = waits.events().filter(|waits| waits.node() == Some(0));
    node.wait_ms = in_node.map(|waits| waits.ns).sum::<u64>() as f64 / 1e6;
    if setting.level != InstrumentationLevel::Rows {
        let used = used_since(&running.before);
        node.starts = 1.into();
        node.buffers = compat::buffers(&used.buffers).into();
        node.wal = compat::wal(&used.wal).into();
    }
    if setting.level == InstrumentationLevel::Timed {
        node.time = Time {
            total_ms: elapsed_ms,
            startup_ms: elapsed_ms,
            self_ms: elapsed_ms,
            error_ms: 0.0,
        }
        .into();
        node.timed_calls = 1;
        node.timer_calls = 2;
    }
    let at = server::time_of_day(setting.clock, tick_ns);
    let mut execution = session::Execution {
        run: Run {
            outcome,
            sampfreq: setting.sampfreq,
            clock: Some(setting.clock),
            elapsed_ms,
            before_ms: running.begun.before_ms(recorded.plan.key.queryid, at, elapsed_ms),
            commit_ms: 0.0,
            planning: Planning::default(),
            origin: PlanOrigin::Other,
            at,
            unfinished: false,
            explained: false,
            caller: if running.toplevel { 0 } else { caller() },
            changed_rows: rows,
        },
        outside: (!waits.is_empty()).then_some(&outside),
        plan: &recorded.plan,
        description: &recorded.description,
        older_literals: false,
        last_commit_ms: 0.0,
        statement: &session::Gone,
        last: None,
    };
    let mut nodes = vec![node];
    session::record(&mut execution, &mut nodes, &[&Histogram::default()]);
    if running.begun.is_sent() && outcome == Outcome::Completed {
        response::ended(at, Committed::Utility);
        session::keep_utility(&execution, nodes);
    }
}

/// Returns what the process has used since its counters had these values.
fn used_since(before: &Usage) -> Usage {
    let mut used = Usage::zero();
    compat::add_buffers_since(&mut used.buffers, &before.buffers);
    compat::add_wal_since(&mut used.wal, &before.wal);
    used
}
