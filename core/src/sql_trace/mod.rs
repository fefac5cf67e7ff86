//! The SQL trace of a session: its file format, and what is made of it.
//!
//! * `event` holds the lines of a file as values; the format is described in `docs/trace.md`;
//! * `writer` writes lines into a buffer of a fixed size, also inside system calls;
//! * `reader` reads lines;
//! * `open` knows which executions are in progress;
//! * `report` adds them up per statement, and prints that as TKPROF does;
//! * `chrome` writes them as Trace Event JSON;
//! * `file` reads the paths of relations' files;
//! * `target` says which sessions are traced at the request of another one.

pub mod chrome;
pub mod event;
pub mod file;
mod open;
pub mod reader;
pub mod report;
pub mod target;
pub mod writer;

/// The version of the format. A reader ignores lines and fields that it does not know.
pub const VERSION: u64 = 2;

/// The most cursors that a session remembers. After that, cursors get new numbers, and lines with the old
/// ones do not come any more.
pub const MAX_CURSORS: usize = 5_000;
