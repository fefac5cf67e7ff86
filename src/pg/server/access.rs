//! Returns users and databases, and checks privileges.

use pgrx::pg_sys;

/// Returns whether a database with this OID exists.
pub fn database_exists(oid: u32) -> bool {
    // SAFETY: the function accepts any number. The name is allocated in the current memory context, which frees it.
    unsafe { !pg_sys::get_database_name(pg_sys::Oid::from(oid)).is_null() }
}

/// Returns the current user.
pub fn user_id() -> u32 {
    // SAFETY: the function takes no arguments and returns a global.
    unsafe { super::unguarded::GetUserId() }.to_u32()
}

/// Returns this session's database.
pub fn database_id() -> u32 {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

/// Returns whether the current user may see the statements of another user.
pub fn may_see(userid: u32) -> bool {
    // SAFETY: the function takes no pointers.
    unsafe {
        let me = pg_sys::GetUserId();
        me.to_u32() == userid
            || pg_sys::has_privs_of_role(me, pg_sys::Oid::from(pg_sys::ROLE_PG_READ_ALL_STATS))
    }
}
