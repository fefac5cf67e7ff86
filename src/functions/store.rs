//! `rowsource_info()` and `rowsource_reset()`: they show and reset the store that all sessions share.

use super::words::WHERE_IDS_ARE;
use crate::pg::ash::snapshots::explained;
use crate::pg::ash::worker;
use crate::pg::executor;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, database_name, fail, from_database, switch};
use crate::pg::store::{Info, SharedSnapshots};
use crate::pg::{live, store};
use crate::{guc, session};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Adds the row of `rowsource_info()`.
pub fn info_row(rows: &mut Rows) {
    let Some(info) = store::info() else {
        fail_without_store("pg_rowsource has no shared memory")
    };
    let shared = Shared {
        store: info,
        without_beats: live::sessions_without_beats(),
        stops: store::shared_stops().map_or((0, None), |stops| stops.shown()),
    };
    info_columns().add(rows, &shared);
}

/// What sessions share.
pub struct Shared {
    store: Info,
    without_beats: (usize, Option<String>),
    stops: (u32, Option<String>),
}

/// The columns of `rowsource_info()`.
pub fn info_columns() -> Columns<Shared> {
    let removed = || store::shared_history().map_or(0, |history| history.snapshots_removed.load(Relaxed));
    columns! { |shared: &Shared|
        /// The number of stored plans
        plans: bigint = shared.store.plans;
        /// Their maximal number: pg_rowsource.max_plans
        max_plans: int = guc::max_plans() as i32;
        /// Bytes of shared memory that the plans take
        bytes: bigint = shared.store.bytes;
        /// Bytes that they may take: pg_rowsource.max_memory, or what a small /dev/shm leaves
        max_bytes: bigint = shared.store.limit;
        /// Plans that made room for others
        evictions: bigint = shared.store.evictions;
        /// Since when the plans do not contain all executions: the first of evictions and refused; NULL if
        /// they do
        incomplete_at: timestamptz = shared.store.incomplete_at;
        /// Executions that could not be stored: plans of more than 1,000 nodes (partitions that are read in
        /// the same way count as one), or no memory
        refused: bigint = shared.store.refused;
        /// Plans whose text or predicates were cut
        truncated: bigint = shared.store.truncated;
        /// When the plans were last reset
        stats_reset: timestamptz = shared.store.reset_at;
        /// Since when pg_rowsource.enabled is off; NULL while it is on
        disabled_at: timestamptz = switch::disabled_at();
        /// Sessions in which long calls without I/O may be missed: no worker runs, or it cannot see them
        sessions_without_beats: bigint = shared.without_beats.0;
        /// Why, for one of them: no worker runs, or what the system answered when the session wanted to share
        /// a page
        without_beats_because: text = shared.without_beats.1.as_deref();
        /// Snapshots that were deleted because of pg_rowsource.snapshot_max_size since the server started
        snapshots_removed: bigint = removed();
        /// The database in which the server takes snapshots; NULL if none has registered
        snapshot_datname: text = snapshot_database().as_deref();
        /// Snapshots that the server took since it started
        snapshots_taken: bigint = snapshots(|snapshots| &snapshots.taken);
        /// Snapshots that found no place for a process: max_worker_processes is too small
        snapshots_refused: bigint = snapshots(|snapshots| &snapshots.refused);
        /// Snapshots that failed
        snapshots_failed: bigint = snapshots(|snapshots| &snapshots.failed);
        /// When the server took the last snapshot; NULL if it took none since it started
        last_snapshot_at: timestamptz = last_snapshot_at();
        /// Why the server takes no snapshots, and what to do; if it does, why one was not taken, the last
        /// time since the server started
        last_snapshot_error: text = last_snapshot_error().as_deref();
        /// Sessions that measure no more, because that cost more than pg_rowsource.max_overhead or failed
        sessions_stopped: bigint = shared.stops.0;
        /// Which session was the last of them since the server started, when, and why
        last_stop: text = shared.stops.1.as_deref();
        /// Errors that no user saw since the server started: the log has the first one of a session
        errors: bigint = shared.store.errors;
    }
}

/// Returns a counter of the snapshots that the server takes.
fn snapshots(counter: fn(&SharedSnapshots) -> &AtomicU64) -> u64 {
    store::shared_snapshots().map_or(0, |snapshots| counter(snapshots).load(Relaxed))
}

/// Returns the database in which the server takes snapshots.
fn snapshot_database() -> Option<String> {
    guc::snapshot_database()
        .map(|name| from_database(name.to_bytes()))
        .or_else(|| database_name(store::shared_snapshots()?.database.load(Relaxed)))
}

/// Returns the database in which the server takes snapshots, if it is another one.
pub(super) fn snapshots_elsewhere() -> Option<String> {
    snapshot_database().filter(|name| Some(name) != server::database_name(server::database_id()).as_ref())
}

pub(super) fn last_snapshot_at() -> Option<i64> {
    let at = store::shared_snapshots()?.last_at.load(Relaxed);
    (at != 0).then_some(at)
}

fn last_snapshot_error() -> Option<String> {
    why_no_snapshots().map(str::to_owned).or_else(last_failure)
}

/// Returns why a snapshot was not taken, the last time.
pub(super) fn last_failure() -> Option<String> {
    let code = store::shared_snapshots()?.last_error.load(Relaxed);
    (code != 0).then(|| explained(code))
}

/// Returns why the server takes no snapshots, if it takes none.
pub(super) fn why_no_snapshots() -> Option<&'static str> {
    let is_unregistered = || {
        guc::snapshot_database().is_none()
            && store::shared_snapshots().is_none_or(|shared| shared.database.load(Relaxed) == 0)
    };
    if server::is_in_recovery() {
        Some("a standby takes no snapshots: its primary does")
    } else if worker::pid().is_none() {
        Some("the background worker does not run")
    } else if !switch::is_on() {
        Some("pg_rowsource.enabled is off")
    } else if guc::snapshot_interval_us().is_none() {
        Some("pg_rowsource.snapshot_interval is 0")
    } else if !is_unregistered() {
        None
    } else if server::is_template() {
        Some(
            "no database has registered, and this one is a template: call a function of pg_rowsource in another one, or set pg_rowsource.snapshot_database",
        )
    } else {
        Some("no database has registered: this call registers this one, if its transaction commits")
    }
}

/// Raises an error that says what to do so that this session has the store.
pub(super) fn fail_without_store(message: &str) -> ! {
    if store::may_exist() {
        fail(
            PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
            message,
            "There was no room for it: the server's log says where. Make room, for example in /dev/shm. This session tries again after a minute; until then, it keeps its own statistics.",
        )
    }
    fail(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        message,
        "Add pg_rowsource to \"shared_preload_libraries\" and restart the server. Until then, each session keeps its own statistics.",
    )
}

/// Deletes the plans of a user, a database and a query. 0 means any. Tells the client if there were none of
/// these.
pub fn reset(userid: pg_sys::Oid, datid: pg_sys::Oid, queryid: i64) {
    let (userid, datid) = (userid.to_u32(), datid.to_u32());
    let has_deleted = session::reset(userid, datid, queryid) | store::reset(userid, datid, queryid);
    if (userid, datid, queryid) == (0, 0, 0) {
        executor::describe_all_again();
    } else if !has_deleted {
        let given = [
            ("userid", i64::from(userid)),
            ("datid", i64::from(datid)),
            ("queryid", queryid),
        ];
        let given = given.iter().filter(|(_, id)| *id != 0);
        let given: Vec<String> = given.map(|(name, id)| format!("{name} {id}")).collect();
        server::notify(
            &format!("no plan is kept for {}", given.join(", ")),
            WHERE_IDS_ARE,
        );
    }
}
