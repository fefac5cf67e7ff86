//! Active session history: samples of the running sessions in a ring of shared memory.
//!
//! * `sample` is a sample, and the words in which the ring stores it;
//! * `ring` is the protocol of the ring: one writer, and readers that drop what the writer overwrites
//!   meanwhile. It consists of tiers (`tier`), which keep fewer moments for longer; `writer` chooses these;
//! * `names` stores the names of applications once;
//! * `turns` lets many candidates have their turn, few at a time;
//! * `command` tells what kind of command a text is;
//! * `times` gives samples times that never step back, and chooses the moments of the samples.

mod command;
mod names;
mod ring;
mod sample;
mod tier;
mod times;
mod turns;
mod writer;

pub use command::command_names;
pub use names::NAME_BYTES;
pub use ring::{Entry, Header, Moment, RECORD_BYTES, Record, Ring, SLOT_US, SavedHeader, SavedMoment, TIERS};
pub use sample::{MAX_BACKEND_TYPE, MAX_NODE, Sample};
pub use times::{Moments, SampleTimes};
pub use turns::Turns;
pub use writer::Writer;
