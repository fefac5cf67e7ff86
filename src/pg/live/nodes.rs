//! The nodes of a statement in a block, as others see them.

use super::block::Block;
use super::header::Setup;
use crate::pg::border::shared::{load, shared_fields};
use crate::pg::compat::{self, NodeInstrumentation};
use crate::pg::hot::node::{Account, Node};
use std::mem::MaybeUninit;

/// The nodes of a statement in a block. They are initialised and never freed. Their session changes them at
/// any time, each word as a whole.
#[derive(Clone, Copy)]
pub struct Nodes {
    first: *const Node,
    count: usize,
    /// Where the first one has its account, in its session.
    account: usize,
}

/// One of them.
#[derive(Clone, Copy)]
pub struct SharedNode(*const Node);

shared_fields! { SharedNode:
    plan_node_id = plan_node_id: i32;
    caller = caller: Account;
    before = before: u64;
    /// Returns how many of its calls have ended, if each is counted.
    calls = every_call.calls: u64;
    /// Returns how many of its calls were timed, if not each is.
    timed_calls = timer.timed_calls: u64;
    last_by_core = last_by_core: u32;
    previous_by_core = previous_by_core: u32;
}

impl Nodes {
    /// Returns the nodes of a block, which must have as many as `setup` says.
    pub fn of(block: &'static Block, setup: &Setup) -> Nodes {
        Nodes {
            first: block.nodes(),
            count: setup.count,
            account: setup.first,
        }
    }

    /// Returns a node, if there is one with this index.
    pub fn get(self, index: usize) -> Option<SharedNode> {
        // SAFETY: there are so many nodes.
        (index < self.count).then(|| SharedNode(unsafe { self.first.add(index) }))
    }

    /// Returns the node of an account, if it is one of these.
    pub fn of_account(self, account: usize) -> Option<usize> {
        let index = account.checked_sub(self.account)? / size_of::<Node>();
        (index < self.count).then_some(index)
    }

    /// Returns the number of a node, as the views have it: they do not have the first one if it is hidden.
    pub fn shown(self, index: usize) -> Option<u16> {
        let hidden = usize::from(self.get(0)?.is_hidden());
        u16::try_from(index.checked_sub(hidden)?).ok()
    }

    /// Returns the node that runs if the account of this one is the running one: see `Running::running`.
    pub fn running(self, mut index: usize) -> Option<usize> {
        // There are at most as many callers as nodes.
        for _ in 0..self.count {
            let node = self.get(index)?;
            if !node.is_unwrapped() || node.is_timed_by_core() {
                return Some(index);
            }
            index = self.of_account(node.caller().usage().addr())?;
        }
        None
    }

    /// Returns the node that core calls now on behalf of a node, or else that node.
    pub fn called_by_core(self, index: usize) -> usize {
        let below = |node: Option<SharedNode>, of: fn(SharedNode) -> u32| node.map_or(0, of) as usize;
        let mut called = below(self.get(index), SharedNode::last_by_core);
        // The list is at most as long as there are nodes.
        for _ in 0..self.count {
            let node = self.get(called).filter(|_| called != 0);
            if node.is_none_or(SharedNode::is_timed_by_core) {
                return if node.is_some() { called } else { index };
            }
            called = below(node, SharedNode::previous_by_core);
        }
        index
    }
}

impl SharedNode {
    /// Returns whether the views do not show it.
    pub fn is_hidden(self) -> bool {
        // SAFETY: the node is initialised.
        unsafe { load((&raw const (*self.0).hidden).cast::<u8>()) != 0 }
    }

    /// Returns whether core has replaced its wrapper and calls it itself: see `Running::is_unwrapped`.
    pub fn is_unwrapped(self) -> bool {
        // SAFETY: the node is initialised.
        self.before() == 0
            && unsafe {
                load((&raw const (*self.0).under_gather).cast::<u8>()) != 0
                    && load((&raw const (*self.0).by_core).cast::<u8>()) == 0
                    && load((&raw const (*self.0).method).cast::<usize>()) != 0
            }
            && compat::is_called_by_core(&mut self.instrumentation())
    }

    /// Returns whether core is timing a call of it now.
    pub fn is_timed_by_core(self) -> bool {
        compat::is_timing(&self.instrumentation())
    }

    /// Returns a copy of what core counts.
    pub fn instrumentation(self) -> NodeInstrumentation {
        // SAFETY: the node is initialised.
        unsafe { copy_words(&raw const (*self.0).instr) }
    }
}

/// Copies a value word by word.
///
/// # Safety
/// `from` must be the address of a value of whole words, for which all combinations of the words that are
/// written there are valid.
pub unsafe fn copy_words<T: Copy>(from: *const T) -> T {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the caller promises a value of so many words.
    unsafe {
        let (from, to) = (from.cast::<u64>(), value.as_mut_ptr().cast::<u64>());
        for word in 0..size_of::<T>() / 8 {
            to.add(word).write(load(from.add(word)));
        }
        value.assume_init()
    }
}
