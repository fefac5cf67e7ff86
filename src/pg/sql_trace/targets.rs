//! The targets of the trace that mean this session. Any session may set them, for this one and others.
//!
//! All sessions share the list of targets, and a number that changes with it. A session compares the number
//! when a statement begins. Only if it has changed, the session looks at the list, which takes a lock. So it
//! does if a target has expired, or if a target has a condition that may hold later: then the session also
//! looks whether its role or its application's name has changed.

use super::level::{self, Level, OfTargets};
use super::{lines, session};
use crate::guc::Trace;
use crate::pg::border::globals::GLOBALS;
use crate::pg::border::{backend_local::BackendLocal, unguarded};
use crate::pg::compat;
use crate::pg::server;
use crate::pg::store::{self, SharedTargets};
use rowsource_core::sql_trace::target::{Changing, Fit, MAX_TARGETS, Name, Session, Target};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The number of a list without targets, for a process that has no list.
static NO_LIST: AtomicU64 = AtomicU64::new(0);
/// The number of the list.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static GENERATION: BackendLocal<Cell<*const AtomicU64>> = BackendLocal::new(Cell::new(&raw const NO_LIST));
/// The number that the list had when the session last looked at it. [`NEVER`] if the session is traced, or
/// has more to look at.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static SEEN: BackendLocal<Cell<u64>> = BackendLocal::new(Cell::new(NEVER));
/// No list has this number.
const NEVER: u64 = u64::MAX;

struct State {
    /// Whether the process has looked for the list.
    has_looked: Cell<bool>,
    shared: Cell<Option<&'static SharedTargets>>,
    has_callback: Cell<bool>,
    /// The number of the list when it was last looked at.
    generation: Cell<u64>,
    /// The numbers of the targets that mean this session, in their places of the list.
    numbers: Cell<[i32; MAX_TARGETS]>,
    /// When the first of the targets expires that mean the session, or may do so later.
    due: Cell<i64>,
    /// Whether there are targets that depend on what the session may change.
    is_watching: Cell<bool>,
    /// What these were compared with.
    changing: Cell<Changing>,
}

static STATE: BackendLocal<State> = BackendLocal::new(State {
    has_looked: Cell::new(false),
    shared: Cell::new(None),
    has_callback: Cell::new(false),
    generation: Cell::new(0),
    numbers: Cell::new([0; MAX_TARGETS]),
    due: Cell::new(i64::MAX),
    is_watching: Cell::new(false),
    changing: Cell::new(Changing {
        roles: [0; 2],
        application_name: Name::NONE,
    }),
});

/// Notes that a statement begins, and looks at the targets if that is needed. Returns whether the statement
/// may have to be written. Raises nothing. This runs in plain frames, so it cannot panic.
#[inline(always)]
pub fn begins() -> bool {
    // SAFETY: the pointer is that of a static, or of shared memory that stays mapped.
    let generation = unsafe { (*GENERATION.get()).load(Relaxed) };
    generation != SEEN.get() && look()
}

#[cold]
#[inline(never)]
fn look() -> bool {
    server::attempt("look at the trace targets", || {
        attach();
        lines::flush_if_failed();
        if let Some(shared) = STATE.shared.get() {
            let generation = shared.generation.load(Acquire);
            if is_stale(generation) {
                evaluate(shared, generation);
            }
        }
        let is_idle = !level::is_on() && !STATE.is_watching.get();
        SEEN.set(if is_idle { STATE.generation.get() } else { NEVER });
    });
    level::is_on()
}

/// Looks for the list, once. Processes that are no client's have none.
fn attach() {
    if STATE.has_looked.replace(true) || !session::may_be_traced() {
        return;
    }
    if let Some(shared) = store::shared_targets() {
        STATE.shared.set(Some(shared));
        GENERATION.set(&raw const shared.generation);
    }
}

/// Returns whether the targets must be compared with the session again.
fn is_stale(generation: u64) -> bool {
    // A statement may run for long, and call others. Only a traced one needs to know the time at each of
    // them.
    let now = || match level::is_on() {
        true => server::now(),
        false => server::message_time(),
    };
    generation != STATE.generation.get()
        || STATE.due.get() != i64::MAX && now() >= STATE.due.get()
        || STATE.is_watching.get() && changing() != STATE.changing.get()
}

/// Returns what the session may have changed.
fn changing() -> Changing {
    Changing {
        roles: [unguarded::GetSessionUserId().to_u32(), server::session_user_id()],
        application_name: server::with_application_name(|name| Name::new(name).unwrap_or(Name::NONE)),
    }
}

/// Finds the targets that mean this session, and begins or ends its trace.
fn evaluate(shared: &SharedTargets, generation: u64) {
    // This may raise, so nothing has changed yet.
    if !STATE.has_callback.replace(true) {
        server::before_leaving_memory(before_exit);
    }
    let session = Session {
        pid: server::pid(),
        started: GLOBALS.MyStartTimestamp.get(),
        database: server::database_id(),
        address: compat::client_address(),
        changing: changing(),
    };
    let now = server::now();
    let (mut targets, mut due, mut is_watching) = (OfTargets::NONE, i64::MAX, false);
    let mut numbers = [0; MAX_TARGETS];
    let before = STATE.numbers.get();
    let mut places = before.iter().zip(&mut numbers);
    shared.read(|target, sessions| {
        let Some((&before, number)) = places.next() else {
            return;
        };
        let fit = match target.is_set(now) {
            true => target.fit(&session),
            false => Fit::Never,
        };
        if fit != Fit::Never {
            due = due.min(target.expires);
            is_watching |= target.may_change();
        }
        if fit == Fit::Now {
            *number = target.number;
            targets.add(target.queryid, level(target));
        }
        if before != *number {
            if before != 0 && before == target.number {
                sessions.fetch_sub(1, Relaxed);
            }
            if *number != 0 {
                sessions.fetch_add(1, Relaxed);
            }
        }
    });
    STATE.numbers.set(numbers);
    STATE.generation.set(generation);
    STATE.due.set(due);
    STATE.is_watching.set(is_watching);
    STATE.changing.set(session.changing);
    level::set_of_targets(targets);
    if level::is_on() {
        return;
    }
    if is_watching {
        // Its role or its application's name may be that of a target again: then the same file goes on.
        lines::pause();
    } else {
        session::close();
    }
}

fn level(target: &Target) -> Level {
    Level {
        is_on: true,
        waits: target.waits,
        binds: target.binds,
    }
}

/// Stores what the session's own setting says.
pub fn set_own(trace: Trace) {
    level::set_own(Level::of(trace));
    SEEN.set(NEVER);
    if !level::is_on() {
        session::close();
    }
}

/// Counts the session no longer among those of its targets.
fn before_exit(_code: i32) {
    let numbers = STATE.numbers.replace([0; MAX_TARGETS]);
    let mut numbers = numbers.iter();
    if let Some(shared) = STATE.shared.take() {
        shared.read(|target, sessions| {
            if numbers
                .next()
                .is_some_and(|number| *number != 0 && *number == target.number)
            {
                sessions.fetch_sub(1, Relaxed);
            }
        });
    }
    GENERATION.set(&raw const NO_LIST);
}
