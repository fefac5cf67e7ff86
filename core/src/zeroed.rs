//! Memory whose bytes are zero when it is allocated, and which is used again without being cleared.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};

/// A type for which zero bytes are a valid value.
///
/// # Safety
/// A value of zero bytes must be valid for the type.
pub unsafe trait Zeroable: Copy {}

/// Memory for values of a type. Each value is initialised: its bytes are zero, or what an earlier user left.
#[derive(Debug)]
pub struct ZeroedMemory<T> {
    /// It has no elements, only memory for them.
    memory: Vec<T>,
}

impl<T> ZeroedMemory<T> {
    /// Returns memory for no values.
    pub const fn new() -> ZeroedMemory<T> {
        const { assert!(size_of::<T>() > 0) };
        ZeroedMemory { memory: Vec::new() }
    }

    /// Returns for how many values there is memory.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }
}

impl<T> Default for ZeroedMemory<T> {
    fn default() -> ZeroedMemory<T> {
        ZeroedMemory::new()
    }
}

impl<T: Zeroable> ZeroedMemory<T> {
    /// Returns the address of `count` initialised values, and whether they were just allocated, so that their
    /// bytes are zero. Returns `None` if there is no memory. The address is valid until the next call, and
    /// until this is dropped.
    #[inline]
    pub fn get(&mut self, count: usize) -> Option<(*mut T, bool)> {
        let is_new = self.memory.capacity() < count;
        if is_new {
            self.memory = zeroed(count)?;
        }
        Some((self.memory.as_mut_ptr(), is_new))
    }
}

/// Allocates zeroed memory for `count` values, at least one. Returns `None` if there is none.
fn zeroed<T: Zeroable>(count: usize) -> Option<Vec<T>> {
    let layout = Layout::array::<T>(count).ok()?;
    // SAFETY: the layout is not empty, because neither the type nor `count` is. The memory was allocated by
    // the allocator of `Vec`, with the layout of a `Vec` of this capacity.
    unsafe {
        let values = alloc_zeroed(layout).cast::<T>();
        (!values.is_null()).then(|| Vec::from_raw_parts(values, 0, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{BUCKETS, Histogram};

    /// It has the parts of a statement's node that matter here: the histogram, whose counts no execution
    /// clears.
    #[derive(Clone, Copy)]
    struct Node {
        rows: u64,
        histogram: Histogram,
    }

    // SAFETY: all fields are integers.
    unsafe impl Zeroable for Node {}

    /// Uses two nodes as an execution of a statement does, and checks what they counted.
    fn execute(memory: &mut ZeroedMemory<Node>, expect_new: bool) {
        let (nodes, is_new) = memory.get(2).expect("memory");
        assert_eq!(is_new, expect_new);
        for i in 0..2 {
            // SAFETY: there are two initialised nodes.
            let node = unsafe { &mut *nodes.add(i) };
            if !is_new {
                node.rows = 0;
                node.histogram.clear();
            }
            assert_eq!((node.rows, node.histogram.counts().count()), (0, 0));
            for bucket in 0..BUCKETS {
                node.rows += 1;
                node.histogram.add_to(bucket, false, 1);
                node.histogram.add_to(bucket, true, 2);
                node.histogram.add_to(bucket, true, 2);
            }
            let counted = node.histogram.counts().map(|(_, _, calls)| calls).sum::<u64>();
            assert_eq!(counted, 5 * BUCKETS as u64);
        }
    }

    /// Miri detects every read of uninitialised memory.
    #[test]
    fn a_histogram_in_reused_memory_counts() {
        let mut memory = ZeroedMemory::new();
        assert_eq!(memory.capacity(), 0);
        for execution in 0..3 {
            execute(&mut memory, execution == 0);
        }
        assert_eq!(memory.capacity(), 2);
    }

    /// The allocator often returns memory that was just freed.
    #[test]
    fn new_memory_is_zeroed() {
        for _ in 0..100 {
            drop(std::hint::black_box(vec![u64::MAX; 40]));
            let mut memory = ZeroedMemory::<Word>::new();
            let (words, is_new) = memory.get(40).expect("memory");
            assert!(is_new);
            // SAFETY: there are 40 initialised words.
            let words = unsafe { std::slice::from_raw_parts(words, 40) };
            assert!(words.iter().all(|word| word.0 == 0));
        }
    }

    #[derive(Clone, Copy)]
    struct Word(u64);

    // SAFETY: the field is an integer.
    unsafe impl Zeroable for Word {}

    #[test]
    fn too_much_memory_is_none() {
        assert!(ZeroedMemory::<Word>::new().get(usize::MAX / 8).is_none());
        assert!(ZeroedMemory::<Word>::new().get(usize::MAX / 2).is_none());
    }
}
