//! Functions at whose call callgrind stops to count, and starts again at their return, or the other way
//! round.

/// Counts what a single-user backend does for its statements: all that it does but for its start and its end.
/// The start reads core's file of statistics, which grows from run to run, and 19 calibrates its clock, for
/// as long as it takes.
///
/// What depends on time is not counted either, because other work makes a run last longer: a session asks for
/// the time of day ten times a second, keeps an execution that is slower than all before, and copies the
/// texts of at most 200 statements in ten seconds. Once a second it flushes the executions of a plan, as core
/// flushes its statistics, and then executes more for the next ones. No second passes by the
/// [`EVEN_DAY`](super::EVEN_DAY). Signal handlers are not counted either: callgrind never counts these.
///
/// The first session after the server's start makes the store, once for all.
pub const STATEMENTS_ONLY: &[&str] = &[
    "PostgresMain",
    "InitPostgres",
    "proc_exit",
    "pgstat_report_stat",
    "pg_rowsource::pg::store::record::record_at_once",
    "pg_rowsource::pg::store::exemplars::keep",
    "rowsource_core::results::counts::Counts::compute",
    "pg_rowsource::pg::server::time::ask",
    "pg_rowsource::session::last::Last::keep_text",
    "pg_rowsource::session::last::Last::keep_costs",
    "pg_rowsource::pg::store::attach::make_or_attach",
];
/// Counts what writes to the store, too, for plans that run once: they are written at once.
pub const WITH_STORE: &[&str] = &[
    "PostgresMain",
    "InitPostgres",
    "proc_exit",
    "pgstat_report_stat",
    "pg_rowsource::session::last::Last::keep_text",
    "pg_rowsource::session::last::Last::keep_costs",
];
/// Counts what runs plans. What a session does beside it, once a second or once in its life, is not counted.
/// Nor is that it measures the clock's own cost every 4 ms, which are few instructions under callgrind.
pub const PLANS_ONLY: &[&str] = &[
    "standard_ExecutorRun",
    "pg_rowsource::pg::hot::timing::measure_empty_interval",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::library;
    use std::process::Command;

    /// A function that has got another name would be counted.
    #[test]
    fn they_have_these_names() {
        let symbols = Command::new("nm")
            .arg("--demangle")
            .arg(library())
            .output()
            .expect("nm can be run (package binutils)");
        let symbols = String::from_utf8_lossy(&symbols.stdout);
        let names: Vec<&str> = symbols
            .lines()
            .filter_map(|line| line.splitn(3, ' ').nth(2))
            .collect();
        for function in [STATEMENTS_ONLY, WITH_STORE, PLANS_ONLY].concat() {
            assert!(
                !function.contains("::") || names.contains(&function),
                "{function}"
            );
        }
    }
}
