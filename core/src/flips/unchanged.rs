//! How often plans of the same speed get a verdict on a busy machine.

use super::{Pace, Sample, Verdict, verdicts};
use crate::model::Times;
use crate::regressions::Sums;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const TRIALS: usize = 200;
const SECOND_US: i64 = 1_000_000;
/// How many executions the plan has in a second, and how many plans of other queries run in it.
const CALLS: usize = 10;
const OTHERS: usize = 10;

/// A machine on which all times have something in common: its load changes slowly.
struct Machine {
    random: Xoshiro256PlusPlus,
    /// The binary logarithm of how much longer all takes now.
    load: f64,
    others: [(Times, i64); OTHERS],
    pace: Pace,
    second: i64,
}

impl Machine {
    fn new(seed: u64) -> Machine {
        let mut machine = Machine {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            load: 0.0,
            others: [(Times::default(), 0); OTHERS],
            pace: Pace::default(),
            second: 0,
        };
        (0..60).for_each(|_| machine.next_second());
        machine
    }

    /// Returns a number of the normal distribution.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0
    }

    /// The load of a second is mostly that of the second before.
    fn next_second(&mut self) {
        const STAYS: f64 = 0.95;
        self.second += 1;
        self.load = self.load * STAYS + 0.6 * (1.0f64 - STAYS * STAYS).sqrt() * self.normal();
        for i in 0..OTHERS {
            let at = self.second * SECOND_US + i as i64;
            let ms = self.execution();
            let (times, last_at) = self.others[i];
            let mut after = times;
            after.add(ms);
            self.pace.add((&times, last_at), &after, at);
            self.others[i] = (after, at);
        }
    }

    fn execution(&mut self) -> f64 {
        (self.load + 0.4 * self.normal()).exp2()
    }

    /// Runs a plan, without other plans that would say how fast the machine is if `is_alone`.
    fn run(&mut self, calls: usize, is_alone: bool) -> Sample {
        let mut sample = Sample::default();
        for call in 0..calls {
            if call % CALLS == 0 {
                self.next_second();
            }
            let others = self.pace.level((self.second + 1) * SECOND_US);
            let ms = self.execution();
            let mut sums = Sums::default();
            sums.add(ms, ms, false);
            sample.merge(&Sample::of(sums).among(if is_alone { 0.0 } else { others }));
        }
        sample
    }
}

/// Returns in how many of the trials two times of the same plan differ more than by chance, and in how many
/// they get a verdict.
fn judged(calls: usize, is_alone: bool) -> [usize; 2] {
    let mut counts = [0; 2];
    for seed in 0..TRIALS {
        let mut machine = Machine::new(seed as u64);
        let [before, after] = [(); 2].map(|()| machine.run(calls, is_alone));
        counts[0] += usize::from(before.sums.differs(&after.sums));
        let verdicts = verdicts(&[(before, after, 0.0)], || {}).expect("memory");
        counts[1] += usize::from(verdicts[0] != Verdict::Unknown);
    }
    counts
}

#[test]
fn an_unchanged_speed_seldom_gets_a_verdict() {
    for (calls, is_alone) in [(30, true), (200, true), (30, false), (200, false)] {
        let [differ, judged] = judged(calls, is_alone);
        println!(
            "{calls} + {calls} executions, alone: {is_alone}: {differ} of {TRIALS} differ, {judged} have a verdict"
        );
        assert!(differ > TRIALS / 3, "the machine is not busy: {differ}");
        assert!(
            judged < if is_alone { differ / 2 } else { TRIALS / 20 },
            "{judged}"
        );
    }
}
