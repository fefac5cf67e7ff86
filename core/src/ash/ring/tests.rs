use super::super::sample::tests::sample;
use super::super::tier::tests::{zero_header, zero_record};
use super::super::{SampleTimes, Writer};
use super::*;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoroshiro128PlusPlus;

pub(crate) struct Memory {
    header: Box<Header>,
    records: Vec<Record>,
}

impl Memory {
    pub(crate) fn new(count: usize) -> Memory {
        Memory {
            header: Box::new(Header {
                tiers: std::array::from_fn(|_| zero_header()),
                at: AtomicU64::new(0),
                begun_at: AtomicU64::new(0),
                run: AtomicU64::new(0),
                names: std::array::from_fn(|_| Place::zero()),
            }),
            records: (0..count).map(|_| zero_record()).collect(),
        }
    }

    pub(crate) fn ring(&self) -> Ring<'_> {
        Ring::new(&self.header, &self.records).expect("records")
    }
}

fn random(seed: u64) -> Xoroshiro128PlusPlus {
    Xoroshiro128PlusPlus::seed_from_u64(seed)
}

/// The moments that a reader sees, each with its samples.
fn moments(ring: Ring<'_>, from: i64, to: i64) -> Vec<(Moment, usize, Vec<Sample>)> {
    let mut all: Vec<(Moment, usize, Vec<Sample>)> = Vec::new();
    ring.each(0, from, to, |entry| match entry {
        Entry::Moment(moment, tier) => all.push((moment, tier, Vec::new())),
        Entry::Sample(sample, moments) => {
            let (moment, _, samples) = all.last_mut().expect("a moment first");
            assert!(sample.is_blocker || sample.at == moment.at);
            assert_eq!(moments, moment.moments);
            samples.push(sample);
        }
    });
    all
}

/// Writes moments, and knows what they were.
struct Truth<'a> {
    writer: Writer<'a>,
    random: Xoroshiro128PlusPlus,
    at: i64,
    /// The time of each moment, and how many sessions were active.
    moments: Vec<(i64, u64)>,
}

impl<'a> Truth<'a> {
    fn new(ring: Ring<'a>, seed: u64) -> Truth<'a> {
        Truth {
            writer: Writer::new(ring, 64).expect("memory"),
            random: random(seed),
            at: 1_000_000_000,
            moments: Vec::new(),
        }
    }

    /// Writes a moment, some time after the one before.
    fn step(&mut self, us: i64, active: u64) {
        self.at += us;
        for i in 0..active {
            self.writer.add(&Sample {
                at: self.at,
                is_blocker: false,
                ..sample(i)
            });
        }
        self.writer.end_moment(self.at, &mut self.random);
        self.moments.push((self.at, active));
    }

    /// Asserts that moments that were read stand for each moment once, from the first on. Returns how many
    /// they stand for.
    fn assert_whole(&self, read: &[(Moment, usize, Vec<Sample>)]) -> u64 {
        let Some((first, ..)) = read.first() else { return 0 };
        let mut rest = self
            .moments
            .iter()
            .skip_while(|(at, _)| *at < first.first)
            .peekable();
        for (moment, _, samples) in read {
            let mut of_slot = Vec::new();
            while let Some(next) = rest.next_if(|(at, _)| *at <= moment.last) {
                of_slot.push(*next);
            }
            assert_eq!(of_slot.len() as u64, moment.moments, "{moment:?}");
            assert_eq!(
                of_slot.first().map(|(at, _)| *at),
                Some(moment.first),
                "{moment:?}"
            );
            assert!(of_slot.contains(&(moment.at, samples.len() as u64)), "{moment:?}");
        }
        read.iter().map(|(moment, ..)| moment.moments).sum()
    }
}

/// A hundred active sessions have two hours of moments of ten seconds in 16 MB, ten have 18 hours.
#[test]
fn the_ring_reaches_back_for_hours() {
    let records = ((16 << 20) - size_of::<Header>()) / RECORD_BYTES;
    // The seconds of each tier, with a hundred samples a second. A moment has a record, too.
    let reach = |sessions: usize| {
        let counts = division(records);
        let seconds =
            |tier: usize| (counts[tier] / (sessions + 1)) as f64 * SLOT_US[tier].max(10_000) as f64 / 1e6;
        std::array::from_fn::<_, TIERS, _>(seconds)
    };
    for (sessions, least) in [
        (1, [280.0, 2_800.0, 28_000.0, 430_000.0]),
        (10, [52.0, 520.0, 5_200.0, 18.0 * 3600.0]),
        (100, [5.7, 57.0, 570.0, 2.0 * 3600.0]),
        (1000, [0.57, 5.7, 57.0, 860.0]),
    ] {
        let reach = reach(sessions);
        assert!(
            reach.iter().zip(least).all(|(is, least)| *is >= least),
            "{sessions}: {reach:?}"
        );
    }
}

#[test]
fn each_moment_is_counted_once() {
    let memory = Memory::new(2_000);
    let mut truth = Truth::new(memory.ring(), 1);
    assert!(moments(memory.ring(), i64::MIN, i64::MAX).is_empty());
    let mut random = random(2);
    let mut most = [0; TIERS];
    for i in 0..60_000 {
        // The frequency changes, the worker is late, and sampling is off for a while.
        let us = match i / 10_000 % 3 {
            0 => 10_000,
            1 => 1_000 + (random.next_u64() % 200) as i64 * 100,
            _ => 100_000,
        };
        if i % 7_001 == 0 {
            truth.writer.pause(&mut random);
            truth.at += 3_000_000;
        }
        truth.step(us, random.next_u64() % 8);
        if i % 331 == 0 {
            let read = moments(memory.ring(), i64::MIN, i64::MAX);
            let sum = truth.assert_whole(&read);
            if i < 30 {
                assert_eq!(sum, i + 1);
            }
            // The newest one is there.
            assert_eq!(read.last().map(|(moment, ..)| moment.last), Some(truth.at));
            for (_, tier, _) in &read {
                most[*tier] = most[*tier].max(read.iter().filter(|(_, of, _)| of == tier).count());
            }
            // The tiers are in the order of their age.
            assert!(read.is_sorted_by_key(|(_, tier, _)| std::cmp::Reverse(*tier)));
            // A part is a part of it.
            let mut bounds = [0, 0].map(|_| truth.at - (random.next_u64() % 100_000_000) as i64);
            bounds.sort_unstable();
            let inside = read
                .iter()
                .filter(|(moment, ..)| (bounds[0]..=bounds[1]).contains(&moment.at));
            let part = moments(memory.ring(), bounds[0], bounds[1]);
            assert!(part.iter().eq(inside), "{bounds:?}");
        }
    }
    assert!(most.iter().all(|count| *count > 20), "{most:?}");
}

/// The writer goes on while a reader reads: seldom a little, or so much that it overtakes the reader.
#[test]
fn a_reader_counts_no_moment_twice_while_the_writer_goes_on() {
    let mut random = random(3);
    let (mut whole, mut torn) = (0, 0);
    for i in 0..if cfg!(miri) { 2 } else { 300 } {
        let memory = Memory::new(900);
        let ring = memory.ring();
        let mut truth = Truth::new(ring, i);
        for _ in 0..random.next_u64() % 8_000 {
            truth.step(10_000, random.next_u64() % 4);
        }
        let steps = [0, 1, 1, 40][i as usize % 4];
        let mut read: Vec<(Moment, usize, Vec<Sample>)> = Vec::new();
        ring.each(0, i64::MIN, i64::MAX, |entry| match entry {
            Entry::Moment(moment, tier) => {
                read.push((moment, tier, Vec::new()));
                let count = if steps == 40 {
                    random.next_u64() % 40
                } else {
                    steps
                };
                (0..count).for_each(|_| truth.step(10_000, random.next_u64() % 4));
            }
            Entry::Sample(sample, _) => read.last_mut().expect("a moment").2.push(sample),
        });
        // None is seen twice.
        assert!(
            read.windows(2).all(|pair| pair[0].0.last < pair[1].0.first),
            "{read:?}"
        );
        if steps < 40 {
            // And none is missing, if the reader is not slow.
            truth.assert_whole(&read);
            whole += 1;
        } else {
            torn += usize::from(
                read.windows(2)
                    .any(|pair| pair[1].0.first - pair[0].0.last > 10_000),
            );
        }
    }
    assert!(cfg!(miri) || (whole > 200 && torn > 10), "{whole} {torn}");
}

/// Averages of any interval, across tiers, are those of all moments within the error of sampling. They are
/// right on average, too.
#[test]
fn averages_agree_with_all_moments() {
    let mut off: Vec<f64> = Vec::new();
    for seed in 0..if cfg!(miri) { 1 } else { 40 } {
        off.extend(deviations(seed));
    }
    let mean = off.iter().sum::<f64>() / off.len() as f64;
    assert!(
        cfg!(miri) || (off.len() > 4_000 && mean.abs() < 0.15),
        "{} {mean}",
        off.len()
    );
}

/// Returns how far the averages of some intervals are off, in the standard errors that moments would have
/// that were chosen from all of the interval.
fn deviations(seed: u64) -> Vec<f64> {
    let memory = Memory::new(6_000);
    let mut truth = Truth::new(memory.ring(), seed);
    let mut random = random(seed + 1000);
    // Load that comes and goes, in steps of some seconds, and in waves of half a second.
    let mut base = 3;
    for i in 0..if cfg!(miri) { 500 } else { 40_000_u64 } {
        if random.next_u64().is_multiple_of(700) {
            base = random.next_u64() % 7;
        }
        truth.step(10_000, base + i / 25 % 2 * (random.next_u64() % 4));
    }
    let all = moments(memory.ring(), i64::MIN, i64::MAX);
    truth.assert_whole(&all);
    let oldest = all[0].0.first;
    let mut off = Vec::new();
    for _ in 0..200 {
        let mut bounds = [0, 0].map(|_| oldest + (random.next_u64() % (truth.at - oldest) as u64) as i64);
        bounds.sort_unstable();
        let is_inside = |at: &i64| (bounds[0]..=bounds[1]).contains(at);
        let inside = truth.moments.iter().filter(|(at, _)| is_inside(at));
        let exact: Vec<f64> = inside.map(|(_, active)| *active as f64).collect();
        let read = moments(memory.ring(), bounds[0], bounds[1]);
        if read.len() < 30 {
            continue;
        }
        let mean = exact.iter().sum::<f64>() / exact.len() as f64;
        let variance = exact.iter().map(|active| (active - mean).powi(2)).sum::<f64>() / exact.len() as f64;
        let weights = || read.iter().map(|(moment, ..)| moment.moments as f64);
        let sum: f64 = weights().sum();
        let active = weights()
            .zip(&read)
            .map(|(weight, (.., samples))| weight * samples.len() as f64);
        let average = active.sum::<f64>() / sum;
        let error = (variance * weights().map(|weight| weight * weight).sum::<f64>()).sqrt() / sum;
        assert!(
            (average - mean).abs() < 4.0 * error,
            "{average}, not {mean} +- {error} in {bounds:?}"
        );
        off.push((average - mean) / error);
    }
    off
}

fn name(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    let length = name.len().min(NAME_BYTES);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

#[test]
fn a_name_is_stored_once_and_belongs_to_its_samples_only() {
    let memory = Memory::new(4000);
    let ring = memory.ring();
    let mut at = 0;
    let mut add = |hint, text: &str| {
        at += 1;
        let application = ring.number_of(hint, 10, &name(text), at);
        Sample {
            application,
            at,
            ..sample(1)
        }
    };
    let shown = |sample: &Sample| {
        ring.name(sample)
            .map(|name| String::from_utf8(name).expect("UTF-8"))
    };
    assert_eq!((add(0, "").application, add(0, "psql").application), (0, 1));
    let first = add(0, "pgbench");
    assert_eq!(first.application, 2);
    assert_eq!(
        [add(0, "psql"), add(2, "psql"), add(2000, "pgbench")].map(|sample| sample.application),
        [1, 1, 2]
    );
    // A name of any length is cut.
    let long = "x".repeat(NAME_BYTES);
    let cut = add(0, &long);
    assert_eq!((cut.application, add(3, &long).application), (3, 3));
    assert_eq!(shown(&cut).as_deref(), Some(&long[..NAME_BYTES - 1]));
    assert_eq!(shown(&first).as_deref(), Some("pgbench"));
    // More names than there are places: the old samples lose theirs, and get no other.
    let others: Vec<Sample> = (0..PLACES).map(|i| add(0, &format!("application {i}"))).collect();
    assert_eq!((shown(&cut), shown(&first)), (None, None));
    assert_eq!(shown(&others[0]).as_deref(), Some("application 0"));
    // Those of one moment do not replace each other.
    let of_moment = |i: usize| ring.number_of(0, 10, &name(&format!("now {i}")), 1_000_000);
    let numbers: Vec<u16> = (0..2 * PLACES).map(of_moment).collect();
    assert!(numbers[..PLACES].iter().all(|number| *number != 0));
    assert!(numbers[PLACES..].iter().all(|number| *number == 0));
}

/// A role that changes its application's name all the time replaces its own.
#[test]
fn a_role_pushes_out_its_own_names() {
    let memory = Memory::new(10_000);
    let ring = memory.ring();
    let mut at = 0;
    let mut add = |userid, text: &str| {
        at += 1;
        let application = ring.number_of(0, userid, &name(text), at);
        Sample {
            application,
            at,
            ..sample(1)
        }
    };
    let first: Vec<_> = (0..20).map(|i| add(10, &format!("first {i}"))).collect();
    let same = add(77, "first 0");
    assert_ne!(same.application, first[0].application);
    let others: Vec<_> = (0..3 * PLACES).map(|i| add(77, &format!("other {i}"))).collect();
    for (i, sample) in first.iter().enumerate() {
        assert_eq!(ring.name(sample), Some(format!("first {i}").into_bytes()));
    }
    assert_eq!((ring.name(&same), ring.name(&others[0])), (None, None));
    assert!(ring.name(others.last().expect("a name")).is_some());
}

/// A process that blocks others is asked for once in a while. All tiers keep who it is.
#[test]
fn blockers_stay_in_all_tiers() {
    let memory = Memory::new(600);
    let mut truth = Truth::new(memory.ring(), 8);
    for i in 0..100_000 {
        if i % 100 == 7 {
            let is_blocker = true;
            let at = truth.at;
            truth.writer.add(&Sample {
                at,
                is_blocker,
                ..sample(1)
            });
        }
        truth.step(10_000, 1);
    }
    let mut tiers = [(0, 0); TIERS];
    for (moment, tier, samples) in moments(memory.ring(), i64::MIN, i64::MAX) {
        let (all, blocked) = &mut tiers[tier];
        *all += moment.moments;
        *blocked += samples.iter().filter(|sample| sample.is_blocker).count();
    }
    assert!(
        tiers[3].1 > 20 && tiers[3].0 == 1000 * tiers[3].1 as u64,
        "{tiers:?}"
    );
}

/// Another writer goes on where one ended.
#[test]
fn writers_follow_each_other() {
    let memory = Memory::new(1_000);
    let ring = memory.ring();
    let mut truth = Truth::new(ring, 6);
    for _ in 0..20 {
        (0..137).for_each(|_| truth.step(10_000, 2));
        truth.writer.pause(&mut random(7));
        truth.writer = Writer::new(ring, 64).expect("memory");
        assert_eq!(SampleTimes::after(ring.last_at(), 0).next(0, 0), truth.at + 1);
    }
    truth.assert_whole(&moments(ring, i64::MIN, i64::MAX));
    assert!(Ring::new(&memory.header, &memory.records[..8]).is_none());
}

/// From there on a reader sees each moment, also while the writer overwrites the oldest ones.
#[test]
fn it_says_since_when_it_has_all_moments() {
    let memory = Memory::new(600);
    let ring = memory.ring();
    assert_eq!(ring.complete_from(), None);
    ring.begin(1);
    let mut truth = Truth::new(ring, 11);
    let (mut lost, mut coarse) = (0, 0);
    for i in 0..150_000 {
        truth.step(10_000, i % 4);
        if i % 997 > 0 {
            continue;
        }
        let from = ring.complete_from().expect("a moment");
        // As many as a reader may be late.
        (0..20).for_each(|i| truth.step(10_000, i % 4));
        let read = moments(ring, from, i64::MAX);
        assert_eq!(read[0].0.first, from);
        let seen = truth.assert_whole(&read);
        let all = truth.moments.iter().filter(|(at, _)| *at >= from).count() as u64;
        assert_eq!(seen, all);
        lost += u64::from(all < truth.moments.len() as u64);
        coarse += u64::from(read[0].1 == TIERS - 1);
    }
    assert!(lost > 20 && coarse > 20, "{lost}, {coarse}");
}

/// A ring is saved and restored, also into one of another size.
#[test]
fn a_ring_is_restored() {
    let memory = Memory::new(2_000);
    let ring = memory.ring();
    assert!(ring.is_new());
    ring.begin(77);
    let mut truth = Truth::new(ring, 9);
    let application = ring.number_of(0, 10, &name("psql"), truth.at);
    (0..5_000).for_each(|i| truth.step(10_000, i % 5));
    truth.writer.pause(&mut random(10));
    let before = moments(ring, i64::MIN, i64::MAX);
    for (size, most) in [
        (2_000, u64::MAX),
        (10_000, u64::MAX),
        (1_000, u64::MAX),
        (2_000, 100),
    ] {
        let other = Memory::new(size);
        let restored = other.ring();
        let bytes = postcard::to_stdvec(&ring.saved_header()).expect("a header");
        restored.restore(&postcard::from_bytes(&bytes).expect("a header"));
        ring.save(most, |saved| {
            restored.restore_moment(&postcard::from_bytes(&postcard::to_stdvec(saved)?)?);
            Ok::<_, postcard::Error>(())
        })
        .expect("moments");
        restored.begin(99);
        assert_eq!(
            (restored.begun_at(), restored.run(), restored.last_at()),
            (77, 2, Some(truth.at))
        );
        let shown = Sample {
            application,
            at: truth.at,
            ..sample(1)
        };
        assert_eq!(restored.name(&shown), Some(b"psql".to_vec()));
        let after = moments(restored, i64::MIN, i64::MAX);
        truth.assert_whole(&after);
        assert_eq!(after.last(), before.last());
        if size >= 2_000 && most > 100 {
            let first = |read: &[(Moment, usize, Vec<Sample>)]| read[0].0.first;
            assert_eq!(first(&after), first(&before));
        } else {
            assert!(after.len() < before.len(), "{size}");
        }
    }
}
