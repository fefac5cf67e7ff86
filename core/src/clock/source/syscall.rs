//! The clock `syscall`.
#![allow(unsafe_code)]

use crate::clock::detect::{self, Unusable};
use crate::clock::leaf::Clock;
use std::ffi::CStr;

/// `CLOCK_MONOTONIC`, read with a real system call, without the vDSO. It cannot be used if a sandbox forbids
/// the call.
pub(super) struct Syscall;

impl Clock for Syscall {
    const NAME: &'static CStr = c"syscall";

    #[inline]
    fn read() -> u64 {
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        {
            use crate::clock::system::{ZERO, nanoseconds};
            let mut now = ZERO;
            // SAFETY: the call takes a clock's number and the address of a timespec, which is a live local.
            // On 64-bit Linux the kernel's layout of a timespec is the same as libc's.
            let rc = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut now) };
            if rc == 0 { nanoseconds(now) } else { 0 }
        }
        #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
        {
            0
        }
    }

    fn usable() -> Result<(), Unusable> {
        detect::answers(Self::read)
    }
}
