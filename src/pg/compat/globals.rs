//! Variables of PostgreSQL that may be read at any time, and that not all majors have.

use crate::pg::border::globals::globals;

globals! { pub(super),
    #[cfg(pg_ge_19)]
    ticks_per_ns_scaled: u64;
    #[cfg(pg_ge_19)]
    timing_clock_source: std::ffi::c_int;
    #[cfg(pg_ge_19)]
    timing_tsc_enabled: bool;
    #[cfg(not(pg_ge_19))]
    standard_conforming_strings: bool;
    #[cfg(pg_ge_18)]
    io_method: std::ffi::c_int;
    #[cfg(pg_ge_17)]
    MyProcNumber: pgrx::pg_sys::ProcNumber;
    #[cfg(pg_ge_17)]
    ParallelLeaderProcNumber: pgrx::pg_sys::ProcNumber;
    #[cfg(not(pg_ge_17))]
    MyBackendId: pgrx::pg_sys::BackendId;
    #[cfg(not(pg_ge_17))]
    ParallelLeaderBackendId: pgrx::pg_sys::BackendId;
}
