//! What SQL sees. The SQL that declares these functions is written by hand: `pg_rowsource--*.sql`.

mod clocks;
mod display;
mod exports;
mod history;
mod store;
mod temp_usage;
mod tempfile;
mod views;
