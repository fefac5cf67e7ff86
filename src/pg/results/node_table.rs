//! A safe table of the nodes of one statement.
//!
//! The wrappers write to the nodes through their own pointers, whenever the executor calls them. So no other
//! code keeps a reference to a node: a [`NodeRef`] copies a field out or writes one, as a `Cell` does.

use super::node::Node;
use crate::pg::compat::{self, IndexSearches, NodeInstrumentation};
use crate::pg::handles::{Bare, PlanStateRef};
use crate::pg::hot::account::{Called, EARLIER, Earlier};
use crate::pg::hot::called;
use crate::pg::hot::node::Account;
use crate::pg::hot::usage::Usage;
use crate::pg::live::memory::NodeMemory;
use crate::pg::live::{Header, Need};
use pgrx::pg_sys::{ExecProcNodeMtd, NodeTag, PlanState, TupleTableSlot};
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Buffers, Estimate, Wal};
use rowsource_core::reconcile::Edge;
use rowsource_core::results::{Caller, Place, TimedCalls, Used};
use rowsource_core::sampler::{EveryCall, NodeTimer};
use std::marker::PhantomData;

/// Owns the nodes of a statement. Their addresses do not change until it is dropped, even if it is moved.
pub struct NodeTable {
    first: *mut Node,
    count: usize,
    memory: NodeMemory,
    header: &'static Header,
}

/// One node of a table. It borrows the table, so the node is live.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    node: *mut Node,
    table: PhantomData<&'a NodeTable>,
}

impl NodeTable {
    /// Creates a table of nodes in their initial state, as many as are needed. `memory` is empty or comes
    /// from [`NodeTable::take_memory`]. Returns `None` if there is no memory.
    pub fn new(mut memory: NodeMemory, need: Need) -> Option<NodeTable> {
        let first = Node::fresh(&mut memory, need)?;
        Some(NodeTable {
            first,
            count: need.nodes,
            header: memory.header(),
            memory,
        })
    }

    /// Takes the memory out. The table then has no nodes.
    pub fn take_memory(&mut self) -> NodeMemory {
        self.count = 0;
        self.first = std::ptr::null_mut();
        std::mem::take(&mut self.memory)
    }

    /// Returns for how many nodes there is memory.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Returns what the statement publishes of itself.
    #[inline(always)]
    pub fn header(&self) -> &'static Header {
        self.header
    }

    /// Returns the memory of the nodes.
    pub fn memory(&self) -> &NodeMemory {
        &self.memory
    }

    /// Returns the number of nodes.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns a node.
    ///
    /// # Panics
    /// If the node does not exist.
    #[inline(always)]
    pub fn get(&self, i: usize) -> NodeRef<'_> {
        assert!(i < self.count);
        self.at(i)
    }

    /// Returns a node that exists: the memory holds `count` nodes from `first` on.
    #[inline(always)]
    fn at(&self, i: usize) -> NodeRef<'_> {
        NodeRef {
            node: self.first.wrapping_add(i),
            table: PhantomData,
        }
    }

    /// Returns the first node's address, to store it beside the nodes.
    pub fn as_ptr(&self) -> *mut Node {
        self.first
    }

    /// Lists each node that core calls on behalf of another one with that one, whose account it uses.
    pub fn list_by_core(&self) {
        for (i, node) in self.iter().enumerate().filter(|(_, node)| node.by_core()) {
            if let Some(user) = self.of_account(node.caller()) {
                node.set_previous_by_core(user.last_by_core());
                user.set_last_by_core(i as u32);
            }
        }
    }

    /// Returns all nodes, a parent before its children.
    #[inline(always)]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = NodeRef<'_>> + ExactSizeIterator + Clone {
        (0..self.count).map(|i| self.at(i))
    }

    /// Returns which node made the last call of an InitPlan or a subplan.
    pub fn last_caller(&self, i: usize) -> Caller {
        let node = self.get(i);
        if node.caller().is_null() {
            Caller::Unknown
        } else if node.ran_in().is_null() {
            Caller::Outside
        } else {
            // It is one of these nodes.
            Caller::Node((node.ran_in() as usize - self.first as usize) / size_of::<Node>())
        }
    }

    /// Returns the node that contains an account, if it is one of these nodes.
    pub fn of_account(&self, account: *const Usage) -> Option<NodeRef<'_>> {
        let offset = (account as usize).checked_sub(self.first as usize)?;
        let i = offset / size_of::<Node>();
        (i < self.count).then(|| self.get(i))
    }
}

impl NodeRef<'_> {
    /// Reads the node. What is read refers to no part of it.
    #[inline(always)]
    fn read<T>(self, read: impl FnOnce(&Node) -> T) -> T {
        // SAFETY: the node is live as long as its table is borrowed. Only this thread writes to it, and no
        // mutable reference to it exists during this call.
        read(unsafe { &*self.node })
    }

    /// Returns the address of a field.
    #[inline(always)]
    fn field<T>(self, select: impl FnOnce(&Node) -> &T) -> *mut T {
        let offset = self.read(|node| std::ptr::from_ref(select(node)).addr()) - self.node.addr();
        // What is elsewhere is no field. The compiler sees where it is, and drops this.
        assert!(offset < size_of::<Node>(), "a field of the node");
        self.node.wrapping_byte_add(offset).cast()
    }

    /// Writes a field.
    #[inline(always)]
    fn set<T: Copy>(self, select: impl FnOnce(&Node) -> &T, value: T) {
        // SAFETY: it is a field of the node, which is live as long as its table is borrowed. Only this thread
        // uses it, and no reference to this field exists, because the table hands out references to
        // histograms only.
        unsafe { self.field(select).write(value) }
    }

    /// Returns the account of the node's caller.
    #[inline(always)]
    pub fn caller(self) -> *mut Usage {
        self.read(|node| node.caller.usage())
    }

    /// Sets the account of the node's caller.
    #[inline(always)]
    pub fn set_caller(self, caller: *mut Usage) {
        self.set(|node| &node.caller, Account::of(caller));
    }
}

/// Defines functions that copy a field out of a node, or a field of a field.
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident = $($field:ident).+: $type:ty;)+) => {
        impl NodeRef<'_> {
            $(
                $(#[$doc])*
                #[inline(always)]
                pub fn $name(self) -> $type {
                    self.read(|node| node.$($field).+)
                }
            )+
        }
    };
}

/// Defines functions that write a field of a node.
macro_rules! setters {
    ($($name:ident: $field:ident => $type:ty;)+) => {
        impl NodeRef<'_> {
            $(
                #[inline(always)]
                pub fn $name(self, value: $type) {
                    self.set(|node| &node.$field, value);
                }
            )+
        }
    };
}

getters! {
    plan_state = plan_state: *mut PlanState;
    plan_node_id = plan_node_id: i32;
    ran_in = ran_in: *mut Node;
    estimate = estimate: Estimate;
    parent = parent: i32;
    depth = depth: u16;
    edge = edge: Edge;
    by_expression = by_expression: bool;
    under_gather = under_gather: bool;
    hidden = hidden: bool;
    by_core = by_core: bool;
    last_by_core = last_by_core: u32;
    by_others = by_others: bool;
    method = method: ExecProcNodeMtd;
    installed = installed: ExecProcNodeMtd;
    fused_scan = fused_scan: *mut Node;
    is_fused_scan = is_fused_scan: bool;
    counts_calls = counts_calls: bool;
    last = last: *mut TupleTableSlot;
    notes_no_reading = notes_no_reading: bool;
    rows = rows: u64;
    before = before: u64;
    waited_ns = waited_ns: u64;
    interrupted = interrupted: Option<u64>;
    timer = timer: NodeTimer;
    every_call = every_call: EveryCall;
    usage = usage: Usage;
    /// Returns what may have been charged to it.
    used = usage.used: Used;
    /// Returns how many shared buffers it has found in memory.
    shared_hit = usage.buffers.shared_blks_hit: i64;
    /// Returns which subplans ran in it before another node called them.
    earlier = called.earlier: [Earlier; EARLIER];
}

setters! {
    set_plan_node_id: plan_node_id => i32;
    set_estimate: estimate => Estimate;
    set_parent: parent => i32;
    set_depth: depth => u16;
    set_edge: edge => Edge;
    set_by_expression: by_expression => bool;
    set_under_gather: under_gather => bool;
    set_hidden: hidden => bool;
    set_by_core: by_core => bool;
    set_last_by_core: last_by_core => u32;
    set_previous_by_core: previous_by_core => u32;
    set_by_others: by_others => bool;
    set_method: method => ExecProcNodeMtd;
    set_installed: installed => ExecProcNodeMtd;
    set_fused_scan: fused_scan => *mut Node;
    set_is_fused_scan: is_fused_scan => bool;
    set_counts_calls: counts_calls => bool;
    set_notes_no_reading: notes_no_reading => bool;
    set_before: before => u64;
    set_waited_ns: waited_ns => u64;
    set_interrupted: interrupted => Option<u64>;
}

impl<'a> NodeRef<'a> {
    /// Returns the node's address, to store it in other nodes.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut Node {
        self.node
    }

    /// Gives the node its plan state.
    ///
    /// # Safety
    /// The plan state must stay live until the node gets another one, or nobody asks for more than its
    /// address.
    #[inline(always)]
    pub unsafe fn set_plan_state(self, state: PlanStateRef) {
        self.set(|node| &node.plan_state, state.as_ptr());
    }

    /// Returns its plan state.
    #[inline(always)]
    pub fn state(self) -> Bare<'a, PlanState> {
        // SAFETY: the plan state is live, as who has set it promised. No reference to it is kept.
        unsafe { Bare::new(self.plan_state()) }
    }

    /// Returns the type of its plan state.
    #[inline(always)]
    pub fn kind(self) -> NodeTag {
        self.state().tag()
    }

    /// Returns which function the executor calls for the node.
    pub fn called_now(self) -> ExecProcNodeMtd {
        self.state().ExecProcNode
    }

    /// Has the executor call this function for the node.
    #[inline(always)]
    pub fn set_called(self, method: ExecProcNodeMtd) {
        // SAFETY: the plan state is live, as who has set it promised. No reference to it is in use.
        unsafe { (*self.plan_state()).ExecProcNode = method }
    }

    /// Returns what the InitPlans and subplans used that it called; `None` if that is nothing.
    #[inline(always)]
    pub fn called(self) -> Option<(Buffers, Wal)> {
        let sums = |Called { buffers, wal, .. }: &Called| (compat::buffers(buffers), compat::wal(wal));
        self.used().has_more.then(|| self.read(|node| sums(&node.called)))
    }

    /// Charges the caller of a subplan whose call an error has ended with what it used.
    pub fn charge_caller(self) {
        // SAFETY: the node and its caller's account are live as long as the table is borrowed, and only this
        // thread uses them. No reference to them exists.
        unsafe { called::charge_caller(self.node) }
    }

    /// Returns the address of its instrumentation.
    #[inline(always)]
    pub fn instrumentation(self) -> *mut NodeInstrumentation {
        self.field(|node| &node.instr)
    }

    /// Returns where core counts the searches of its index.
    #[inline(always)]
    pub fn index_searches(self) -> *mut IndexSearches {
        self.field(|node| &node.index_searches)
    }

    /// Returns the address of its account.
    #[inline(always)]
    pub fn account(self) -> *mut Usage {
        self.field(|node| &node.usage)
    }

    /// Returns its place in the plan.
    #[inline(always)]
    pub fn place(self) -> Place {
        Place {
            parent: usize::try_from(self.parent()).ok(),
            edge: self.edge(),
            by_expression: self.by_expression(),
            hidden: self.hidden(),
        }
    }

    /// Clears what an execution counted, and starts the timer for the next one. If `times_first_calls`, it
    /// times all of the first calls.
    #[inline(always)]
    pub fn reset(self, times_first_calls: bool) {
        // SAFETY: `Node::fresh` made the table's memory. No reference to the histogram is in use, because the
        // callers of `histogram` promise that nothing writes to it while they use theirs.
        unsafe { Node::reset_for_reexecution(self.node, times_first_calls) }
    }

    /// Makes the timer time the first call.
    #[inline(always)]
    pub fn start_timer(self) {
        // SAFETY: the node is live as long as its table is borrowed. Only this thread uses its timer, and no
        // reference to it exists during this call.
        unsafe { (*self.node).timer.start() }
    }

    /// Returns which calls its timer has timed.
    #[inline(always)]
    pub fn timed_calls(self) -> TimedCalls {
        self.read(|node| TimedCalls::of(&node.timer))
    }

    /// Adds the parallel workers' histogram to its own.
    #[inline(always)]
    pub fn add_to_histogram(self, workers: &Histogram) {
        // SAFETY: the node is live as long as its table is borrowed. No reference to the histogram is in use,
        // because the callers of `histogram` promise that nothing writes to it while they use theirs.
        unsafe { (*self.node).histogram.add(workers) }
    }

    /// Returns the histogram of its calls.
    ///
    /// # Safety
    /// While the reference is used, the executor must not call the node, and nothing else may write to its
    /// histogram.
    #[inline(always)]
    pub unsafe fn histogram(self) -> &'a Histogram {
        // SAFETY: the node is live as long as its table is borrowed, and nothing writes to the histogram, by
        // the caller's promise.
        unsafe { &(*self.node).histogram }
    }
}
