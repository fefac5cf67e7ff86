//! Tests of the rule that chooses the TSC's frequency.

use super::*;

/// Returns a function that always measures `hz` with this relative error.
fn measuring(hz: f64, error: f64) -> impl FnMut(Duration, f64) -> Option<Measured> {
    move |_, _| Some(Measured { hz, error })
}

#[test]
fn the_hypervisor_has_priority_over_the_crystal_if_the_clock_agrees() {
    let stated = Stated {
        hypervisor: Some(2.3e9),
        crystal: Some(2.3001e9),
        base: Some(2.3e9),
    };
    let chosen = choose(stated, measuring(2.3002e9, 50e-6));
    assert_eq!((chosen.hz, chosen.origin), (2.3e9, Origin::Hypervisor));
    assert!(chosen.error > 80e-6 && chosen.error < 140e-6);
}

#[test]
fn the_frequency_that_the_clock_confirms_is_chosen() {
    let stated = Stated {
        hypervisor: Some(2.5e9),
        crystal: Some(2.3e9),
        base: None,
    };
    assert_eq!(choose(stated, measuring(2.3e9, 50e-6)).origin, Origin::Crystal);
}

#[test]
fn the_measured_frequency_replaces_a_stated_one_with_an_error_above_a_thousandth() {
    let stated = Stated {
        crystal: Some(2.3e9),
        base: Some(2.3e9),
        ..Stated::default()
    };
    let chosen = choose(stated, measuring(2.303e9, 8e-6));
    assert_eq!(
        chosen,
        Frequency {
            hz: 2.303e9,
            origin: Origin::Measured,
            error: 8e-6
        }
    );
}

#[test]
fn an_inaccurate_check_does_not_reject_the_stated_frequency() {
    let stated = Stated {
        crystal: Some(2.3e9),
        ..Stated::default()
    };
    assert_eq!(choose(stated, measuring(3.0e9, 0.5)).origin, Origin::Crystal);
    assert_eq!(choose(stated, |_, _| None).origin, Origin::Crystal);
}

#[test]
fn the_base_frequency_is_the_last_resort() {
    let stated = Stated {
        base: Some(2.3e9),
        ..Stated::default()
    };
    assert_eq!(choose(stated, measuring(2.295e9, 10e-6)).origin, Origin::Measured);
    assert_eq!(
        choose(stated, measuring(2.295e9, 0.01)).origin,
        Origin::BaseFrequency
    );
    assert_eq!(choose(stated, |_, _| None).origin, Origin::BaseFrequency);
}

#[test]
fn a_frequency_that_cannot_be_measured_is_unknown() {
    assert_eq!(choose(Stated::default(), |_, _| None), UNKNOWN);
    assert_eq!(
        choose(Stated::default(), measuring(2.295e9, 0.01)).origin,
        Origin::Measured
    );
    assert_eq!(choose(Stated::default(), measuring(2.295e9, 0.02)), UNKNOWN);
}

#[test]
fn a_confirmed_frequency_needs_one_short_check() {
    let mut asked = Vec::new();
    let stated = Stated {
        hypervisor: Some(2.3e9),
        ..Stated::default()
    };
    choose(stated, |first, target| {
        asked.push((first, target));
        Some(Measured {
            hz: 2.3e9,
            error: 50e-6,
        })
    });
    assert_eq!(asked, [(CHECK_WINDOW, CHECK_ERROR)]);
}

#[test]
fn the_frequency_of_this_machine_is_credible() {
    let found = frequency();
    assert_eq!(found, frequency());
    match crate::clock::Source::Tsc.usable() {
        Ok(()) => assert!(
            found.hz > 1e8 && found.hz < 1e10 && found.error < 0.01,
            "{found:?}"
        ),
        Err(_) => assert_eq!(found.origin, Origin::Unknown),
    }
}
