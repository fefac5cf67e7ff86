//! What an error may leave behind if it is caught and no transaction is aborted, and how that becomes as it
//! was before.

use super::error::HeldInterrupts;
use super::process;
use crate::pg::border::globals::GLOBALS;
use crate::pg::border::unguarded;
use crate::pg::compat;
use pgrx::pg_sys;
use std::ffi::{CStr, c_int};

/// The state of the transaction before a body that may fail.
pub struct Before {
    context: pg_sys::MemoryContext,
    held: HeldInterrupts,
    nest_level: c_int,
    /// What only functions of others leave.
    others: Option<Others>,
}

/// What PostgreSQL's own functions leave as it was, also if they fail.
struct Others {
    /// The newest active snapshot, and how often it is active.
    snapshot: Option<(pg_sys::Snapshot, u32)>,
    /// The number of SPI's connections.
    connections: usize,
    portals: usize,
    written: Written,
    is_parallel: bool,
    user: pg_sys::Oid,
    security_context: c_int,
}

impl Before {
    /// Copies the current state. `runs_others` says that the body may run functions that are not PostgreSQL's
    /// own.
    pub fn now(runs_others: bool) -> Before {
        Before {
            context: GLOBALS.CurrentMemoryContext.get(),
            held: HeldInterrupts::now(),
            nest_level: unguarded::GetCurrentTransactionNestLevel(),
            others: runs_others.then(Others::now),
        }
    }

    /// Returns the memory context that was the current one.
    pub fn context(&self) -> pg_sys::MemoryContext {
        self.context
    }

    /// Returns whether subtransactions are open that were not.
    pub fn has_open_subtransactions(&self) -> bool {
        unguarded::GetCurrentTransactionNestLevel() > self.nest_level
    }

    /// Rolls back the subtransactions that were not open. The caller must set the current resource owner
    /// again.
    ///
    /// # Safety
    /// The body must not run any more. If it raised an error that is not raised again, the error's record
    /// must have been removed. May raise.
    pub unsafe fn roll_back(&self) {
        // SAFETY: the innermost subtransaction was opened by the body, and the body does not run any more.
        unsafe {
            while self.has_open_subtransactions() {
                pg_sys::RollbackAndReleaseCurrentSubTransaction();
            }
            pg_sys::CurrentMemoryContext = self.context;
        }
    }

    /// Restores the state after an error, except what the resource owner has. Returns false if that is not
    /// possible without the abort of a transaction: something was written, a portal or a connection of SPI
    /// was opened, whose queries leave their level of triggers, or parallel mode was entered.
    ///
    /// # Safety
    /// An error must have been caught just before. No lightweight lock may have been held before. May raise.
    pub unsafe fn restore(&self) -> bool {
        // SAFETY: these are the functions that the abort of a subtransaction calls. Each does nothing if
        // there is nothing to do. The snapshots and connections that are removed are those that the body has
        // made, because they lie above the older ones.
        unsafe {
            pg_sys::LWLockReleaseAll();
            compat::abort_io();
            pg_sys::ConditionVariableCancelSleep();
            pg_sys::LockErrorCleanup();
            pg_sys::pgstat_report_wait_end();
            let is_possible = unguarded::GetCurrentTransactionNestLevel() == self.nest_level
                && self.others.as_ref().is_none_or(|others| others.restore());
            pg_sys::CurrentMemoryContext = self.context;
            self.held.restore();
            is_possible
        }
    }
}

/// What tells whether the transaction has written something.
#[derive(PartialEq)]
struct Written {
    transaction: pg_sys::TransactionId,
    command: pg_sys::CommandId,
    /// Where its last WAL record ends. Only if it had a number already: reading may write a record, too, that
    /// of a pruned page.
    record: Option<pg_sys::XLogRecPtr>,
}

impl Written {
    /// Reads it.
    fn now() -> Written {
        // SAFETY: the functions only read what there is without a transaction, too.
        unsafe {
            let transaction = unguarded::GetTopTransactionIdIfAny();
            Written {
                transaction,
                command: pg_sys::GetCurrentCommandId(false),
                record: (transaction != pg_sys::InvalidTransactionId).then_some(pg_sys::XactLastRecEnd),
            }
        }
    }
}

impl Others {
    /// Copies the current state.
    fn now() -> Others {
        let (mut user, mut security_context) = (pg_sys::InvalidOid, 0);
        // SAFETY: the function writes both values.
        unsafe { unguarded::GetUserIdAndSecContext(&raw mut user, &raw mut security_context) };
        Others {
            snapshot: active_snapshot(),
            connections: connections(),
            portals: portals(),
            written: Written::now(),
            is_parallel: process::is_parallel_mode(),
            user,
            security_context,
        }
    }

    /// Restores the state. Returns false if that is not possible.
    ///
    /// # Safety
    /// The code that changed it must not run any more.
    unsafe fn restore(&self) -> bool {
        // SAFETY: the user is the one that was the current one.
        unsafe { pg_sys::SetUserIdAndSecContext(self.user, self.security_context) };
        let is_possible = portals() == self.portals
            && connections() == self.connections
            && Written::now() == self.written
            && process::is_parallel_mode() == self.is_parallel;
        if !is_possible {
            return false;
        }
        // The active snapshots that were added are removed, if the earlier one is among them.
        loop {
            match active_snapshot() {
                now if now == self.snapshot => return true,
                None => return false,
                // SAFETY: it is active, and the code that made it so does not run any more.
                Some(_) => unsafe { pg_sys::PopActiveSnapshot() },
            }
        }
    }
}

/// Returns the newest active snapshot, and how often it is active.
#[allow(ffi_unwind_calls, reason = "it raises nothing as it is called here")]
fn active_snapshot() -> Option<(pg_sys::Snapshot, u32)> {
    // SAFETY: an active snapshot is live.
    unsafe {
        unguarded::ActiveSnapshotSet().then(|| {
            let snapshot = unguarded::GetActiveSnapshot();
            (snapshot, (*snapshot).active_count)
        })
    }
}

/// Returns the number of SPI's connections. SPI does not tell it, but each has a memory context.
fn connections() -> usize {
    // SAFETY: the contexts are null or live, and nobody adds children meanwhile.
    unsafe {
        [pg_sys::TopTransactionContext, pg_sys::PortalContext]
            .into_iter()
            .map(|parent| named(parent, c"SPI Proc").count())
            .sum()
    }
}

/// Returns the number of portals: each has a memory context, also if no portal runs, as when deferred
/// triggers fire.
fn portals() -> usize {
    // SAFETY: the contexts of portals have the same parent, which lives as long as the process. Nobody adds
    // children meanwhile.
    unsafe {
        named(pg_sys::TopMemoryContext, c"TopPortalContext")
            .map(|parent| named(parent, c"PortalContext").count())
            .sum()
    }
}

/// Returns a memory context's children that have this name.
///
/// # Safety
/// `parent` must be null or live, and must have the same children as long as the iterator is used.
unsafe fn named(parent: pg_sys::MemoryContext, name: &CStr) -> impl Iterator<Item = pg_sys::MemoryContext> {
    // SAFETY: the parent is null or live by the caller's promise, and so are its children. A name is a C
    // string that lives for ever.
    unsafe {
        let first = parent
            .as_ref()
            .map_or(std::ptr::null_mut(), |parent| parent.firstchild);
        let context = |context: pg_sys::MemoryContext| (!context.is_null()).then_some(context);
        std::iter::successors(context(first), move |child| context((**child).nextchild))
            .filter(move |child| CStr::from_ptr((**child).name) == name)
    }
}
