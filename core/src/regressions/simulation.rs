//! How often unchanged plans are called regressions, and how often slower ones are found: the predicate
//! judges executions of a model of a busy server.

use super::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

struct Noise(Xoshiro256PlusPlus);

impl Noise {
    fn new(seed: u64) -> Noise {
        Noise(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.0.random::<f64>()).sum::<f64>() - 6.0
    }

    fn up_to(&mut self, limit: f64) -> f64 {
        self.0.random::<f64>() * limit
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.0.random::<f64>() < probability
    }
}

/// An execution as it was recorded: its busy time, its time, and whether it failed.
type Recorded = (f64, f64, bool);

/// How many plans run beside the recorded one, and tell how fast the machine is.
const OTHERS: usize = 9;

/// Executions of one plan, and those of others at the same moments.
struct Recording {
    plan: Vec<Recorded>,
    others: Vec<Vec<Recorded>>,
}

/// Records executions. The load of the machine changes slowly; the spread is small or large; a few parameters
/// take 20 times as long, a few executions wait for a lock, a few fail.
fn record(noise: &mut Noise, executions: usize) -> Recording {
    const STAYS: f64 = 0.95;
    let mut load = 0.4 * noise.normal();
    let mut loads = Vec::new();
    for _ in 0..executions {
        load = load * STAYS + 0.4 * (1.0 - STAYS * STAYS).sqrt() * noise.normal();
        loads.push(load);
    }
    let mut plan = || {
        let spread = 0.1 + noise.up_to(1.4);
        let [rare, fails] = [0.02, 0.05].map(|most| noise.up_to(most));
        let typical = (noise.up_to(18.0) - 4.0).exp2();
        let mut one = |load: &f64| {
            let parameter = if noise.happens(rare) { 20.0 } else { 1.0 };
            let busy_ms = typical * parameter * (load + spread * noise.normal()).exp2();
            let lock_ms = if noise.happens(0.01) {
                noise.up_to(20_000.0)
            } else {
                0.0
            };
            (busy_ms, busy_ms + lock_ms, noise.happens(fails))
        };
        loads.iter().map(&mut one).collect::<Vec<_>>()
    };
    Recording {
        plan: plan(),
        others: (0..OTHERS).map(|_| plan()).collect(),
    }
}

fn sums(recorded: &[Recorded]) -> Sums {
    let mut sums = Sums::default();
    recorded
        .iter()
        .for_each(|(busy, wall, failed)| sums.add(*busy, *wall, *failed));
    sums
}

impl Recording {
    /// Returns whether the executions from `at` on would be a regression of those before. Any time is much of
    /// the database, so that the spend excludes none.
    fn is_regression(&self, at: usize, with_control: bool) -> bool {
        let parts = |recorded: &Vec<Recorded>| {
            let (before, after) = recorded.split_at(at);
            [sums(before), sums(after)]
        };
        let [before, after] = parts(&self.plan);
        let others: Vec<_> = self.others.iter().filter(|_| with_control).map(parts).collect();
        let pairs = others.iter().map(|[before, after]| (before, after));
        let candidate = Candidate {
            before,
            after,
            control: median_ratio(pairs, || ()).expect("there is memory"),
            database_ms: 0.0,
            intervals: None,
        };
        matches!(
            judge(&[candidate], || ()).expect("there is memory")[0],
            Found::Slower(_)
        )
    }
}

/// Returns how many of the recordings, split at a random moment, are called a regression: with the control by
/// other plans, and without it.
fn wrong_verdicts(seeds: std::ops::Range<u64>) -> [usize; 2] {
    let mut wrong = [0; 2];
    for seed in seeds {
        let mut noise = Noise::new(seed);
        let executions = 2 + noise.up_to(8.0).exp2() as usize;
        let recording = record(&mut noise, executions);
        let at = 1 + noise.up_to((executions - 1) as f64) as usize;
        for (wrong, with_control) in wrong.iter_mut().zip([true, false]) {
            *wrong += usize::from(recording.is_regression(at, with_control));
        }
    }
    wrong
}

#[test]
fn executions_split_at_random_are_no_regression() {
    let [wrong, alone] = wrong_verdicts(0..1_000);
    println!("{wrong} of 1,000 splits are called a regression, {alone} without the control");
    assert!(wrong <= 1, "{wrong}");
}

/// The rate itself: a thousand splits may have none by luck. The thresholds were chosen with the first 20,000
/// seeds; the others judge them.
#[test]
#[ignore = "takes longer: run it after a change of the predicate"]
fn executions_split_at_random_are_no_regression_long() {
    for seeds in [0..20_000, 20_000..40_000] {
        let [wrong, alone] = wrong_verdicts(seeds.clone());
        println!("{seeds:?}: {wrong} are called a regression, {alone} without the control");
        assert!(wrong <= 20, "{wrong}");
    }
}

#[test]
fn a_plan_that_is_four_times_as_slow_is_found() {
    for executions in [20, 100, 1_000] {
        let is_found = |seed| {
            let mut noise = Noise::new(seed);
            let mut recording = record(&mut noise, 2 * executions);
            for (busy, wall, _) in &mut recording.plan[executions..] {
                *wall += 3.0 * *busy;
                *busy *= 4.0;
            }
            recording.is_regression(executions, true)
        };
        let found = (0..50).filter(|seed| is_found(*seed)).count();
        println!("{executions} + {executions} executions: {found} of 50 are found");
        // A spread of a factor of three on either side hides four times in 20 executions.
        assert!(
            found >= if executions == 20 { 35 } else { 45 },
            "{executions}: {found}"
        );
    }
}

/// What happens to the server at a minute.
struct Weather {
    processor: f64,
    reads: f64,
    misses: f64,
    has_locks: bool,
}

/// Three hours: checkpoints every five minutes, an autovacuum, a lock pile-up, a cold restart, a CPU hog. The
/// pile-up and the hog last for three whole quarters of an hour, and what a plan is compared with has none.
fn weather(minute: usize) -> Weather {
    Weather {
        processor: if (105..170).contains(&minute) { 4.0 } else { 1.0 },
        reads: (if minute.is_multiple_of(5) { 2.0 } else { 1.0 })
            * if (15..80).contains(&minute) { 1.5 } else { 1.0 },
        misses: if (80..84).contains(&minute) { 20.0 } else { 1.0 },
        has_locks: (15..80).contains(&minute),
    }
}

/// A statement: executions in a minute, milliseconds of the processor and of reads.
struct Statement {
    rate: f64,
    processor_ms: f64,
    read_ms: f64,
    spread: f64,
    /// From then on it takes this many times as long.
    slower: (usize, f64),
    minutes: Vec<Sums>,
}

const MINUTES: usize = 180;
/// The minutes of an interval.
const INTERVAL: usize = 15;

/// Runs statements for three hours, in time lapse.
fn three_hours(seed: u64, statements: usize, slower: (usize, f64)) -> Vec<Statement> {
    let mut noise = Noise::new(seed);
    let mut all: Vec<Statement> = (0..statements)
        .map(|i| Statement {
            rate: noise.up_to(6.0).exp2() / 2.0,
            processor_ms: (noise.up_to(10.0) - 2.0).exp2(),
            read_ms: (noise.up_to(8.0) - 4.0).exp2(),
            spread: 0.2 + noise.up_to(1.0),
            slower: if i == 0 { slower } else { (MINUTES, 1.0) },
            minutes: Vec::new(),
        })
        .collect();
    for minute in 0..MINUTES {
        let now = weather(minute);
        let load = 0.3 * noise.normal();
        for statement in &mut all {
            let mut sums = Sums::default();
            let slower = if minute >= statement.slower.0 {
                statement.slower.1
            } else {
                1.0
            };
            let executions = statement.rate + noise.up_to(1.0);
            for _ in 0..executions as usize {
                let base =
                    statement.processor_ms * now.processor + statement.read_ms * now.reads * now.misses;
                let busy_ms = slower * base * (load + statement.spread * noise.normal()).exp2();
                let lock_ms = if now.has_locks { noise.up_to(9_000.0) } else { 0.0 };
                sums.add(busy_ms, busy_ms + lock_ms, noise.happens(0.01));
            }
            statement.minutes.push(sums);
        }
    }
    all
}

/// Judges all statements at the end of each interval, and returns which of them were ever called regressions.
fn judged(statements: &[Statement]) -> Vec<usize> {
    let interval = |statement: &Statement, at: usize| {
        let mut sums = Sums::default();
        statement.minutes[at * INTERVAL..][..INTERVAL]
            .iter()
            .for_each(|minute| sums.merge(minute));
        sums
    };
    let mut found = Vec::new();
    for now in 5..=MINUTES / INTERVAL {
        let reference: Vec<Sums> = statements
            .iter()
            .map(|statement| interval(statement, now - 5))
            .collect();
        let of = |at: usize| -> Vec<Sums> {
            statements
                .iter()
                .map(|statement| interval(statement, now - 4 + at))
                .collect()
        };
        let latest: [Vec<Sums>; 4] = std::array::from_fn(of);
        let control =
            |after: &[Sums]| median_ratio(reference.iter().zip(after), || ()).expect("there is memory");
        let controls: [f64; 4] = std::array::from_fn(|at| control(&latest[at]));
        let all: Vec<Sums> = (0..statements.len())
            .map(|i| {
                let mut sums = Sums::default();
                latest.iter().for_each(|interval| sums.merge(&interval[i]));
                sums
            })
            .collect();
        let candidates: Vec<Candidate> = (0..statements.len())
            .map(|i| Candidate {
                before: reference[i],
                after: all[i],
                control: control(&all),
                database_ms: all.iter().map(|sums| sums.wall_ms).sum(),
                intervals: Some(std::array::from_fn(|at| Interval {
                    sums: latest[at][i],
                    control: controls[at],
                })),
            })
            .collect();
        let findings = judge(&candidates, || ()).expect("there is memory");
        found.extend(
            findings
                .iter()
                .enumerate()
                .filter(|(_, found)| matches!(found, Found::Slower(_)))
                .map(|(i, _)| i),
        );
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn three_hours_of_noise_have_no_regression() {
    for seed in 0..5 {
        let none = (MINUTES, 1.0);
        assert_eq!(judged(&three_hours(seed, 60, none)), [] as [usize; 0], "{seed}");
    }
}

/// The same three hours, in which a statement takes five times as long from the 45th minute on.
#[test]
fn a_statement_that_becomes_slower_in_the_noise_is_found() {
    let is_found = |seed| {
        let mut statements = three_hours(seed, 30, (45, 5.0));
        // What costs nothing is no finding: the statement runs as often as it takes to cost something.
        statements[0].minutes.iter_mut().for_each(|minute| {
            minute.busy_ms *= 50.0;
            minute.wall_ms *= 50.0;
            minute.wall_squares *= 2_500.0;
        });
        let found = judged(&statements);
        assert!(found.iter().all(|i| *i == 0), "{seed}: {found:?}");
        found == [0]
    };
    let found = (0..20).filter(|seed| is_found(*seed)).count();
    println!("{found} of 20 are found");
    assert!(found >= 19, "{found}");
}

/// 5,000 plans are judged in less than two seconds, also without optimization.
#[test]
fn many_plans_take_little_time() {
    let mut noise = Noise::new(1);
    let recorded = record(&mut noise, 60).plan;
    let candidate = Candidate {
        before: sums(&recorded[..30]),
        after: sums(&recorded[30..]),
        control: 1.0,
        database_ms: 0.0,
        intervals: None,
    };
    let candidates = vec![candidate; 5_000];
    let mut checks = 0;
    let time = crate::processor_time::of(|| {
        judge(&candidates, || checks += 1).expect("there is memory");
        let pairs = candidates
            .iter()
            .map(|candidate| (&candidate.before, &candidate.after));
        median_ratio(pairs, || checks += 1).expect("there is memory");
    });
    assert_eq!(checks, 10_000);
    assert!(time.as_millis() < 2_000, "{time:?}");
}
