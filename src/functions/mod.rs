//! The SQL functions, and the other objects of the extension (`exports`, `sql`, `surface`).

mod ash;
mod call_trace;
mod clocks;
mod display;
mod explain;
mod export;
mod exports;
mod flips;
mod history;
mod live;
mod logical_io;
mod nodes;
mod plans;
mod progress;
mod sql;
mod sql_trace;
mod store;
mod stored;
mod stored_report;
mod surface;
mod temp_usage;
mod tempfile;
mod trace_targets;
mod wait_names;
mod waits;
mod words;
