//! Clocks: where the time of a call comes from, what one reading costs, and how far it can be trusted.
//!
//! # Design
//! One leaf module per clock. The hot path reads raw ticks ([`Source::read_fn`], or [`tsc::read`] inlined)
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
pub mod mock;
mod scale;
mod survey;
pub mod system;
pub mod tsc;

pub use cost::{Cost, measure_costs};
pub use detect::Unusable;
pub use frequency::{Frequency, Origin, frequency};
pub use scale::Scale;
pub use survey::{SURVEY_CHUNK, Survey, survey};

/// A clock that can be read (what `auto` resolves to is one of these).
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The CPU's time stamp counter.
    Tsc,
    /// `CLOCK_MONOTONIC`, through the vDSO where the kernel offers one.
    System,
    /// `CLOCK_MONOTONIC_COARSE`: cheap, but it moves with the kernel's tick only (1 to 10 ms).
    Coarse,
    /// `CLOCK_MONOTONIC` by a real system call, the vDSO bypassed.
    Syscall,
}

impl Source {
    /// Every source, in the order in which they are listed to users.
    pub const ALL: [Source; 4] = [Source::Tsc, Source::System, Source::Coarse, Source::Syscall];

    /// The word for the source in settings and displays.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Tsc => "tsc",
            Source::System => "system",
            Source::Coarse => "coarse",
            Source::Syscall => "syscall",
        }
    }

    /// Whether this machine has the source and it can be trusted.
    ///
    /// The verdict on the TSC is reached once per tree of processes (see [`prepare`]); the others are tried
    /// each time.
    ///
    /// # Errors
    /// The reason, in a user's words.
    pub fn usable(self) -> Result<(), Unusable> {
        match self {
            Source::Tsc => detect::tsc().and_then(|()| frequency::known()),
            Source::System => detect::answers(system::monotonic),
            Source::Coarse => detect::answers(system::coarse),
            Source::Syscall => detect::answers(system::syscall),
        }
    }

    /// The function that reads the clock: raw ticks for the TSC, nanoseconds for the others.
    ///
    /// It does not allocate, lock or panic, so it may be called in a signal handler and in a frame that a
    /// longjmp crosses. Call it for a [usable](Self::usable) source only.
    pub const fn read_fn(self) -> fn() -> u64 {
        match self {
            Source::Tsc => tsc::read,
            Source::System => system::monotonic,
            Source::Coarse => system::coarse,
            Source::Syscall => system::syscall,
        }
    }

    /// Reads the clock: as [`Source::read_fn`], without a call for the TSC.
    #[inline(always)]
    pub fn read(self) -> u64 {
        match self {
            Source::Tsc => tsc::read(),
            _ => self.read_fn()(),
        }
    }

    /// How long a raw tick of this source is: 1 ns for all but the TSC.
    pub fn scale(self) -> Scale {
        match self {
            Source::Tsc => Scale::of_frequency(frequency().hz),
            Source::System | Source::Coarse | Source::Syscall => Scale::NANOSECOND,
        }
    }
}

/// The source that the setting `auto` stands for: the TSC where it is usable, else the system clock.
pub fn auto() -> Source {
    match Source::Tsc.usable() {
        Ok(()) => Source::Tsc,
        Err(_) => Source::System,
    }
}

/// Finds out once what takes long: whether the TSC may be used and, if so, its frequency.
///
/// To be called in the postmaster, so that backends inherit the answer by fork; or at `LOAD`, where it costs
/// that one session 1 to 5 ms (70 ms on the noisiest machine). Later calls cost nothing. Whatever else here
/// needs the answer finds it out by itself, so nothing is wrong without this call; the first to ask is
/// slow, that is all.
pub fn prepare() {
    frequency();
}

/// Ticks from `start` to `end`; `None` where the clock stepped back between the two readings.
///
/// The one subtraction of readings there is: it cannot wrap, so a step back never turns into an absurd time.
/// A caller counts `None` as zero time and as one backward step.
#[inline(always)]
pub const fn elapsed(start: u64, end: u64) -> Option<u64> {
    end.checked_sub(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_words_of_the_setting() {
        assert_eq!(
            Source::ALL.map(Source::name),
            ["tsc", "system", "coarse", "syscall"]
        );
    }

    #[test]
    fn elapsed_never_wraps() {
        assert_eq!(elapsed(5, 9), Some(4));
        assert_eq!(elapsed(9, 9), Some(0));
        assert_eq!(elapsed(9, 5), None);
        assert_eq!(elapsed(u64::MAX, 0), None);
    }

    #[test]
    fn auto_is_usable() {
        prepare();
        assert_eq!(auto().usable(), Ok(()));
        assert_eq!(auto() == Source::Tsc, Source::Tsc.usable().is_ok());
    }

    #[test]
    fn every_usable_source_moves_at_the_pace_of_the_system_clock() {
        prepare();
        for source in Source::ALL.into_iter().filter(|source| source.usable().is_ok()) {
            let (read, scale) = (source.read_fn(), source.scale());
            // Readings of the system clock around each, so that a preemption anywhere does no harm.
            let around = || (system::monotonic(), read(), system::monotonic());
            let start = around();
            std::thread::sleep(std::time::Duration::from_millis(40));
            let end = around();
            let told = scale.nanoseconds(elapsed(start.1, end.1).unwrap());
            let (least, most) = ((end.0 - start.2) as f64, (end.2 - start.0) as f64);
            // The coarse clock may be a tick of 10 ms behind at either end, or more on a busy virtual
            // machine.
            let slack = if source == Source::Coarse {
                30e6
            } else {
                0.005 * most
            };
            assert!(
                least - slack < told && told < most + slack,
                "{source:?}: {told} in {least}..{most} ns"
            );
        }
    }
}
