//! Keeps EXPLAIN from calling functions of other extensions while it prints a plan for a description.
//!
//! EXPLAIN calls a function of each custom scan, foreign scan and foreign table to be changed. Such a
//! function may read the scan's rows, wait for another server, write, or fail. That is right if a user asks
//! for EXPLAIN, but nobody has asked for a description. So while the plan is printed, the nodes point to
//! copies of their functions without those of EXPLAIN, and the hooks of EXPLAIN are not set. The setting
//! `explain_callbacks` names the libraries whose functions may be called.

use super::search_path::Unasked;
use crate::guc;
use crate::pg::compat::explain_hooks::Hooks;
use crate::pg::handles::{Handle, PlanStateRef};
use crate::pg::plan::tree::Found;
use crate::pg::server;
use pgrx::pg_sys::{self, CustomScanState, FdwRoutine, NodeTag};
use std::ffi::c_void;

/// Returns whether EXPLAIN would call a function of another extension for these nodes, which may be allowed.
pub fn may_run(found: &[Found]) -> bool {
    let mut nodes = found.iter();
    Hooks::are_set()
        || nodes.any(|place| {
            matches!(
                place.plan_state.tag(),
                NodeTag::T_CustomScanState | NodeTag::T_ForeignScanState | NodeTag::T_ModifyTableState
            )
        })
}

/// What is changed now. Dropping this restores it.
pub struct Muted {
    pointers: Vec<Pointer>,
    hooks: Hooks,
    judge: Judge,
    /// Absent if a function of another extension may run: that may run queries.
    _unasked: Option<Unasked>,
}

/// A pointer to the functions of a node.
struct Pointer {
    place: *mut *const c_void,
    original: *const c_void,
}

impl Muted {
    /// Mutes the functions of other extensions that EXPLAIN would call for these nodes. Returns `None` if
    /// there is no memory.
    ///
    /// # Safety
    /// Until the result is dropped, which must happen, the current memory context must stay live, and nothing
    /// but EXPLAIN may use the nodes. May raise.
    pub unsafe fn new(found: &[Found]) -> Option<Muted> {
        let mut judge = Judge::default();
        // SAFETY: the caller makes the same promises.
        let hooks = unsafe { Hooks::take(|hook| judge.allows(hook)) };
        let mut muted = Muted {
            pointers: Vec::new(),
            hooks,
            judge,
            _unasked: None,
        };
        for place in found {
            muted.mute(place.plan_state)?;
        }
        muted._unasked = (!muted.judge.has_allowed).then(Unasked::new);
        Some(muted)
    }

    /// Mutes the functions of a node.
    fn mute(&mut self, ps: PlanStateRef) -> Option<()> {
        match ps.tag() {
            NodeTag::T_CustomScanState => self.mute_custom(ps.cast()),
            NodeTag::T_ForeignScanState => {
                let scan = ps.cast::<pg_sys::ForeignScanState>();
                self.mute_foreign(scan.part(|scan| &scan.fdwroutine))
            }
            NodeTag::T_ModifyTableState => {
                let modify = ps.cast::<pg_sys::ModifyTableState>();
                let mut tables = modify.tables();
                tables.try_for_each(|table| self.mute_foreign(table.part(|table| &table.ri_FdwRoutine)))
            }
            _ => Some(()),
        }
    }

    /// Mutes the functions of a custom scan.
    fn mute_custom(&mut self, scan: Handle<CustomScanState>) -> Option<()> {
        // SAFETY: a custom scan has functions. They belong to its library.
        let mut methods = unsafe { *scan.methods };
        let explain = methods.ExplainCustomScan.map(|explain| explain as *const c_void);
        if self.judge.allows_all(&[explain]) {
            return Some(());
        }
        methods.ExplainCustomScan = None;
        // SAFETY: the place has a pointer to such functions.
        unsafe { self.replace(scan.part(|scan| &scan.methods).as_ptr().cast(), methods) }
    }

    /// Mutes the functions of a foreign table, unless it is no such table.
    fn mute_foreign(&mut self, place: Handle<*mut FdwRoutine>) -> Option<()> {
        // SAFETY: the functions of a node are null, or belong to the node or its library. The place has a
        // pointer to such functions.
        unsafe {
            let Some(routine) = place.as_ref() else {
                return Some(());
            };
            let explain = [
                routine.ExplainForeignScan.map(|explain| explain as *const c_void),
                routine
                    .ExplainForeignModify
                    .map(|explain| explain as *const c_void),
                routine
                    .ExplainDirectModify
                    .map(|explain| explain as *const c_void),
            ];
            if self.judge.allows_all(&explain) {
                return Some(());
            }
            let routine = FdwRoutine {
                ExplainForeignScan: None,
                ExplainForeignModify: None,
                ExplainDirectModify: None,
                ..*routine
            };
            self.replace(place.as_ptr().cast(), routine)
        }
    }

    /// Makes a pointer point to a copy of its functions. Returns `None` if there is no memory.
    ///
    /// # Safety
    /// `place` must hold a pointer to a `T`. For the rest, as [`Muted::new`].
    unsafe fn replace<T>(&mut self, place: *mut *const c_void, copy: T) -> Option<()> {
        self.pointers.try_reserve(1).ok()?;
        // SAFETY: the copy lives in the current memory context, which outlives `self` by the caller's
        // promise.
        unsafe {
            let memory = pg_sys::palloc(size_of::<T>()).cast::<T>();
            memory.write(copy);
            self.pointers.push(Pointer {
                place,
                original: place.replace(memory.cast()),
            });
        }
        Some(())
    }
}

impl Drop for Muted {
    fn drop(&mut self) {
        // The order is reversed, because the tree may have a node twice.
        for Pointer { place, original } in self.pointers.drain(..).rev() {
            // SAFETY: the caller of `new` promised that the query is still live.
            unsafe { place.write(original) };
        }
        self.hooks.restore();
    }
}

/// Decides which functions may be called.
#[derive(Default)]
struct Judge {
    /// The last functions that were looked up, and the answers. The nodes of partitions have the same
    /// functions, up to three each.
    known: [Option<(*const c_void, bool)>; 4],
    /// The oldest of them.
    next: usize,
    /// Whether any function may be called.
    has_allowed: bool,
}

impl Judge {
    /// Returns whether each of these functions is absent or may be called.
    fn allows_all(&mut self, functions: &[Option<*const c_void>]) -> bool {
        functions.iter().flatten().all(|function| self.allows(*function))
    }

    /// Returns whether the setting names the library of a function.
    fn allows(&mut self, function: *const c_void) -> bool {
        let known = self.known.iter().flatten().find(|(known, _)| *known == function);
        if let Some(&(_, is_allowed)) = known {
            return is_allowed;
        }
        let is_allowed = server::library_of(function).is_some_and(guc::is_explain_callback_allowed);
        self.has_allowed |= is_allowed;
        self.known[self.next] = Some((function, is_allowed));
        self.next = (self.next + 1) % self.known.len();
        is_allowed
    }
}
