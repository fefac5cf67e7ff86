//! Whether the stated error of a time holds: in simulated runs of shapes whose true times are known, how
//! often the truth lies within one, two and three errors, and how large the stated errors are beside the
//! actual ones.

#[allow(dead_code, reason = "the tests of the wrapper use the rest")]
mod simulator;

use simulator::shapes::{GROUPS, Honesty, KNOWN, Shape, rare, stopped};

fn table(shapes: Vec<Shape>, seeds: u64) -> Vec<(String, Honesty)> {
    let first: u64 = std::env::var("FIRST_SEED").map_or(1, |seed| seed.parse().unwrap());
    let wanted = std::env::var("SHAPE").unwrap_or_default();
    let mut all = Vec::new();
    for shape in shapes.iter().filter(|shape| shape.name.contains(&wanted)) {
        let honesty = Honesty::of(shape, first..first + seeds);
        println!("{:<42} {honesty}", shape.name);
        all.push((shape.name.clone(), honesty));
    }
    all
}

/// What is promised, with fewer runs, so with wider limits.
#[test]
fn stated_errors_hold() {
    const SEEDS: u64 = 300;
    for name in [
        "uniform 20000 of 300 ns, 50 ns outside",
        "step",
        "each 7 of 16627: 40 us",
        "each 31 of 28362: 100 us",
        "at random 31 of 28362: 100 us",
        "at random 31 of 2000: 2000 us",
        "each 127 of 28988: 400 us",
        "case 30 mean 2500",
        "case 127 mean 2500",
        "case 400 mean 2500",
        "case 700 mean 2500",
        "each 400 of 76923: 400 us",
        "at random 400 of 76923: 400 us",
        "at random 127 of 6231: 2000 us",
        "each 1009 of 43818: 2000 us",
        "pareto 1.2 of 100000 up to 3 ms",
        "lognormal 2 of 100000",
        "inner, inner side",
        "batches",
        "busy parent, 10 us",
        "late beats",
        "old, at random 31 of 50000: 2000 us",
        "old, each 400 of 100000: 20000 us",
        "old, each 2500 of 200000: 20000 us",
        "old, uniform 50000 of 40 us",
        "old, pareto 1.3 of 50000 from 30 us up to 20 ms",
    ] {
        let mut shapes = GROUPS.iter().flat_map(|(_, shapes)| shapes());
        let shape = shapes.find(|shape| shape.name == name).expect(name);
        let honesty = Honesty::of(&shape, 1..1 + SEEDS);
        println!("{name:<42} {honesty}");
        assert!(honesty.is_promised(), "{name}: {honesty}");
        assert!(honesty.within[1] >= 0.91, "{name}: {honesty}");
        assert!(honesty.within[2] >= 0.965, "{name}: {honesty}");
        assert!(
            honesty.stated <= 1.7 * honesty.actual.max(KNOWN),
            "{name}: {honesty}"
        );
    }
}

/// A heart that is stopped must not make a figure wrong: what nobody saw is in the error. Without that, the
/// truth lay within three errors in 44 % of the runs of the first shape.
#[test]
fn stated_errors_hold_while_the_heart_is_stopped() {
    const SEEDS: u64 = 150;
    for name in [
        "stopped at times, stalls often, above",
        "stopped at times, stalls often, below",
        "stopped at times, stalls seldom, below",
        "stopped at times, at random 1009 of 43818: 2000 us",
        "stopped at times, long calls outside",
        "no heart, stalls often, below",
        "no heart, at random 1009 of 43818: 2000 us",
    ] {
        let shapes = stopped();
        let shape = shapes.iter().find(|shape| shape.name == name).expect(name);
        let honesty = Honesty::of(shape, 1..1 + SEEDS);
        println!("{name:<50} {honesty}");
        assert!(honesty.within[2] >= 0.95, "{name}: {honesty}");
    }
}

/// In the case of the issue, 17 of 50 estimates were below 0.7 of the truth.
#[test]
fn rare_calls_are_not_missed() {
    for shape in rare().iter().filter(|shape| shape.name.starts_with("case ")) {
        let honesty = Honesty::of(shape, 1..51);
        println!("{:<42} {honesty}", shape.name);
        assert!(honesty.actual < 0.25 && honesty.bias.abs() < 0.08, "{honesty}");
    }
}

/// `cargo test -p rowsource-core --release --test honesty -- --ignored --nocapture` prints the whole table.
/// `SEEDS` is the number of runs of each shape, `FIRST_SEED` the seed of the first, and `SHAPE` a part of the
/// names of the shapes to run.
#[test]
#[ignore = "it takes minutes"]
fn whole_table() {
    let seeds = std::env::var("SEEDS").map_or(1000, |seeds| seeds.parse().unwrap());
    table(stopped(), seeds);
    for (_, shapes) in GROUPS {
        let all = table(shapes(), seeds);
        for is_promised in [true, false] {
            let of: Vec<_> = all
                .iter()
                .filter(|(_, honesty)| honesty.is_promised() == is_promised)
                .collect();
            let held = of.iter().filter(|(_, honesty)| honesty.holds()).count();
            let what = if is_promised { "promised" } else { "with few beats" };
            println!("{what}: {held} of {} hold", of.len());
        }
    }
}
