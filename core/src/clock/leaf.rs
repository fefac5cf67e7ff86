//! What every clock offers.

use super::detect::Unusable;
use super::scale::Scale;
use std::ffi::CStr;

/// A clock. Each one is a type of its own, so that loops over readings can be compiled for it.
pub(super) trait Clock {
    /// The word for the clock in settings and displays.
    const NAME: &'static CStr;

    /// The length of the steps that the clock moves in, in nanoseconds; 0 if they are shorter than a reading takes.
    const RESOLUTION_NS: f64 = 0.0;

    /// Reads the clock, in raw ticks; 0 if the machine does not have it. Called for a usable clock only.
    ///
    /// It must not allocate, lock or panic: it is called in signal handlers and in frames that a longjmp crosses.
    fn read() -> u64;

    /// Returns whether this machine has the clock and it can be trusted.
    fn usable() -> Result<(), Unusable>;

    /// Returns how long a raw tick is.
    fn scale() -> Scale {
        Scale::NANOSECOND
    }
}

/// Something that is done with a clock and compiled for each.
pub(super) trait Visitor {
    /// What comes out of it.
    type Output;

    /// Does it.
    fn visit<C: Clock>(self) -> Self::Output;
}
