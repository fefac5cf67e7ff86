//! Runs a statement once, and lists the calls of its nodes: `rowsource_call_trace()`.
//!
//! The statement runs through SPI, with the rights of the caller. Its rows are thrown away. The nodes get
//! another method when the executor begins to run them (`pg::hot::trace`). Statements that functions run
//! inside it are not listed, but what they wait for is. The statement itself is not measured, because the
//! listing makes it slower.

use super::hooks;
use crate::pg::border::{backend_local::BackendLocal, frames::PlainFrames, unguarded};
use crate::pg::compat;
use crate::pg::handles::{Handle, StartedQuery};
use crate::pg::hot::trace::{self, Trace, Traced};
use crate::pg::hot::waits;
use crate::pg::plan::{describe, tree};
use crate::pg::server::contained::guarded;
use crate::pg::server::{fail, switch};
use pgrx::pg_sys::{self, NodeTag, QueryDesc};
use pgrx::{PgSqlErrorCode, error};
use rowsource_core::call_trace::CallList;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{CStr, c_void};

/// What ExecutorRun's hook called before the trace.
static NEXT_EXECUTOR_RUN: BackendLocal<Cell<pg_sys::ExecutorRun_hook_type>> =
    BackendLocal::new(Cell::new(None));

/// The nodes of the statement that is traced. Their numbers in the list are their places here.
static NODES: BackendLocal<RefCell<Vec<Node>>> = BackendLocal::new(RefCell::new(Vec::new()));

/// A node of a traced statement.
pub struct Node {
    /// Its number in its plan, as in pg_stat_rowsource.
    pub id: usize,
    /// What it does, as EXPLAIN calls it.
    pub operation: String,
    /// The index, table or other object that it works on.
    pub object_name: Option<String>,
}

/// The calls of a statement's nodes.
pub struct Listing {
    pub list: CallList,
    pub nodes: Vec<Node>,
    /// The clock's reading when the statement began.
    pub began: u64,
}

/// A trace in progress, and the hook for it. Dropping this ends both.
struct Running(Option<trace::Running>);

impl Running {
    fn begin(text: &CStr, list: CallList, read: fn() -> u64) -> Running {
        let trace = Box::new(Trace {
            text: text.as_ptr(),
            read,
            list: UnsafeCell::new(list),
            nodes: UnsafeCell::new(Vec::new()),
        });
        NODES.borrow_mut().clear();
        NEXT_EXECUTOR_RUN.set(hooks::replace_executor_run(Some(executor_run_hook)));
        let running = Running(Some(trace::Running::begin(trace)));
        waits::forget_recent();
        running
    }

    /// Ends the trace. Returns what it has listed.
    fn end(mut self) -> CallList {
        self.0.take().map(trace::Running::end).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        hooks::replace_executor_run(NEXT_EXECUTOR_RUN.get());
    }
}

/// Runs a statement and lists its calls. `read` reads the clock.
pub fn run(text: &CStr, max_calls: usize, read: fn() -> u64) -> Listing {
    switch::ensure_on();
    if !trace::running().is_null() {
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
            "rowsource_call_trace() already traces a statement",
            "The statement that it runs must not call rowsource_call_trace() itself.",
        )
    }
    check(text);
    let Some(list) = CallList::new(max_calls) else {
        fail(
            PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
            "out of memory",
            "Choose a smaller max_calls.",
        )
    };
    let running = Running::begin(text, list, read);
    let began = read();
    execute(text);
    let nodes = NODES.take();
    let list = running.end();
    Listing { list, nodes, began }
}

/// Runs the statement.
fn execute(text: &CStr) {
    // SAFETY: the function that calls this runs in a transaction. SPI copies nothing of the text, which stays
    // live. On an error, the transaction's end closes the connection.
    let result = unsafe {
        pg_sys::SPI_connect();
        let options = pg_sys::SPIExecuteOptions {
            dest: pg_sys::None_Receiver,
            ..Default::default()
        };
        let result = pg_sys::SPI_execute_extended(text.as_ptr(), &raw const options);
        pg_sys::SPI_finish();
        result
    };
    if result < 0 {
        error!("rowsource_call_trace() could not run the statement: SPI code {result}");
    }
}

/// Raises an error unless the text is one statement that has a plan.
fn check(text: &CStr) {
    // SAFETY: the text is in the database's encoding. The parser returns a list of its statements, each with
    // its tree.
    let problem = unsafe {
        let statements: Vec<*mut pg_sys::RawStmt> = tree::list(parse(text)).collect();
        match statements[..] {
            [] => Some("there is no statement"),
            [one] if has_plan(Handle::new((*one).stmt)) => None,
            [_] => Some("it is a utility statement"),
            _ => Some("there are several statements"),
        }
    };
    if let Some(problem) = problem {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("rowsource_call_trace() cannot trace this: {problem}"),
            "Pass one SELECT, VALUES, INSERT, UPDATE, DELETE or MERGE, without EXPLAIN and without SELECT INTO.",
        )
    }
}

/// Parses a text. A syntax error names its place in this text.
fn parse(text: &CStr) -> *mut pg_sys::List {
    // SAFETY: the callback and the text are live until the parser returns. If it fails, PostgreSQL resets the
    // stack of callbacks.
    unsafe {
        let mut callback = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(name_place),
            arg: text.as_ptr().cast_mut().cast(),
        };
        pg_sys::error_context_stack = &raw mut callback;
        let parsed = pg_sys::pg_parse_query(text.as_ptr());
        pg_sys::error_context_stack = callback.previous;
        parsed
    }
}

/// Moves the place of an error from the client's statement to the text that is parsed.
///
/// # Safety
/// Only PostgreSQL may call this, while it raises an error. `text` must be the text.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe extern "C-unwind" fn name_place(text: *mut c_void) {
    // SAFETY: an error is being raised, and the text is live, by the caller's promise.
    unsafe {
        let place = unguarded::geterrposition();
        if place > 0 {
            unguarded::errposition(0);
            unguarded::internalerrposition(place);
            unguarded::internalerrquery(text.cast());
        }
    }
}

/// Returns whether a statement is planned and has no utility statement around it.
fn has_plan(statement: Handle<pg_sys::Node>) -> bool {
    match statement.tag() {
        NodeTag::T_InsertStmt | NodeTag::T_UpdateStmt | NodeTag::T_DeleteStmt | NodeTag::T_MergeStmt => true,
        NodeTag::T_SelectStmt => {
            // The leftmost part of a set operation has the INTO of all of it.
            let mut select = statement.cast::<pg_sys::SelectStmt>();
            while let Some(left) = select.follow(|select| &select.larg) {
                select = left;
            }
            select.intoClause.is_null()
        }
        _ => false,
    }
}

compat::executor_run::executor_run_hook!(executor_run_hook, executor_run);

/// Installs the wrappers, if this is the statement, and runs it.
///
/// # Safety
/// * `query` must be started.
/// * The caller's frame must be plain: an error crosses it.
#[inline(never)]
unsafe fn executor_run(
    query: *mut QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    execute_once: bool,
) {
    // SAFETY: the query is started, by the caller's promise. The guard's frame is left before the query runs.
    unsafe {
        if trace::is_of((*query).sourceText) {
            guarded(PlainFrames::promised(), || {
                Handle::new(query)
                    .started()
                    .into_iter()
                    .for_each(|query| install(query))
            });
        }
        compat::executor_run::call(NEXT_EXECUTOR_RUN.get(), query, direction, count, execute_once);
    }
}

/// Installs the wrappers in the nodes of a statement.
///
/// # Safety
/// The trace in progress must be of this query.
unsafe fn install(query: StartedQuery) {
    let mut found = tree::Nodes::new();
    tree::walk(query.root(), &mut found);
    // SAFETY: a trace is in progress, by the caller's promise. No node runs, so no reference to the trace's
    // nodes is in use.
    unsafe {
        let trace = &*trace::running();
        let Some(first) = found.first() else {
            return;
        };
        let hidden = usize::from(first.hidden);
        let described = describe::nodes(query, &found);
        let mut names = NODES.borrow_mut();
        let base = names.len();
        names.extend(described.into_iter().map(|node| Node {
            id: node.id,
            operation: node.operation,
            object_name: node.object_name,
        }));
        let nodes = &mut *trace.nodes.get();
        nodes.clear();
        for (i, place) in found.iter().enumerate().skip(hidden) {
            let id = place.plan_state.plan().plan_node_id as usize;
            if nodes.len() <= id {
                nodes.resize(id + 1, Traced::NONE);
            }
            nodes[id] = Traced {
                plan_state: place.plan_state.as_ptr(),
                number: (base + i - hidden) as u32,
                is_gather: tree::is_gather(place.plan_state.tag()),
                ..Traced::NONE
            };
        }
        trace::install(trace);
    }
}
