//! The report on the interval between two snapshots. SQL finds what it reads.

use crate::pg::server::fail;
use crate::pg::server::srf::Rows;
use pgrx::PgSqlErrorCode;
use rowsource_core::report::iostat;

const HOW_TO_TAKE: &str = "Take one with SELECT rowsource_snapshot(), and another when something has happened; or regularly, with pg_cron: SELECT cron.schedule('rowsource', '*/15 * * * *', 'SELECT rowsource_snapshot()').";

/// Adds the rows of `rowsource_iostat_report()`. The arguments are the numbers of the wanted snapshots and of those that
/// were found, when these were taken, the seconds between them, and what happened in that time.
pub fn iostat_lines(
    rows: &mut Rows,
    wanted: [Option<i64>; 2],
    found: [Option<i64>; 2],
    at: [Option<String>; 2],
    seconds: Option<f64>,
    filetypes: Option<&str>,
) {
    for (wanted, found) in wanted.into_iter().zip(found) {
        match (wanted, found) {
            (Some(wanted), None) => fail(
                PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
                &format!("there is no snapshot {wanted}"),
                "The snapshots are listed in rowsource_snapshots.",
            ),
            (None, None) => fail(
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "there are no two snapshots to compare",
                HOW_TO_TAKE,
            ),
            _ => {}
        }
    }
    let ([Some(first), Some(last)], [Some(first_at), Some(last_at)], Some(seconds)) = (found, at, seconds)
    else {
        return;
    };
    if first >= last {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("snapshot {first} is not before snapshot {last}"),
            "Give the earlier one first.",
        )
    }
    let table = iostat::report(seconds, filetypes.unwrap_or("[]")).unwrap_or_else(|error| {
        fail(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            &error.to_string(),
            "This is an error of pg_rowsource.",
        )
    });
    let heading = [
        "IOStat by Filetype summary".to_owned(),
        format!("snapshot {first}  {first_at}"),
        format!("snapshot {last}  {last_at}, {seconds:.1} s later"),
    ];
    heading.iter().chain(&table).for_each(|line| rows.add_line(line));
}
