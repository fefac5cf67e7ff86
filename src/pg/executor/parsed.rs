//! Remembers where the constants are in the statements that this session has parsed.
//!
//! Only the parser knows that. Its hook gets the places for each statement, but only the first statement of a
//! queryid is looked at: other texts of the queryid have their constants at the same tokens. The memory has a
//! limit. If a statement's constants were forgotten, or the library was loaded after it was parsed, all its
//! literals count as constants.

use super::listener::Listen;
use super::{explain, response};
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat::{self, jumble};
use crate::pg::handles::{Handle, QueryRef};
use crate::pg::plan::describe::ParsedConstants;
use crate::pg::plan::tree::tag;
use crate::pg::server::SourceText;
use crate::pg::server::{self, switch};
use crate::pg::sql_trace::{lines, targets};
use crate::session::TextId;
use pgrx::pg_sys::{self, NodeTag};
use rowsource_core::normalise::{Constants, Text};
use std::cell::{Cell, RefCell};
use std::ffi::c_char;

pub struct Listener;

impl Listen for Listener {
    fn init() {
        // SAFETY: _PG_init runs once, before the hook can be called.
        unsafe {
            PREVIOUS.set(pg_sys::post_parse_analyze_hook);
            pg_sys::post_parse_analyze_hook = Some(post_parse_analyze);
        }
    }
}

/// The number of places for queryids. A queryid has one place only.
const PLACES: usize = 1024;
/// The maximal bytes of all constants' places.
const MAX_BYTES: usize = 512 * 1024;

/// What is known of one queryid.
type Known = Option<ParsedConstants>;

/// The queryids that are known, each at its place.
static QUERYIDS: BackendLocal<[Cell<i64>; PLACES]> = BackendLocal::new([const { Cell::new(0) }; PLACES]);
static CONSTANTS: BackendLocal<RefCell<Vec<Known>>> = BackendLocal::new(RefCell::new(Vec::new()));
/// The bytes of all constants' places.
static BYTES: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));
/// The number of statements that were parsed, without EXECUTE, of utility statements that run a query, and of
/// times that another text was planned than the last time. It may wrap around.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static COUNT: BackendLocal<Cell<u32>> = BackendLocal::new(Cell::new(0));

/// The address of the text that was planned last.
static PLANNED: BackendLocal<Cell<*const c_char>> = BackendLocal::new(Cell::new(std::ptr::null()));

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PREVIOUS: BackendLocal<Cell<pg_sys::post_parse_analyze_hook_type>> =
    BackendLocal::new(Cell::new(None));

/// Returns what identifies the text of a query.
#[inline(always)]
pub fn text_id(query: QueryRef) -> TextId {
    let plan = query.plan();
    TextId {
        address: query.sourceText.addr(),
        plan: query.plannedstmt.addr(),
        place: (plan.stmt_location, plan.stmt_len),
        parsed: COUNT.get(),
    }
}

/// Notes that the next execution may have another text, wherever PostgreSQL has it.
#[inline(always)]
pub fn begins_text() {
    COUNT.set(COUNT.get().wrapping_add(1));
}

/// Notes that a text is planned. A plan that is made for each execution may lie where that of another
/// prepared statement was, and PostgreSQL copies the texts of prepared statements and cursors, often to where
/// another one was.
#[inline(always)]
pub fn plans(text: *const c_char) {
    if PLANNED.replace(text) != text {
        begins_text();
    }
}

/// Returns where the constants are in the texts of a queryid.
pub fn constants(queryid: i64) -> Known {
    let place = place(queryid);
    if queryid == 0 || QUERYIDS.inner()[place].get() != queryid {
        return None;
    }
    CONSTANTS.borrow().get(place).cloned().flatten()
}

fn place(queryid: i64) -> usize {
    queryid as usize % PLACES
}

/// Looks at a parsed statement.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name. `jumble` must be null or live.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe extern "C-unwind" fn post_parse_analyze(
    state: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jumble: jumble::ParsedJumble,
) {
    // SAFETY: PostgreSQL passes valid arguments. The frame is plain.
    unsafe {
        if let Some(previous) = PREVIOUS.get() {
            previous(state, query, jumble);
        }
        // An EXECUTE runs another text, which was parsed before.
        if (*query).commandType != pg_sys::CmdType::CMD_UTILITY
            || tag((*query).utilityStmt) != NodeTag::T_ExecuteStmt
        {
            begins_text();
        }
        if switch::passes_on() {
            return;
        }
        let queryid = compat::parsed_query_id(&*query);
        let text = || SourceText::new((*state).p_sourcetext, (*query).stmt_location, (*query).stmt_len);
        if targets::begins() {
            trace(queryid, text());
        }
        // Only these find out the types of parameters.
        if (*state).p_coerce_param_hook.is_some() {
            response::parsed(queryid);
        }
        if QUERYIDS.inner()[place(queryid)].get() != queryid && !jumble.is_null() {
            let jumble = Handle::new(std::ptr::from_ref(&*jumble).cast_mut());
            note(queryid, text(), jumble);
        }
    }
}

/// Writes into the session's SQL trace that a query was parsed and analysed.
#[cold]
#[inline(never)]
fn trace(queryid: i64, text: SourceText) {
    if queryid != 0 {
        let statement = lines::Statement::new(queryid, text);
        lines::parsed(&statement.nested(!server::is_sent(text.source())));
    }
}

/// Remembers the constants of a statement.
#[cold]
#[inline(never)]
pub fn note(queryid: i64, text: SourceText, jumble: Handle<pg_sys::JumbleState>) {
    if guc::keep_constants() || text.source().is_null() {
        return;
    }
    server::attempt("note the constants of a statement", || {
        if let (Some(constants), Ok(mut known)) = (found(text, jumble), CONSTANTS.try_borrow_mut()) {
            keep(&mut known, queryid, constants);
        }
    });
}

/// Returns the constants of a statement.
fn found(text: SourceText, jumble: Handle<pg_sys::JumbleState>) -> Option<ParsedConstants> {
    let (bytes, base) = explain::text_inside(text).unwrap_or_else(|| text.statement());
    let (found, highest) = jumble::constants(jumble, base, bytes.len())?;
    let backslashes = jumble::backslashes_escape();
    let constants = Constants::at(Text { bytes, backslashes }, &found, highest)?;
    Some(ParsedConstants::new(constants, bytes))
}

fn keep(known: &mut Vec<Known>, queryid: i64, parsed: ParsedConstants) {
    if known.is_empty() {
        if known.try_reserve_exact(PLACES).is_err() {
            return;
        }
        known.resize(PLACES, None);
    }
    let place = place(queryid);
    let size_of = |known: &Known| known.as_ref().map_or(0, |parsed| parsed.constants.size());
    let bytes = BYTES.get() - size_of(&known[place]) + parsed.constants.size();
    if bytes > MAX_BYTES {
        known.fill(None);
        QUERYIDS.inner().iter().for_each(|place| place.set(0));
        BYTES.set(0);
        return;
    }
    BYTES.set(bytes);
    known[place] = Some(parsed);
    QUERYIDS.inner()[place].set(queryid);
}
