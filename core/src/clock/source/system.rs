//! The clock `system`.

use crate::clock::detect::{self, Unusable};
use crate::clock::leaf::Clock;
use crate::clock::system::monotonic;
use std::ffi::CStr;

/// `CLOCK_MONOTONIC`, through the vDSO if the kernel offers one.
pub(super) struct System;

impl Clock for System {
    const NAME: &'static CStr = c"system";

    #[inline]
    fn read() -> u64 {
        monotonic()
    }

    fn usable() -> Result<(), Unusable> {
        detect::answers(Self::read)
    }
}
