//! Gives queryids to plans that have none from PostgreSQL.
//!
//! * Before 18, the query inside a CREATE TABLE AS or DECLARE CURSOR has none, and in no major that of a
//!   REFRESH MATERIALIZED VIEW. It gets the queryid of the utility statement, and its text. That of a DECLARE
//!   CURSOR gets a queryid that is made from the query, because clients make a new name for each cursor,
//!   which would make a new plan.
//! * The queries of an SQL function with a BEGIN ATOMIC body are never parsed, so they have neither a queryid
//!   nor a text. Both are made when such a query is planned. The same holds for all queries if
//!   `compute_query_id` is off.
//!
//! PostgreSQL copies plans. So a queryid that was made for a plan is kept in the plan itself: as two entries
//! in the list of objects that invalidate the plan, for caches that do not exist. pg_stat_statements and
//! others do not see it.

use super::listener::{self, Listen};
use super::{nesting, parsed};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat::{self, jumble};
use crate::pg::handles::Handle;
use crate::pg::plan::describe;
use crate::pg::plan::tree::list;
use crate::pg::server::contained::{contained_or_cancelled, guarded};
use crate::pg::server::pg_try::pg_try;
use crate::pg::server::{self, first_bytes};
use pgrx::pg_sys::{self, NodeTag, PlanInvalItem, PlannedStmt, Query};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};
use std::rc::Rc;

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn utility(utility: &listener::Utility, body: impl FnOnce(&listener::Utility)) {
        match utility.tag {
            NodeTag::T_ExplainStmt
            | NodeTag::T_CreateTableAsStmt
            | NodeTag::T_RefreshMatViewStmt
            | NodeTag::T_DeclareCursorStmt => {
                around(utility, || body(utility));
            }
            _ => body(utility),
        }
    }
}

/// A utility statement that runs a query.
#[derive(Clone, Copy)]
pub struct Utility {
    /// The queryid of its query.
    queryid: i64,
    /// Its own queryid.
    pub own_queryid: i64,
    is_cursor: bool,
    /// Whether its query is planned, or has been.
    is_planned: bool,
    /// Its text and its place there.
    pub source: *const c_char,
    pub location: i32,
    pub length: i32,
    /// The nesting depth of its query.
    depth: u32,
}

static UTILITY: BackendLocal<Cell<Option<Utility>>> = BackendLocal::new(Cell::new(None));

/// Runs a utility statement that runs a query as part of itself.
fn around(statement: &listener::Utility, body: impl FnOnce()) {
    let outer = UTILITY.get();
    // The protocol copies the text of a prepared one, often to where that of another one was.
    parsed::begins_text();
    let queryid = utility_queryid(statement);
    UTILITY.set(Some(Utility {
        queryid,
        own_queryid: queryid,
        is_cursor: statement.tag == NodeTag::T_DeclareCursorStmt,
        is_planned: false,
        source: statement.source,
        location: statement.plan().stmt_location,
        length: statement.plan().stmt_len,
        depth: nesting::depth(),
    }));
    // SAFETY: the frames are plain, as the statement promises.
    unsafe { pg_try(body, || UTILITY.set(outer), |_| {}) };
    UTILITY.set(outer);
}

/// Returns the queryid of a utility statement. If it has none from PostgreSQL, it is made from its text.
pub fn utility_queryid(statement: &listener::Utility) -> i64 {
    match compat::query_id(&statement.plan()) {
        0 => hash(statement.text().statement().0),
        queryid => queryid,
    }
}

/// Returns the utility statement whose query may be started or planned now.
fn utility() -> Option<Utility> {
    UTILITY.get().filter(|utility| utility.depth == nesting::depth())
}

/// Returns a hash of a text, which is never 0. It is the queryid that 15 gives a utility statement.
fn hash(text: &[u8]) -> i64 {
    // SAFETY: the pointer and the length are those of a slice.
    match unsafe { pg_sys::hash_bytes_extended(text.as_ptr(), text.len() as i32, 0) } as i64 {
        0 => 2,
        hash => hash,
    }
}

/// The cache numbers of the entries that keep a queryid: one for its low half, one for its high half.
const LOW: i32 = i32::MIN + 0x5253;
const HIGH: i32 = LOW + 1;

/// Returns the queryid of a plan that has none from PostgreSQL; 0 if it has none. It was made when the query
/// was planned, or is that of the utility statement that runs the query.
#[cold]
#[inline(never)]
pub fn queryid(plan: &PlannedStmt) -> i64 {
    match marked(plan) {
        0 => utility().map_or(0, |utility| utility.queryid),
        queryid => queryid,
    }
}

/// Returns the queryid that [`mark`] wrote into a plan; 0 if it wrote none.
fn marked(plan: &PlannedStmt) -> i64 {
    let mut halves = (0, 0);
    // SAFETY: the plan is live, and the list has items of this type.
    for item in unsafe { list::<PlanInvalItem>(plan.invalItems) } {
        // SAFETY: the list has pointers to its items.
        match unsafe { ((*item).cacheId, (*item).hashValue) } {
            (LOW, half) => halves.0 = u64::from(half),
            (HIGH, half) => halves.1 = u64::from(half),
            _ => {}
        }
    }
    (halves.0 | halves.1 << 32) as i64
}

/// Returns the utility statement whose query is started or planned now, if the query has its queryid. A
/// function that is run while the query is planned has another one, and so has a prepared statement.
pub fn utility_of(queryid: i64) -> Option<Utility> {
    utility().filter(|utility| utility.queryid == queryid)
}

/// Plans a query that has no queryid, and makes one for its plan. `planner` gets it; 0 if there is none.
///
/// # Safety
/// * `query` must be live, and `source` null or its text.
/// * The frames of the caller and of `planner` must be plain, because an error crosses them.
#[cold]
#[inline(never)]
pub unsafe fn plan(
    query: *mut Query,
    source: *const c_char,
    planner: impl FnOnce(i64) -> *mut PlannedStmt,
) -> *mut PlannedStmt {
    // The planner may run functions, and the utility statement may run a prepared statement. Their queries
    // have texts of their own.
    let outer = utility().filter(|utility| !utility.is_planned && std::ptr::eq(utility.source, source));
    let made = if let Some(utility) = outer {
        let mut queryid = utility.queryid;
        if utility.is_cursor {
            // SAFETY: as below.
            let made = unsafe { guarded(|| contained_or_cancelled(|| Some(jumbled(query).0))) };
            queryid = made.map_or(queryid, |made| made ^ CURSOR);
        }
        UTILITY.set(Some(Utility {
            queryid,
            is_planned: true,
            ..utility
        }));
        Some(queryid)
    } else {
        // SAFETY: the caller promises what the function requires. A query is planned in a transaction. The
        // guard raises a cancel request again, which may cross the frames of the caller.
        unsafe {
            guarded(|| {
                let queryid = contained_or_cancelled(|| Some(make(query, source)));
                if queryid.is_some_and(|queryid| !has_text(query, source) && text(queryid).is_none()) {
                    contained_or_cancelled(|| print(query, queryid?));
                }
                queryid
            })
        }
    };
    let planned = planner(made.unwrap_or(0));
    if let Some(utility) = outer {
        // The query runs where the utility statement is not known any more, and that of a cursor ends after
        // it. So the query itself keeps where its text is.
        // SAFETY: the planner returns a live plan, which nobody else uses yet.
        unsafe {
            (*planned).stmt_location = utility.location;
            (*planned).stmt_len = utility.length;
        }
    }
    if let Some(queryid) = made {
        // SAFETY: the planner returns a live plan, which nobody else uses yet.
        server::attempt("give a plan its queryid", || unsafe {
            mark(planned, queryid as u64)
        });
    }
    planned
}

/// Tells the query of a cursor from the same query without one.
const CURSOR: i64 = 0x6375_7273_6f72;

/// Computes the queryid of a query, and where its constants are. The query keeps none.
///
/// # Safety
/// `query` must be live. May raise.
unsafe fn jumbled(query: *mut Query) -> (i64, *const pg_sys::JumbleState) {
    // SAFETY: the query is live by the caller's promise.
    unsafe {
        let jumble = jumble::jumble(query);
        let queryid = compat::parsed_query_id(&*query);
        compat::clear_query_id(&mut *query);
        (queryid, jumble)
    }
}

/// Returns whether a query has a text.
///
/// # Safety
/// `query` must be live, and `source` null or its text.
unsafe fn has_text(query: *const Query, source: *const c_char) -> bool {
    // SAFETY: the query and its text are live by the caller's promise.
    unsafe { !source.is_null() && *source != 0 && (*query).stmt_location >= 0 }
}

/// Makes the queryid of a query.
///
/// # Safety
/// `query` must be live, and `source` null or its text. May raise.
unsafe fn make(query: *mut Query, source: *const c_char) -> i64 {
    // SAFETY: the query and its text are live by the caller's promise.
    unsafe {
        let (queryid, jumble) = jumbled(query);
        if has_text(query, source) {
            parsed::note(queryid, source, query, jumble);
        }
        queryid
    }
}

/// Prints a query that has no text, and keeps what is printed. Returns `None` if there is no memory.
///
/// # Safety
/// `query` must be live. May raise.
unsafe fn print(query: *const Query, queryid: i64) -> Option<()> {
    // SAFETY: the query is live by the caller's promise. The planner changes the query, so a copy of it is
    // printed.
    unsafe {
        let copy = pg_sys::copyObjectImpl(query.cast()).cast::<Query>();
        describe::hide_foreign(Handle::new(copy))?;
        let _unasked = describe::Unasked::new();
        let printed = pg_sys::pg_get_querydef(copy, false);
        keep_text(queryid, CStr::from_ptr(printed).to_bytes());
        pg_sys::pfree(printed.cast());
    }
    Some(())
}

/// Keeps a queryid in a plan.
///
/// # Safety
/// `planned` must be a live plan that nobody else uses. May raise.
unsafe fn mark(planned: *mut PlannedStmt, queryid: u64) {
    // SAFETY: the plan is live by the caller's promise. The items are allocated where the planner allocated
    // the plan.
    unsafe {
        for (cache, half) in [(LOW, queryid as u32), (HIGH, (queryid >> 32) as u32)] {
            let item = pg_sys::palloc0(size_of::<PlanInvalItem>()).cast::<PlanInvalItem>();
            (*item).type_ = pg_sys::NodeTag::T_PlanInvalItem;
            (*item).cacheId = cache;
            (*item).hashValue = half;
            (*planned).invalItems = pg_sys::lappend((*planned).invalItems, item.cast());
        }
    }
}

/// The number of texts that are kept.
const TEXTS: usize = 64;
/// The maximal bytes of such a text.
const MAX_TEXT: usize = 4096;

/// A queryid and its text.
type Made = (i64, Rc<[u8]>);

/// The texts of queries that have none from PostgreSQL, until their plans are described. The newest is the
/// last.
static MADE: BackendLocal<RefCell<Vec<Made>>> = BackendLocal::new(RefCell::new(Vec::new()));

/// Returns the text that was made for a query.
pub fn text(queryid: i64) -> Option<Rc<[u8]>> {
    let made = MADE.borrow();
    made.iter()
        .find(|(id, _)| *id == queryid)
        .map(|(_, text)| text.clone())
}

/// Keeps the text of a query.
fn keep_text(queryid: i64, printed: &[u8]) {
    let bytes = first_bytes(printed, MAX_TEXT);
    let mut made = MADE.borrow_mut();
    if made.len() == TEXTS {
        made.remove(0);
    }
    made.push((queryid, bytes.into()));
}
