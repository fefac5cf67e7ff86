//! The sources of time, and which of them can be used.

use super::detect::{self, Unusable};
use super::frequency::{self, frequency};
use super::scale::Scale;
use super::{system, tsc};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::scale::elapsed;

    #[test]
    fn names_are_the_words_of_the_setting() {
        assert_eq!(
            Source::ALL.map(Source::name),
            ["tsc", "system", "coarse", "syscall"]
        );
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
