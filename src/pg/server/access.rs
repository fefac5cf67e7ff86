//! Returns users and databases, and checks privileges.

use super::catalog;
use super::encoding::{from_database, to_database};
use super::processes::Process;
use crate::pg::border::globals::GLOBALS;
use crate::pg::border::guarded::{self, Named};
use crate::pg::border::unguarded;
use crate::pg::handles::name;
use pgrx::{IntoDatum, pg_sys};
use std::ffi::{CStr, CString, c_char};

/// Returns a name; `None` if there is no such object any more.
pub(super) fn name_of(what: Named) -> Option<String> {
    guarded::name_of(what).map(|name| from_database(name.to_bytes()))
}

/// Returns whether a database with this OID exists.
pub fn database_exists(oid: u32) -> bool {
    database_name(oid).is_some()
}

/// Returns the name of a database; `None` if it does not exist any more.
pub fn database_name(oid: u32) -> Option<String> {
    name_of(Named::Database(oid.into()))
}

/// Returns the name of a role; `None` if it does not exist any more.
pub fn user_name(oid: u32) -> Option<String> {
    name_of(Named::Role(oid.into()))
}

/// Returns the OID of a role; `None` if there is none of this name.
pub fn role_oid(name: &str) -> Option<u32> {
    oid_of(name, pg_sys::get_role_oid)
}

/// Returns the OID of a database; `None` if there is none of this name.
pub fn database_oid(name: &str) -> Option<u32> {
    oid_of(name, pg_sys::get_database_oid)
}

/// Returns what a function of PostgreSQL finds by a name, if it finds something.
fn oid_of(name: &str, find: unsafe fn(*const c_char, bool) -> pg_sys::Oid) -> Option<u32> {
    let name = CString::new(to_database(name)).ok()?;
    // SAFETY: the name is a C string.
    let oid = unsafe { find(name.as_ptr(), true) };
    (oid != pg_sys::InvalidOid).then(|| oid.to_u32())
}

/// Returns the OID of the database for which a condition of its OID, its name, and whether it is a template
/// is true; `None` if there is none. Reads the whole catalog: a process that is connected to no database may
/// have no cache.
pub fn find_database(is_wanted: impl Fn(u32, &CStr, bool) -> bool) -> Option<u32> {
    catalog::find(&[], |row: &pg_sys::FormData_pg_database| {
        let oid = row.oid.to_u32();
        is_wanted(oid, name(&row.datname), row.datistemplate).then_some(oid)
    })
}

/// Returns whether the database of the session is a template. May raise.
pub fn is_template() -> bool {
    let here = database_id();
    find_database(|oid, _, is_template| oid == here && is_template).is_some()
}

/// Returns the OID of the role with this name, as [`find_database`] does.
pub fn find_role(wanted: &[u8]) -> Option<u32> {
    catalog::find(&[], |row: &pg_sys::FormData_pg_authid| {
        (name(&row.rolname).to_bytes() == wanted).then(|| row.oid.to_u32())
    })
}

/// Returns a copy of a name.
///
/// # Safety
/// `name` must be null or a C string in the database's encoding.
pub(super) unsafe fn owned(name: *const c_char) -> Option<String> {
    // SAFETY: a name that is not null is a C string, by the caller's promise.
    (!name.is_null()).then(|| from_database(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

/// Returns the name of a schema; `None` if it does not exist any more.
pub fn schema_name(oid: u32) -> Option<String> {
    name_of(Named::Schema(oid.into()))
}

/// Returns the schemas in which the session finds relations by their name alone.
pub fn search_path() -> Vec<String> {
    // SAFETY: the function returns a list of OIDs in the current memory context, which frees it.
    unsafe {
        let path = pg_sys::fetch_search_path(true);
        let length = path.as_ref().map_or(0, |path| path.length.max(0) as usize);
        let schemas = (0..length).map(|i| (*(*path).elements.add(i)).oid_value);
        schemas
            .filter_map(|schema| schema_name(schema.to_u32()))
            .collect()
    }
}

/// Returns the current user.
pub fn user_id() -> u32 {
    unguarded::GetUserId().to_u32()
}

/// Returns the user of the session's statements: the current user, if no function with other rights is
/// running.
pub fn session_user_id() -> u32 {
    unguarded::GetOuterUserId().to_u32()
}

/// Returns this session's database.
pub fn database_id() -> u32 {
    GLOBALS.MyDatabaseId.get().to_u32()
}

/// Returns whether the current user may see the statements of another user.
pub fn may_see(userid: u32) -> bool {
    user_id() == userid || has_privileges_of(pg_sys::ROLE_PG_READ_ALL_STATS)
}

/// Returns whether the current user may see what a session of another user does, as in pg_stat_activity.
/// `None` is a session about which only those know who may see all.
pub fn may_see_activity(userid: Option<u32>) -> bool {
    has_privileges_of(pg_sys::ROLE_PG_READ_ALL_STATS) || userid.is_some_and(has_privileges_of)
}

/// Returns whether the current user has the privileges of a role.
fn has_privileges_of(role: u32) -> bool {
    guarded::has_privs_of_role(unguarded::GetUserId(), pg_sys::Oid::from(role))
}

/// Returns whether the current user may see a statement that a process runs for a user. He may not if the
/// process belongs to another role that he may not see: with SET ROLE and in functions, a session runs
/// statements as another user.
pub fn may_see_running(pid: i32, userid: u32) -> bool {
    may_see(userid) && may_see_activity(role_of_process(pid))
}

/// Returns the role that a process's session logged in as; `None` if there is no such process.
fn role_of_process(pid: i32) -> Option<u32> {
    // Only SQL functions call this. They hold no lock.
    Process::with_pid(pid).map(|process| process.role().to_u32())
}

/// Returns the name of a trigger of this database and of its table; `None` if the trigger was dropped. Only
/// an SQL function may call this.
pub fn trigger_name(oid: u32) -> Option<String> {
    name_of(Named::Trigger(oid.into()))
}

/// A trigger of this database.
pub struct TriggerNames {
    /// Its own name.
    pub name: String,
    /// The constraint that it enforces.
    pub constraint: Option<String>,
    /// Its table.
    pub relation: Option<String>,
}

/// Returns the names of a trigger of this database; `None` if it was dropped. Only an SQL function may call
/// this.
pub fn trigger_names(oid: u32) -> Option<TriggerNames> {
    let column = (pg_sys::Anum_pg_trigger_oid, pg_sys::Oid::from(oid));
    catalog::find(&[column], |row: &pg_sys::FormData_pg_trigger| {
        Some(TriggerNames {
            name: from_database(name(&row.tgname).to_bytes()),
            constraint: name_of(Named::Constraint(row.tgconstraint)),
            relation: name_of(Named::Relation(row.tgrelid)),
        })
    })
}

/// While this lives, PostgreSQL quotes only the names that need it, whatever `quote_all_identifiers` says.
pub struct Unquoted(bool);

impl Unquoted {
    /// Begins that.
    pub fn set() -> Unquoted {
        // SAFETY: this is the variable of a setting, a global of a plain type, which only this thread uses.
        unsafe {
            let before = pg_sys::quote_all_identifiers;
            pg_sys::quote_all_identifiers = false;
            Unquoted(before)
        }
    }
}

impl Drop for Unquoted {
    fn drop(&mut self) {
        // SAFETY: as in `set`.
        unsafe { pg_sys::quote_all_identifiers = self.0 };
    }
}

/// Returns an identifier with quotes if SQL needs them.
pub fn quoted_identifier(name: &str) -> String {
    let bytes: Vec<u8> = to_database(name).into_iter().filter(|byte| *byte != 0).collect();
    let Ok(name) = CString::new(bytes) else {
        return String::new();
    };
    // SAFETY: the function takes a C string in the database's encoding. It returns that string, or one in the
    // current memory context, which frees it.
    unsafe { owned(pg_sys::quote_identifier(name.as_ptr())) }.unwrap_or_default()
}

/// Returns the name of a relation of this database, with its schema; `None` if there is none.
pub fn relation_name(oid: u32) -> Option<String> {
    let (name, schema) = name_and_schema(oid)?;
    let name = quoted_identifier(&name);
    Some(match schema_name(schema) {
        Some(schema) => format!("{}.{name}", quoted_identifier(&schema)),
        None => name,
    })
}

/// Returns the name of a relation of this database as plans have it: with its schema, but for temporary
/// tables and catalogs. Returns `None` if there is none.
pub fn name_in_plans(oid: u32) -> Option<String> {
    let (name, schema) = name_and_schema(oid)?;
    let schema = schema_name(schema).filter(|schema| !schema.starts_with("pg_"));
    Some(match schema {
        Some(schema) => format!("{schema}.{name}"),
        None => name,
    })
}

/// Returns the name of a relation of this database without its schema, and the OID of that. Returns `None` if
/// there is none with this OID, or outside of a transaction.
pub fn name_and_schema(oid: u32) -> Option<(String, u32)> {
    let oid = pg_sys::Oid::from(oid);
    let schema = unguarded::IsTransactionState().then(|| guarded::get_rel_namespace(oid))?;
    Some((name_of(Named::Relation(oid))?, schema.to_u32()))
}

/// Returns the name of a relation as [`name_and_schema`] does.
pub fn relation_alone(oid: u32) -> Option<String> {
    name_and_schema(oid).map(|(name, _)| name)
}

/// Returns the table or index that a partition belongs to in the end, or the relation itself. May raise.
pub fn topmost_relation(oid: u32) -> u32 {
    // SAFETY: the function takes any number, and returns a List of OIDs in the current memory context.
    unsafe {
        let above = pg_sys::get_partition_ancestors(pg_sys::Oid::from(oid));
        let last = above.as_ref().and_then(|above| above.length.checked_sub(1));
        last.map_or(oid, |last| {
            (*(*above).elements.add(last as usize)).oid_value.to_u32()
        })
    }
}

/// Returns the name of a relation of this database as psql shows it: with its schema, unless that is in the
/// search path. Without a relation, it is the number.
pub fn shown_relation(oid: u32) -> String {
    let arguments = [pg_sys::Oid::from(oid).into_datum()];
    // SAFETY: the function takes an OID, and returns a C string in the current memory context.
    let name = unsafe { pgrx::direct_function_call::<&CStr>(pg_sys::regclassout, &arguments) };
    match name.map_or(&[][..], CStr::to_bytes) {
        // Only a missing relation has its number as a name without quotes.
        name if name.iter().all(u8::is_ascii_digit) => format!("a relation that is gone (OID {oid})"),
        name => from_database(name),
    }
}

/// Returns the name of a mode of heavyweight locks, such as AccessShareLock; `None` for a number that is
/// none.
pub fn lock_mode_name(mode: u8) -> Option<String> {
    // SAFETY: the function returns a static C string for each mode of the method, which are these.
    (1..=pg_sys::AccessExclusiveLock as u8)
        .contains(&mode)
        .then(|| unsafe {
            CStr::from_ptr(pg_sys::GetLockmodeName(1, mode.into()))
                .to_string_lossy()
                .into_owned()
        })
}

/// Returns the name of a kind of command, such as ALTER TABLE; `None` for 0, which is unknown.
pub fn command_name(number: u32) -> Option<String> {
    // SAFETY: the function returns a static C string for each number that PostgreSQL gives a command; all
    // others come from it.
    (number != pg_sys::CommandTag::CMDTAG_UNKNOWN).then(|| unsafe {
        CStr::from_ptr(pg_sys::GetCommandTagName(number))
            .to_string_lossy()
            .into_owned()
    })
}

/// Returns the OID of the relation of this database whose files have this number; `None` if there is none.
pub fn relation_of_file(tablespace: u32, number: u32) -> Option<u32> {
    let arguments = [tablespace, number].map(|number| pg_sys::Oid::from(number).into_datum());
    // SAFETY: the function takes two OIDs, and returns an OID or null.
    let oid = unsafe { pgrx::direct_function_call::<pg_sys::Oid>(pg_sys::pg_filenode_relation, &arguments) };
    oid.map(pg_sys::Oid::to_u32)
}
