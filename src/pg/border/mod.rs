//! What all code beside PostgreSQL stands on, `compat` too: variables of PostgreSQL (`globals`), functions of
//! it that take any arguments (`guarded`) or are called without pgrx's guard (`unguarded`), functions of the
//! system (`posix`), the state of a backend, which needs no lock (`backend_local`), reads of memory that
//! other processes write (`shared`), and the promise that an error may cross frames (`frames`).

pub mod backend_local;
pub mod frames;
pub mod globals;
pub mod guarded;
pub mod posix;
pub mod shared;
pub mod unguarded;
