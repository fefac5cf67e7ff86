//! Describes a background worker of the library to PostgreSQL.

use pgrx::pg_sys;
use std::ffi::{CStr, c_char};

const LIBRARY: &CStr = c"pg_rowsource";

/// Returns the description of a background worker of the library.
pub(super) fn background_worker(name: &CStr, function: &CStr) -> pg_sys::BackgroundWorker {
    let mut worker = pg_sys::BackgroundWorker::default();
    copy_name(&mut worker.bgw_name, name);
    copy_name(&mut worker.bgw_type, name);
    copy_name(&mut worker.bgw_library_name, LIBRARY);
    copy_name(&mut worker.bgw_function_name, function);
    worker.bgw_flags = (pg_sys::BGWORKER_SHMEM_ACCESS | pg_sys::BGWORKER_BACKEND_DATABASE_CONNECTION) as i32;
    worker
}

fn copy_name(to: &mut [c_char], name: &CStr) {
    for (to, from) in to.iter_mut().zip(name.to_bytes_with_nul()) {
        *to = *from as c_char;
    }
}
