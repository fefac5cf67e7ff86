//! The history: what a snapshot stores of plans, and what is shown of snapshots. SQL functions read the
//! tables and pass the values.

use super::intervals::{self, Ends, how_to_take};
use super::{ash, display, origin, plans, stored};
use crate::guc;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail, memory};
use crate::pg::store;
use pgrx::PgSqlErrorCode;
use rowsource_core::model::archive::{self, ArchiveError};
use rowsource_core::model::{Plan, PlanKey};
use rowsource_core::report::Shown;
use rowsource_core::report::iostat::{self, Unreadable};
use rowsource_core::report::timed_events;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Adds the row of `_rowsource_interval()`.
pub fn interval_row(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    interval_columns().add(rows, &ash::interval(from, to));
}

/// The columns of `_rowsource_interval()`.
pub fn interval_columns() -> Columns<(i64, i64)> {
    columns! { |row: &(i64, i64)|
        /// When the interval begins
        from_at: timestamptz = row.0;
        /// When the interval ends
        to_at: timestamptz = row.1;
    }
}

/// Select the counters of a report from the intervals that it is of.
const FILETYPES: &str = "
        SELECT pg_catalog.json_build_object('filetype', c.filetype,
                   'small_read', pg_catalog.json_build_object('requests', pg_catalog.sum(c.small_reads),
                       'bytes', pg_catalog.sum(c.small_read_bytes), 'time', pg_catalog.sum(c.small_read_time)),
                   'large_read', pg_catalog.json_build_object('requests', pg_catalog.sum(c.large_reads),
                       'bytes', pg_catalog.sum(c.large_read_bytes), 'time', pg_catalog.sum(c.large_read_time)),
                   'small_write', pg_catalog.json_build_object('requests', pg_catalog.sum(c.small_writes),
                       'bytes', pg_catalog.sum(c.small_write_bytes), 'time', pg_catalog.sum(c.small_write_time)),
                   'large_write', pg_catalog.json_build_object('requests', pg_catalog.sum(c.large_writes),
                       'bytes', pg_catalog.sum(c.large_write_bytes), 'time', pg_catalog.sum(c.large_write_time))) AS row
          FROM i JOIN {}rowsource_interval_tempfile_io c ON c.snap_id OPERATOR(pg_catalog.=) i.snap_id
         GROUP BY c.filetype ORDER BY c.filetype DESC";
const WAITS: &str = "
        SELECT pg_catalog.json_build_object('backend_type', c.backend_type, 'wait_event_type', c.wait_event_type,
                   'wait_event', c.wait_event, 'waits', pg_catalog.sum(c.waits)::pg_catalog.int8,
                   'wait_time', pg_catalog.sum(c.wait_time)) AS row
          FROM i JOIN {}rowsource_interval_waits c ON c.snap_id OPERATOR(pg_catalog.=) i.snap_id
         GROUP BY c.backend_type, c.wait_event_type, c.wait_event";

/// Adds the rows of `rowsource_tempfile_report()`.
pub fn iostat_lines(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    report(
        rows,
        ("IOStat by Filetype summary", FILETYPES),
        (from, to),
        |ends| iostat::report(ends.seconds.unwrap_or(0.0), &ends.counters),
    );
}

/// Adds the rows of `rowsource_wait_report()`.
pub fn wait_lines(rows: &mut Rows, from: Option<i64>, to: Option<i64>) {
    report(rows, ("Top timed events", WAITS), (from, to), |ends| {
        timed_events::report(ends.active_ms.filter(|ms| *ms > 0.0), &ends.counters)
    });
}

/// Adds the lines of a report on the counters of an interval: those between the snapshots around it. Now
/// counts as one more snapshot.
fn report(
    rows: &mut Rows,
    (title, counters): (&str, &str),
    (from, to): (Option<i64>, Option<i64>),
    table: impl Fn(&Ends) -> Result<Vec<String>, Unreadable>,
) {
    let (from, to) = ash::interval(from, to);
    rows.add_line(title);
    origin::begin(rows);
    let ends = intervals::ends((from, to), Some(counters));
    let Some(seconds) = ends.seconds else {
        rows.add_line("no snapshot is as old as this interval");
        return rows.add_line(&how_to_take());
    };
    match ends.from_snap {
        Some(first) => rows.add_line(&format!("snapshot {first}  {}", ends.from_at)),
        None => rows.add_line(&format!("no snapshot  {}, when the counters began", ends.from_at)),
    }
    let last = match ends.to_snap {
        Some(last) if last > 0 => format!("snapshot {last}"),
        _ => "now".to_owned(),
    };
    rows.add_line(&format!("{last}  {}, {seconds:.1} s later", ends.to_at));
    if ends.is_late(from) {
        rows.add_line("nothing older is known");
        rows.add_line(&how_to_take());
    }
    for (what, hint) in ends.missing(to) {
        rows.add_line(&what);
        rows.add_line(&hint);
    }
    let lines = table(&ends).unwrap_or_else(|error| {
        fail(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            &error.to_string(),
            "This is a bug in pg_rowsource.",
        )
    });
    lines.iter().for_each(|line| rows.add_line(line));
}

/// Locks a table that `rowsource_snapshot()` writes to. Fails if it could not write there, or if something of
/// somebody else would run then, with the rights of the extension's owner.
pub fn check_writable(table: Option<u32>) {
    let (place, hint) = if server::is_in_recovery() {
        (
            "on a standby",
            "Call it on the primary, which stores its own statistics. Those of the standby are only in its views.",
        )
    } else if server::is_read_only() {
        (
            "in a read-only transaction",
            "Call it in a transaction that may write, for example after BEGIN READ WRITE.",
        )
    } else {
        let Some(foreign) = table.and_then(server::lock_for_writing) else {
            return;
        };
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            &format!("rowsource_snapshot() does not run {foreign}, which is not of the extension"),
            "Drop it: DROP TRIGGER, or ALTER TABLE ... DROP CONSTRAINT.",
        )
    };
    fail(
        PgSqlErrorCode::ERRCODE_READ_ONLY_SQL_TRANSACTION,
        &format!("rowsource_snapshot() cannot store a snapshot {place}"),
        hint,
    )
}

/// Counts snapshots that were deleted because of their size. Writes to the server's log when that happens for
/// the first time.
pub fn note_removed(count: i64) {
    if count <= 0 {
        return;
    }
    /// Without shared memory, each session says it once.
    static NOTED: AtomicU64 = AtomicU64::new(0);
    let removed = store::shared_history().map_or(&NOTED, |history| &history.snapshots_removed);
    if removed.fetch_add(count as u64, Relaxed) == 0 {
        server::log_alone(&format!(
            "pg_rowsource deletes the oldest snapshots, because all would take more than pg_rowsource.snapshot_max_size ({}MB)",
            guc::snapshot_max_mb()
        ));
    }
}

/// Adds the rows of `_rowsource_excluded()`.
pub fn excluded_rows(rows: &mut Rows) {
    let columns = excluded_columns();
    for (is_role, name) in guc::history_exclude() {
        let name = server::from_database(&name);
        let (role, database) = match is_role {
            true => (server::role_oid(&name), None),
            false => (None, server::database_oid(&name)),
        };
        columns.add(rows, &(role, database));
    }
}

/// The columns of `_rowsource_excluded()`.
pub fn excluded_columns() -> Columns<(Option<u32>, Option<u32>)> {
    columns! { |row: &(Option<u32>, Option<u32>)|
        /// The OID of a role
        userid: oid = row.0;
        /// The OID of a database
        datid: oid = row.1;
    }
}

/// A plan as a snapshot stores it. One without nodes has no packed ones.
pub struct ToStore {
    row: plans::Row,
    packed: Option<[Vec<u8>; 2]>,
}

/// Adds the rows of `rowsource_plans_to_store()`: the plans that ran since a time in microseconds. Each is
/// read once, so all that is stored of it is of one moment.
pub fn plans_to_store(rows: &mut Rows, since: Option<i64>) {
    let columns = plan_columns();
    stored::each_since(since, |stored| {
        let plan = &stored.plan;
        let bytes = |bytes: Result<Vec<u8>, ArchiveError>| bytes.unwrap_or_else(|_| memory::out_of_memory());
        let packed = (!plan.description.nodes.is_empty()).then(|| {
            [
                bytes(archive::description_bytes(&plan.description)),
                bytes(archive::statistics_bytes(plan, since)),
            ]
        });
        let row = plans::Row::of(stored);
        columns.add(rows, &ToStore { row, packed });
    });
}

/// The columns of `rowsource_plans_to_store()`.
pub fn plan_columns() -> Columns<ToStore> {
    let packed = columns! { |plan: &ToStore|
        /// Its nodes, packed
        description: bytea = plan.packed.as_ref().map(|[description, _]| description.as_slice());
        /// What its executions since that time did, packed
        statistics: bytea = plan.packed.as_ref().map(|[_, statistics]| statistics.as_slice());
    };
    Columns::new()
        .with(plans::columns(), |plan: &ToStore| &plan.row)
        .and(packed)
}

/// Returns a stored plan.
///
/// # Errors
/// Fails if its bytes are of another version, or damaged. Raises "out of memory".
pub(super) fn unpacked(stored: &Stored) -> Result<Plan, ArchiveError> {
    // Bytes of any content take less than this much memory for each of them.
    const PER_BYTE: usize = 32;
    const MOST: usize = PER_BYTE * (archive::MAX_DESCRIPTION + archive::MAX_STATISTICS);
    let size = stored.description.len() + stored.statistics.len();
    if !memory::can_map((size * PER_BYTE).min(MOST)) {
        memory::out_of_memory();
    }
    archive::stored_plan(stored.key, &stored.description, &stored.statistics)
}

/// What the caller of `rowsource_display_snapshot()` wants to see.
pub struct Wanted {
    pub snapshot: Option<i64>,
    pub queryid: Option<i64>,
    pub planid: Option<i64>,
}

/// A plan that the tables of the history have.
pub struct Stored {
    pub key: PlanKey,
    pub description: Vec<u8>,
    pub statistics: Vec<u8>,
}

/// Adds the lines of a stored plan of this user and database. `taken_at` tells when the snapshot was taken;
/// `None` if there is none. `find` returns the plan, if the snapshot has it.
pub fn stored_lines(
    rows: &mut Rows,
    wanted: &Wanted,
    taken_at: Option<&str>,
    find: impl FnOnce() -> Option<Stored>,
    names: [Option<String>; 2],
    format: Option<&str>,
) {
    let format = display::parse(format.unwrap_or("ALLSTATS"));
    let name = |id: Option<i64>| id.map_or_else(|| "NULL".to_owned(), |id| id.to_string());
    let snapshot = name(wanted.snapshot);
    let Some(taken_at) = taken_at else {
        // Without a number, it would be the last one.
        if wanted.snapshot.is_none() {
            fail(
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "there is no snapshot",
                &how_to_take(),
            )
        }
        let hint = match wanted.snapshot {
            Some(0) => "0 is now: rowsource_display() shows the plan.",
            _ => "The table rowsource_snapshots lists the snapshots.",
        };
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!("there is no snapshot {snapshot}"),
            hint,
        )
    };
    let Some(stored) = find() else {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!(
                "snapshot {snapshot} has no plan for queryid {}{}",
                name(wanted.queryid),
                wanted
                    .planid
                    .map_or_else(String::new, |id| format!(", planid {id}"))
            ),
            "A snapshot has the plans that ran since the previous one. The table rowsource_snapshot_plans lists them.",
        )
    };
    let mut plan = unpacked(&stored).unwrap_or_else(|error| match error {
        ArchiveError::Memory => memory::out_of_memory(),
        ArchiveError::Version => fail(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            &error.to_string(),
            "Only the version that took the snapshot can show its plans. The sums are in the view rowsource_interval_plans.",
        ),
        ArchiveError::Damaged => fail(
            PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
            &error.to_string(),
            "Show the plan of another snapshot. The sums are in the view rowsource_interval_plans.",
        ),
    });
    rows.add_line(&format!("snapshot {snapshot}  {taken_at}"));
    let stats = match format.shown() {
        Shown::Kept(which) => {
            display::take_kept(&mut plan, which)
                .unwrap_or_else(|| {
                    fail(
                        PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
                        &format!(
                            "snapshot {snapshot} has no {} execution of this plan",
                            which.name()
                        ),
                        "A snapshot has it if it ended after the snapshot before was taken.",
                    )
                })
                .nodes
        }
        shown => display::statistics_of(&mut plan, None, shown == Shown::Last),
    };
    for line in display::stored_table(&plan, &stats, &format, names) {
        rows.add_line(&line);
    }
}
