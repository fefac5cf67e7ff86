//! The list of clocks, and which of them can be used.
//!
//! A new clock is a file in `source/`, which implements [`Clock`], and a line in the list below.

mod coarse;
mod syscall;
mod system;
mod tsc;

use super::detect::Unusable;
use super::frequency::frequency;
use super::leaf::{Clock, Visitor};
use super::scale::Scale;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;

/// Defines the enum of clocks and the functions that differ between them.
macro_rules! clocks {
    ($($(#[$doc:meta])+ $name:ident = $clock:ty;)+) => {
        /// A clock that can be read. The setting `auto` chooses one of these.
        ///
        /// Stored statistics contain the index of the clock in this list.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Source {
            $($(#[$doc])+ $name,)+
        }

        impl Source {
            /// All sources, in the order in which they are listed to users.
            pub const ALL: [Source; [$(Source::$name),+].len()] = [$(Source::$name),+];

            /// Returns the name of the source in settings and displays, as a C string.
            pub const fn c_name(self) -> &'static CStr {
                match self {
                    $(Source::$name => <$clock as Clock>::NAME,)+
                }
            }

            /// Returns whether this machine has the source, and whether it can be trusted.
            ///
            /// # Errors
            /// The reason, in words for users.
            pub fn usable(self) -> Result<(), Unusable> {
                match self {
                    $(Source::$name => <$clock as Clock>::usable(),)+
                }
            }

            /// Returns the function that reads the clock. It may be called only for a [usable](Self::usable)
            /// source.
            ///
            /// It does not allocate, lock or panic, so it may be called in a signal handler and in a frame
            /// that a longjmp crosses.
            pub const fn read_fn(self) -> fn() -> u64 {
                match self {
                    $(Source::$name => <$clock as Clock>::read,)+
                }
            }

            /// Returns the length of a raw tick of this source.
            pub fn scale(self) -> Scale {
                match self {
                    $(Source::$name => <$clock as Clock>::scale(),)+
                }
            }

            /// Returns the length of the clock's steps in nanoseconds; 0 if they are shorter than a reading.
            pub const fn resolution_ns(self) -> f64 {
                match self {
                    $(Source::$name => <$clock as Clock>::RESOLUTION_NS,)+
                }
            }

            /// Performs an operation that is compiled for each clock.
            pub(super) fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Source::$name => visitor.visit::<$clock>(),)+
                }
            }
        }
    };
}

clocks! {
    /// The CPU's time stamp counter.
    Tsc = tsc::Tsc;
    /// `CLOCK_MONOTONIC`, through the vDSO if the kernel offers one.
    System = system::System;
    /// `CLOCK_MONOTONIC_COARSE`: cheap, but it changes only with the kernel's tick (1 to 10 ms).
    Coarse = coarse::Coarse;
    /// `CLOCK_MONOTONIC`, read with a real system call, without the vDSO.
    Syscall = syscall::Syscall;
}

impl Source {
    /// Returns the name of the source in settings and displays.
    pub const fn name(self) -> &'static str {
        match self.c_name().to_str() {
            Ok(name) => name,
            Err(_) => "",
        }
    }

    /// Reads the clock as [`Source::read_fn`] does, but without a call for the TSC.
    #[inline(always)]
    pub fn read(self) -> u64 {
        match self {
            Source::Tsc => super::tsc::read(),
            _ => self.read_another(),
        }
    }

    /// Reads another clock than the TSC. It is out of line, so that the TSC is read without a jump table.
    #[inline(never)]
    fn read_another(self) -> u64 {
        self.read_fn()()
    }
}

/// Returns the source that the setting `auto` chooses: the TSC if it is usable, else the system clock.
pub fn auto() -> Source {
    match Source::Tsc.usable() {
        Ok(()) => Source::Tsc,
        Err(_) => Source::System,
    }
}

/// Checks whether the TSC can be used, and finds its frequency, which takes long.
///
/// The postmaster calls this, and backends inherit the result by fork. At `LOAD` it costs the session 1 to 5
/// ms (70 ms on the noisiest machine). Later calls cost nothing. Without this call, the first function that
/// needs the result is slow.
pub fn prepare() {
    frequency();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::scale::elapsed;
    use crate::clock::system::monotonic;

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
    fn every_usable_source_is_as_fast_as_the_system_clock() {
        prepare();
        for source in Source::ALL.into_iter().filter(|source| source.usable().is_ok()) {
            let (read, scale) = (source.read_fn(), source.scale());
            // The system clock is read before and after each source, so that a preemption does no harm.
            let around = || (monotonic(), read(), monotonic());
            let start = around();
            std::thread::sleep(std::time::Duration::from_millis(40));
            let end = around();
            let measured = scale.nanoseconds(elapsed(start.1, end.1).unwrap());
            let (min, max) = ((end.0 - start.2) as f64, (end.2 - start.0) as f64);
            // The coarse clock may be a tick of 10 ms behind at either end, or more on a busy virtual
            // machine.
            let slack = if source == Source::Coarse {
                30e6
            } else {
                0.005 * max
            };
            assert!(
                min - slack < measured && measured < max + slack,
                "{source:?}: {measured} in {min}..{max} ns"
            );
        }
    }
}
