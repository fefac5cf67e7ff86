//! The operating system's monotonic clock, in three qualities. All return nanoseconds since an arbitrary
//! start.
//!
//! None of them allocates, locks or panics: they are called in signal handlers and in frames that a longjmp
//! crosses. Leaf module: `unsafe` is only what calling `clock_gettime` takes.
#![allow(unsafe_code)]

/// Nanoseconds in a second.
const NS_PER_SECOND: u64 = 1_000_000_000;

/// A timespec for the kernel to fill in.
const ZERO: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// `CLOCK_MONOTONIC`, through the vDSO where the kernel offers one; 0 if it failed (it does not).
#[inline]
pub fn monotonic() -> u64 {
    gettime(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_MONOTONIC_COARSE`: the time of the kernel's last tick; 0 where there is no such clock.
#[inline]
pub fn coarse() -> u64 {
    #[cfg(target_os = "linux")]
    {
        gettime(libc::CLOCK_MONOTONIC_COARSE)
    }
    #[cfg(not(target_os = "linux"))]
    {
        0
    }
}

/// `CLOCK_MONOTONIC` by a real system call; 0 where that cannot be made, or a sandbox refuses it.
#[inline]
pub fn syscall() -> u64 {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    {
        let mut now = ZERO;
        // SAFETY: the call takes a clock's number and the address of a timespec, which is that of a live
        // local; on 64-bit Linux the kernel's layout of it is libc's.
        let rc = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut now) };
        if rc == 0 { nanoseconds(now) } else { 0 }
    }
    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    {
        0
    }
}

/// Reads one of the system's clocks; 0 if there is no such clock.
#[inline]
fn gettime(clock: libc::clockid_t) -> u64 {
    let mut now = ZERO;
    // SAFETY: `now` is a live local of the type asked for; an unknown clock is an error, not undefined.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut now) };
    if rc == 0 { nanoseconds(now) } else { 0 }
}

/// A timespec in nanoseconds. Wraps after 584 years of uptime rather than to panic.
#[inline]
fn nanoseconds(time: libc::timespec) -> u64 {
    (time.tv_sec as u64)
        .wrapping_mul(NS_PER_SECOND)
        .wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_agree() {
        let start = monotonic();
        let told = [coarse(), syscall(), monotonic()];
        for now in told.into_iter().filter(|&now| now != 0) {
            assert!(now + 100_000_000 >= start, "{now} is long before {start}");
            assert!(now <= monotonic());
        }
    }

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
