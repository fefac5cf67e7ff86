//! Clocks: where the time of a call comes from, what one reading costs, and how far it can be trusted.
//!
//! # Design
//! One leaf module per clock, in `source/`. The hot path reads raw ticks ([`Source::read_fn`], or [`tsc::read`] inlined)
//! and only subtracts them ([`elapsed`]); [`Source::scale`] turns ticks into time once, at the end.
//! Everything slow is done once per machine by [`prepare`], in the postmaster, and inherited by fork: whether
//! the TSC may be used, and its frequency. Only the cost of a reading ([`measure_costs`]) is found per
//! backend.
//!
//! # Platform support
//! | source | Linux x86-64 | Linux elsewhere | other systems |
//! |---|---|---|---|
//! | `tsc` | where invariant and trusted | no | x86-64: where the CPU has `TSC_ADJUST` |
//! | `system` | yes | yes | yes |
//! | `coarse`, `syscall` | yes | yes, where 64-bit | no |
//!
//! # Caveats
//! - The TSC is read without a fence: work may move past a reading by some tens of instructions.
//! - A virtual machine moved to a host with another TSC frequency, and no scaling by the hypervisor, keeps
//!   the old frequency until the server restarts. So does the verdict on the kernel's trust.
//! - `CLOCK_MONOTONIC` is slewed by NTP (up to 500 ppm); TSC time is not. The two may differ by that much.
//! - `CLOCK_MONOTONIC` stands still while the machine is suspended. The TSC may not.
//! - Nothing here assumes that a clock never steps back: see [`elapsed`].

mod calibrate;
mod cost;
mod detect;
mod frequency;
mod leaf;
pub mod mock;
mod scale;
mod source;
mod survey;
pub mod system;
pub mod tsc;

pub use cost::{Cost, measure_costs};
pub use detect::Unusable;
pub use frequency::{Frequency, Origin, frequency};
pub use scale::{Scale, elapsed};
pub use source::{Source, auto, prepare};
pub use survey::{SURVEY_CHUNK, Survey, survey};
