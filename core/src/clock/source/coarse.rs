//! The clock `coarse`.

use crate::clock::detect::{self, Unusable};
use crate::clock::leaf::Clock;
use std::ffi::CStr;

/// `CLOCK_MONOTONIC_COARSE`: the time of the kernel's last tick.
pub(super) struct Coarse;

impl Clock for Coarse {
    const NAME: &'static CStr = c"coarse";
    /// One tick of the slowest kernels in use (100 Hz).
    const RESOLUTION_NS: f64 = 10e6;

    #[inline]
    fn read() -> u64 {
        #[cfg(target_os = "linux")]
        {
            crate::clock::system::gettime(libc::CLOCK_MONOTONIC_COARSE)
        }
        #[cfg(not(target_os = "linux"))]
        {
            0
        }
    }

    fn usable() -> Result<(), Unusable> {
        detect::answers(Self::read)
    }
}
