//! How long each session's running statement has waited for temporary files, for memory that many processes
//! share.
//!
//! The session and its parallel workers add to one slot. A statement begins with the first request that
//! belongs to it: then the sum so far is remembered, and not counted any more.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The statement of a slot that is being changed, and of one that was never used.
const NONE: i64 = 0;

/// The time of one session. Zeroed memory is a valid slot without a statement.
#[repr(C, align(64))]
pub struct Session {
    /// When the statement started: microseconds since 2000-01-01 UTC.
    statement: AtomicI64,
    userid: AtomicU32,
    /// Nanoseconds of all requests ever.
    ns: AtomicU64,
    /// Nanoseconds of the requests before this statement.
    before: AtomicU64,
}

/// The time of a session's statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementTime {
    /// When the statement started: microseconds since 2000-01-01 UTC.
    pub statement: i64,
    /// The OID of the user who ran it.
    pub userid: u32,
    /// Nanoseconds of its requests.
    pub ns: u64,
}

impl Session {
    /// Returns an unused slot.
    pub const fn new() -> Self {
        Session {
            statement: AtomicI64::new(NONE),
            userid: AtomicU32::new(0),
            ns: AtomicU64::new(0),
            before: AtomicU64::new(0),
        }
    }

    /// Adds a request.
    #[inline(always)]
    pub fn add(&self, ns: u64) {
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Begins a statement, unless another process of the session has begun it.
    pub fn begin(&self, statement: i64, userid: u32) {
        let known = self.statement.load(Ordering::Acquire);
        if known == statement {
            return;
        }
        let mine = self
            .statement
            .compare_exchange(known, NONE, Ordering::AcqRel, Ordering::Relaxed);
        if mine.is_ok() {
            self.before
                .store(self.ns.load(Ordering::Relaxed), Ordering::Relaxed);
            self.userid.store(userid, Ordering::Relaxed);
            self.statement.store(statement, Ordering::Release);
        }
    }

    /// Returns the time of the statement. Returns `None` if there is none, or if it changes at this moment.
    pub fn read(&self) -> Option<StatementTime> {
        let statement = self.statement.load(Ordering::Acquire);
        let before = self.before.load(Ordering::Acquire);
        let userid = self.userid.load(Ordering::Acquire);
        let ns = self.ns.load(Ordering::Acquire).saturating_sub(before);
        let is_same = self.statement.load(Ordering::Relaxed) == statement;
        (is_same && statement != NONE).then_some(StatementTime {
            statement,
            userid,
            ns,
        })
    }
}

impl Default for Session {
    fn default() -> Self {
        Session::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_begins_at_zero() {
        let session = Session::new();
        assert_eq!(session.read(), None);
        session.begin(100, 10);
        session.add(5);
        // A parallel worker joins in.
        session.begin(100, 10);
        session.add(7);
        let time = |statement, userid, ns| {
            Some(StatementTime {
                statement,
                userid,
                ns,
            })
        };
        assert_eq!(session.read(), time(100, 10, 12));
        session.begin(200, 11);
        assert_eq!(session.read(), time(200, 11, 0));
        session.add(3);
        assert_eq!(session.read(), time(200, 11, 3));
    }

    /// A reader never sees the time of one statement with the start of another one.
    #[test]
    fn a_reader_sees_one_statement() {
        const STATEMENTS: i64 = 20_000;
        let session = Session::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for statement in 1..=STATEMENTS {
                    session.begin(statement, statement as u32);
                    session.add(1);
                }
            });
            while session.read().is_none_or(|time| time.statement < STATEMENTS) {
                if let Some(time) = session.read() {
                    assert_eq!(i64::from(time.userid), time.statement);
                    assert!(time.ns <= 1, "{time:?}");
                }
            }
        });
    }
}
