//! Active session history: a background worker samples what the sessions do, several times a second.
//!
//! The sessions do nothing for it. The worker reads what PostgreSQL and `pg::live` publish anyway: the
//! entries of pg_stat_activity, the list of processes with their wait events, and the statements that run. It
//! takes no lock for that. Once in a while it asks the lock manager which process blocks one that waits for a
//! heavyweight lock.
//!
//! * `memory` is where the ring of samples lies;
//! * `file` keeps the samples across a clean restart;
//! * `worker` registers the background worker, and is its main loop;
//! * `sampler` takes the samples;
//! * `heart` makes beats for sessions whose calls are not all timed;
//! * `blockers` knows which process blocks another one;
//! * `process` describes a background worker;
//! * `snapshots` starts a process for each snapshot, and is its main function; `registration` knows in which
//!   database.

mod blockers;
mod excluded;
mod file;
mod heart;
pub mod judge;
pub mod memory;
mod process;
pub mod registration;
mod sampler;
pub mod snapshots;
pub mod worker;
