//! Safe functions for what the server knows and does, by subject.

mod access;
mod encoding;
mod error;
mod process;
mod statement_text;
mod time;
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
