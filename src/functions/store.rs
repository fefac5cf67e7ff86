//! `rowsource_info()` and `rowsource_reset()`: about the store that all sessions share.

use super::fail;
use crate::guc;
use crate::pg::{server, store};
use crate::session;
use pgrx::PgSqlErrorCode;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the signature")]
fn rowsource_info() -> TableIterator<
    'static,
    (
        name!(plans, i64),
        name!(max_plans, i32),
        name!(bytes, i64),
        name!(max_bytes, i64),
        name!(evictions, i64),
        name!(refused, i64),
        name!(truncated, i64),
        name!(stats_reset, TimestampWithTimeZone),
    ),
> {
    let Some(info) = store::info() else {
        fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "pg_rowsource has no shared memory",
            "Add pg_rowsource to \"shared_preload_libraries\" and restart the server. Until then each session keeps its own statistics.",
        )
    };
    TableIterator::once((
        info.plans as i64,
        guc::max_plans() as i32,
        info.bytes as i64,
        guc::max_memory() as i64,
        info.evictions as i64,
        info.refused as i64,
        info.truncated as i64,
        server::timestamp(info.reset_at),
    ))
}

#[pg_extern(sql = false)]
fn rowsource_reset(userid: pg_sys::Oid, dbid: pg_sys::Oid, queryid: i64) {
    let (userid, dbid) = (userid.to_u32(), dbid.to_u32());
    session::reset(userid, dbid, queryid);
    store::reset(userid, dbid, queryid);
}
