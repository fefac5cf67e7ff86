//! Lists the calls of a statement's nodes for `rowsource_call_trace()`. Only a node of that statement gets
//! this wrapper, on top of the one that it has. So no other statement pays for it.

use crate::pg::border::backend_local::BackendLocal;
use pgrx::pg_sys::{self, PlanState, TupleTableSlot};
use rowsource_core::call_trace::CallList;
use rowsource_core::waits::Event;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_char;

/// A node whose calls are listed.
#[derive(Clone, Copy)]
pub struct Traced {
    pub plan_state: *mut PlanState,
    /// What the wrapper calls.
    pub method: pg_sys::ExecProcNodeMtd,
    /// The node's number in the list.
    pub number: u32,
    /// It runs parallel workers: its first call may reset the methods of the nodes below it.
    pub is_gather: bool,
}

impl Traced {
    /// A plan node id that no node has.
    pub const NONE: Traced = Traced {
        plan_state: std::ptr::null_mut(),
        method: None,
        number: 0,
        is_gather: false,
    };
}

/// A trace in progress.
pub struct Trace {
    /// The text of the statement. Its address identifies the statement.
    pub text: *const c_char,
    /// Reads the clock.
    pub read: fn() -> u64,
    pub list: UnsafeCell<CallList>,
    /// The nodes of the statement, by plan node id.
    pub nodes: UnsafeCell<Vec<Traced>>,
}

/// The trace in progress; null if there is none.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static RUNNING: BackendLocal<Cell<*const Trace>> = BackendLocal::new(Cell::new(std::ptr::null()));

/// Owns the trace in progress. Dropping this ends it.
pub struct Running(Box<Trace>);

impl Running {
    /// Begins a trace.
    pub fn begin(trace: Box<Trace>) -> Running {
        let running = Running(trace);
        // It stays in its box until `drop` notes that there is none.
        RUNNING.set(&raw const *running.0);
        running
    }

    /// Returns the list, when the statement has ended.
    pub fn end(mut self) -> CallList {
        std::mem::take(self.0.list.get_mut())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(std::ptr::null());
    }
}

/// Returns the trace in progress; null if there is none.
pub fn running() -> *const Trace {
    RUNNING.get()
}

/// Returns whether a statement with this text is being traced.
#[inline(always)]
pub fn is_of(text: *const c_char) -> bool {
    // SAFETY: a trace that is noted is live, because [`Running`] owns it.
    unsafe { RUNNING.get().as_ref() }.is_some_and(|trace| std::ptr::eq(trace.text, text))
}

/// Lists a wait, if a trace is in progress. Returns whether one is.
#[inline(always)]
pub fn note_wait(event: Event, ns: u64, is_rest: bool) -> bool {
    // SAFETY: a trace that is noted is live, because [`Running`] owns it. No reference to its
    // list is in use.
    unsafe {
        let trace = RUNNING.get();
        if trace.is_null() {
            return false;
        }
        let now = ((*trace).read)();
        (*(*trace).list.get()).wait(event, now, ns, is_rest);
        true
    }
}

/// Puts the wrapper on top of the method of each node.
///
/// # Safety
/// * The nodes' plan states must be live.
/// * No reference to the nodes may be in use.
pub unsafe fn install(trace: &Trace) {
    // SAFETY: the plan states are live, and this is the only reference to the nodes, by the caller's promise.
    unsafe {
        for traced in &mut *trace.nodes.get() {
            let Some(state) = traced.plan_state.as_mut() else {
                continue;
            };
            if !is_call(state.ExecProcNode) {
                traced.method = state.ExecProcNode;
                state.ExecProcNode = Some(call);
            }
        }
    }
}

fn is_call(method: pg_sys::ExecProcNodeMtd) -> bool {
    method.is_some_and(|method| method as usize == call as *const () as usize)
}

/// Calls a node, and lists the call.
///
/// # Safety
/// Only the executor may call this, with a plan state in which [`install`] put it.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
pub unsafe extern "C-unwind" fn call(ps: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: the executor passes a live plan state. A trace that is noted is live. No reference to its list
    // or to its nodes is held across the call. An error may cross this frame, because it has nothing to drop.
    unsafe {
        let trace = RUNNING.get();
        let traced = find(trace, ps);
        if traced.is_null() {
            return (*ps).ExecProcNodeReal.unwrap_unchecked()(ps);
        }
        let read = (*trace).read;
        let entered = (*(*trace).list.get()).enter((*traced).number, read());
        let row = (*traced).method.unwrap_unchecked()(ps);
        if let Some(entered) = entered {
            let has_row = !row.is_null() && (*row).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16 == 0;
            (*(*trace).list.get()).leave(entered, read(), has_row);
        }
        // A node's first call replaces the method.
        if (*traced).is_gather {
            (*traced).is_gather = false;
            install(&*trace);
        } else if !is_call((*ps).ExecProcNode) {
            (*traced).method = (*ps).ExecProcNode;
            (*ps).ExecProcNode = Some(call);
        }
        row
    }
}

/// Returns the address of a node of the trace; null if the node is not traced.
///
/// # Safety
/// * The trace must be null or live, and no reference to its nodes may be in use.
/// * The plan state must be live.
#[inline(always)]
unsafe fn find(trace: *const Trace, ps: *mut PlanState) -> *mut Traced {
    // SAFETY: the trace is null or live and the plan state is live, by the caller's promise.
    unsafe {
        if trace.is_null() {
            return std::ptr::null_mut();
        }
        let nodes = &mut *(*trace).nodes.get();
        let id = (*(*ps).plan).plan_node_id;
        match nodes.get_mut(id as usize) {
            Some(traced) if std::ptr::eq(traced.plan_state, ps) => traced,
            _ => std::ptr::null_mut(),
        }
    }
}
