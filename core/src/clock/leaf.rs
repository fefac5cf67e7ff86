//! The trait of all clocks.

use super::detect::Unusable;
use super::scale::Scale;
use std::ffi::CStr;

/// A clock. Each clock is a type, so that loops over readings can be compiled for it.
pub(super) trait Clock {
    /// The name of the clock in settings and displays.
    const NAME: &'static CStr;

    /// The length of the clock's steps in nanoseconds; 0 if they are shorter than a reading.
    const RESOLUTION_NS: f64 = 0.0;

    /// Reads the clock, in raw ticks. Returns 0 if the machine does not have it. Only a usable clock is read.
    ///
    /// It must not allocate, lock or panic, because signal handlers and frames that a longjmp crosses call
    /// it.
    fn read() -> u64;

    /// Returns whether this machine has the clock, and whether it can be trusted.
    fn usable() -> Result<(), Unusable>;

    /// Returns how long a raw tick is.
    fn scale() -> Scale {
        Scale::NANOSECOND
    }
}

/// An operation on a clock. It is compiled for each clock.
pub(super) trait Visitor {
    /// The result of the operation.
    type Output;

    /// Performs the operation.
    fn visit<C: Clock>(self) -> Self::Output;
}
