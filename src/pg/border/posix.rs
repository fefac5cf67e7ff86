//! Functions of the system that take no pointers, the path of a descriptor's file, and errno. All of this is
//! plain frames.

use std::ffi::{c_int, c_long};

// SAFETY: they take any numbers.
unsafe extern "C" {
    pub safe fn ftruncate(file: c_int, bytes: libc::off_t) -> c_int;
    pub safe fn kill(pid: libc::pid_t, signal: c_int) -> c_int;
    pub safe fn lseek(file: c_int, offset: libc::off_t, from: c_int) -> libc::off_t;
    pub safe fn sysconf(name: c_int) -> c_long;
}

/// Returns errno.
#[inline(always)]
pub fn errno() -> c_int {
    // SAFETY: its address is always valid.
    unsafe { *libc::__errno_location() }
}

/// Sets errno.
#[inline(always)]
pub fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the path of the file that a descriptor is open for, or as much of it as `path` has room for. It is
/// empty if the system does not tell it. Keeps errno.
pub fn path_of(descriptor: c_int, path: &mut [u8]) -> &[u8] {
    let mut link = [0; 32];
    let errno = errno();
    // SAFETY: the buffers have the lengths that are passed.
    let length = unsafe {
        libc::snprintf(
            link.as_mut_ptr(),
            link.len(),
            c"/proc/self/fd/%d".as_ptr(),
            descriptor,
        );
        libc::readlink(link.as_ptr(), path.as_mut_ptr().cast(), path.len())
    };
    set_errno(errno);
    let length = usize::try_from(length).unwrap_or(0);
    path.get(..length).unwrap_or_default()
}
