//! Wraps the services of the server, by subject:
//!
//! * `pg_try` is PG_TRY for plain frames; `contained` runs work that must not fail the user's statement,
//!   and `before` makes all as it was when that fails;
//! * `setting` defines checked settings, `switch` is the one that turns all off, `srf` returns rows from SQL
//!   functions, `columns` declares theirs, `sql_types` has the types of both and of arguments, `statfile`
//!   reads and writes statistics files;
//! * `query` reads the tables of the extension;
//! * `memory` is Rust's allocator, `main_memory` requests main shared memory;
//! * `builtin_values` reads and prints values of PostgreSQL's own types;
//! * `relation` tells how large a table is;
//! * `access` answers who the user is and what he may see, `process` what kind of process this is, `time`
//!   what time it is, `stop` whether the server stops;
//! * `callbacks` calls functions at the end of a transaction and of the process;
//! * `error` catches errors, `user_error` raises those of SQL functions, and sends notices;
//! * `encoding` converts texts, `statement_text` finds a statement's text in its message.

mod access;
mod before;
pub mod builtin_values;
mod callbacks;
pub mod catalog;
pub mod columns;
pub mod contained;
mod encoding;
mod error;
mod main_memory;
pub mod memory;
pub mod moment;
pub mod pg_try;
mod process;
pub mod processes;
pub mod query;
mod relation;
pub mod setting;
pub mod sql_types;
pub mod srf;
mod statement_text;
pub mod statfile;
mod stop;
pub mod switch;
mod time;
mod user_error;

pub use access::{
    Unquoted, command_name, database_exists, database_id, database_name, database_oid, find_database,
    find_role, is_template, lock_mode_name, may_see, may_see_activity, may_see_running, name_and_schema,
    name_in_plans, quoted_identifier, relation_alone, relation_name, relation_of_file, role_oid, schema_name,
    search_path, session_user_id, shown_relation, topmost_relation, trigger_name, trigger_names, user_id,
    user_name,
};
pub use callbacks::{after_leaving_memory, at_exit, at_transaction_end, before_leaving_memory};
pub use encoding::{as_utf8, first_bytes, first_characters, from_database, is_utf8, to_database};
pub use error::{
    HeldInterrupts, attempt, caught, check_for_interrupts, is_interrupted, log_alone, message, note_error,
    note_panic, on_error, on_fault,
};
pub use main_memory::{MainMemory, SettingUp, Zeroed, use_main_memory};
pub use process::{
    appends_in_parallel, application_name, catalog_changes, core_times_io, enable_query_ids,
    has_transaction_id, is_alive, is_exiting, is_in_recovery, is_parallel_mode, is_parallel_worker,
    is_postmaster, is_read_only, is_sent, is_under_postmaster, is_upgrading, library_of, pid,
    portal_or_background, preloading, process_number, with_application_name, with_sent_text,
};
pub use relation::{HeapSize, heap_size, is_temporary_relation, lock_for_writing};
pub use statement_text::{MAX_SHOWN_TEXT, SourceText, with_literals, with_text};
pub use stop::{is_stopping, stopped_cleanly};
pub use time::{from_unix, message_time, now, now_unix, shown_time, time_of_day};
pub use user_error::{fail, notify};
