//! Reads memory that another process may write at the same moment.

use std::mem::transmute_copy;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Reads a value of one word, as it was before or after a write of another process. It is an atomic load,
/// which costs what a plain one does: a plain or a volatile one would be a data race.
///
/// # Safety
/// There must be an initialised value at `from`, in memory that may be written, aligned to its size. Whoever
/// writes it meanwhile must write it as a whole.
#[inline(always)]
pub unsafe fn load<T>(from: *const T) -> T {
    const { assert!(matches!(size_of::<T>(), 1 | 2 | 4 | 8)) };
    let from = from.cast_mut();
    // SAFETY: the caller promises a value of this size there. The copy has the same bytes.
    unsafe {
        match size_of::<T>() {
            1 => transmute_copy(&AtomicU8::from_ptr(from.cast()).load(Relaxed)),
            2 => transmute_copy(&AtomicU16::from_ptr(from.cast()).load(Relaxed)),
            4 => transmute_copy(&AtomicU32::from_ptr(from.cast()).load(Relaxed)),
            _ => transmute_copy(&AtomicU64::from_ptr(from.cast()).load(Relaxed)),
        }
    }
}

/// Defines functions that read fields of a struct in shared memory. `$of` must be a pointer to it, which is
/// valid as long as the process lives. Each of the fields has one word, of a type of which all bytes that
/// another process may write are values, and is written as a whole.
macro_rules! shared_fields {
    ($of:ident: $($(#[$doc:meta])* $name:ident = $($field:ident).+: $type:ty;)+) => {
        impl $of {
            $(
                $(#[$doc])*
                #[inline(always)]
                pub fn $name(self) -> $type {
                    // SAFETY: the struct stays mapped, and such a field is written as a whole.
                    unsafe { $crate::pg::border::shared::load(&raw const (*self.0).$($field).+) }
                }
            )+
        }
    };
}
pub(crate) use shared_fields;
