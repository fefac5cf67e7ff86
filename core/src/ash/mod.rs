//! Active session history: samples of the running sessions in a ring of shared memory.
//!
//! * `sample` is a sample, and the words in which the ring stores it;
//! * `ring` is the protocol of the ring: one writer, and readers that drop what the writer overwrites
//!   meanwhile;
//! * `names` stores the names of applications once;
//! * `turns` lets many candidates have their turn, few at a time;
//! * `command` tells what kind of command a text is;
//! * `times` gives samples times that never step back, and chooses the moments of the samples.

mod command;
mod names;
mod ring;
mod sample;
mod times;
mod turns;

pub use command::command_names;
pub use names::NAME_BYTES;
pub use ring::{Entry, Header, RECORD_BYTES, Record, Ring, Ticks};
pub use sample::{MAX_BACKEND_TYPE, MAX_NODE, Sample, moment_number};
pub use times::{Moments, SampleTimes};
pub use turns::Turns;
