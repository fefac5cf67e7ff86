//! The CPU's time stamp counter (TSC).
//!
//! Leaf module: the only `unsafe` of the clocks besides the one of [`system`](super::system).
#![allow(unsafe_code)]

/// The counter, in raw ticks.
///
/// Call it only where [`Source::usable`](super::Source::usable) says so: elsewhere it may tick at a changing
/// rate, or the kernel may forbid it. On other CPUs than x86-64 the system clock stands
/// in for it, in nanoseconds.
///
/// Neither allocates nor panics. It is not fenced: RDTSC, rather than RDTSCP or a fence before it, because
/// waiting for all earlier work costs more than the instructions that may slip past it.
#[inline(always)]
pub fn read() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 CPU has RDTSC and it touches no memory. Where the kernel forbids it the
        // process gets SIGSEGV, which is no unsoundness; `permitted` rules that out before the source is
        // offered.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        super::system::monotonic()
    }
}

/// Whether the kernel lets this process read the counter: a sandbox may have forbidden it
/// (`prctl(PR_SET_TSC)`), and then a reading is a SIGSEGV.
pub(super) fn permitted() -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    {
        let mut state: libc::c_int = libc::PR_TSC_ENABLE;
        // SAFETY: PR_GET_TSC writes one int to the address given, which is that of a live local.
        let rc = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut state) };
        rc != 0 || state == libc::PR_TSC_ENABLE
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves() {
        if permitted() {
            let start = read();
            while read() == start {}
        }
    }
}
