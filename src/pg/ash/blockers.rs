//! Knows which process blocks one that waits for a heavyweight lock.
//!
//! To answer that, the lock manager's partitions must all be locked for a moment. So it is asked at most once
//! a second for a process, ten times a second in all, and each time for a few processes, which take turns.
//! The answer holds until the wait ends. It also holds for the others that waited then for the same lock in
//! the same mode.

use crate::pg::border::shared::load;
use crate::pg::server;
use crate::pg::server::processes::Process;
use pgrx::{IntoDatum, pg_sys};
use rowsource_core::ash::Turns;

/// How long an answer holds, in microseconds.
const ASK_AGAIN_US: i64 = 1_000_000;
/// How long nothing is asked after something was.
const PAUSE_US: i64 = 100_000;
/// For how many processes it is asked at a time.
const MOST: u32 = 16;

/// So many answers are kept for others that wait for the same lock.
const ANSWERS: usize = 2 * MOST as usize;

/// A lock, and the mode in which a process waits for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    tag: [u32; 4],
    mode: pg_sys::LOCKMODE,
}

impl Wanted {
    /// Returns the number of the mode; 0 if it is none.
    pub fn mode(&self) -> u8 {
        u8::try_from(self.mode).unwrap_or(0)
    }

    /// Returns the relation whose lock this is, or the lock of a part of it.
    pub fn relation(&self) -> Option<u32> {
        use pg_sys::LockTagType::{LOCKTAG_PAGE, LOCKTAG_RELATION, LOCKTAG_RELATION_EXTEND, LOCKTAG_TUPLE};
        const DEFAULT_METHOD: u32 = 1;
        let [_, relation, _, rest] = self.tag;
        // Two bytes are the fourth field, one is the type, and one the method.
        let (kind, method) = (rest >> 16 & 0xFF, rest >> 24);
        let is_of_relation = [
            LOCKTAG_RELATION,
            LOCKTAG_RELATION_EXTEND,
            LOCKTAG_PAGE,
            LOCKTAG_TUPLE,
        ]
        .contains(&kind);
        (method == DEFAULT_METHOD && is_of_relation).then_some(relation)
    }
}

/// What blocks those that waited for a lock at a time.
#[derive(Clone, Copy)]
struct Answer {
    wanted: Wanted,
    /// The time, as PostgreSQL's list of processes has it, and of the other clock.
    time: i64,
    asked_at: i64,
    blocker: Option<i32>,
}

/// The wait of a process for a lock.
#[derive(Clone, Copy, Default)]
struct LockWait {
    pid: i32,
    /// When it began, in PostgreSQL's list of processes.
    began: u64,
    asked_at: i64,
    blocker: Option<i32>,
}

/// What is known of the waits for locks.
pub struct Blockers {
    /// One for each place in PostgreSQL's list of processes.
    waits: Vec<LockWait>,
    answers: [Option<Answer>; ANSWERS],
    /// Which answer the next one replaces.
    oldest: usize,
    /// Nothing is asked before this time.
    next: i64,
    /// For which processes is asked now.
    turns: Turns,
    /// The last answer was asked for.
    is_new: bool,
    /// The memory of an answer.
    context: pg_sys::MemoryContext,
}

impl Blockers {
    /// Makes room for `processes` processes. Returns `None` if there is no memory.
    pub fn with_room(processes: usize) -> Option<Blockers> {
        let mut waits = Vec::new();
        waits.try_reserve_exact(processes).ok()?;
        waits.resize(processes, LockWait::default());
        // SAFETY: the name is static, and the parent lives as long as the process.
        let context = unsafe {
            pg_sys::AllocSetContextCreateInternal(
                pg_sys::TopMemoryContext,
                c"pg_rowsource blocking processes".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        };
        Some(Blockers {
            waits,
            answers: [None; ANSWERS],
            oldest: 0,
            next: i64::MIN,
            turns: Turns::default(),
            is_new: false,
            context,
        })
    }

    /// Begins a sample. `now` is in microseconds, of a clock that never steps back.
    pub fn begin(&mut self, now: i64) {
        self.turns.begin(if now >= self.next { MOST } else { 0 });
    }

    /// Returns whether the last answer is new: it was neither known nor that of another process.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the process that blocks another one, if it is known. 0 is a prepared transaction. `process` is
    /// the one that waits, and `number` its place in PostgreSQL's list of processes. A parallel worker is not
    /// blocked by its `leader`. May raise.
    pub fn of(
        &mut self,
        process: Process,
        number: usize,
        pid: i32,
        leader: Option<i32>,
        now: i64,
    ) -> Option<i32> {
        self.is_new = false;
        let began = process.wait_start();
        let wait = self.waits.get_mut(number)?;
        if wait.pid != pid {
            *wait = LockWait {
                pid,
                asked_at: i64::MIN,
                ..LockWait::default()
            };
        }
        if wait.began != began {
            wait.blocker = None;
            wait.began = began;
        }
        // For a short moment, PostgreSQL does not know yet since when it waits.
        let is_due = began != 0 && now.saturating_sub(wait.asked_at) >= ASK_AGAIN_US;
        if !is_due {
            self.turns.take(false);
            return wait.blocker;
        }
        let wanted = wanted(process);
        let known = self.answers.iter().flatten().find(|answer| {
            Some(answer.wanted) == wanted
                && answer.time > began as i64
                && now.saturating_sub(answer.asked_at) < ASK_AGAIN_US
                && answer.blocker != Some(pid)
                && (leader.is_none() || answer.blocker != leader)
        });
        if let Some(known) = known {
            (wait.asked_at, wait.blocker) = (known.asked_at, known.blocker);
            self.turns.take(false);
        } else if self.turns.take(true) {
            self.is_new = true;
            self.next = now + PAUSE_US;
            wait.asked_at = now;
            let time = server::now();
            // SAFETY: the function takes a number, and returns an array in the current memory context. It is
            // what pg_blocking_pids() does in SQL, and needs no transaction.
            wait.blocker = unsafe {
                let context = pg_sys::MemoryContextSwitchTo(self.context);
                let pids = pgrx::direct_function_call_as_datum(pg_sys::pg_blocking_pids, &[pid.into_datum()]);
                let blocker = pids.and_then(|pids| first(pids.cast_mut_ptr()));
                pg_sys::MemoryContextSwitchTo(context);
                pg_sys::MemoryContextReset(self.context);
                blocker
            };
            let is_same = wait.blocker.is_some() && wanted == self::wanted(process);
            if let Some(wanted) = wanted.filter(|_| is_same) {
                self.answers[self.oldest] = Some(Answer {
                    wanted,
                    time,
                    asked_at: now,
                    blocker: wait.blocker,
                });
                self.oldest = (self.oldest + 1) % ANSWERS;
            }
        }
        wait.blocker
    }
}

/// Returns what a process waits for now.
pub fn wanted(process: Process) -> Option<Wanted> {
    let (lock, mode) = (process.wait_lock(), process.wait_lock_mode());
    // SAFETY: locks stay mapped, and PostgreSQL uses them again for others. They are read without its lock,
    // so the words may be of two locks. Then they are those of none that anybody waits for.
    (!lock.is_null()).then(|| unsafe {
        Wanted {
            tag: [0, 1, 2, 3].map(|i| load((&raw const (*lock).tag).cast::<u32>().add(i))),
            mode,
        }
    })
}

const _: () = assert!(size_of::<pg_sys::LOCKTAG>() == size_of::<[u32; 4]>());

/// Returns the first element of an array of integers. pgrx would look up the type of the elements in the
/// catalog, which the worker cannot read.
///
/// # Safety
/// `array` must be an array of type int4[] without nulls, which is neither compressed nor short.
unsafe fn first(array: *const pg_sys::ArrayType) -> Option<i32> {
    // SAFETY: an array that has a dimension has its length and its lower bound behind the header, and then,
    // aligned, its elements.
    unsafe {
        let lengths = array.add(1).cast::<i32>();
        ((*array).ndim == 1 && *lengths > 0).then(|| {
            let data = (size_of::<pg_sys::ArrayType>() + 2 * size_of::<i32>()).next_multiple_of(8);
            *array.cast::<u8>().add(data).cast::<i32>()
        })
    }
}
