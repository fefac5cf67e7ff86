//! Detects which clocks this machine has, and whether its TSC can be trusted.
//!
//! The rule for the TSC is that of PostgreSQL 19 for `auto`. The CPU must have RDTSCP and an invariant TSC.
//! In addition, the CPU must have the `TSC_ADJUST` register, with which the kernel synchronises the CPUs'
//! counters. Otherwise the kernel itself must use the TSC as its clock source, because then it has checked
//! the TSC since it booted.

use std::sync::OnceLock;

/// Why a clock cannot be used. The text is a clause for users: lower case, no full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The program was built for another CPU.
    #[error("only x86-64 CPUs have a TSC")]
    NotX86,
    /// CPUID shows no RDTSCP, so this is an old or a restricted (virtual) CPU.
    #[error("the CPU has no RDTSCP instruction")]
    NoRdtscp,
    /// The counter's rate changes with the CPU's frequency, or it stops when the CPU sleeps.
    #[error("the CPU has no invariant TSC")]
    NotInvariant,
    /// A reading would raise SIGSEGV.
    #[error("the kernel does not let this process read the TSC")]
    Forbidden,
    /// The kernel found, or must assume, that the counters of the CPUs differ.
    #[error("the kernel does not trust the TSC (its clock source is {clock_source})")]
    Untrusted {
        /// The clock that the kernel uses instead; `unknown` if it does not say.
        clock_source: String,
    },
    /// CPUID does not state the frequency, and it cannot be measured: the TSC or the system clock does not
    /// move.
    #[error("the frequency of the TSC is unknown")]
    NoFrequency,
    /// The operating system does not have this clock, or a sandbox forbids it.
    #[error("the operating system does not offer this clock")]
    NotOffered,
}

/// Whether the TSC can be used. This is checked only once, because CPUID is slow in a virtual machine (each
/// leaf is an exit to the hypervisor), and the kernel's clock source must be read from a file.
static TSC: OnceLock<Result<(), Unusable>> = OnceLock::new();

/// Returns whether the TSC can be used. Only the first call checks it.
pub(super) fn tsc() -> Result<(), Unusable> {
    TSC.get_or_init(|| judge(features(), super::tsc::permitted(), clock_source))
        .clone()
}

/// Returns whether a system clock can be read. A failed reading returns 0.
pub(super) fn answers(read: fn() -> u64) -> Result<(), Unusable> {
    if read() != 0 {
        Ok(())
    } else {
        Err(Unusable::NotOffered)
    }
}

/// The features of the TSC that CPUID shows.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
struct Features {
    rdtscp: bool,
    invariant: bool,
    adjust: bool,
}

/// Applies the rule. Calls `clock_source` only if the result depends on it.
fn judge(
    features: Option<Features>,
    permitted: bool,
    clock_source: impl FnOnce() -> Option<String>,
) -> Result<(), Unusable> {
    let features = features.ok_or(Unusable::NotX86)?;
    if !features.rdtscp {
        return Err(Unusable::NoRdtscp);
    }
    if !features.invariant {
        return Err(Unusable::NotInvariant);
    }
    if !permitted {
        return Err(Unusable::Forbidden);
    }
    if features.adjust {
        return Ok(());
    }
    match clock_source() {
        Some(name) if name == "tsc" => Ok(()),
        other => Err(Unusable::Untrusted {
            clock_source: other.unwrap_or_else(|| "unknown".to_owned()),
        }),
    }
}

#[cfg(target_arch = "x86_64")]
fn features() -> Option<Features> {
    let cpuid = raw_cpuid::CpuId::new();
    Some(Features {
        rdtscp: cpuid
            .get_extended_processor_and_feature_identifiers()
            .is_some_and(|leaf| leaf.has_rdtscp()),
        invariant: cpuid
            .get_advanced_power_mgmt_info()
            .is_some_and(|leaf| leaf.has_invariant_tsc()),
        adjust: cpuid
            .get_extended_feature_info()
            .is_some_and(|leaf| leaf.has_tsc_adjust_msr()),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Option<Features> {
    None
}

/// Returns the clock that the kernel uses now. (`available_clocksource` lists an untrusted TSC too.) Returns
/// `None` on other operating systems, and in containers without `/sys`.
fn clock_source() -> Option<String> {
    let text =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Features = Features {
        rdtscp: true,
        invariant: true,
        adjust: true,
    };

    fn kernel_uses(name: &'static str) -> impl FnOnce() -> Option<String> {
        move || Some(name.to_owned())
    }

    fn not_asked() -> Option<String> {
        panic!("the kernel's clock source does not matter here")
    }

    #[test]
    fn tsc_adjust_suffices() {
        assert_eq!(judge(Some(GOOD), true, not_asked), Ok(()));
    }

    #[test]
    fn without_tsc_adjust_the_kernel_decides() {
        let features = Some(Features {
            adjust: false,
            ..GOOD
        });
        assert_eq!(judge(features, true, kernel_uses("tsc")), Ok(()));
        let verdict = judge(features, true, kernel_uses("kvm-clock")).unwrap_err();
        assert_eq!(
            verdict.to_string(),
            "the kernel does not trust the TSC (its clock source is kvm-clock)"
        );
        let verdict = judge(features, true, || None).unwrap_err();
        assert_eq!(
            verdict.to_string(),
            "the kernel does not trust the TSC (its clock source is unknown)"
        );
    }

    #[test]
    fn a_missing_feature_is_the_reason() {
        let verdict = |features| judge(features, true, not_asked);
        assert_eq!(verdict(None), Err(Unusable::NotX86));
        assert_eq!(
            verdict(Some(Features {
                rdtscp: false,
                ..GOOD
            })),
            Err(Unusable::NoRdtscp)
        );
        assert_eq!(
            verdict(Some(Features {
                invariant: false,
                ..GOOD
            })),
            Err(Unusable::NotInvariant)
        );
        assert_eq!(judge(Some(GOOD), false, not_asked), Err(Unusable::Forbidden));
    }

    #[test]
    fn a_clock_that_reads_zero_is_not_offered() {
        assert_eq!(answers(|| 0), Err(Unusable::NotOffered));
        assert_eq!(answers(|| 1), Ok(()));
    }
}
