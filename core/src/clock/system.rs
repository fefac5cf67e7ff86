//! The operating system's monotonic clock, in nanoseconds since an arbitrary start.
//!
//! Reading it does not allocate, lock or panic, because signal handlers and frames that a longjmp crosses
//! read it.
#![allow(unsafe_code)]

/// Nanoseconds in a second.
const NS_PER_SECOND: u64 = 1_000_000_000;

/// A timespec for the kernel to fill in.
pub(super) const ZERO: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Reads `CLOCK_MONOTONIC`, through the vDSO if the kernel offers one.
#[inline]
pub fn monotonic() -> u64 {
    gettime(libc::CLOCK_MONOTONIC)
}

/// Reads one of the system's clocks. Returns 0 if the clock does not exist.
#[inline]
pub(super) fn gettime(clock: libc::clockid_t) -> u64 {
    let mut now = ZERO;
    // SAFETY: `now` is a live local of the required type. An unknown clock only makes the call fail.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut now) };
    if rc == 0 { nanoseconds(now) } else { 0 }
}

/// Converts a timespec to nanoseconds. It wraps after 584 years of uptime, and never panics.
#[inline]
pub(super) fn nanoseconds(time: libc::timespec) -> u64 {
    (time.tv_sec as u64)
        .wrapping_mul(NS_PER_SECOND)
        .wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_does_not_exist_reads_zero() {
        assert_eq!(gettime(9999), 0);
    }

    #[test]
    fn a_timespec_converts() {
        assert_eq!(
            nanoseconds(libc::timespec {
                tv_sec: 2,
                tv_nsec: 5
            }),
            2_000_000_005
        );
        assert_eq!(
            nanoseconds(libc::timespec {
                tv_sec: -1,
                tv_nsec: 0
            }),
            0u64.wrapping_sub(NS_PER_SECOND)
        );
    }
}
