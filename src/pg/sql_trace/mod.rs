//! The SQL trace of a session: a file with a line for each call of each statement, each node of its plan, and
//! each wait.
//!
//! * `lines` writes the lines of calls, and `used` knows what the process has used between two of them;
//!   `nested` knows which queries run when the transaction ends;
//! * `session` opens and closes the session's file, and keeps to the limits of its size; `header` writes its
//!   first line;
//! * `cursors` knows the statements and the nodes that the file describes;
//! * `level` knows what is written: what the session's setting says, and what targets say;
//! * `targets` looks which targets, that other sessions have set, mean this session;
//! * `events` names the events of waits;
//! * `files` lists and opens the files of the folder;
//! * `total` counts the files of all sessions, and keeps them within their limits.
//!
//! The lines of waits are written in `pg::hot::sql_trace`. Only a session that is traced comes here: for
//! others, each hook of a statement compares one word. At three places, it compares a number that changes
//! with the targets instead.
//!
//! No error of a file becomes an error of a statement. If a file cannot be written, its lines are counted as
//! lost, and the session tries again later.

mod cursors;
mod events;
pub mod files;
mod header;
pub mod level;
pub mod lines;
pub mod nested;
pub mod session;
pub mod targets;
pub mod total;
mod used;
