//! Remembers the session's last statement if it was not measured, so that `rowsource_display()` does not show
//! an older one without saying so: a statement without a plan, one that failed before it ran, a cursor that
//! is still open, and others. A measured statement costs nothing here: each unmeasured one stores when the
//! last measured one ended.
//!
//! No hook runs if a text cannot be parsed, analysed or planned. But PostgreSQL's hook for messages in the
//! server's log sees each error that ends a client's message, unless `log_min_messages` keeps errors out of
//! the log.

use super::listener::{Call, Listen, Started, Utility};
use super::{breaker, nesting, outermost_planner, parsed, response};
use crate::guc::{self, StatisticsLevel};
use crate::pg::border::globals::GLOBALS;
use crate::pg::border::{backend_local::BackendLocal, unguarded};
use crate::pg::handles::{Handle, QueryRef};
use crate::pg::server::SourceText;
use crate::pg::server::{self, first_bytes, from_database, switch};
use crate::pg::sql_trace::{level, lines};
use crate::session::{self, TextId};
use pgrx::pg_sys::{self, CommandDest, CommandTag, ErrorData, NodeTag, QueryDesc};
use std::cell::{Cell, RefCell};

pub struct Listener;

impl Listen for Listener {
    fn init() {
        // SAFETY: _PG_init runs once, before the hook can be called.
        unsafe {
            PREVIOUS.set(pg_sys::emit_log_hook);
            pg_sys::emit_log_hook = Some(emit_log);
        }
    }

    #[inline(always)]
    fn after_start(call: &Call, started: Started) {
        match started {
            Started::Measured => {}
            Started::Unmeasured => begins(call.query),
            Started::NotAttached => not_attached(call.query),
        }
    }

    #[inline(always)]
    fn has_run(call: &Call, is_measured: bool, has_failed: bool) {
        if has_failed {
            run_failed();
        }
        if !is_measured {
            query_ended(call.query());
        }
    }

    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        let counted = utility_begins(utility);
        body(utility);
        if let Some(counted) = counted {
            utility_ended(&counted);
        }
    }

    fn ended_while_off(utility: Option<NodeTag>) {
        if !utility.is_some_and(concerns_session) {
            ended_while_off();
        }
    }
}

/// The maximal bytes that are shown of a statement's text or of an error's message.
const MAX_SHOWN: usize = 120;

/// The beginning of a text, in the server's encoding.
#[derive(Clone, Copy)]
struct Beginning {
    /// One byte more than is shown, so that it is known whether the text was cut.
    bytes: [u8; MAX_SHOWN + 1],
    length: usize,
}

impl Beginning {
    fn of(text: &[u8]) -> Self {
        let mut bytes = [0; MAX_SHOWN + 1];
        let length = text.len().min(bytes.len());
        bytes[..length].copy_from_slice(&text[..length]);
        Beginning { bytes, length }
    }

    /// Returns it in one line.
    fn shown(&self) -> String {
        let kept = first_bytes(&self.bytes[..self.length], MAX_SHOWN);
        let text = from_database(kept);
        let words: Vec<&str> = text.split_whitespace().collect();
        let line = words.join(" ");
        if kept.len() < self.length {
            return line + "...";
        }
        line.trim_end_matches([';', ' ']).to_owned()
    }
}

/// An unmeasured statement of the client.
struct Unmeasured {
    what: What,
    /// The error's message, if it failed.
    error: Option<Beginning>,
    text: Beginning,
    /// Which text that is, if a query has it.
    text_id: TextId,
    /// Who sent it.
    user: u32,
    /// When its message began.
    message: i64,
    /// When the last measured statement had ended, if there was one.
    after: Option<i64>,
    /// How many unmeasured statements have followed that one, including this.
    count: u64,
}

#[derive(Clone, Copy)]
enum What {
    /// The statistics level was basic.
    Basic,
    /// It could not be set up for measuring.
    NotAttached,
    /// It was not to be measured when it began.
    BegunUnmeasured,
    /// A utility statement.
    Utility(CommandTag::Type),
    /// It has no plan, but ran the last measured statement.
    RanLast,
    /// It reads a cursor that is still open.
    OpenCursor,
    /// It failed, and no executor ran it.
    Failed,
    /// Its message failed after it had run.
    FailedAfterwards,
}

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static LAST: BackendLocal<RefCell<Option<Unmeasured>>> = BackendLocal::new(RefCell::new(None));
/// When the message began whose statement displayed statistics last. Such a statement does not count.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static DISPLAYED: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(0));
/// When the message began in which a statement ended last while the switch was off.
static ENDED_WHILE_OFF: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(0));
/// When the message began in which an error ended a client's run last.
static RUN_FAILED: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(0));
static PREVIOUS: BackendLocal<Cell<pg_sys::emit_log_hook_type>> = BackendLocal::new(Cell::new(None));

/// Notes that the client's current statement displays statistics, or uses the extension in another way.
pub fn displaying() {
    DISPLAYED.set(server::message_time());
}

/// The last query that uses the extension. The messages that start and end a query have different times in
/// the extended protocol.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static OWN: BackendLocal<Cell<*const QueryDesc>> = BackendLocal::new(Cell::new(std::ptr::null()));
/// The last query that could not be set up for measuring.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static NOT_ATTACHED: BackendLocal<Cell<*const QueryDesc>> = BackendLocal::new(Cell::new(std::ptr::null()));

/// Notes that this query uses the extension. It does not count.
pub fn uses_extension(query: *const QueryDesc) {
    OWN.set(query);
}

/// Notes that this query could not be set up for measuring.
fn not_attached(query: *const QueryDesc) {
    if !std::ptr::eq(OWN.get(), query) {
        NOT_ATTACHED.set(query);
    }
}

/// Notes that this query begins, and is not to be measured. An earlier one may have had the same address.
fn begins(query: *const QueryDesc) {
    if std::ptr::eq(NOT_ATTACHED.get(), query) {
        NOT_ATTACHED.set(std::ptr::null());
    }
}

/// Notes that a statement of the client ended while the switch was off. Nothing else is kept of it.
pub fn ended_while_off() {
    let message = server::message_time();
    if DISPLAYED.get() != message {
        ENDED_WHILE_OFF.set(message);
    }
}

/// Notes that an error has ended a run.
fn run_failed() {
    if nesting::depth() == 0 {
        RUN_FAILED.set(server::message_time());
    }
}

/// Notes that a query ended unmeasured. Does nothing for a nested one.
#[inline(never)]
fn query_ended(query: QueryRef) {
    let is_own = std::ptr::eq(OWN.get(), query.as_ptr());
    if is_own {
        OWN.set(std::ptr::null());
    }
    if nesting::depth() != 0 {
        return;
    }
    response::other_ended(|| is_sent(query), || is_followed(query));
    if is_own {
        return;
    }
    let what = if std::ptr::eq(NOT_ATTACHED.get(), query.as_ptr()) {
        NOT_ATTACHED.set(std::ptr::null());
        What::NotAttached
    } else if guc::statistics_level() == StatisticsLevel::Basic {
        What::Basic
    } else {
        What::BegunUnmeasured
    };
    note_query(what, query);
}

/// Returns whether a client gets the rows of a query. One of a deferred trigger is a part of the commit.
fn is_sent(query: QueryRef) -> bool {
    query
        .receiver()
        .is_some_and(|to| to != CommandDest::DestSPI && to != CommandDest::DestNone)
}

/// Returns whether another statement follows in the text of a query: only then may it be one of the same
/// message. PostgreSQL runs several statements of a message in a transaction block.
#[inline(always)]
fn is_followed(query: QueryRef) -> bool {
    /// So many bytes may end the last statement.
    const MOST_AT_END: usize = 4;
    if !unguarded::IsTransactionBlock() {
        return false;
    }
    let (plan, text) = (query.plan(), query.sourceText);
    if plan.stmt_len <= 0 || text.is_null() {
        return false;
    }
    // SAFETY: the text has the statement's part. At its end is a zero byte.
    unsafe {
        let mut rest = text.add((plan.stmt_location.max(0) + plan.stmt_len) as usize);
        for _ in 0..MOST_AT_END {
            match *rest as u8 {
                0 => return false,
                b';' | b' ' | b'\n' => rest = rest.add(1),
                _ => return true,
            }
        }
        true
    }
}

/// Notes that the client has read a part of a measured query, which is still open.
#[cold]
#[inline(never)]
pub fn cursor_read(query: QueryRef) {
    note_query(What::OpenCursor, query);
}

/// Notes a query that was not measured, or not to its end.
#[inline(always)]
fn note_query(what: What, query: QueryRef) {
    note(what, None, parsed::text_id(query), || {
        beginning(SourceText::of(query))
    });
}

/// Returns the beginning of a statement's text.
fn beginning(text: SourceText) -> Beginning {
    /// The spaces before a text count too.
    const MAX_READ: usize = 2 * MAX_SHOWN;
    Beginning::of(text.beginning(MAX_READ))
}

/// Returns whether a utility statement only concerns the session or its transaction, and is cheap.
pub fn concerns_session(utility: NodeTag) -> bool {
    matches!(
        utility,
        NodeTag::T_TransactionStmt
            | NodeTag::T_VariableSetStmt
            | NodeTag::T_VariableShowStmt
            | NodeTag::T_PrepareStmt
            | NodeTag::T_ExecuteStmt
            | NodeTag::T_DeallocateStmt
            | NodeTag::T_DeclareCursorStmt
            | NodeTag::T_FetchStmt
            | NodeTag::T_ClosePortalStmt
            | NodeTag::T_ListenStmt
            | NodeTag::T_UnlistenStmt
            | NodeTag::T_NotifyStmt
            | NodeTag::T_LoadStmt
            | NodeTag::T_DiscardStmt
            | NodeTag::T_LockStmt
            | NodeTag::T_ConstraintsSetStmt
    )
}

/// What is kept of a utility statement until it ends.
#[derive(Clone, Copy)]
struct UtilityBegun<'a> {
    tag: CommandTag::Type,
    text: SourceText<'a>,
    /// When the last measured statement had ended before it.
    measured_before: Option<i64>,
}

/// Returns what [`utility_ended`] needs, when a utility statement of the client begins. Returns `None` for
/// one that does not count: it is nested, a cheap one that only concerns the session, or one that runs a
/// query of its own name.
fn utility_begins(utility: &Utility) -> Option<UtilityBegun<'_>> {
    let counts = !concerns_session(utility.tag) && utility.tag != NodeTag::T_CreateExtensionStmt;
    (counts && nesting::depth() == 0).then(|| UtilityBegun {
        tag: utility.command_tag(),
        text: utility.text(),
        measured_before: session::last_at(),
    })
}

/// Notes that a utility statement has ended, unless its own query was measured.
#[inline(never)]
fn utility_ended(statement: &UtilityBegun) {
    let what = if session::last_at() == statement.measured_before {
        What::Utility(statement.tag)
    } else if session::last_is_nested() {
        What::RanLast
    } else {
        return;
    };
    let text = || beginning(statement.text);
    note(what, None, TextId::default(), text);
}

/// Sees each message that goes to the server's log.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name, with a live error.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe extern "C-unwind" fn emit_log(error: *mut ErrorData) {
    // SAFETY: PostgreSQL passes a live error. The frame is plain.
    unsafe {
        let is_error = (*error).elevel == pg_sys::PGERROR as i32;
        if is_error {
            // It goes to the client, before the transaction is aborted.
            outermost_planner::all_ended();
        }
        if is_error && switch::is_on() {
            if level::is_on() {
                server::with_sent_text(|text| lines::error((*error).sqlerrcode, text.unwrap_or_default()));
            }
            failed(Handle::new(error));
        }
        if let Some(previous) = PREVIOUS.get() {
            previous(error);
        }
    }
}

/// Notes that an error has ended a client's message, unless an executor ran the statement: then it is known
/// already. Allocates nothing, because memory may be short.
#[cold]
#[inline(never)]
fn failed(error: Handle<ErrorData>) {
    let message = server::message_time();
    let text = GLOBALS.debug_query_string.get();
    let ended = session::last_since(message);
    let is_nested = session::last_is_nested();
    let is_known = RUN_FAILED.get() == message || ended == Some(false) && !is_nested;
    if text.is_null() || is_known || nesting::depth() != 0 {
        return;
    }
    let shown = error
        .message()
        .map(|message| beginning(SourceText::whole(message)));
    let shown = shown.unwrap_or_else(|| Beginning::of(b""));
    let what = match ended {
        Some(_) if is_nested => What::RanLast,
        Some(_) => What::FailedAfterwards,
        None => What::Failed,
    };
    let text = || server::with_sent_text(|text| beginning(SourceText::whole(text.unwrap_or_default())));
    note(what, Some(shown), TextId::default(), text);
}

/// Notes a statement, and copies its text unless it is that of the statement before. A statement without a
/// `text_id` is not compared.
#[inline(always)]
fn note(what: What, error: Option<Beginning>, text_id: TextId, text: impl FnOnce() -> Beginning) {
    let message = server::message_time();
    if DISPLAYED.get() == message {
        return;
    }
    let after = session::last_at();
    let Ok(mut last) = LAST.try_borrow_mut() else {
        return;
    };
    let mut count = 1;
    if let Some(earlier) = last.as_mut().filter(|earlier| earlier.after == after) {
        let is_of_message = earlier.message == message;
        // A DO may leave a cursor that is read at the end of its transaction.
        if is_of_message && matches!(what, What::BegunUnmeasured) {
            return;
        }
        let is_same = is_of_message && matches!((what, earlier.what), (What::OpenCursor, What::OpenCursor));
        count = earlier.count + u64::from(!is_same);
        if text_id != TextId::default() && text_id == earlier.text_id {
            (earlier.what, earlier.error) = (what, error);
            (earlier.message, earlier.count) = (message, count);
            earlier.user = server::session_user_id();
            return;
        }
    }
    *last = Some(Unmeasured {
        what,
        error,
        text: text(),
        text_id,
        user: server::session_user_id(),
        message,
        after,
        count,
    });
}

const RUN_ONE: &str = "Run one first.";
const RAISE_LEVEL: &str = "Run one first. If pg_rowsource.statistics_level is basic, only statements with the hint /*+ gather_plan_statistics */ are measured.";

/// Returns what to do if the session has run no statement that counts.
pub fn advice() -> &'static str {
    match guc::statistics_level() {
        StatisticsLevel::Basic if breaker::has_stopped() => breaker::HOW_TO_GO_ON,
        StatisticsLevel::Basic => RAISE_LEVEL,
        _ => RUN_ONE,
    }
}

/// Why the session's last statement was not measured.
pub struct Reason {
    /// A sentence without its full stop.
    pub text: String,
    /// What to do if there is no measured statement.
    pub advice: &'static str,
}

/// Returns why the session's last statement was not measured. Returns `None` if it was. `measured` is when
/// the last measured statement ended, if there is one.
pub fn reason(measured: Option<i64>) -> Option<Reason> {
    if let Some(since) = switch::disabled_at() {
        let since = server::shown_time(since);
        let earlier = measured.map_or("", |_| "; this is the last measured one");
        return Some(Reason {
            text: format!("Nothing is measured since {since}, because pg_rowsource.enabled is off{earlier}"),
            advice: switch::HOW_TO_TURN_ON,
        });
    }
    let last = LAST.borrow();
    let last = last.as_ref().filter(|last| last.after == measured);
    let ended_while_off = ENDED_WHILE_OFF.get();
    if ended_while_off > measured.unwrap_or(0) && last.is_none_or(|last| last.message < ended_while_off) {
        let earlier = measured.map_or("", |_| "; this is one before it");
        return Some(Reason {
            text: format!(
                "The last statement of this session was not recorded: pg_rowsource.enabled was off while it ran{earlier}"
            ),
            advice: RUN_ONE,
        });
    }
    let last = last?;
    let visible = server::may_see(last.user);
    let shown = |text: &Beginning| {
        if visible {
            text.shown()
        } else {
            "hidden".to_owned()
        }
    };
    let error = || last.error.as_ref().map_or_else(String::new, shown);
    let reason = match last.what {
        What::Basic => match breaker::reason_at(last.message) {
            Some(stopped) => format!("was not measured: the session measures no more, because {stopped}"),
            None => "was not measured: pg_rowsource.statistics_level was basic".to_owned(),
        },
        What::NotAttached => {
            "was not measured: its plan is too deep, or there was no memory for its statistics".to_owned()
        }
        What::BegunUnmeasured => {
            "was not measured: when it began, pg_rowsource.statistics_level was basic, or a function ran it and pg_rowsource.track was 'top'".to_owned()
        }
        What::Utility(CommandTag::CMDTAG_CALL | CommandTag::CMDTAG_DO) => {
            "has no plan: statements in it are measured with pg_rowsource.track = 'all'".to_owned()
        }
        What::Utility(_) => "was not measured: it has no plan".to_owned(),
        What::RanLast if last.error.is_some() => format!("failed: {}", error()),
        What::RanLast => "has no plan".to_owned(),
        What::OpenCursor => "reads a cursor that is still open: its statistics are shown when it is closed".to_owned(),
        What::Failed => format!("failed without being measured: {}", error()),
        What::FailedAfterwards => {
            return Some(Reason {
                text: format!("An error followed this statement in its message: {}", error()),
                advice: RUN_ONE,
            });
        }
    };
    let earlier = match measured {
        None => String::new(),
        Some(_) if matches!(last.what, What::RanLast) => {
            "; this is the last statement that it ran".to_owned()
        }
        Some(_) if last.count == 1 => "; this is the statement before it".to_owned(),
        Some(_) => format!(
            "; this is the last measured one, {} statements earlier",
            last.count
        ),
    };
    Some(Reason {
        text: format!(
            "The last statement of this session ({}) {reason}{earlier}",
            shown(&last.text)
        ),
        advice: match last.what {
            What::Basic if breaker::has_stopped() => breaker::HOW_TO_GO_ON,
            What::Basic => RAISE_LEVEL,
            _ => RUN_ONE,
        },
    })
}
