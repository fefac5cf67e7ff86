//! The hot path: what runs once per call of a plan node, and the state that it touches.
//!
//! An error may leave any function of this folder by a longjmp. So all of them are plain frames: no guard, no guarded
//! function of PostgreSQL, no destructor, no allocation, no panic. `tests/src/plain_frames.rs` checks every
//! function of the built library that comes from this folder, and all that they call.

pub mod node;
pub mod state;
pub mod tick;
pub mod timing;
pub mod usage;
pub mod wrapper;
