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
use crate::pg::handles::{Handle, NewPlan, PlannedStmtRef, ToPlan};
use crate::pg::plan::describe;
use crate::pg::server::contained::{Unlocked, contained_or_cancelled, guarded};
use crate::pg::server::pg_try::pg_try;
use crate::pg::server::{self, SourceText, first_bytes};
use pgrx::pg_sys::{self, NodeTag, PlanInvalItem, Query};
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
    pg_try(statement.frames, body, || UTILITY.set(outer), |_| {});
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
pub fn queryid(plan: PlannedStmtRef) -> i64 {
    match marked(plan) {
        0 => utility().map_or(0, |utility| utility.queryid),
        queryid => queryid,
    }
}

/// Returns the queryid that [`mark`] wrote into a plan; 0 if it wrote none.
fn marked(plan: PlannedStmtRef) -> i64 {
    let mut halves = (0, 0);
    for item in plan.list::<PlanInvalItem>(|plan| &plan.invalItems).iter() {
        match (item.cacheId, item.hashValue) {
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
#[cold]
#[inline(never)]
pub fn plan<'t>(mut query: ToPlan<'t>, planner: impl FnOnce(ToPlan<'t>, i64) -> NewPlan) -> NewPlan {
    // The planner may run functions, and the utility statement may run a prepared statement. Their queries
    // have texts of their own.
    let is_of = |utility: &Utility| !utility.is_planned && std::ptr::eq(utility.source, query.source());
    let outer = utility().filter(is_of);
    // SAFETY: a query is planned, so the session holds no lock.
    let unlocked = &mut unsafe { Unlocked::promised() };
    let made = if let Some(utility) = outer {
        let mut queryid = utility.queryid;
        if utility.is_cursor {
            let made = guarded(query.frames, || {
                contained_or_cancelled(unlocked, || Some(jumbled(&mut query).0))
            });
            queryid = made.map_or(queryid, |made| made ^ CURSOR);
        }
        UTILITY.set(Some(Utility {
            queryid,
            is_planned: true,
            ..utility
        }));
        Some(queryid)
    } else {
        // The guard raises a cancel request again.
        guarded(query.frames, || {
            let queryid = contained_or_cancelled(unlocked, || Some(make(&mut query)));
            if queryid.is_some_and(|queryid| !query.has_text() && text(queryid).is_none()) {
                contained_or_cancelled(unlocked, || print(&query, queryid?));
            }
            queryid
        })
    };
    let mut planned = planner(query, made.unwrap_or(0));
    if let Some(utility) = outer {
        // The query runs where the utility statement is not known any more, and that of a cursor ends after
        // it. So the query itself keeps where its text is.
        let plan = planned.plan_mut();
        plan.stmt_location = utility.location;
        plan.stmt_len = utility.length;
    }
    if let Some(queryid) = made {
        server::attempt("give a plan its queryid", || mark(&mut planned, queryid as u64));
    }
    planned
}

/// Tells the query of a cursor from the same query without one.
const CURSOR: i64 = 0x6375_7273_6f72;

/// Computes the queryid of a query, and where its constants are. The query keeps none. May raise.
fn jumbled(query: &mut ToPlan) -> (i64, *const pg_sys::JumbleState) {
    let query = query.query_mut();
    let jumble = jumble::jumble(query);
    let queryid = compat::parsed_query_id(query);
    compat::clear_query_id(query);
    (queryid, jumble)
}

/// Makes the queryid of a query. May raise.
fn make(query: &mut ToPlan) -> i64 {
    let (queryid, jumble) = jumbled(query);
    if query.has_text() {
        // SAFETY: the jumble was made in the current memory context.
        let jumble = unsafe { Handle::new(jumble.cast_mut()) };
        parsed::note(queryid, SourceText::of_parsed(query), jumble);
    }
    queryid
}

/// Prints a query that has no text, and keeps what is printed. Returns `None` if there is no memory. May
/// raise.
fn print(query: &ToPlan, queryid: i64) -> Option<()> {
    // SAFETY: the query is live. The planner changes the query, so a copy of it is printed.
    unsafe {
        let copy = pg_sys::copyObjectImpl(query.query().as_ptr().cast()).cast::<Query>();
        describe::hide_foreign(Handle::new(copy))?;
        let _unasked = describe::Unasked::new();
        let printed = pg_sys::pg_get_querydef(copy, false);
        keep_text(queryid, CStr::from_ptr(printed).to_bytes());
        pg_sys::pfree(printed.cast());
    }
    Some(())
}

/// Keeps a queryid in a plan. May raise.
fn mark(planned: &mut NewPlan, queryid: u64) {
    let plan = planned.plan_mut();
    for (cache, half) in [(LOW, queryid as u32), (HIGH, (queryid >> 32) as u32)] {
        // SAFETY: the plan is live. The items are allocated where the planner allocated the plan.
        unsafe {
            let item = pg_sys::palloc0(size_of::<PlanInvalItem>()).cast::<PlanInvalItem>();
            (*item).type_ = pg_sys::NodeTag::T_PlanInvalItem;
            (*item).cacheId = cache;
            (*item).hashValue = half;
            plan.invalItems = pg_sys::lappend(plan.invalItems, item.cast());
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
