//! The atomics and the cell that the protocol uses. The extension uses those of the standard library. The
//! tests also use those of a model checker.

#![allow(unsafe_code, reason = "the slot's owner guards the cells, not the compiler")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};

/// A family of atomics and its cell.
pub trait Atomics {
    /// Holds a process number or a flag.
    type I32: Atomic<i32>;
    /// Holds a time.
    type I64: Atomic<i64>;
    /// Holds an address or a tag.
    type U64: Atomic<u64>;
    /// Holds a value that an owner guards.
    type Cell<T>: SharedCell<T>;

    /// A fence. With `SeqCst` it orders all loads and stores before it, of all processes, before all after
    /// it.
    fn fence(order: Ordering);
}

/// An atomic number.
pub trait Atomic<T> {
    /// Makes an atomic with this value.
    fn new(value: T) -> Self;
    /// Reads the value.
    fn load(&self, order: Ordering) -> T;
    /// Reads the value, relaxed, at one place of the code of the hot path. A compiler can make it a part of
    /// another instruction, which it does not do with [`Atomic::load`].
    fn load_in_place(&self) -> T {
        self.load(Ordering::Relaxed)
    }
    /// Writes the value.
    fn store(&self, value: T, order: Ordering);
    /// Writes `new` if the value is `current`. Returns the previous value.
    ///
    /// # Errors
    /// Returns the value if it is not `current`.
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
}

/// A value that several processes share. Something else must guard it.
pub trait SharedCell<T> {
    /// A reference to the value.
    type Ref<'a>: Deref<Target = T>
    where
        Self: 'a;
    /// A reference that can change the value.
    type Mut<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// Makes a cell with this value.
    fn new(value: T) -> Self;

    /// Returns a reference that can read the value.
    ///
    /// # Safety
    /// Nobody may write the value as long as the reference lives, and all earlier writes must happen before
    /// this call.
    unsafe fn read(&self) -> Self::Ref<'_>;

    /// Returns a reference that can change the value.
    ///
    /// # Safety
    /// Nobody else may read or write the value as long as the reference lives, and all earlier reads and
    /// writes must happen before this call.
    unsafe fn write(&self) -> Self::Mut<'_>;
}

/// The atomics of the standard library. Zero bytes are an atomic 0, and a cell has the same bytes as its
/// value.
#[derive(Debug)]
pub struct Native;

impl Atomics for Native {
    type I32 = AtomicI32;
    type I64 = AtomicI64;
    type U64 = AtomicU64;
    type Cell<T> = NativeCell<T>;

    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
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
            fn load_in_place(&self) -> $value {
                // SAFETY: the address is that of the value, which is a word: processors read it as a whole.
                // Another process may write it, but no other thread of this one, so the compiler knows all
                // that it may assume.
                unsafe { self.as_ptr().read() }
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
    type Ref<'a>
        = &'a T
    where
        T: 'a;
    type Mut<'a>
        = &'a mut T
    where
        T: 'a;

    fn new(value: T) -> Self {
        NativeCell(UnsafeCell::new(value))
    }

    #[inline(always)]
    unsafe fn read(&self) -> &T {
        // SAFETY: the caller ensures that nobody writes the value as long as the reference lives.
        unsafe { &*self.0.get() }
    }

    #[inline(always)]
    unsafe fn write(&self) -> &mut T {
        // SAFETY: the caller ensures that nobody else reads or writes the value as long as the reference
        // lives.
        unsafe { &mut *self.0.get() }
    }
}
