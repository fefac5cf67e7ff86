//! Variables of PostgreSQL that may be read at any time: whatever value they have is a valid one, and only
//! this process's one thread writes them. A declaration here makes reading them safe.

use pgrx::pg_sys;
use std::ffi::{c_char, c_int};

/// A variable of PostgreSQL.
#[derive(Clone, Copy)]
pub struct Global<T: 'static>(*const T);

impl<T: Copy> Global<T> {
    /// Returns the variable at an address.
    ///
    /// # Safety
    /// There must be a value of this type as long as the process lives. It may change only between two reads.
    pub const unsafe fn new(address: *const T) -> Self {
        Global(address)
    }

    /// Returns what the variable contains now.
    #[inline(always)]
    pub fn get(self) -> T {
        // SAFETY: who made this has promised that a value is there.
        unsafe { self.0.read() }
    }
}

/// Declares variables, with their names and types in PostgreSQL, as fields of the constant `GLOBALS`.
macro_rules! globals {
    ($visibility:vis, $($(#[$attribute:meta])* $name:ident: $type:ty;)*) => {
        #[allow(non_snake_case, reason = "PostgreSQL's names")]
        $visibility struct Globals {
            $($(#[$attribute])* $visibility $name: $crate::pg::border::globals::Global<$type>,)*
        }

        // SAFETY: these are variables of plain types, which only this thread writes.
        $visibility const GLOBALS: Globals = unsafe {
            Globals {
                $($(#[$attribute])* $name: $crate::pg::border::globals::Global::new(&raw const pgrx::pg_sys::$name),)*
            }
        };
    };
}
pub(in crate::pg) use globals;

globals! { pub,
    BufferBlocks: *mut c_char;
    ActivePortal: pg_sys::Portal;
    CurrentExtensionObject: pg_sys::Oid;
    CurrentMemoryContext: pg_sys::MemoryContext;
    InterruptHoldoffCount: u32;
    IsBinaryUpgrade: bool;
    IsPostmasterEnvironment: bool;
    IsUnderPostmaster: bool;
    MaxBackends: c_int;
    MyBackendType: pg_sys::BackendType::Type;
    MyDatabaseId: pg_sys::Oid;
    MyProc: *mut pg_sys::PGPROC;
    MyProcPid: c_int;
    MyStartTime: pg_sys::pg_time_t;
    MyStartTimestamp: pg_sys::TimestampTz;
    NBuffers: c_int;
    ParallelWorkerNumber: c_int;
    QueryCancelHoldoffCount: u32;
    SharedInvalidMessageCounter: u64;
    XactReadOnly: bool;
    am_walsender: bool;
    CritSectionCount: u32;
    application_name: *mut c_char;
    creating_extension: bool;
    debug_query_string: *const c_char;
    dynamic_shared_memory_type: c_int;
    enable_parallel_append: bool;
    min_dynamic_shared_memory: c_int;
    my_wait_event_info: *mut u32;
    parallel_leader_participation: bool;
    proc_exit_inprogress: bool;
    process_shared_preload_libraries_in_progress: bool;
    track_io_timing: bool;
}

/// Returns the event that this process waits for; 0 if it waits for none. It is a plain frame.
#[inline(always)]
pub fn wait_event() -> u32 {
    // SAFETY: PostgreSQL keeps the address of this process's wait event valid at all times.
    unsafe { GLOBALS.my_wait_event_info.get().read_volatile() }
}
