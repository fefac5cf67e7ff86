//! The functions that replace those in which a process waits, other than requests to files at an offset.
//!
//! They are plain frames: they call no PostgreSQL function, do not allocate or panic, and keep the system
//! call's errno. If the process waits for no event, or waits are not counted, the original function is called
//! after one or two branches.

use super::clock::{now, ns_since};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::waits::counting;
use libc::{c_char, c_int, c_long, c_uint, c_void, off_t, size_t, ssize_t};
use std::cell::Cell;
use std::ffi::CStr;

/// Whether a signal ends the wait that a call makes. If not, PostgreSQL waits on after the signal: it repeats
/// the call, or it finds its latch set by one of its timeouts. So these do not turn one wait into two.
const ENDED: bool = false;
const RESUMED: bool = true;

/// Whether a call counts for each event, or only for those of the class IO. If only for these, its first
/// argument is a descriptor. A latch is woken through a descriptor too, which the process reads while the
/// event is still that of its wait.
const ANY: bool = false;
const IO: bool = true;

/// Makes a function of each line, which counts the call as a wait and is otherwise like the original of this
/// name.
macro_rules! waiting {
    ($($events:ident $after_signal:ident $name:ident($first:ident: $of:ty $(, $argument:ident: $type:ty)*) -> $result:ty;)+) => {
        #[allow(non_camel_case_types, reason = "these are names of functions")]
        enum Place { $($name),+ }

        /// The functions to replace, by the names that servers import them under.
        pub const NAMES: &[&CStr] = &[$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name contains a zero"),
            }
        ),+];

        /// Returns the address of the function that replaces the one with this name.
        pub fn replacement(name: usize) -> usize {
            [$($name as *const () as usize),+].get(name).copied().unwrap_or(0)
        }

        $(
            /// # Safety
            /// Only a caller of the replaced function may call this, with that function's arguments, after
            /// its original was stored.
            #[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
            unsafe extern "C-unwind" fn $name($first: $of $(, $argument: $type)*) -> $result {
                // SAFETY: only `table` puts this function into the server's table, and stores the original of
                // the same name and type before. Arguments are passed on unchanged.
                unsafe {
                    let original: unsafe extern "C-unwind" fn($of $(, $type)*) -> $result =
                        std::mem::transmute(ORIGINALS[Place::$name as usize].get());
                    let event = counting::counted_event();
                    if event == 0 {
                        return original($first $(, $argument)*);
                    }
                    if $events && !counting::is_file_io(event) {
                        let result = original($first $(, $argument)*);
                        counting::woken(event);
                        return result;
                    }
                    if $events {
                        counting::note_request(event, $first as usize as c_int, None, || 0);
                    }
                    let wait = counting::begin(event);
                    let start = now();
                    let result = original($first $(, $argument)*);
                    let ns = ns_since(start);
                    let goes_on =
                        $after_signal && result as i64 == -1 && *libc::__errno_location() == libc::EINTR;
                    counting::end(wait, ns, goes_on);
                    result
                }
            }
        )+
    };
}

waiting! {
    ANY RESUMED epoll_wait(epoll: c_int, events: *mut c_void, count: c_int, timeout: c_int) -> c_int;
    ANY RESUMED poll(descriptors: *mut c_void, count: usize, timeout: c_int) -> c_int;
    ANY RESUMED sem_wait(semaphore: *mut c_void) -> c_int;
    ANY RESUMED semop(semaphore: c_int, operations: *mut c_void, count: size_t) -> c_int;
    ANY ENDED select(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void, time: *mut c_void) -> c_int;
    ANY ENDED nanosleep(time: *const c_void, left: *mut c_void) -> c_int;
    ANY ENDED system(command: *const c_char) -> c_int;
    ANY ENDED io_uring_wait_cqes(ring: *mut c_void, found: *mut c_void, count: c_uint, time: *mut c_void, signals: *mut c_void) -> c_int;
    ANY ENDED io_uring_submit(ring: *mut c_void) -> c_int;
    IO ENDED read(descriptor: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    IO ENDED __read_chk(descriptor: c_int, buffer: *mut c_void, bytes: size_t, size: size_t) -> ssize_t;
    IO ENDED write(descriptor: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t;
    IO ENDED fsync(descriptor: c_int) -> c_int;
    IO ENDED fdatasync(descriptor: c_int) -> c_int;
    IO ENDED sync_file_range(descriptor: c_int, offset: i64, bytes: i64, flags: c_uint) -> c_int;
    IO ENDED posix_fadvise(descriptor: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int;
    IO ENDED posix_fallocate(descriptor: c_int, offset: off_t, bytes: off_t) -> c_int;
    IO ENDED posix_fallocate64(descriptor: c_int, offset: off_t, bytes: off_t) -> c_int;
    IO ENDED ftruncate(descriptor: c_int, bytes: off_t) -> c_int;
    IO ENDED ftruncate64(descriptor: c_int, bytes: off_t) -> c_int;
    IO ENDED copy_file_range(from: c_int, from_offset: *mut c_long, to: c_int, to_offset: *mut c_long, bytes: size_t, flags: c_uint) -> ssize_t;
}

/// The addresses of the original functions, by the index of their name; 0 if the server does not import it.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
pub static ORIGINALS: BackendLocal<[Cell<usize>; NAMES.len()]> =
    BackendLocal::new([const { Cell::new(0) }; NAMES.len()]);
