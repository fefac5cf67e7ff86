//! What all code beside PostgreSQL stands on, `compat` too: variables of PostgreSQL (`globals`), functions of
//! it that are called without pgrx's guard (`unguarded`), functions of the system (`posix`), the state of a
//! backend, which needs no lock (`backend_local`), and reads of memory that other processes write (`shared`).

pub mod backend_local;
pub mod globals;
pub mod posix;
pub mod shared;
pub mod unguarded;
