//! Small safe questions to the server.

use pgrx::pg_sys;
use rowsource_core::hint;
use std::any::Any;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub fn is_parallel_worker() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::ParallelWorkerNumber >= 0 }
}

pub fn is_parallel_mode() -> bool {
    // SAFETY: the function asks for nothing of its caller.
    unsafe { pg_sys::IsInParallelMode() }
}

/// Whether a client's portal is running. Deferred triggers at commit, and the queries they make, have none.
/// Background workers need none to be at top level.
pub fn portal_or_background() -> bool {
    // SAFETY: globals of plain types, which are valid at all times.
    unsafe { !pg_sys::ActivePortal.is_null() || pg_sys::MyBackendType != pg_sys::BackendType::B_BACKEND }
}

/// Whether core times I/O now.
pub fn core_times_io() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::track_io_timing }
}

pub fn preloading() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// The postmaster itself, and no backend.
pub fn is_postmaster() -> bool {
    // SAFETY: globals of plain types, which are valid at all times.
    unsafe { pg_sys::IsPostmasterEnvironment && !pg_sys::IsUnderPostmaster }
}

/// Whether there is a database of this number.
pub fn database_exists(oid: u32) -> bool {
    // SAFETY: a lookup in the catalog; the name is ours to free, at the end of the call at the latest.
    unsafe { !pg_sys::get_database_name(pg_sys::Oid::from(oid)).is_null() }
}

pub fn user_id() -> u32 {
    // SAFETY: no arguments; returns a global.
    unsafe { super::raw::GetUserId() }.to_u32()
}

pub fn database_id() -> u32 {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

/// Whether the current user may see what this user ran.
pub fn may_see(userid: u32) -> bool {
    // SAFETY: the function takes no pointers.
    unsafe {
        let me = pg_sys::GetUserId();
        me.to_u32() == userid
            || pg_sys::has_privs_of_role(me, pg_sys::Oid::from(pg_sys::ROLE_PG_READ_ALL_STATS))
    }
}

/// When the client's current message began to be worked on.
pub fn message_time() -> i64 {
    // SAFETY: the function asks for nothing of its caller.
    unsafe { super::raw::GetCurrentStatementStartTimestamp() }
}

/// Writes to the server's log without the user's statement beside it, which has nothing to do with the matter.
pub fn log_alone(message: &str) {
    // SAFETY: plain globals, put back at once. A LOG line raises nothing where interrupts are held: a cancel request waits.
    unsafe {
        let statement = pg_sys::debug_query_string;
        pg_sys::debug_query_string = std::ptr::null();
        pg_sys::InterruptHoldoffCount += 1;
        pgrx::log!("{message}");
        pg_sys::InterruptHoldoffCount -= 1;
        pg_sys::debug_query_string = statement;
    }
}

/// Now, in microseconds since 2000-01-01 UTC.
pub fn now() -> i64 {
    // SAFETY: the function asks for nothing of its caller.
    unsafe { super::raw::GetCurrentTimestamp() }
}

/// A point in time as SQL knows it, from microseconds since 2000-01-01 UTC.
pub fn timestamp(microseconds: i64) -> pgrx::datum::TimestampWithTimeZone {
    pgrx::datum::TimestampWithTimeZone::try_from(microseconds)
        .unwrap_or_else(|_| pgrx::datum::TimestampWithTimeZone::positive_infinity())
}

pub fn check_for_interrupts() {
    pgrx::check_for_interrupts!();
}

pub fn enable_query_ids() {
    // SAFETY: no arguments; meant to be called from _PG_init.
    unsafe { pg_sys::EnableQueryId() }
}

/// Runs a body that may raise, and takes its error as an answer.
pub fn caught<T>(body: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let held = HeldInterrupts::now();
    catch_unwind(AssertUnwindSafe(body)).inspect_err(|_| {
        // SAFETY: the error has been copied into the panic; PostgreSQL's own record of it must go, or its stack fills.
        unsafe { pg_sys::FlushErrorState() }
        held.put_back();
    })
}

/// How often interrupts are held off. An error forgets that, which is right where it ends a transaction; where it ends
/// with us, whoever held them would let them go once too often, and the session would never hear of any again.
pub struct HeldInterrupts {
    interrupts: u32,
    cancels: u32,
}

impl HeldInterrupts {
    pub fn now() -> Self {
        // SAFETY: plain globals.
        unsafe {
            HeldInterrupts {
                interrupts: pg_sys::InterruptHoldoffCount,
                cancels: pg_sys::QueryCancelHoldoffCount,
            }
        }
    }

    /// To be called after an error was swallowed, by who holds no lightweight lock.
    pub fn put_back(&self) {
        // SAFETY: plain globals; what held interrupts then still does.
        unsafe {
            pg_sys::InterruptHoldoffCount = self.interrupts;
            pg_sys::QueryCancelHoldoffCount = self.cancels;
        }
    }
}

/// Returns this process's number.
#[inline(always)]
pub fn pid() -> i32 {
    // SAFETY: a plain global.
    unsafe { pg_sys::MyProcPid }
}

/// Returns whether this process is ending. Then an error is fatal: nobody catches it, and PostgreSQL's own clean-up stops
/// where it is.
pub fn is_exiting() -> bool {
    // SAFETY: a plain global.
    unsafe { pg_sys::proc_exit_inprogress }
}

/// Returns whether there is a process of this number.
pub fn is_alive(pid: i32) -> bool {
    // SAFETY: signal 0 is no signal.
    unsafe { libc::kill(pid, 0) == 0 || *libc::__errno_location() != libc::ESRCH }
}

/// Returns the message of an error that [`caught`] took.
pub fn message(error: &(dyn Any + Send)) -> String {
    use pg_sys::panic::CaughtError;
    match error.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => {
            report.message().to_owned()
        }
        Some(CaughtError::RustPanic { ereport, .. }) => ereport.message().to_owned(),
        None => "an error of pg_rowsource".to_owned(),
    }
}

/// Text in the database's encoding, as ours.
pub fn from_database(bytes: &[u8]) -> String {
    let converted = converted(bytes, pg_sys::pg_server_to_any);
    String::from_utf8_lossy(converted.as_deref().unwrap_or(bytes)).into_owned()
}

/// Our text in the database's encoding; what it cannot hold becomes a question mark.
pub fn to_database(text: &str) -> Vec<u8> {
    let ascii = |c: char| if c.is_ascii() { c as u8 } else { b'?' };
    converted(text.as_bytes(), pg_sys::pg_any_to_server).unwrap_or_else(|| text.chars().map(ascii).collect())
}

/// Returns a message as it can be raised in this database: pgrx hands its bytes to PostgreSQL, which takes them to be in
/// the database's encoding. In another one than UTF-8, what is not ASCII becomes a question mark.
pub fn as_message(text: &str) -> String {
    let ascii = |c: char| if c.is_ascii() { c } else { '?' };
    match is_utf8() {
        true => text.to_owned(),
        false => text.chars().map(ascii).collect(),
    }
}

/// What one of PostgreSQL's conversions to or from UTF-8 makes of a text; `None` where it cannot.
fn converted(bytes: &[u8], with: unsafe fn(*const c_char, i32, i32) -> *mut c_char) -> Option<Vec<u8>> {
    if bytes.is_ascii() || is_utf8() {
        return Some(bytes.to_vec());
    }
    caught(|| {
        // SAFETY: the source is as long as said; the result is a palloc'd, terminated string, or the source.
        unsafe {
            let source = bytes.as_ptr().cast();
            let result = with(source, bytes.len() as i32, UTF8);
            if std::ptr::eq(result, source) {
                bytes.to_vec()
            } else {
                CStr::from_ptr(result).to_bytes().to_vec()
            }
        }
    })
    .ok()
}

/// Returns text in the database's encoding as ours, without a copy where that is UTF-8. What is none there becomes a
/// question mark.
///
/// # Safety
/// A converted text lies in the current memory context, which must outlive the answer. May raise.
pub unsafe fn as_utf8(bytes: &mut [u8]) -> &str {
    if !is_utf8() && !bytes.is_ascii() {
        // SAFETY: the source is as long as said; the result is a palloc'd, terminated string, or the source.
        return unsafe {
            let source = bytes.as_ptr().cast();
            let result = pg_sys::pg_server_to_any(source, bytes.len() as i32, UTF8);
            if std::ptr::eq(result, source) {
                ""
            } else {
                CStr::from_ptr(result).to_str().unwrap_or_default()
            }
        };
    }
    let mut valid = 0;
    while let Err(error) = std::str::from_utf8(&bytes[valid..]) {
        valid += error.valid_up_to();
        bytes[valid] = b'?';
    }
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Returns the beginning of a text in the database's encoding: at most so many bytes, and whole characters.
pub fn first_bytes(text: &[u8], most: usize) -> &[u8] {
    clipped(text, most, pg_sys::pg_mbcliplen)
}

/// Returns the beginning of a text in the database's encoding: at most so many characters.
pub fn first_characters(text: &[u8], most: usize) -> &[u8] {
    clipped(text, most, pg_sys::pg_mbcharcliplen)
}

fn clipped(text: &[u8], most: usize, by: unsafe fn(*const c_char, i32, i32) -> i32) -> &[u8] {
    if text.len() <= most {
        return text;
    }
    // SAFETY: the text is as long as said. No character has more than four bytes, so no more of it need be looked at.
    let length = unsafe {
        by(
            text.as_ptr().cast(),
            text.len().min(4 * most + 4) as i32,
            most as i32,
        )
    };
    &text[..(length.max(0) as usize).min(text.len())]
}

const UTF8: i32 = pg_sys::pg_enc::PG_UTF8 as i32;

fn is_utf8() -> bool {
    // SAFETY: the function asks for nothing of its caller.
    let encoding = unsafe { pg_sys::GetDatabaseEncoding() };
    encoding == UTF8 || encoding == pg_sys::pg_enc::PG_SQL_ASCII as i32
}

/// Returns whether this process is a child of a postmaster.
pub fn is_under_postmaster() -> bool {
    // SAFETY: a global of a plain type, which is valid at all times.
    unsafe { pg_sys::IsUnderPostmaster }
}

/// Whether pg_upgrade runs this server.
pub fn is_upgrading() -> bool {
    // SAFETY: a plain global, set from the command line.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// Bytes of a statement's text that are looked at. A prepared statement may have 100 MB, and be run thousands of times a
/// second.
pub const LONGEST_TEXT: usize = 64 * 1024;

/// Returns the text of one statement, out of the query string that it came in, in the server's encoding: at most
/// [`LONGEST_TEXT`] of it. From 18 on PostgreSQL leaves out the comments before it.
///
/// # Safety
/// `source` must be a valid C string, and `statement` a valid planned statement made from it.
pub unsafe fn statement_text<'a>(source: *const c_char, statement: *const pg_sys::PlannedStmt) -> &'a [u8] {
    // SAFETY: the text and the statement are valid by the caller's promise; `place` stays within the text.
    unsafe {
        let (location, length) = place(source, statement);
        beginning(source.add(location), length.min(LONGEST_TEXT))
    }
}

/// Returns the text with the comments before it, as far as a hint is looked for in them: between it and the statement
/// before there is nothing else.
///
/// # Safety
/// `source` must be a valid C string, or null, and `statement` a valid planned statement made from it.
pub unsafe fn commented_text<'a>(source: *const c_char, statement: *const pg_sys::PlannedStmt) -> &'a [u8] {
    if source.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise; what lies before the statement is part of the same string.
    unsafe {
        let (location, length) = place(source, statement);
        let start = source.add(location);
        let looked_at = location.min(hint::LONGEST_COMMENTS);
        let before = std::slice::from_raw_parts(start.sub(looked_at).cast::<u8>(), looked_at);
        let comments = looked_at - memchr::memrchr(b';', before).map_or(0, |end| end + 1);
        let text = beginning(start, length.min(hint::LONGEST_SEARCH));
        std::slice::from_raw_parts(start.sub(comments).cast(), comments + text.len())
    }
}

/// Returns where in its query string a statement begins, and how long it is at most. Costs the same however long the
/// string is: it may hold ten thousands of statements.
///
/// # Safety
/// `statement` must point to a live planned statement.
unsafe fn place(source: *const c_char, statement: *const pg_sys::PlannedStmt) -> (usize, usize) {
    // SAFETY: the statement is live by the caller's promise.
    let (location, length) = unsafe { ((*statement).stmt_location, (*statement).stmt_len) };
    // A query that a rule or a function keeps has a length, but is not in this string.
    match (usize::try_from(location), usize::try_from(length)) {
        _ if source.is_null() => (0, 0),
        (Err(_), _) => (0, usize::MAX),
        // It is the last one of the string.
        (Ok(location), Ok(0) | Err(_)) => (location, usize::MAX),
        (Ok(location), Ok(length)) => (location, length),
    }
}

/// Returns a C string's beginning; reads no more of it.
///
/// # Safety
/// `text` must be a C string that stays valid, unless `longest` is 0.
unsafe fn beginning<'a>(text: *const c_char, longest: usize) -> &'a [u8] {
    if longest == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; strnlen stops at the end of the string.
    unsafe { std::slice::from_raw_parts(text.cast(), libc::strnlen(text, longest)) }
}
