//! PostgreSQL's list of processes.

use crate::pg::border::globals::GLOBALS;
use crate::pg::border::shared::shared_fields;
use crate::pg::border::unguarded;
use pgrx::pg_sys::{self, LOCK, LOCKMODE, Oid, PGPROC};

/// The list. It stays mapped.
#[derive(Clone, Copy)]
pub struct Processes {
    first: *const PGPROC,
    count: usize,
}

/// A place in the list. The process that has it changes its fields at any time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Process(*const PGPROC);

shared_fields! { Process:
    pid = pid: i32;
    /// Returns what it waits for; 0 if it does not wait.
    wait_event = wait_event_info: u32;
    /// Returns the role that its session logged in as.
    role = roleId: Oid;
    /// Returns who owns its latch: the process that has the place now.
    latch_owner = procLatch.owner_pid: i32;
    /// Returns since when it waits for a heavyweight lock; 0 if that is not known.
    wait_start = waitStart.value: u64;
    wait_lock = waitLock: *mut LOCK;
    wait_lock_mode = waitLockMode: LOCKMODE;
    group_leader = lockGroupLeader: *mut PGPROC;
}

impl Processes {
    /// Returns the list. It is empty if this process has no shared memory.
    pub fn all() -> Processes {
        // SAFETY: the header of the list is null, or lies in shared memory. These fields are complete before
        // the server starts any process.
        let (first, count) = unsafe {
            match pg_sys::ProcGlobal {
                header if header.is_null() => (std::ptr::null_mut(), 0),
                header => ((*header).allProcs, (*header).allProcCount),
            }
        };
        Processes {
            first,
            count: count as usize,
        }
    }

    /// Returns the number of places.
    pub fn count(self) -> usize {
        self.count
    }

    /// Returns a place, if there is one with this number.
    pub fn get(self, number: usize) -> Option<Process> {
        (number < self.count).then(|| Process(self.first.wrapping_add(number)))
    }

    /// Returns the number of a place.
    pub fn number(self, process: Process) -> usize {
        process.0.addr().wrapping_sub(self.first.addr()) / size_of::<PGPROC>()
    }
}

impl Process {
    /// Returns the place of this process, if it has one.
    pub fn own() -> Option<Process> {
        let own = GLOBALS.MyProc.get();
        (!own.is_null()).then_some(Process(own))
    }

    /// Returns the place of the session with this process id. Takes and releases a lock.
    pub fn with_pid(pid: i32) -> Option<Process> {
        // SAFETY: the function returns null, or a place of the list.
        let process = unsafe { pg_sys::BackendPidGetProc(pid) };
        (!process.is_null()).then_some(Process(process))
    }

    /// Returns the leader of the parallel worker that has the place.
    pub fn leader(self) -> Option<Process> {
        let leader = Process(self.group_leader());
        (!leader.0.is_null() && leader != self).then_some(leader)
    }

    /// Returns where the number of what it waits for is.
    pub fn wait_event_word(self) -> *const u32 {
        let offset = std::mem::offset_of!(PGPROC, wait_event_info);
        self.0.wrapping_byte_add(offset).cast()
    }

    /// Wakes the process up. PostgreSQL's processes expect to wake up for nothing.
    pub fn wake(self) {
        // SAFETY: the place stays mapped. The function raises no error.
        unsafe { unguarded::SetLatch((&raw const (*self.0).procLatch).cast_mut()) }
    }
}
