//! The hot path: the code that runs once per call of a plan node, and the state that it uses.
//!
//! An error may leave any function of this folder by a longjmp. So all of them are plain frames: no guard, no guarded
//! function of PostgreSQL, no destructor, no allocation, no panic. `scripts/check-plain.sh` checks all functions of this
//! folder in the built library, and all functions that they call.

pub mod node;
pub mod state;
pub mod tick;
pub mod timing;
pub mod usage;
pub mod wrapper;
