//! What all code beside PostgreSQL stands on, `compat` too: functions of PostgreSQL that are called without
//! pgrx's guard (`unguarded`), and the state of a backend, which needs no lock (`backend_local`).

pub mod backend_local;
pub mod unguarded;
