//! How long the client waits for a statement beside the executor: before it runs, and until its transaction
//! has ended.
//!
//! A statement begins when the server reads its message, or when the statement before it in the same message
//! ends. With the extended protocol that is the message Bind, and what the message Parse took is added.
//! PostgreSQL has these times.
//!
//! The commit of an implicit transaction belongs to the last statement in it, and that of a transaction block
//! to COMMIT. An error in the callback of a commit would be a PANIC, so it only stores how long the commit
//! took. The session's next statement records that when it starts, or when it ends if it is of the same plan,
//! or the end of the session does.

use super::listener::{Call, Listen, Started, Utility};
use super::nesting;
use crate::guc::{self, StatisticsLevel};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::waits;
use crate::pg::server;
use crate::session::{self, KnownPlan};
use pgrx::pg_sys;
use rowsource_core::clock::Source;
use std::cell::Cell;
use std::rc::Rc;

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn after_start(call: &Call, started: Started) {
        // One that is measured has recorded it, or will.
        if started != Started::Measured && call.is_toplevel() {
            record_commit();
        }
    }

    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        record_commit();
        let last_end = RESPONSE.end.get();
        body(utility);
        if nesting::depth() == 0 {
            utility_ended(last_end);
        }
    }
}

/// What the commit of the transaction belongs to.
#[derive(Clone, Copy, PartialEq)]
pub enum Committed {
    Nothing,
    /// The last statement.
    Last,
    /// The last utility statement that was recorded.
    Utility,
}

/// Times are microseconds since 2000-01-01 UTC.
struct Response {
    /// When the client's last statement ended.
    end: Cell<i64>,
    committed: Cell<Committed>,
    /// How long the last commit took, and what it belongs to, until that is recorded.
    late: Cell<(i64, Committed)>,
    /// The clock, and the nanoseconds of its tick.
    clock: Cell<Option<(Source, f64)>>,
    /// Queryids of statements that were parsed before they are executed, and how long that took. Most are
    /// executed at once.
    parsed: [Cell<(i64, i64)>; 8],
}

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static RESPONSE: BackendLocal<Response> = BackendLocal::new(Response {
    end: Cell::new(0),
    committed: Cell::new(Committed::Nothing),
    late: Cell::new((0, Committed::Nothing)),
    clock: Cell::new(None),
    parsed: [const { Cell::new((0, 0)) }; 8],
});

/// When a statement began, or how long it took until it was started.
#[derive(Clone, Copy)]
pub struct Begun(i64);

impl Begun {
    /// No client sent the statement.
    pub const NESTED: Begun = Begun(0);

    /// Returns when the client's statement that starts now began.
    #[inline(always)]
    pub fn now() -> Begun {
        RESPONSE.committed.set(Committed::Nothing);
        // SAFETY: these are globals of plain types. A portal that runs is live.
        unsafe {
            match pg_sys::ActivePortal.as_ref() {
                Some(portal) if pg_sys::MyBackendType != pg_sys::BackendType::B_BG_WORKER => {
                    let begun = portal.creation_time.max(RESPONSE.end.get());
                    // Others end with the message that started them.
                    if portal.visible {
                        took(begun, portal.creation_time)
                    } else {
                        Begun(begun)
                    }
                }
                _ => Begun::NESTED,
            }
        }
    }

    /// Returns whether a client sent the statement.
    #[inline(always)]
    pub fn is_sent(self) -> bool {
        self.0 != 0
    }

    /// Returns the milliseconds before the executor, in which an execution of this queryid ran so long that
    /// ended at this time.
    #[inline(always)]
    pub fn before_ms(self, queryid: i64, at: i64, elapsed_ms: f64) -> f64 {
        let before_ms = match self.0 {
            0 => return 0.0,
            took @ ..0 => !took as f64 / 1e3,
            begun => {
                let ms = (at - begun) as f64 / 1e3 - elapsed_ms;
                if ms > 0.0 { ms } else { 0.0 }
            }
        };
        if RESPONSE.parsed[place(queryid)].get().0 == queryid {
            return before_ms + take_parsed(queryid);
        }
        before_ms
    }
}

/// Returns how long it is since a statement began, without the wait for a message after the first one, which
/// began at this time.
#[cold]
#[inline(never)]
fn took(begun: i64, message: i64) -> Begun {
    let (before, ns) = waits::last_for_client();
    let waited_us = if before >= message { (ns / 1000) as i64 } else { 0 };
    Begun(!(now() - begun - waited_us).max(0))
}

/// Notes that a statement of the client ended at this time, and what the commit belongs to if its transaction
/// ends with it. Cursors are closed after COMMIT.
#[inline(always)]
pub fn ended(at: i64, committed: Committed) {
    if RESPONSE.committed.get() != Committed::Utility {
        RESPONSE.end.set(at);
        RESPONSE.committed.set(committed);
        waits::forget_client();
    }
}

/// Notes that a utility statement of the client has ended, unless that was noted since it began: then the
/// client's last statement had ended at `before`.
#[inline(always)]
fn utility_ended(before: i64) {
    if RESPONSE.end.get() == before {
        RESPONSE.end.set(now());
    }
}

/// Notes that a query that is not measured has ended, if a client sent it, and another one may follow, or the
/// commit of one before it.
#[inline(always)]
pub fn other_ended(is_sent: impl FnOnce() -> bool, is_followed: impl FnOnce() -> bool) {
    if (RESPONSE.committed.get() != Committed::Nothing || is_followed()) && is_sent() {
        RESPONSE.end.set(now());
    }
}

/// Notes that a statement was parsed that the client executes later. That began with the message, or with the
/// end of the statement before.
#[cold]
#[inline(never)]
pub fn parsed(queryid: i64) {
    if queryid != 0 && nesting::depth() == 0 && guc::statistics_level() != StatisticsLevel::Basic {
        let us = now() - server::message_time().max(RESPONSE.end.get());
        RESPONSE.parsed[place(queryid)].set((queryid, us.max(0)));
    }
}

fn place(queryid: i64) -> usize {
    queryid as usize % RESPONSE.parsed.len()
}

/// Returns the milliseconds in which a statement was parsed before its first execution.
#[cold]
#[inline(never)]
fn take_parsed(queryid: i64) -> f64 {
    let (_, us) = RESPONSE.parsed[place(queryid)].replace((0, 0));
    us as f64 / 1e3
}

/// Sets the clock.
pub fn set_clock(clock: Source, ns_per_tick: f64) {
    RESPONSE.clock.set(Some((clock, ns_per_tick)));
}

/// Returns the time of day.
fn now() -> i64 {
    match RESPONSE.clock.get() {
        Some((clock, ns_per_tick)) => server::time_of_day(clock, ns_per_tick),
        None => server::now(),
    }
}

/// Returns what a commit belongs to that happens now.
pub fn committed() -> Committed {
    RESPONSE.committed.get()
}

/// Notes that a transaction has ended. Only stores words.
#[inline(always)]
pub fn transaction_ended(is_committed: bool) {
    if RESPONSE.committed.get() != Committed::Nothing {
        note_end(is_committed);
    }
}

#[inline(never)]
fn note_end(is_committed: bool) {
    let committed = RESPONSE.committed.replace(Committed::Nothing);
    if !is_committed || !server::has_transaction_id() {
        return;
    }
    let (now, end) = (now(), RESPONSE.end.get());
    // The client may be slow to end a pipeline.
    let waited_us = waits::last_for_client().1 / 1000;
    let us = now - end - waited_us as i64;
    RESPONSE.late.set((us, committed));
    RESPONSE.end.set(now);
}

/// Records the last commit, if there was one since the session's last statement.
#[inline(always)]
pub fn record_commit() {
    if RESPONSE.late.get().0 > 0 {
        record_noted();
    }
}

/// Does the same when a statement of this plan starts, unless it is the plan of the last statement: then the
/// commit is recorded together with its next execution, by [`take_commit`].
#[inline(always)]
pub fn record_commit_before(plan: &Rc<KnownPlan>) {
    let (us, committed) = RESPONSE.late.get();
    if us > 0 && !(committed == Committed::Last && session::is_last(plan)) {
        record_noted();
    }
}

/// Takes the milliseconds of the commit of the last statement, if they are not recorded yet; else 0.
#[inline(always)]
pub fn take_commit() -> f64 {
    match RESPONSE.late.get() {
        (us @ 1.., Committed::Last) => {
            RESPONSE.late.set((0, Committed::Nothing));
            us as f64 / 1e3
        }
        _ => 0.0,
    }
}

#[inline(never)]
fn record_noted() {
    let (us, committed) = RESPONSE.late.replace((0, Committed::Nothing));
    session::add_commit(us as f64 / 1e3, committed == Committed::Utility);
}
