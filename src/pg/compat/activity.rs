//! The entries of pg_stat_activity, and the handlers of signals.

use crate::pg::border::shared::{load, shared_fields};
use pgrx::pg_sys;
use std::ffi::c_char;
use std::net::IpAddr;

/// The entries of pg_stat_activity of the sessions and of the background workers. They stay mapped.
#[derive(Clone, Copy)]
pub struct Entries {
    first: *const pg_sys::PgBackendStatus,
    count: usize,
}

/// One of them. Its process changes its fields at any time.
#[derive(Clone, Copy)]
pub struct Entry(*const pg_sys::PgBackendStatus);

shared_fields! { Entry:
    pid = st_procpid: i32;
    /// Returns how often it has begun or ended to change: an odd number while it changes.
    changes = st_changecount: i32;
    backend_type = st_backendType: pg_sys::BackendType::Type;
    user = st_userid: pg_sys::Oid;
    database = st_databaseid: pg_sys::Oid;
    state = st_state: pg_sys::BackendState::Type;
    start = st_proc_start_timestamp: i64;
    progress_command = st_progress_command: pg_sys::ProgressCommandType::Type;
    /// Returns the relation on which it reports progress.
    progress_target = st_progress_command_target: pg_sys::Oid;
    application_address = st_appname: *mut c_char;
    text_address = st_activity_raw: *mut c_char;
}

impl Entries {
    /// Returns the entries, if this process has one.
    pub fn all() -> Option<Entries> {
        // SAFETY: these are globals of this process. Its entry is null, or has this place in the array of all
        // entries. Those of the sessions and of the background workers come first.
        unsafe {
            #[cfg(pg_ge_17)]
            let place = pg_sys::MyProcNumber;
            #[cfg(not(pg_ge_17))]
            let place = pg_sys::MyBackendId - 1;
            let mine = pg_sys::MyBEEntry.cast_const();
            let place = usize::try_from(place).ok().filter(|_| !mine.is_null())?;
            Some(Entries {
                first: mine.sub(place),
                count: usize::try_from(pg_sys::MaxBackends).ok()?,
            })
        }
    }

    /// Returns the number of entries.
    pub fn count(self) -> usize {
        self.count
    }

    /// Returns an entry.
    ///
    /// # Panics
    /// If there is none with this number.
    #[inline(always)]
    pub fn get(self, number: usize) -> Entry {
        assert!(number < self.count);
        Entry(self.first.wrapping_add(number))
    }

    /// Returns all entries.
    pub fn iter(self) -> impl Iterator<Item = Entry> {
        (0..self.count).map(move |number| self.get(number))
    }
}

impl Entry {
    /// Copies the name of the session's application, with a zero byte behind it if there is room.
    pub fn copy_application(self, to: &mut [u8]) {
        copy(self.application_address(), to);
    }

    /// Copies the beginning of the text that the process runs, likewise. Returns its length. The process may
    /// change it meanwhile: then this is one text, or the other, or of both.
    pub fn copy_text(self, to: &mut [u8]) -> usize {
        copy(self.text_address(), to)
    }

    /// Returns the queryid of the statement that the process runs.
    pub fn queryid(self) -> i64 {
        // SAFETY: the entry stays mapped. Its process may change the field meanwhile, as one word.
        let queryid = unsafe { load(&raw const (*self.0).st_query_id) };
        #[cfg(pg_ge_18)]
        return queryid;
        #[cfg(not(pg_ge_18))]
        return queryid as i64;
    }
}

/// Copies a text of an entry, which always ends with a zero byte, as far as there is room, and that byte.
/// Returns how many bytes come before it; 0 if there is no room for it.
fn copy(from: *const c_char, to: &mut [u8]) -> usize {
    if from.is_null() {
        return 0;
    }
    let mut bytes = to.iter_mut().enumerate();
    let length = bytes.position(|(i, byte)| {
        // SAFETY: the text goes on, because no byte before this was zero.
        *byte = unsafe { load(from.cast::<u8>().add(i)) };
        *byte == 0
    });
    length.unwrap_or(0)
}

/// Returns when a client's session with this process id began, as PostgreSQL's timestamp; `None` if there is
/// none.
pub fn session_start(pid: i32) -> Option<i64> {
    Entries::all()?.iter().find_map(|entry| {
        let is_there = || entry.pid() == pid && entry.backend_type() == pg_sys::BackendType::B_BACKEND;
        // Another process cannot have got the same id within this moment.
        is_there().then(|| entry.start()).filter(|_| is_there())
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

/// Makes this process handle a signal with a function.
///
/// # Safety
/// The handler must be a function that PostgreSQL uses for that.
pub unsafe fn handle_signal(signal: i32, handler: pg_sys::pqsigfunc) {
    #[cfg(not(pg_ge_18))]
    use pg_sys::pqsignal;
    #[cfg(pg_ge_18)]
    use pg_sys::pqsignal_be as pqsignal;
    // SAFETY: the caller promises that it is a handler.
    unsafe { pqsignal(signal, handler) };
}
