//! Maps pages with statics onto shared memory: then the process uses the statics as before, and others see
//! their content.

use crate::pg::compat::{MIN_PAGE, page};

/// Returns the size of the smallest huge page of any system that has pages of this size.
fn huge_page(page: usize) -> usize {
    if page == MIN_PAGE { 64 << 10 } else { 2 << 20 }
}

/// Returns whether statics at this place could be mapped onto shared memory. The system would round the
/// length of two places where a huge page can begin up to a huge page. It refuses huge pages at other
/// addresses.
pub fn may_map(place: usize, shared: *const u8) -> bool {
    !(place | shared.addr()).is_multiple_of(huge_page(page()))
}

/// Puts shared memory in the place of statics. Returns the system's error number, and changes nothing, if the
/// system does not allow that: for example, if the shared memory is of huge pages.
///
/// # Safety
/// * `place` and `shared` must be the addresses of `bytes` bytes in whole pages. `place` must be pages of
///   writable statics. What else is there stays as it is.
/// * No other process may use the shared memory. It must stay allocated as long as this process runs.
/// * This process must have one thread, and no reference into the statics may be in use.
#[cfg(target_os = "linux")]
pub unsafe fn map_onto(place: *mut u8, shared: *mut u8, bytes: usize) -> Result<(), i32> {
    if !(place.addr() | shared.addr() | bytes).is_multiple_of(page()) || !may_map(place.addr(), shared) {
        return Err(libc::EINVAL);
    }
    // SAFETY: both ranges are mapped pages, by the caller's promise. No signal handler runs meanwhile, and no
    // other thread. The static has its content again before this returns, or the process ends.
    unsafe {
        // A length of 0 makes a second mapping of shared pages. If the system refuses, it refuses here, where
        // nothing is lost.
        let second = libc::mremap(shared.cast(), 0, bytes, libc::MREMAP_MAYMOVE);
        if second == libc::MAP_FAILED {
            return Err(*libc::__errno_location());
        }
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        shared.copy_from_nonoverlapping(place, bytes);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let target: *mut libc::c_void = place.cast();
        let mapped = if libc::mremap(second, bytes, bytes, flags, target) == target {
            Ok(())
        } else {
            Err(*libc::__errno_location())
        };
        if mapped.is_err() {
            // If the system failed after it had unmapped the static, an address in it is not mapped any more.
            if libc::msync(place.cast(), bytes, libc::MS_ASYNC) != 0 {
                restore(place, shared, bytes);
            }
            libc::munmap(second, bytes);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        mapped
    }
}

/// Gives the static private pages again, with its content. The system may have unmapped them before it
/// failed.
///
/// # Safety
/// The same as for [`map_onto`].
#[cfg(target_os = "linux")]
#[cold]
unsafe fn restore(place: *mut u8, shared: *const u8, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the pages are those of the static, by the caller's promise. `shared` has their content.
    unsafe {
        let mapped = libc::mmap(
            place.cast(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        if mapped == libc::MAP_FAILED {
            libc::abort();
        }
        place.copy_from_nonoverlapping(shared, bytes);
    }
}

/// Returns an error: other systems cannot map shared memory twice.
///
/// # Safety
/// None.
#[cfg(not(target_os = "linux"))]
pub unsafe fn map_onto(_place: *mut u8, _shared: *mut u8, _bytes: usize) -> Result<(), i32> {
    Err(libc::ENOSYS)
}
