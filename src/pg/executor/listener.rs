//! What a feature sees of the life of a statement. A feature that watches statements is one file, with a
//! [`Listen`]er in it, and one line in the list in `hooks.rs`.
//!
//! PostgreSQL calls its hooks in this order. Those of the executor and of utility statements are in
//! `hooks.rs`, which calls the listeners; the others stand beside the code that needs them.
//!
//! | hook of PostgreSQL | where | calls |
//! |---|---|---|
//! | post_parse_analyze | `parsed.rs` | |
//! | planner | `planning.rs` | |
//! | ExecutorStart | `hooks.rs` | `before_start`, `run` (Exec), `after_start` |
//! | ExecutorRun, once for each fetch | `hooks.rs` | `run` (Fetch) |
//! | ExecutorFinish | `hooks.rs` | `run` (Finish) if anything may run there, `has_run` |
//! | ExecutorEnd; not after an error | `hooks.rs` | `run` (Close), `end` |
//! | ProcessUtility, around all of these for an EXECUTE or EXPLAIN | `hooks.rs` | `utility`, or `execute` |
//! | the callbacks of transactions | `transactions.rs` | |
//! | emit_log, for an error that ends a message | `unmeasured.rs` | |

use super::nesting;
use crate::pg::border::{frames::PlainFrames, unguarded};
use crate::pg::handles::{Handle, PlannedStmtRef, QueryRef, tag};
use crate::pg::server::SourceText;
use crate::pg::sql_trace::level;
use pgrx::pg_sys::{self, Node, NodeTag, PlannedStmt, QueryCompletion, QueryDesc};
use rowsource_core::sql_trace::event::Phase;
use std::ffi::c_char;

// SAFETY: who makes a `Call` or a `Utility` promises it. Nobody else uses this.
const FRAMES: PlainFrames = unsafe { PlainFrames::promised() };

/// A query in a hook of the executor. Who makes one promises that it is valid, that it is started but before
/// [`Listen::run`] of `Phase::Exec`, and that the frames of the hook and of all bodies are plain, because an
/// error crosses them.
#[derive(Clone, Copy)]
pub struct Call {
    pub query: *mut QueryDesc,
    pub phase: Phase,
    pub eflags: i32,
    /// Whether the session writes a trace.
    pub is_traced: bool,
    /// The frames of the hook and of all bodies.
    pub frames: PlainFrames,
}

impl Call {
    /// Describes the start of a query.
    ///
    /// # Safety
    /// What [`Call`] promises must hold while it is used.
    #[inline(always)]
    pub unsafe fn of_start(query: *mut QueryDesc, eflags: i32, is_traced: bool) -> Call {
        Call {
            query,
            phase: Phase::Exec,
            eflags,
            is_traced,
            frames: FRAMES,
        }
    }

    /// Describes a call for a started query.
    ///
    /// # Safety
    /// What [`Call`] promises must hold while it is used.
    #[inline(always)]
    pub unsafe fn of_started(query: *mut QueryDesc, phase: Phase) -> Call {
        Call {
            query,
            phase,
            // SAFETY: a started query has an executor state, by the caller's promise.
            eflags: unsafe { (*(*query).estate).es_top_eflags },
            is_traced: level::is_on(),
            frames: FRAMES,
        }
    }

    /// Returns the query. No reference to it is held while a body runs it.
    #[inline(always)]
    pub fn query(&self) -> QueryRef<'_> {
        // SAFETY: it is live, as who made this has promised.
        unsafe { Handle::new(self.query) }
    }

    /// Returns whether no other statement runs the query. While it runs, what it calls is not at top level.
    #[inline(always)]
    pub fn is_toplevel(&self) -> bool {
        nesting::depth() == 0
    }

    /// Returns whether ExecutorFinish may run something: triggers, if there may be any, or the rest of
    /// data-modifying CTEs. A trace shows it.
    #[inline(always)]
    pub fn runs_at_finish(&self, may_fire_triggers: impl FnOnce() -> bool) -> bool {
        // SAFETY: the query is started, so it has an executor state.
        if unsafe { !(*(*self.query).estate).es_auxmodifytables.is_null() } {
            return true;
        }
        self.eflags & pg_sys::EXEC_FLAG_SKIP_TRIGGERS as i32 == 0 && (self.is_traced || may_fire_triggers())
    }

    /// Returns whether the query is started only to be shown by EXPLAIN.
    #[inline(always)]
    pub fn only_explains(&self) -> bool {
        self.eflags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 != 0
    }
}

/// How a query was started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Started {
    Measured,
    /// It is not to be measured.
    Unmeasured,
    /// It could not be set up for measuring.
    NotAttached,
}

/// A utility statement that runs now. Who makes one promises that all of it is live, and that the frames of
/// the hook and of all bodies are plain, because an error crosses them.
#[derive(Clone, Copy)]
pub struct Utility {
    pub statement: *mut PlannedStmt,
    pub tag: NodeTag,
    /// Its text.
    pub source: *const c_char,
    /// What it has done is noted here; null if nobody wants to know.
    pub completion: *const QueryCompletion,
    /// The frames of the hook and of all bodies.
    pub frames: PlainFrames,
}

impl Utility {
    /// Describes a utility statement.
    ///
    /// # Safety
    /// What [`Utility`] promises must hold while it is used.
    #[inline(always)]
    pub unsafe fn new(
        statement: *mut PlannedStmt,
        source: *const c_char,
        completion: *const QueryCompletion,
    ) -> Utility {
        Utility {
            statement,
            // SAFETY: the statement is live by the caller's promise.
            tag: unsafe { tag((*statement).utilityStmt) },
            source,
            completion,
            frames: FRAMES,
        }
    }

    /// Returns the statement as PostgreSQL has planned it.
    #[inline(always)]
    pub fn plan(&self) -> PlannedStmtRef<'_> {
        // SAFETY: it is live, as who made this has promised.
        unsafe { Handle::new(self.statement) }
    }

    /// Returns the statement itself.
    #[inline(always)]
    pub fn node(&self) -> Handle<'_, Node> {
        // SAFETY: a utility statement has it, and it is as live.
        unsafe { Handle::new((*self.statement).utilityStmt) }
    }

    /// Returns the kind of the command.
    pub fn command_tag(&self) -> pg_sys::CommandTag::Type {
        // SAFETY: the function accepts each utility statement.
        unsafe { unguarded::CreateCommandTag(self.node().as_ptr()) }
    }

    /// Returns what the statement has done, if anybody wants to know.
    #[inline(always)]
    pub fn completion(&self) -> Option<&QueryCompletion> {
        // SAFETY: it is null or live, as who made this has promised.
        unsafe { self.completion.as_ref() }
    }

    /// Returns the text of the statement.
    #[inline(always)]
    pub fn text(&self) -> SourceText<'_> {
        let plan = self.plan();
        // SAFETY: the statement's text is live, as who made this has promised, and it has the statement
        // there.
        unsafe { SourceText::new(self.source, plan.stmt_location, plan.stmt_len) }
    }

    /// Returns another statement in the place of this one.
    ///
    /// # Safety
    /// The statement must be live, and of the same type, text and place.
    pub unsafe fn replaced(self, statement: *mut PlannedStmt) -> Utility {
        Utility { statement, ..self }
    }
}

/// Sees statements. What it does not define does nothing, and costs nothing. None of this may raise or panic.
pub trait Listen {
    /// Sets hooks of its own, when the library is loaded.
    fn init() {}

    /// Sees a query that is about to start, before it is decided whether it is measured.
    #[inline(always)]
    fn before_start(_call: &Call) {}

    /// Sees a query that was started.
    #[inline(always)]
    fn after_start(_call: &Call, _started: Started) {}

    /// Runs `body`, a phase of the executor.
    #[inline(always)]
    fn run(_call: &Call, body: impl FnOnce()) {
        body();
    }

    /// Sees a query that has run to its end, or that an error ends. If it is measured, it is recorded
    /// already.
    #[inline(always)]
    fn has_run(_call: &Call, _is_measured: bool, _has_failed: bool) {}

    /// Sees a query that has ended, and was closed.
    #[inline(always)]
    fn end(_query: *const QueryDesc) {}

    /// Runs `body`, a utility statement other than EXECUTE. May pass another one on to those inside of
    /// itself.
    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        body(utility);
    }

    /// Runs `body`, an EXECUTE. It is frequent and short, and its query is seen by itself.
    #[inline(always)]
    fn execute(utility: &Utility, body: impl FnOnce(&Utility)) {
        body(utility);
    }

    /// Sees that a statement begins while the switch is off.
    fn begins_while_off() {}

    /// Sees that a query ended while the switch was off, or a utility statement with this tag.
    fn ended_while_off(_utility: Option<NodeTag>) {}
}

/// Two listeners: the second one is inside of the first.
impl<First: Listen, Second: Listen> Listen for (First, Second) {
    fn init() {
        First::init();
        Second::init();
    }

    #[inline(always)]
    fn before_start(call: &Call) {
        First::before_start(call);
        Second::before_start(call);
    }

    #[inline(always)]
    fn after_start(call: &Call, started: Started) {
        First::after_start(call, started);
        Second::after_start(call, started);
    }

    #[inline(always)]
    fn run(call: &Call, body: impl FnOnce()) {
        First::run(call, || Second::run(call, body));
    }

    #[inline(always)]
    fn has_run(call: &Call, is_measured: bool, has_failed: bool) {
        First::has_run(call, is_measured, has_failed);
        Second::has_run(call, is_measured, has_failed);
    }

    #[inline(always)]
    fn end(query: *const QueryDesc) {
        First::end(query);
        Second::end(query);
    }

    // Not always inlined: the bodies of listeners with a condition would be there twice for each of them.
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        First::utility(utility, |utility| Second::utility(utility, body));
    }

    #[inline(always)]
    fn execute(utility: &Utility, body: impl FnOnce(&Utility)) {
        First::execute(utility, |utility| Second::execute(utility, body));
    }

    fn begins_while_off() {
        First::begins_while_off();
        Second::begins_while_off();
    }

    fn ended_while_off(utility: Option<NodeTag>) {
        First::ended_while_off(utility);
        Second::ended_while_off(utility);
    }
}

/// The type of a list of listeners, from the outermost to the innermost: pairs in pairs.
macro_rules! listeners {
    ($last:ty $(,)?) => { $last };
    ($first:ty, $($rest:ty),+ $(,)?) => { ($first, $crate::pg::executor::listener::listeners!($($rest),+)) };
}
pub(super) use listeners;
