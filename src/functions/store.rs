//! `rowsource_info()` and `rowsource_reset()`: they show and reset the store that all sessions share.

use crate::pg::executor;
use crate::pg::server::srf::{Rows, timestamp, value};
use crate::pg::server::{fail, switch};
use crate::pg::{live, store};
use crate::{guc, session};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::sync::atomic::Ordering::Relaxed;

/// Adds the row of `rowsource_info()`.
pub fn info_row(rows: &mut Rows) {
    let Some(info) = store::info() else {
        fail_without_store("pg_rowsource has no shared memory")
    };
    let (without_beats, why) = live::sessions_without_beats();
    let removed = store::shared_history().map_or(0, |history| history.snapshots_removed.load(Relaxed));
    let (stopped, reason) = store::shared_stops().map_or((0, None), |stops| stops.shown());
    rows.add([
        value(info.plans as i64),
        value(guc::max_plans() as i32),
        value(info.bytes as i64),
        value(info.limit as i64),
        value(info.evictions as i64),
        info.incomplete_since.and_then(timestamp),
        value(info.refused as i64),
        value(info.truncated as i64),
        timestamp(info.reset_at),
        switch::off_since().and_then(timestamp),
        value(without_beats as i64),
        why.as_deref().and_then(value),
        value(removed as i64),
        value(i64::from(stopped)),
        reason.as_deref().and_then(value),
    ]);
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

/// Deletes the plans of a user, a database and a query. 0 means any.
pub fn reset(userid: pg_sys::Oid, dbid: pg_sys::Oid, queryid: i64) {
    let (userid, dbid) = (userid.to_u32(), dbid.to_u32());
    session::reset(userid, dbid, queryid);
    store::reset(userid, dbid, queryid);
    if (userid, dbid, queryid) == (0, 0, 0) {
        executor::describe_all_again();
    }
}
