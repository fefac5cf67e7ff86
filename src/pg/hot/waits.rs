//! Charges waits to the nodes that run. The functions that replace those of the C library call this when a
//! wait has ended, so the wrappers of nodes do nothing for it: they remember the running node's account
//! anyway.

use super::account::Usage;
use super::node::{Account, Node};
use super::sql_trace;
use super::state::HOT;
use super::trace;
use super::wait_object;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use crate::pg::server::message_time;
use pgrx::pg_sys;
use rowsource_core::model::Unfolding;
use rowsource_core::waits::plan::{EventWaits, PlanWaits, RunWaits};
use rowsource_core::waits::{CLASS, Event};
use std::cell::{Cell, OnceCell, UnsafeCell};
use std::rc::Rc;

/// What a running statement needs to know to charge its waits. Each running statement is nested in the next
/// outer one.
pub struct Frame {
    /// The statement's nodes.
    nodes: Cell<(*mut Node, usize)>,
    /// The account of what the statement uses outside its nodes.
    outside: Cell<*mut Usage>,
    /// The account that was running when its current run began.
    pub outer_account: Cell<*mut Usage>,
    /// The statement that was running.
    pub outer: Cell<*const Frame>,
    /// The waits of the current execution, if the outside account has the mark.
    waits: UnsafeCell<RunWaits>,
    /// Which nodes are one, if the statement reads partitions.
    pub folded: OnceCell<Folding>,
}

/// Which nodes of a statement are one in the folded plan.
pub enum Folding {
    /// The statement's own plan, and whether its first node is hidden.
    Plan(Rc<Unfolding>, bool),
    /// That of a parallel worker: for each of its nodes, the leader's number of it.
    OfLeader(Rc<Vec<u32>>),
}

// Each statement has one, so it is kept small.
const _: () = assert!(size_of::<OnceCell<Folding>>() == 16);

impl Folding {
    /// Returns a number for the node of the folded plan that has a node, which no node has.
    fn of(&self, node: usize) -> u32 {
        match self {
            // The folded plan does not have the hidden root.
            Folding::Plan(_, true) if node == 0 => 0,
            Folding::Plan(unfolding, hidden) => {
                let hidden = usize::from(*hidden);
                let folded = unfolding.fold.while_running(node.wrapping_sub(hidden));
                folded.wrapping_add(hidden) as u32
            }
            Folding::OfLeader(numbers) => numbers.get(node).copied().unwrap_or(node as u32),
        }
    }
}

/// The events of a leader that waits for its workers. PostgreSQL may do that after the Gather's last call.
pub const FOR_WORKERS: [u32; 3] = [
    pg_sys::WaitEventIPC::WAIT_EVENT_EXECUTE_GATHER,
    pg_sys::WaitEventIPC::WAIT_EVENT_PARALLEL_FINISH,
    pg_sys::WaitEventIPC::WAIT_EVENT_BGWORKER_SHUTDOWN,
];

/// The innermost running statement.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static RUNNING: BackendLocal<Cell<*const Frame>> = BackendLocal::new(Cell::new(std::ptr::null()));

/// The waits of a running utility statement that is recorded.
pub struct UtilityWaits {
    waits: UnsafeCell<RunWaits>,
    outer: *const UtilityWaits,
}

/// The innermost one.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static UTILITY: BackendLocal<Cell<*const UtilityWaits>> = BackendLocal::new(Cell::new(std::ptr::null()));

/// Where a wait was charged, if it was to one place: the next one for this event and account goes to the
/// same. Most requests of a node are of one event.
struct Recent {
    /// 0 if there is none.
    event: Cell<Event>,
    account: Cell<Account>,
    sum: Cell<*mut EventWaits>,
    /// The nanoseconds that the node waited, and the statement.
    of_node: Cell<*mut u64>,
    of_run: Cell<*mut u64>,
}

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static RECENT: BackendLocal<Recent> = BackendLocal::new(Recent {
    event: Cell::new(0),
    account: Cell::new(Account::of(std::ptr::null_mut())),
    sum: Cell::new(std::ptr::null_mut()),
    of_node: Cell::new(std::ptr::null_mut()),
    of_run: Cell::new(std::ptr::null_mut()),
});

/// Takes the place of times that nobody reads.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static NOBODYS: BackendLocal<UnsafeCell<u64>> = BackendLocal::new(UnsafeCell::new(0));

impl Recent {
    #[inline(always)]
    fn forget(&self) {
        self.event.set(0);
    }

    #[inline(always)]
    fn set(&self, event: Event, sum: *mut EventWaits, of_node: *mut u64, of_run: *mut u64) {
        self.event.set(event);
        self.account.set(HOT.current.get());
        self.sum.set(sum);
        self.of_node.set(of_node);
        self.of_run.set(of_run);
    }
}

/// What the process waited outside all statements that are recorded.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static OUTSIDE: BackendLocal<UnsafeCell<PlanWaits>> = BackendLocal::new(UnsafeCell::new(PlanWaits::none()));

/// The last wait for the client outside all statements: when the message before it began, in microseconds,
/// and the nanoseconds.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static FOR_CLIENT: BackendLocal<Cell<(i64, u64)>> = BackendLocal::new(Cell::new((0, 0)));

/// Returns the innermost running statement; null if there is none.
#[inline(always)]
pub fn running() -> *const Frame {
    RUNNING.get()
}

/// Notes which statement is the innermost running one.
///
/// # Safety
/// It must be null, or stay live until another one is noted, also after an error. So must all outer ones.
#[inline(always)]
pub unsafe fn set_running(frame: *const Frame) {
    RUNNING.set(frame);
    RECENT.forget();
}

/// Forgets where the last wait was charged, so that a trace that begins now learns of the next one.
pub fn forget_recent() {
    RECENT.forget();
}

/// Charges a wait to all statements that run. If it is the rest of a wait that is already counted, `before`
/// is how long that took so far.
#[inline(always)]
pub fn charge(event: Event, ns: u64, before: Option<u64>) {
    if event == RECENT.event.get() && HOT.current.get() == RECENT.account.get() && before.is_none() {
        // SAFETY: the places are live, because the recent wait is forgotten whenever another statement runs,
        // none runs, or waits are taken or cleared. No reference to them is in use.
        unsafe {
            (*RECENT.sum.get()).count(ns);
            let (of_node, of_run) = (RECENT.of_node.get(), RECENT.of_run.get());
            *of_node = (*of_node).wrapping_add(ns);
            *of_run = (*of_run).wrapping_add(ns);
        }
    } else {
        charge_another(event, ns, before);
    }
}

/// Charges a wait that differs from the recent one.
#[inline(never)]
fn charge_another(event: Event, ns: u64, before: Option<u64>) {
    RECENT.forget();
    let waits = EventWaits {
        node: EventWaits::OUTSIDE,
        event,
        waits: u64::from(before.is_none()),
        ns,
        max_ns: ns.wrapping_add(before.unwrap_or(0)),
    };
    if RUNNING.get().is_null() && UTILITY.get().is_null() {
        charge_outside(&waits);
    } else {
        charge_running(waits);
    }
    let is_listed = sql_trace::lists_waits();
    if is_listed {
        // SAFETY: the callers of `set_running` promise that the statement is live and runs.
        let node = unsafe {
            let running = RUNNING.get().as_ref();
            running.and_then(|running| running.shown_node(HOT.current.get().usage()))
        };
        sql_trace::wait(event, ns, before.is_some(), node);
    }
    if trace::note_wait(event, ns, before.is_some()) || is_listed {
        // So each wait comes here.
        RECENT.forget();
    }
}

/// Charges a wait outside all statements: that of the next statement, if it is planned now, or that of the
/// last one, if it is committed now. Then no statement waits for the client.
fn charge_outside(waits: &EventWaits) {
    let class = waits.event & CLASS;
    // SAFETY: only this module makes references to the waits, and none is in use.
    let outside = unsafe { &mut *OUTSIDE.get() };
    if class == pg_sys::PG_WAIT_CLIENT {
        FOR_CLIENT.set((message_time(), waits.ns));
    }
    if class == pg_sys::PG_WAIT_CLIENT || class == pg_sys::PG_WAIT_ACTIVITY {
        outside.clear();
    } else if let Some(sum) = outside.add(*waits) {
        RECENT.set(waits.event, sum, NOBODYS.get(), NOBODYS.get());
    }
}

/// Charges a wait to the running statements: for each, to the node that called for the next inner one.
fn charge_running(waits: EventWaits) {
    let mut account = HOT.current.get().usage();
    let mut frame = RUNNING.get();
    // SAFETY: the callers of `set_running` and `set_utility` promise that all of them are live. No reference
    // to their waits is in use, because the callers of `Frame::waits` promise that theirs are not running.
    unsafe {
        let is_alone = UTILITY.get().is_null();
        while let Some(running) = frame.as_ref() {
            let is_only = is_alone && running.outer.get().is_null();
            running.charge(account, waits, is_only);
            account = running.outer_account.get();
            frame = running.outer.get();
        }
        let mut utility = UTILITY.get();
        while let Some(running) = utility.as_ref() {
            let sums = &mut *running.waits.get();
            sums.add(EventWaits { node: 0, ..waits });
            sums.add_run(&waits, is_client(waits.event));
            utility = running.outer;
        }
    }
}

fn is_client(event: Event) -> bool {
    event & CLASS == pg_sys::PG_WAIT_CLIENT
}

impl Frame {
    /// Returns the frame of a statement that is not set up yet.
    pub const fn new() -> Frame {
        Frame {
            nodes: Cell::new((std::ptr::null_mut(), 0)),
            outside: Cell::new(std::ptr::null_mut()),
            outer_account: Cell::new(std::ptr::null_mut()),
            outer: Cell::new(std::ptr::null()),
            waits: UnsafeCell::new(RunWaits::none()),
            folded: OnceCell::new(),
        }
    }

    /// Notes the nodes and the outside account of the statement.
    ///
    /// # Safety
    /// All of them must be live whenever the statement runs, or its waits are read.
    pub unsafe fn set_up(&self, first: *mut Node, count: usize, outside: *mut Usage) {
        self.nodes.set((first, count));
        self.outside.set(outside);
    }

    /// Returns the index of a node of the statement.
    #[inline(always)]
    pub fn index_of(&self, node: *const Node) -> usize {
        (node as usize).wrapping_sub(self.nodes.get().0 as usize) / size_of::<Node>()
    }

    /// Returns the node with this account, or the node below it that core calls for it now. Returns null if
    /// the account is that of no node.
    ///
    /// # Safety
    /// The statement must be running.
    pub unsafe fn node_of(&self, account: *mut Usage) -> *mut Node {
        // SAFETY: the caller promises the same.
        match unsafe { self.running_node(account) } {
            Some((index, _)) => self.nodes.get().0.wrapping_add(index),
            None => std::ptr::null_mut(),
        }
    }

    /// Charges a wait to the node with this account. If `is_only`, it is charged nowhere else.
    ///
    /// # Safety
    /// The statement must be running.
    #[inline(always)]
    unsafe fn charge(&self, account: *mut Usage, waits: EventWaits, is_only: bool) {
        let mut node = EventWaits::OUTSIDE;
        let (mut of_node, mut is_repeated) = (NOBODYS.get(), is_only && !is_client(waits.event));
        // SAFETY: the nodes are live while the statement runs. No reference to a node is in use, because a
        // call of a node is in progress or none is.
        unsafe {
            if let Some((index, is_always)) = self.running_node(account) {
                node = index as u32;
                let running = self.nodes.get().0.add(index);
                (*running).waited_ns = (*running).waited_ns.wrapping_add(waits.ns);
                of_node = &raw mut (*running).waited_ns;
                is_repeated &= is_always;
            }
            let sums = self.waits();
            let mut of_node_waits = EventWaits { node, ..waits };
            if !sums.has_room_for(&of_node_waits) {
                self.fold(sums, &mut of_node_waits);
            }
            let sum = sums.add(of_node_waits).map(std::ptr::from_mut);
            sums.add_run(&waits, is_client(waits.event));
            if let Some(sum) = sum.filter(|_| is_repeated) {
                RECENT.set(waits.event, sum, of_node, sums.run_ns_mut());
            }
        }
    }

    /// Makes room for waits, if more partitions have waited than there is room for: from now on, those that
    /// are one node have one place for each event.
    #[cold]
    #[inline(never)]
    fn fold(&self, sums: &mut RunWaits, waits: &mut EventWaits) {
        let Some(folding) = self.folded.get() else {
            return;
        };
        let folded = |waits: &EventWaits| match waits.node() {
            // At the end, these are moved to the Gathers of the plan.
            Some(_) if FOR_WORKERS.contains(&waits.event) => waits.node,
            Some(node) => folding.of(node),
            None => EventWaits::OUTSIDE,
        };
        // Moving them forgets which ones gave way to others.
        if sums.events().any(|kept| folded(&kept) != kept.node) {
            sums.move_nodes(folded);
        }
        waits.node = folded(waits);
    }

    /// Adds what workers waited in a node, to the sums of this statement. If `is_folded`, the node stands for
    /// all that are one with it.
    pub fn add_of_workers(&self, sums: &mut RunWaits, mut waits: EventWaits, is_folded: bool) {
        if let (true, Some(node), Some(folding)) = (is_folded, waits.node(), self.folded.get()) {
            waits.node = folding.of(node);
        }
        if !sums.has_room_for(&waits) {
            self.fold(sums, &mut waits);
        }
        sums.add(waits);
    }

    /// Returns the index of the node with this account, or of the node below it that core calls for it now.
    /// Also returns whether it is the only node with this account.
    ///
    /// # Safety
    /// The statement must be running.
    #[inline(always)]
    unsafe fn running_node(&self, account: *mut Usage) -> Option<(usize, bool)> {
        let (first, count) = self.nodes.get();
        let index = (account as usize).wrapping_sub(first as usize) / size_of::<Node>();
        if index >= count {
            return None;
        }
        // SAFETY: the indices are less than the number of nodes, which are live while the statement runs.
        unsafe {
            let mut below = (*first.add(index)).last_by_core as usize;
            if below == 0 {
                return Some((index, true));
            }
            while below != 0 && below < count {
                let node = first.add(below);
                if compat::is_timing(&(*node).instr) {
                    return Some((below, false));
                }
                below = (*node).previous_by_core as usize;
            }
        }
        Some((index, false))
    }

    /// Returns the number of the node with this account, as EXPLAIN shows it, and the OID of the relation
    /// that it works on.
    ///
    /// # Safety
    /// The statement must be running.
    #[inline(always)]
    unsafe fn shown_node(&self, account: *mut Usage) -> Option<(usize, Option<u32>)> {
        // SAFETY: the statement is running by the caller's promise, so its nodes and their plan states are
        // live. There is one, because one has the account.
        unsafe {
            let (index, _) = self.running_node(account)?;
            let first = self.nodes.get().0;
            let shown = if (*first).hidden {
                index.checked_sub(1)?
            } else {
                index
            };
            Some((shown, wait_object::relation_of((*first.add(index)).plan_state)))
        }
    }

    /// Returns the waits of the current execution.
    ///
    /// # Safety
    /// * The statement must be set up, and its outside account must be live.
    /// * No other reference to the waits may be in use. While this one is used, the statement must not run.
    #[allow(
        clippy::mut_from_ref,
        reason = "the caller promises that there is no other reference"
    )]
    #[inline(always)]
    pub unsafe fn waits(&self) -> &mut RunWaits {
        // SAFETY: the caller promises that the account is live, and that this is the only reference to the
        // waits.
        unsafe {
            let sums = &mut *self.waits.get();
            let outside = self.outside.get();
            if !(*outside).has_waited {
                sums.clear();
                (*outside).has_waited = true;
                // So the account is read when the statement is recorded.
                (*outside).is_charged = true;
            }
            sums
        }
    }
}

impl UtilityWaits {
    /// Returns the waits of a utility statement that begins now, inside those that run.
    pub fn new() -> UtilityWaits {
        UtilityWaits {
            waits: UnsafeCell::new(RunWaits::none()),
            outer: UTILITY.get(),
        }
    }

    /// Returns a copy of the waits.
    pub fn copy(&self) -> RunWaits {
        // SAFETY: only this thread writes them, and no reference to them is in use.
        unsafe { *self.waits.get() }
    }
}

/// Notes the waits of the innermost utility statement that runs and is recorded; null if there is none.
///
/// # Safety
/// They must be null, or stay live until others are noted. So must those of all outer ones.
pub unsafe fn set_utility(waits: *const UtilityWaits) {
    UTILITY.set(waits);
    RECENT.forget();
}

/// Returns whether the process waited outside all statements, since this was last taken or dropped.
#[inline(always)]
pub fn waited_outside() -> bool {
    !outside(|waits| waits.is_empty())
}

/// Returns the last wait for the client outside all statements: when the message before it began, and its
/// nanoseconds.
pub fn last_for_client() -> (i64, u64) {
    FOR_CLIENT.get()
}

/// Drops the last wait for the client.
#[inline(always)]
pub fn forget_client() {
    FOR_CLIENT.set((0, 0));
}

/// Takes what the process waited outside all statements.
pub fn take_outside() -> PlanWaits {
    RECENT.forget();
    outside(|waits| std::mem::replace(waits, PlanWaits::none()))
}

/// Reads or changes what the process waited outside all statements.
#[inline(always)]
fn outside<T>(change: impl FnOnce(&mut PlanWaits) -> T) -> T {
    // SAFETY: only this function and `charge_outside` make references to the waits. None is in use, because
    // nothing that is called here waits.
    change(unsafe { &mut *OUTSIDE.get() })
}
