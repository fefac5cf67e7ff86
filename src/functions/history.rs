//! The report on the interval between two snapshots. Its SQL function reads the snapshots and passes the values.

use crate::pg::server::fail;
use crate::pg::server::srf::Rows;
use pgrx::PgSqlErrorCode;
use rowsource_core::report::iostat;

const HOW_TO_TAKE: &str = "Take one with SELECT rowsource_snapshot(), and another one later; or take them regularly with pg_cron: SELECT cron.schedule('rowsource', '*/15 * * * *', 'SELECT rowsource_snapshot()').";

/// Adds the rows of `rowsource_iostat_report()`. The arguments are the numbers of the requested snapshots and of the found
/// ones, the times when these were taken, the seconds between them, and the statistics of that interval as JSON.
pub fn iostat_lines(
    rows: &mut Rows,
    requested: [Option<i64>; 2],
    found: [Option<i64>; 2],
    at: [Option<String>; 2],
    seconds: Option<f64>,
    filetypes: Option<&str>,
) {
    for (requested, found) in requested.into_iter().zip(found) {
        match (requested, found) {
            (Some(requested), None) => fail(
                PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
                &format!("there is no snapshot {requested}"),
                "The table rowsource_snapshots lists the snapshots.",
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
            "This is a bug in pg_rowsource.",
        )
    });
    let heading = [
        "IOStat by Filetype summary".to_owned(),
        format!("snapshot {first}  {first_at}"),
        format!("snapshot {last}  {last_at}, {seconds:.1} s later"),
    ];
    heading.iter().chain(&table).for_each(|line| rows.add_line(line));
}
