//! The entries of pg_stat_activity, and the handlers of signals.

use crate::pg::border::shared::load;
use pgrx::pg_sys;
use std::net::IpAddr;

/// Returns the address of the first entry of pg_stat_activity, if this process has an entry. The entries of
/// the sessions and of the background workers come first: there are `MaxBackends`. They stay mapped.
pub fn first_activity_entry() -> Option<*const pg_sys::PgBackendStatus> {
    // SAFETY: these are globals of this process. Its entry is null, or has this place in the array of all
    // entries.
    unsafe {
        #[cfg(pg_ge_17)]
        let place = pg_sys::MyProcNumber;
        #[cfg(not(pg_ge_17))]
        let place = pg_sys::MyBackendId - 1;
        let mine = pg_sys::MyBEEntry.cast_const();
        let place = usize::try_from(place).ok().filter(|_| !mine.is_null())?;
        Some(mine.sub(place))
    }
}

/// Returns when a client's session with this process id began, as PostgreSQL's timestamp; `None` if there is
/// none.
pub fn session_start(pid: i32) -> Option<i64> {
    let first = first_activity_entry()?;
    // SAFETY: this is a global of a plain type, which does not change while the server runs.
    let count = usize::try_from(unsafe { pg_sys::MaxBackends }).ok()?;
    (0..count).find_map(|place| {
        // SAFETY: there are so many entries, which stay mapped. A process may change its own meanwhile, each
        // field as one word. The id is read again afterwards: another process cannot have got the same one
        // within this moment.
        unsafe {
            let entry = first.add(place);
            let is_there = || {
                load(&raw const (*entry).st_procpid) == pid
                    && load(&raw const (*entry).st_backendType) == pg_sys::BackendType::B_BACKEND
            };
            let start = || load(&raw const (*entry).st_proc_start_timestamp);
            is_there().then(start).filter(|_| is_there())
        }
    })
}

/// Returns the address of this session's client; `None` if it came over a Unix socket.
pub fn client_address() -> Option<IpAddr> {
    // SAFETY: the entry is null, or this process's own. The address is as large as that of any kind, and has
    // the type that its first field says.
    unsafe {
        let entry = pg_sys::MyBEEntry.cast_const();
        if entry.is_null() {
            return None;
        }
        let address = (&raw const (*entry).st_clientaddr.addr).cast::<libc::sockaddr_storage>();
        match i32::from((&raw const (*address).ss_family).read_unaligned()) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::from(address.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

/// Returns the queryid of the statement that a process runs.
///
/// # Safety
/// The entry must be one of pg_stat_activity.
pub unsafe fn activity_query_id(entry: *const pg_sys::PgBackendStatus) -> i64 {
    // SAFETY: the entry is mapped by the caller's promise. Its process may change the field meanwhile, as one
    // word.
    let query_id = unsafe { load(&raw const (*entry).st_query_id) };
    #[cfg(pg_ge_18)]
    return query_id;
    #[cfg(not(pg_ge_18))]
    return query_id as i64;
}

/// Makes this process handle a signal with a function.
///
/// # Safety
/// The handler must be a function that PostgreSQL uses for that.
pub unsafe fn handle_signal(signal: i32, handler: pg_sys::pqsigfunc) {
    // SAFETY: the caller promises that it is a handler.
    #[cfg(pg_ge_18)]
    unsafe {
        pg_sys::pqsignal_be(signal, handler);
    }
    // SAFETY: the caller promises that it is a handler.
    #[cfg(not(pg_ge_18))]
    unsafe {
        pg_sys::pqsignal(signal, handler);
    }
}
