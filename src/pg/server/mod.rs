//! Wraps the services of the server, by subject:
//!
//! * `pg_try` is PG_TRY for plain frames; `contained` runs work that must not fail the user's statement;
//! * `unguarded` declares functions of PostgreSQL that are called without pgrx's guard;
//! * `setting` defines checked settings, `srf` returns rows from SQL functions, `statfile` reads and writes statistics
//!   files;
//! * `memory` is Rust's allocator, `backend_local` holds state that needs no lock.

mod access;
pub mod backend_local;
pub mod contained;
mod encoding;
mod error;
pub mod memory;
pub mod pg_try;
mod process;
pub mod setting;
pub mod srf;
mod statement_text;
pub mod statfile;
mod time;
pub mod unguarded;
mod user_error;

pub use access::{database_exists, database_id, may_see, user_id};
pub use encoding::{as_utf8, first_bytes, first_characters, from_database, to_database};
pub use error::{HeldInterrupts, caught, check_for_interrupts, log_alone, message};
pub use process::{
    core_times_io, enable_query_ids, is_alive, is_exiting, is_parallel_mode, is_parallel_worker,
    is_postmaster, is_under_postmaster, is_upgrading, pid, portal_or_background, preloading,
};
pub use statement_text::{commented_text, statement_text};
pub use time::{message_time, now, time_of_day};
pub use user_error::fail;
