//! The SQL functions. `pg_rowsource--*.sql`, which is written by hand, declares them.

mod clocks;
mod display;
mod export;
mod exports;
mod history;
mod logical_io;
mod store;
mod temp_usage;
mod tempfile;
mod views;
mod words;
