//! Clocks: their readings, costs and reliability.
//!
//! # Design
//! There is one leaf module per clock, in `source/`. The hot path reads raw ticks ([`Source::read_fn`], or
//! [`tsc::read`] inlined) and only subtracts them ([`elapsed`]). [`Source::scale`] turns ticks into time
//! once, at the end. In the postmaster, [`prepare`] does what takes long: it checks whether the TSC can be
//! used, and finds its frequency. Backends inherit the results by fork. Each backend measures only the cost
//! of a reading ([`measure_costs`]).
//!
//! # Platform support
//! | source | Linux x86-64 | Linux on other CPUs | other systems |
//! |---|---|---|---|
//! | `tsc` | if invariant and trusted | no | x86-64: if the CPU has `TSC_ADJUST` |
//! | `system` | yes | yes | yes |
//! | `coarse`, `syscall` | yes | yes, if 64-bit | no |
//!
//! # Caveats
//! - The TSC is read without a fence, but for the calls that stand for others: the CPU may move some tens of
//!   instructions past a reading.
//! - If a virtual machine moves to a host with another TSC frequency, and the hypervisor does not scale, the
//!   old frequency stays in use until the server restarts. Whether the kernel trusts the TSC is not checked
//!   again, either.
//! - `CLOCK_MONOTONIC` is slewed by NTP (up to 500 ppm); TSC time is not. The two may differ by that much.
//! - `CLOCK_MONOTONIC` stops while the machine is suspended. The TSC may go on.
//! - This code does not assume that a clock never steps back: see [`elapsed`].

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

pub use cost::{Cost, measure_costs, measure_costs_in_order};
pub use detect::Unusable;
pub use frequency::{Frequency, Origin, frequency};
pub use scale::{Scale, elapsed};
pub use source::{Source, auto, prepare};
pub use survey::{SURVEY_CHUNK, Survey, survey};
