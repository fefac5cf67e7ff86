//! Finds the TSC's frequency. The hypervisor or the CPU states it, and the system clock confirms it.
//! Otherwise it is measured.
//!
//! The hypervisor's leaf 0x40000010 (KVM, VMware) comes first, because under a hypervisor the CPU's own
//! leaves may be those of another host. CPUID 0x15 with a crystal frequency comes next. A stated frequency is
//! checked for a millisecond. If its error is above [`MAX_DISAGREEMENT`], the measured frequency is used. If
//! none is stated, the frequency is measured for some milliseconds. CPUID 0x16, the base frequency in whole
//! MHz, is used only if the system clock is too inaccurate for a measurement.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::calibrate::{Bench, FIRST_WINDOW, Measured, TARGET_ERROR};
use super::detect::{self, Unusable};
use super::{system, tsc};

/// The largest relative difference between the stated and the measured frequency at which the stated one is
/// used. NTP may slew the system clock by half of this, so a correct statement is never rejected. In
/// displayed times this error is not noticeable.
const MAX_DISAGREEMENT: f64 = 1e-3;
/// How long a stated frequency is checked. This suffices for an error of 50 ppm on usual machines.
const CHECK_WINDOW: Duration = Duration::from_millis(1);
/// A check with a larger error is ignored.
const CHECK_ERROR: f64 = MAX_DISAGREEMENT / 4.0;
/// The relative error of CPUID 0x16. It is a rounded number: a "2.3 GHz" CPU may tick at 2.295 GHz.
const BASE_FREQUENCY_ERROR: f64 = 5e-3;

/// A frequency with a larger relative error is not used, because times would be visibly wrong.
const MAX_ERROR: f64 = 1e-2;

/// The TSC's frequency, and its origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frequency {
    /// Ticks per second.
    pub hz: f64,
    /// Where the frequency comes from.
    pub origin: Origin,
    /// Its largest relative error: that of the measurement, or of the check of a stated frequency.
    pub error: f64,
}

/// Where the TSC's frequency comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The hypervisor states it (CPUID 0x40000010).
    Hypervisor,
    /// The CPU states its crystal's frequency and the TSC's ratio to it (CPUID 0x15).
    Crystal,
    /// Measured against `CLOCK_MONOTONIC`.
    Measured,
    /// The CPU's base frequency in whole MHz (CPUID 0x16), if nothing better is available.
    BaseFrequency,
    /// The frequency is unknown. The TSC cannot be used here, and its tick counts as a nanosecond.
    Unknown,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Hypervisor => "hypervisor",
            Origin::Crystal => "cpuid",
            Origin::Measured => "measured",
            Origin::BaseFrequency => "cpuid base frequency",
            Origin::Unknown => "unknown",
        })
    }
}

/// The frequency. It is found once, and child processes inherit it.
static FREQUENCY: OnceLock<Frequency> = OnceLock::new();

/// Returns the TSC's frequency. The first call finds it, which takes some milliseconds: see
/// [`prepare`](super::prepare).
pub fn frequency() -> Frequency {
    *FREQUENCY.get_or_init(|| {
        if detect::tsc().is_err() {
            return UNKNOWN;
        }
        let mut bench = Bench {
            ticks: tsc::read,
            ns: system::monotonic,
            pause: std::thread::sleep,
        };
        choose(stated(), |first, target| bench.measure(first, target))
    })
}

/// Returns whether the frequency is known.
pub(super) fn known() -> Result<(), Unusable> {
    if frequency().origin == Origin::Unknown {
        Err(Unusable::NoFrequency)
    } else {
        Ok(())
    }
}

/// An unknown frequency, at which a tick is a nanosecond.
const UNKNOWN: Frequency = Frequency {
    hz: 1e9,
    origin: Origin::Unknown,
    error: f64::INFINITY,
};

/// The frequencies that CPUID states, in ticks per second.
#[derive(Clone, Copy, Debug, Default)]
struct Stated {
    hypervisor: Option<f64>,
    crystal: Option<f64>,
    base: Option<f64>,
}

/// Chooses the frequency. `measure` takes the first window and the target error, as [`Bench::measure`] does.
fn choose(stated: Stated, mut measure: impl FnMut(Duration, f64) -> Option<Measured>) -> Frequency {
    let candidates = [
        (stated.hypervisor, Origin::Hypervisor),
        (stated.crystal, Origin::Crystal),
    ];
    let mut candidates = candidates
        .into_iter()
        .filter_map(|(hz, origin)| Some((hz?, origin)))
        .peekable();
    if candidates.peek().is_some() {
        let check = measure(CHECK_WINDOW, CHECK_ERROR).filter(|check| check.error <= CHECK_ERROR);
        for (hz, origin) in candidates {
            let off = check.map_or(0.0, |check| (check.hz / hz - 1.0).abs());
            if off <= MAX_DISAGREEMENT {
                let error = check.map_or(MAX_DISAGREEMENT, |check| off + check.error);
                return Frequency { hz, origin, error };
            }
        }
    }
    // An inaccurate measurement is better than none, but not better than the CPU's statement.
    let max_error = if stated.base.is_some() {
        BASE_FREQUENCY_ERROR
    } else {
        MAX_ERROR
    };
    match measure(FIRST_WINDOW, TARGET_ERROR).filter(|measured| measured.error <= max_error) {
        Some(Measured { hz, error }) => Frequency {
            hz,
            origin: Origin::Measured,
            error,
        },
        None => stated.base.map_or(UNKNOWN, |hz| Frequency {
            hz,
            origin: Origin::BaseFrequency,
            error: BASE_FREQUENCY_ERROR,
        }),
    }
}

#[cfg(target_arch = "x86_64")]
fn stated() -> Stated {
    use raw_cpuid::{CpuId, Hypervisor};

    let cpuid = CpuId::new();
    // Other hypervisors use leaf 0x40000010 for other purposes, or not at all.
    let hypervisor = cpuid
        .get_hypervisor_info()
        .filter(|leaf| matches!(leaf.identify(), Hypervisor::KVM | Hypervisor::VMware))
        .and_then(|leaf| leaf.tsc_frequency())
        .map(|khz| f64::from(khz) * 1e3);
    let crystal = cpuid
        .get_tsc_info()
        .and_then(|leaf| leaf.tsc_frequency())
        .map(|hz| hz as f64);
    let base = cpuid
        .get_processor_frequency_info()
        .map(|leaf| f64::from(leaf.processor_base_frequency()) * 1e6);
    let some = |hz: Option<f64>| hz.filter(|&hz| hz > 0.0);
    Stated {
        hypervisor: some(hypervisor),
        crystal: some(crystal),
        base: some(base),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn stated() -> Stated {
    Stated::default()
}

#[cfg(test)]
#[path = "frequency_tests.rs"]
mod tests;
