//! The CPU's time stamp counter (TSC).
//!
//! Among the clocks, only this module, `system` and `source::syscall` contain `unsafe`.
#![allow(unsafe_code)]

/// Reads the counter, in raw ticks.
///
/// It may be called only if [`Source::usable`](super::Source::usable) allows it. Otherwise the counter's rate
/// may change, or the kernel may forbid the reading. On other CPUs than x86-64 this reads the system clock,
/// in nanoseconds.
///
/// It neither allocates nor panics. It uses RDTSC without a fence: the processor may read before it has
/// finished earlier instructions. [`read_in_order`] waits for them.
#[inline(always)]
pub fn read() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 CPU has RDTSC, and it touches no memory. If the kernel forbids it, the process
        // gets a SIGSEGV, which is not undefined behaviour. `permitted` checks that before the source is
        // used.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        super::system::monotonic()
    }
}

/// Reads the counter after all earlier instructions were executed. Without that, the time of a call of 25 ns
/// seems to be a fifth shorter: the reading at its end overtakes what the call still waits for. It takes some
/// ten nanoseconds more, because nothing overlaps with it.
///
/// Otherwise it is as [`read`].
#[inline(always)]
pub fn read_in_order() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has LFENCE, and it touches no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    read()
}

/// Returns whether the kernel lets this process read the counter. If a sandbox has forbidden it
/// (`prctl(PR_SET_TSC)`), a reading raises SIGSEGV.
pub(super) fn permitted() -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    {
        let mut state: libc::c_int = libc::PR_TSC_ENABLE;
        // SAFETY: PR_GET_TSC writes one int to the address, which is that of a live local.
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
            let start = read_in_order();
            while read_in_order() == start {}
        }
    }
}
