//! The settings of the snapshots, and of what the background worker finds.

use crate::pg::server::setting::{self, About, Origin, Refusal, value};
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::{CStr, CString};

/// The unit is a second.
static INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(15 * 60);
static DATABASE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static EXCLUDE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static ORIGIN: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
/// The unit is a minute. Only the SQL of `rowsource_snapshot()` reads it.
static RETENTION: GucSetting<i32> = GucSetting::<i32>::new(14 * 24 * 60);
static LOG_REGRESSIONS: GucSetting<bool> = GucSetting::<bool>::new(false);
/// The unit is a megabyte.
static MAX_SIZE: GucSetting<i32> = GucSetting::<i32>::new(1024);

/// Defines them.
pub(super) fn define() {
    GucRegistry::define_int_guc(
        c"pg_rowsource.snapshot_interval",
        c"Sets how often the server takes a snapshot of the statistics. Set it with ALTER SYSTEM.",
        c"0 takes none; rowsource_snapshot() still does.",
        &INTERVAL,
        0,
        7 * 24 * 60 * 60,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_string_guc(
        c"pg_rowsource.snapshot_database",
        c"Names the database in which the server takes snapshots. Set it with ALTER SYSTEM.",
        c"Empty: the one with the extension in which a function of it was used first.",
        &DATABASE,
        GucContext::Sighup,
        GucFlags::default(),
    );
    setting::define_checked_text(
        &EXCLUDE,
        About {
            name: c"pg_rowsource.history_exclude",
            summary: c"Names roles and databases of which samples and snapshots have nothing. Set it with ALTER SYSTEM.",
            details: c"A list like role:batch, database:test.",
            context: GucContext::Sighup,
            flags: GucFlags::default(),
        },
        check_exclude,
    );
    GucRegistry::define_string_guc(
        c"pg_rowsource.history_origin",
        c"Names the server whose imported history the functions and views of the history show.",
        c"Empty: this server.",
        &ORIGIN,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.snapshot_retention",
        c"Sets how long snapshots of the statistics are kept. Set it with ALTER SYSTEM.",
        c"rowsource_snapshot() deletes older ones. 0 keeps all.",
        &RETENTION,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MIN,
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.snapshot_max_size",
        c"Sets how much disk space the snapshots of a database may take. Set it with ALTER SYSTEM.",
        c"rowsource_snapshot() deletes the oldest beyond that. 0 keeps all.",
        &MAX_SIZE,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MB,
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.log_regressions",
        c"Logs a line when a regression opens, is confirmed, or is over. Set it with ALTER SYSTEM.",
        c"rowsource_regressions() shows them in any case.",
        &LOG_REGRESSIONS,
        GucContext::Sighup,
        GucFlags::default(),
    );
}

/// Returns whether a line is logged for each change of a regression.
pub fn log_regressions() -> bool {
    value(&LOG_REGRESSIONS)
}

/// Returns how often the server takes a snapshot, in microseconds; `None` if it takes none.
pub fn snapshot_interval_us() -> Option<i64> {
    Some(i64::from(value(&INTERVAL)) * 1_000_000).filter(|interval| *interval > 0)
}

/// Returns the database in which the server takes snapshots, if one is named.
pub fn snapshot_database() -> Option<CString> {
    DATABASE.get().filter(|name| !name.is_empty())
}

/// Returns the names of which samples and snapshots have nothing, and whether each is that of a role. The
/// others are databases.
pub fn history_exclude() -> Vec<(bool, Vec<u8>)> {
    EXCLUDE.get().map_or_else(Vec::new, |list| {
        entries(&list).filter_map(|entry| entry.ok()).collect()
    })
}

/// Returns what each entry of a list names, or the entry, if it names nothing.
fn entries(list: &CStr) -> impl Iterator<Item = Result<(bool, Vec<u8>), &[u8]>> {
    let all = list
        .to_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii);
    // An empty list has one empty entry.
    let all = all.filter(|entry| !entry.is_empty() || !list.to_bytes().trim_ascii().is_empty());
    all.map(|entry| {
        let name = |of: &[u8]| Some(entry.strip_prefix(of)?.trim_ascii()).filter(|name| !name.is_empty());
        let named = name(b"role:").map(|name| (true, name.to_vec()));
        let named = named.or_else(|| Some((false, name(b"database:")?.to_vec())));
        named.ok_or(entry)
    })
}

/// Refuses a list with an entry that names nothing. Names that nobody has yet are allowed.
fn check_exclude(list: Option<CString>, _: Origin) -> Result<(), Refusal> {
    let wrong = list
        .as_deref()
        .and_then(|list| entries(list).find_map(Result::err).map(<[u8]>::to_vec));
    wrong.map_or(Ok(()), |entry| {
        Err(Refusal {
            message: format!(
                "\"{}\" is neither a role nor a database",
                String::from_utf8_lossy(&entry)
            ),
            detail_and_hint: Some((
                "An entry is role:NAME or database:NAME, and commas are between entries.".to_owned(),
                "Write a list like 'role:batch, database:test'.".to_owned(),
            )),
        })
    })
}

/// Returns the other server whose history is shown, if one is named.
pub fn history_origin() -> Option<CString> {
    ORIGIN.get().filter(|name| !name.is_empty())
}

/// Returns how many megabytes the snapshots of a database may take.
pub fn snapshot_max_mb() -> i32 {
    value(&MAX_SIZE)
}
