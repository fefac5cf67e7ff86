//! The atomics and the cell of the model checker (loom) for the protocols in shared memory.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(unsafe_code, reason = "the model checker's cells give raw pointers")]

use loom::sync::atomic::{AtomicI32, AtomicI64, AtomicU64};
use rowsource_core::pending::{Atomic, Atomics, SharedCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{self, Relaxed};

/// Decides which orderings an atomic uses.
pub trait Orderings: 'static {
    /// Returns the ordering to use if the protocol requests `requested`.
    fn used_for(requested: Ordering) -> Ordering;

    /// Returns whether there are fences.
    fn has_fences() -> bool {
        true
    }

    /// Returns whether the thread lives to write once more.
    fn may_write() -> bool {
        true
    }
}

/// Uses the orderings that the protocol requests.
pub struct AsRequested;

impl Orderings for AsRequested {
    fn used_for(requested: Ordering) -> Ordering {
        requested
    }
}

/// Makes all orderings relaxed. Loom must report an error.
pub struct NoOrder;

impl Orderings for NoOrder {
    fn used_for(_requested: Ordering) -> Ordering {
        Relaxed
    }
}

/// Makes `Acquire` relaxed. Loom must report an error.
pub struct NoAcquire;

impl Orderings for NoAcquire {
    fn used_for(requested: Ordering) -> Ordering {
        match requested {
            Ordering::Acquire => Relaxed,
            other => other,
        }
    }
}

/// Makes `Release` relaxed. Loom must report an error.
pub struct NoRelease;

impl Orderings for NoRelease {
    fn used_for(requested: Ordering) -> Ordering {
        match requested {
            Ordering::Release => Relaxed,
            other => other,
        }
    }
}

/// Leaves out all fences. Loom must report an error.
pub struct NoFence;

impl Orderings for NoFence {
    fn used_for(requested: Ordering) -> Ordering {
        requested
    }

    fn has_fences() -> bool {
        false
    }
}

pub struct Loom<O>(PhantomData<O>);

impl<O: Orderings> Atomics for Loom<O> {
    type I32 = Ordered<AtomicI32, O>;
    type I64 = Ordered<AtomicI64, O>;
    type U64 = Ordered<AtomicU64, O>;
    type Cell<T> = LoomCell<T>;

    fn fence(order: Ordering) {
        if O::has_fences() {
            loom::sync::atomic::fence(order);
        }
    }
}

pub struct Ordered<T, O>(T, PhantomData<fn(O)>);

macro_rules! ordered {
    ($atomic:ty, $value:ty) => {
        impl<O: Orderings> Atomic<$value> for Ordered<$atomic, O> {
            fn new(value: $value) -> Self {
                Ordered(<$atomic>::new(value), PhantomData)
            }

            fn load(&self, order: Ordering) -> $value {
                self.0.load(O::used_for(order))
            }

            fn store(&self, value: $value, order: Ordering) {
                if O::may_write() {
                    self.0.store(value, O::used_for(order));
                }
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if !O::may_write() {
                    return Err(current);
                }
                self.0
                    .compare_exchange(current, new, O::used_for(success), O::used_for(failure))
            }
        }
    };
}

ordered!(AtomicI32, i32);
ordered!(AtomicI64, i64);
ordered!(AtomicU64, u64);

pub struct LoomCell<T>(loom::cell::UnsafeCell<T>);

/// A reference that can read the value. For loom, the cell is in use until this is dropped.
pub struct LoomRef<T>(loom::cell::ConstPtr<T>);

/// A reference that can change the value. For loom, the cell is in use until this is dropped.
pub struct LoomMut<T>(loom::cell::MutPtr<T>);

impl<T> Deref for LoomRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the caller of `read` ensures that nobody writes the value as long as this lives. Loom
        // checks it.
        unsafe { self.0.deref() }
    }
}

impl<T> Deref for LoomMut<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the caller of `write` ensures that nobody else uses the value as long as this lives. Loom
        // checks it.
        unsafe { self.0.deref() }
    }
}

impl<T> DerefMut for LoomMut<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the caller of `write` ensures that nobody else uses the value as long as this lives. Loom
        // checks it.
        unsafe { self.0.deref() }
    }
}

impl<T> SharedCell<T> for LoomCell<T> {
    type Ref<'a>
        = LoomRef<T>
    where
        T: 'a;
    type Mut<'a>
        = LoomMut<T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        LoomCell(loom::cell::UnsafeCell::new(value))
    }

    unsafe fn read(&self) -> LoomRef<T> {
        LoomRef(self.0.get())
    }

    unsafe fn write(&self) -> LoomMut<T> {
        LoomMut(self.0.get_mut())
    }
}
