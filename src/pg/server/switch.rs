//! The switch: whether the setting `pg_rowsource.enabled` is on.
//!
//! A session reads settings only between commands, and a command may run for hours. So the postmaster also
//! writes the setting into a word that all its children see, when it reads the configuration, which it does
//! before it tells them to. A process looks at that word while its own setting is on, and else at a word of
//! its own. It has only that one if the library was not preloaded.
//!
//! The shared word lies in a page of its own, not in PostgreSQL's shared memory: the logger unmaps that, and
//! waits all the same. The postmaster maps the page before it starts any process, so that no process has to
//! look for it, and none unmaps it.
//!
//! A word says since when the switch is off; a negative one says since when it is on again, and 0 that it was
//! never off. So equal words mean that nothing has changed in between.

use super::process::{is_parallel_worker, is_postmaster};
use super::time::{message_time, now};
use super::user_error::fail;
use crate::pg::border::backend_local::BackendLocal;
use pgrx::PgSqlErrorCode;
use std::cell::Cell;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

/// The word of this process, from its own setting.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static OWN: AtomicI64 = AtomicI64::new(0);
/// The word of a session whose client's message found the switch off.
static LATCHED: AtomicI64 = AtomicI64::new(i64::MAX);
/// The word that this process looks at: one of those, or the shared one.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static WORD: BackendLocal<Cell<*const AtomicI64>> = BackendLocal::new(Cell::new(&raw const OWN));
static SHARED: BackendLocal<Cell<Option<&'static AtomicI64>>> = BackendLocal::new(Cell::new(None));
/// When the client's message began that found the switch off last.
static FOUND_OFF: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(0));

/// What the switch says, and since when.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State(i64);

impl State {
    /// Returns whether the switch was on then, and nothing has changed since.
    #[inline(always)]
    pub fn is_still_on(self) -> bool {
        self.0 <= 0 && state() == self
    }
}

/// Returns what the switch says now. This runs for every wait, so it is a plain frame.
#[inline(always)]
pub fn state() -> State {
    // SAFETY: the pointer is that of a static, or of a page that stays mapped as long as the process lives.
    State(unsafe { (*WORD.get()).load(Relaxed) })
}

/// Returns whether the switch is on. This runs for every wait, so it is a plain frame.
#[inline(always)]
pub fn is_on() -> bool {
    state().0 <= 0
}

/// Returns since when the switch is off, if it is.
pub fn disabled_at() -> Option<i64> {
    let shared = SHARED.get().map(|shared| shared.load(Relaxed));
    // A session reads its own setting later than the postmaster.
    let words = [shared.unwrap_or(0), OWN.load(Relaxed)];
    words.into_iter().find(|word| *word > 0)
}

/// How a user turns the switch on.
pub const HOW_TO_TURN_ON: &str = "Turn it on in the server's configuration file, or by ALTER SYSTEM.";

/// Raises an error if the switch is off. Only SQL functions may call this.
pub fn ensure_on() {
    if !is_on() {
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "nothing is traced, because pg_rowsource.enabled is off",
            HOW_TO_TURN_ON,
        )
    }
}

/// Maps the shared word, if this is the postmaster. Only `_PG_init` may call this, before the setting is
/// defined.
pub fn share() {
    if !is_postmaster() || SHARED.get().is_some() {
        return;
    }
    // SAFETY: the kernel chooses the place of this new mapping, which has room for the word, is never
    // unmapped, and is zero: a valid word. Children inherit it.
    let shared = unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            size_of::<AtomicI64>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        (page != libc::MAP_FAILED).then(|| &*page.cast::<AtomicI64>())
    };
    SHARED.set(shared);
    aim();
}

/// Notes the process's own setting. The postmaster also tells all others. Settings change between commands,
/// so a latch ends here.
pub fn set_own(is_on: bool) {
    if is_on != (OWN.load(Relaxed) <= 0) {
        let now = now().max(1);
        OWN.store(if is_on { -now } else { now }, Relaxed);
        if let Some(shared) = SHARED.get().filter(|_| is_postmaster()) {
            shared.store(OWN.load(Relaxed), Relaxed);
        }
    }
    aim();
}

/// Looks at the shared word while the own setting is on.
fn aim() {
    WORD.set(match SHARED.get() {
        Some(shared) if OWN.load(Relaxed) <= 0 => shared,
        _ => &raw const OWN,
    });
}

/// Returns whether a hook passes on what it got: the switch is off, or was when a hook ran in this message of
/// the client. A parallel worker does as its leader requests.
#[inline(always)]
pub fn passes_on() -> bool {
    !is_on() && is_off_for_message(message_time())
}

/// Calls what a hook passes on. It is no part of the hook, whose other path would cost more then. An error
/// may cross this frame.
#[cold]
#[inline(never)]
pub fn pass_on<T>(call: impl FnOnce() -> T) -> T {
    call()
}

#[cold]
#[inline(never)]
fn is_off_for_message(message: i64) -> bool {
    let is_latched = FOUND_OFF.get() == message && !is_shared();
    is_latched || !is_parallel_worker() && latch(message)
}

/// Latches the switch until the client's message ends, which began at this time. A session that passes on
/// counts no nesting, so it cannot begin to measure inside of a command. Returns false if the switch was
/// latched in an earlier message, and is on again.
#[inline(never)]
fn latch(message: i64) -> bool {
    FOUND_OFF.set(message);
    aim();
    if is_on() {
        return false;
    }
    // The own setting changes between commands only.
    if is_shared() {
        WORD.set(&raw const LATCHED);
    }
    true
}

/// Returns whether this process looks at the shared word.
#[inline(always)]
fn is_shared() -> bool {
    SHARED
        .get()
        .is_some_and(|shared| std::ptr::eq(WORD.get(), shared))
}
