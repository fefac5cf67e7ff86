//! The clock `tsc`.

use crate::clock::detect::{self, Unusable};
use crate::clock::frequency::{self, frequency};
use crate::clock::leaf::Clock;
use crate::clock::scale::Scale;
use crate::clock::tsc;
use std::ffi::CStr;

/// The CPU's time stamp counter.
pub(super) struct Tsc;

impl Clock for Tsc {
    const NAME: &'static CStr = c"tsc";

    #[inline(always)]
    fn read() -> u64 {
        tsc::read()
    }

    /// Checks the TSC and finds its frequency. Only the first call does so, and child processes inherit the
    /// result: see [`prepare`](crate::clock::prepare).
    fn usable() -> Result<(), Unusable> {
        detect::tsc().and_then(|()| frequency::known())
    }

    fn scale() -> Scale {
        Scale::of_frequency(frequency().hz)
    }
}
