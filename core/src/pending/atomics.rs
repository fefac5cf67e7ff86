//! The atomics and the cell that the protocol is made of. The extension uses those of the standard library. The tests also
//! use those of a model checker.

#![allow(unsafe_code, reason = "the cells that a slot's owner guards")]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};

/// A family of atomics, and the cell that goes with them.
pub trait Atomics {
    /// Holds a process number or a flag.
    type I32: Atomic<i32>;
    /// Holds a time.
    type I64: Atomic<i64>;
    /// Holds an address or a tag.
    type U64: Atomic<u64>;
    /// Holds what an owner guards.
    type Cell<T>: SharedCell<T>;
}

/// An atomic number.
pub trait Atomic<T> {
    /// Makes one.
    fn new(value: T) -> Self;
    /// Reads it.
    fn load(&self, order: Ordering) -> T;
    /// Writes it.
    fn store(&self, value: T, order: Ordering);
    /// Writes `new` if it is `current`. Returns what it was; as an error where that is not `current`.
    ///
    /// # Errors
    /// Returns the value that was found instead of `current`.
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
}

/// A value that several processes share, and that something else guards.
pub trait SharedCell<T> {
    /// Makes one.
    fn new(value: T) -> Self;

    /// Reads the value.
    ///
    /// # Safety
    /// Nobody may write the value until `body` returns, and all earlier writes must happen before this.
    unsafe fn read<R>(&self, body: impl FnOnce(&T) -> R) -> R;

    /// Writes the value.
    ///
    /// # Safety
    /// Nobody else may read or write the value until `body` returns, and all earlier reads and writes must happen before
    /// this.
    unsafe fn write<R>(&self, body: impl FnOnce(&mut T) -> R) -> R;
}

/// The atomics of the standard library. Zero bytes are their zero, and a cell has the bytes of its value.
#[derive(Debug)]
pub struct Native;

impl Atomics for Native {
    type I32 = AtomicI32;
    type I64 = AtomicI64;
    type U64 = AtomicU64;
    type Cell<T> = NativeCell<T>;
}

macro_rules! native {
    ($atomic:ty, $value:ty) => {
        impl Atomic<$value> for $atomic {
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }

            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

native!(AtomicI32, i32);
native!(AtomicI64, i64);
native!(AtomicU64, u64);

/// The cell of [`Native`].
#[derive(Debug)]
#[repr(transparent)]
pub struct NativeCell<T>(UnsafeCell<T>);

impl<T> SharedCell<T> for NativeCell<T> {
    fn new(value: T) -> Self {
        NativeCell(UnsafeCell::new(value))
    }

    #[inline(always)]
    unsafe fn read<R>(&self, body: impl FnOnce(&T) -> R) -> R {
        // SAFETY: nobody writes the value meanwhile, by the caller's promise.
        body(unsafe { &*self.0.get() })
    }

    #[inline(always)]
    unsafe fn write<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: nobody else reads or writes the value meanwhile, by the caller's promise.
        body(unsafe { &mut *self.0.get() })
    }
}
