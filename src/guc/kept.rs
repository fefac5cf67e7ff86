//! The settings of the executions that are kept whole.

use crate::pg::server;
use crate::pg::server::setting::value;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

static KEEP_PARAMETERS: GucSetting<bool> = GucSetting::<bool>::new(false);
/// The unit is a kilobyte.
static EXECUTIONS_SIZE: GucSetting<i32> = GucSetting::<i32>::new(2 * 1024);

/// Defines them.
pub(super) fn define() {
    GucRegistry::define_bool_guc(
        c"pg_rowsource.keep_parameters",
        c"Keeps the values of parameters of executions that are kept whole, for rowsource_statement().",
        c"At most 256 bytes of each value and 4 kB of all are kept, of PostgreSQL's own types. Needs pg_rowsource in shared_preload_libraries before PostgreSQL 17.",
        &KEEP_PARAMETERS,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.executions_size",
        c"Sets the shared memory for rowsource_executions. 0 keeps none.",
        c"An execution takes 4 kB. Needs pg_rowsource in shared_preload_libraries.",
        &EXECUTIONS_SIZE,
        0,
        64 * 1024,
        if server::preloading() {
            GucContext::Postmaster
        } else {
            GucContext::Internal
        },
        GucFlags::UNIT_KB,
    );
}

/// Returns whether the values of parameters are kept.
pub fn keep_parameters() -> bool {
    value(&KEEP_PARAMETERS)
}

/// Returns the bytes of shared memory for the ring of executions.
pub fn executions_size() -> usize {
    usize::try_from(value(&EXECUTIONS_SIZE)).unwrap_or(0) * 1024
}
