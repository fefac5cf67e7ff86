//! Beats: a process outside of the sessions, the heart, tells them that time has passed. So no long call
//! hides between two readings of the clock, and no session needs a timer or a signal of its own.
//!
//! The words of a [`Beats`] lie in shared memory, one for each session. The session's wrappers compare the
//! sum of PostgreSQL's counters of buffers with an *expected* sum at each call anyway, to see whether blocks
//! must be charged. A beat counts one word up, and then replaces the expected sums by a *mark*, which no sum
//! equals. So the session's next check finds a difference, at no cost in the calls before it. The session
//! then takes the beats: it reads its clock, and puts the expected sums back.
//!
//! - The heart writes no clock reading of the session, which could replace a newer one, and no pointer: the
//!   words may pass to another session while a beat arrives, and that session's library may lie elsewhere.
//! - The session writes the expected sums too, when it charges blocks, with plain loads and stores. So a mark
//!   can be lost. The beat is not: it is counted, and is taken at the next mark, or when the session next
//!   charges blocks.
//! - A mark can also arrive after its beat was taken. Whoever charges blocks and finds a mark without a beat
//!   restores the sums with [`Beats::expect_sums`]. A charge that loses just that mark can leave those of the
//!   other scopes. Then the wrappers take their longer way, until the next beat or until the statement ends,
//!   where the session takes beats in any case.
//! - The session says in a word of its own whether it needs beats: its *wish*. It is cleared when the
//!   statement ends, also after an error. If the session is killed, PostgreSQL makes all shared memory again.
//! - A heart that stops leaves at most a mark without a beat. A heart that is late makes fewer beats: each
//!   says how much time it stands for, so what the session concludes from them is right on average, and its
//!   error is larger.
//!
//! The heart sleeps while no session has a wish: see [`Sleep`]. `tests/beat_loom.rs` runs all of this through
//! all schedules of a model checker.

mod pulse;
mod sleep;
mod words;

pub use pulse::{Pulse, Session, YOUNG_NS, beats_in};
pub use sleep::Sleep;
pub use words::{Beats, SCOPES, Taken, Wish};
