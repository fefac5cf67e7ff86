//! What the process has used: elapsed and processor time, and blocks; and what it had used when the last call
//! ended.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use crate::pg::hot::sql_trace as hot;
use crate::pg::server;
use rowsource_core::sql_trace::writer::Line;
use std::cell::Cell;

/// What the process has used.
#[derive(Clone, Copy)]
pub struct Used {
    /// When, by the clock of the file.
    pub at_us: u64,
    /// The processor time.
    pub cpu_us: u64,
    /// Blocks read.
    pub reads: i64,
    /// Blocks got from the buffers, those that were read included.
    pub gets: i64,
    /// Blocks dirtied.
    pub dirtied: i64,
}

/// What the process had used when the last call ended, or the last transaction; `None` if that is not known.
static LAST: BackendLocal<Cell<Option<Used>>> = BackendLocal::new(Cell::new(None));

/// Returns what the process had used when the last call ended, or the last transaction.
pub fn last() -> Option<Used> {
    LAST.get()
}

/// Notes that a call or a transaction has ended. `None` if what follows is not written, so that it is not
/// taken for a part of the next call that is.
pub fn set_last(used: Option<Used>) {
    LAST.set(used);
}

impl Used {
    /// Returns what it has used until now.
    pub fn now() -> Used {
        let counters = compat::buffers_now();
        let reads = counters.shared_blks_read + counters.local_blks_read;
        let at_us = hot::now_us();
        Used {
            at_us,
            cpu_us: cpu_us(at_us),
            reads,
            gets: reads + counters.shared_blks_hit + counters.local_blks_hit,
            dirtied: counters.shared_blks_dirtied + counters.local_blks_dirtied,
        }
    }

    /// Returns when the last message of the client came, by the clock of the file.
    pub fn message_came(&self) -> u64 {
        let since = server::now().saturating_sub(server::message_time()).max(0) as u64;
        self.at_us.saturating_sub(since).max(hot::client_until())
    }

    /// Returns what the process had used when it began what it now does for its client: when the last call
    /// ended, or, if it was later, when the client's message `came`. Returns `None` if that is not known.
    pub fn before(&self, came: u64) -> Option<Used> {
        let last = last()?;
        let at_us = last.at_us.max(came).min(self.at_us);
        // The processor time before the message is not that of what it asks for.
        let least_cpu_us = self.cpu_us.saturating_sub(self.at_us - at_us);
        Some(Used {
            at_us,
            cpu_us: last.cpu_us.max(least_cpu_us),
            ..last
        })
    }

    /// Adds what was used since `before` to a line. Without it, nothing is known.
    #[inline]
    pub fn add_to<'a>(&self, line: Line<'a>, before: Option<&Used>) -> Line<'a> {
        let Some(before) = before else {
            return line;
        };
        let since = |before: i64, after: i64| after.saturating_sub(before).max(0) as u64;
        line.nonzero(b"c", self.cpu_us.saturating_sub(before.cpu_us))
            .number(b"e", self.at_us.saturating_sub(before.at_us))
            .nonzero(b"p", since(before.reads, self.reads))
            .nonzero(b"cr", since(before.gets, self.gets))
            .nonzero(b"cu", since(before.dirtied, self.dirtied))
    }
}

/// What is known of the processor time.
#[derive(Clone, Copy)]
struct Processor {
    /// When its clock was last read, and what it said.
    read_at_us: u64,
    read_us: u64,
    /// What was last returned.
    shown_us: u64,
}

static PROCESSOR: BackendLocal<Cell<Processor>> = BackendLocal::new(Cell::new(Processor {
    read_at_us: 0,
    read_us: 0,
    shown_us: 0,
}));

/// Returns the processor time of the process in microseconds, at a time of the file's clock.
///
/// To read that clock is a system call, which takes as long as a phase of a short statement. So it is read if
/// a wait was listed since, and else every 50 us. In between, the process is taken to run. What it did not
/// run then is missing from the next calls, so no error adds up.
fn cpu_us(at_us: u64) -> u64 {
    const FRESH_US: u64 = 50;
    let mut processor = PROCESSOR.get();
    let since_us = at_us.saturating_sub(processor.read_at_us);
    let now_us = if !hot::take_waited() && since_us < FRESH_US {
        processor.read_us + since_us
    } else {
        processor.read_at_us = at_us;
        processor.read_us = read_cpu_us();
        processor.read_us
    };
    processor.shown_us = processor.shown_us.max(now_us);
    PROCESSOR.set(processor);
    processor.shown_us
}

/// Reads the clock of the processor time.
fn read_cpu_us() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a live local of the required type. The clock exists on Linux; else the time stays
    // zero.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
