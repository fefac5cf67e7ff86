//! Simulates a store under mixes of statements, with the code that evicts plans.

use super::{Candidate, Doorkeeper, PARTS, cost, least_valuable};
use std::collections::HashMap;

#[derive(Clone, Copy, Default)]
struct Stats {
    calls: u64,
    total_ms: f64,
    last_used: i64,
    was_evicted: bool,
}

struct Store {
    max_plans: usize,
    plans: HashMap<u64, Stats>,
    doorkeeper: Doorkeeper,
    /// What was evicted, in milliseconds.
    evicted_ms: f64,
    now: i64,
}

impl Store {
    fn new(max_plans: usize) -> Self {
        Store {
            max_plans,
            plans: HashMap::new(),
            doorkeeper: Doorkeeper::default(),
            evicted_ms: 0.0,
            now: 26 * 365 * 86_400 * 1_000_000,
        }
    }

    fn run(&mut self, key: u64, ms: f64) {
        self.now += (ms * 1000.0) as i64;
        if !self.plans.contains_key(&key) && self.plans.len() >= self.max_plans {
            self.make_room();
        }
        let was_evicted = self.doorkeeper.knows(key);
        let stats = self.plans.entry(key).or_insert(Stats {
            was_evicted,
            ..Stats::default()
        });
        stats.calls += 1;
        stats.total_ms += ms;
        stats.last_used = self.now;
    }

    fn make_room(&mut self) {
        let mut candidates: Vec<Candidate<u64>> = self
            .plans
            .iter()
            .map(|(key, stats)| {
                let ran_once = stats.calls <= 1 && !stats.was_evicted;
                let cost = cost(stats.total_ms, stats.calls);
                Candidate::new(*key, stats.last_used, cost, ran_once)
            })
            .collect();
        for plan in least_valuable(&mut candidates, PARTS[0]) {
            let stats = self.plans.remove(&plan.key).expect("a plan of the store");
            self.evicted_ms += stats.total_ms;
            self.doorkeeper.add(plan.key);
        }
    }

    fn calls(&self, key: u64) -> u64 {
        self.plans.get(&key).map_or(0, |stats| stats.calls)
    }
}

/// A temporary table in each transaction makes a new plan each time. A few reports cost most, and statements
/// of an application run all the time.
#[test]
fn plans_that_cost_most_survive_a_new_plan_in_each_transaction() {
    let mut store = Store::new(5_000);
    let reports = 1_000_000..1_000_020u64;
    for report in reports.clone() {
        store.run(report, 10_000.0);
    }
    for report in reports.clone().skip(10) {
        store.run(report, 11_000.0);
    }
    let transactions = 100_000;
    for transaction in 0..transactions {
        store.run(2_000_000 + transaction, 5.0 + (transaction % 7) as f64);
        store.run(3_000_000 + transaction % 2_000, 0.05);
    }
    for (i, report) in reports.enumerate() {
        assert_eq!(store.calls(report), if i < 10 { 1 } else { 2 }, "report {i}");
    }
    // The statements of the application stay, although each of them takes a hundredth of the time of a
    // transaction. Some were evicted before they ran the second or third time.
    let executions = |key| store.calls(key);
    let fewest = (3_000_000..3_002_000u64).map(executions).min();
    assert!(fewest >= Some(transactions / 2_000 - 3), "{fewest:?}");
    let kept: f64 = store.plans.values().map(|stats| stats.total_ms).sum();
    assert!(kept > 300_000.0, "{kept} ms kept, {} evicted", store.evicted_ms);
}

/// The store is full of plans that ran often. A scan of plans that run once takes a tenth of the room.
#[test]
fn plans_that_run_once_take_little_room_from_others() {
    let mut store = Store::new(1_000);
    for _ in 0..5 {
        for key in 0..1_000 {
            store.run(key, 1.0);
        }
    }
    for key in 0..50_000 {
        store.run(1_000_000 + key, 1.0);
    }
    let left = (0..1_000).filter(|key| store.calls(*key) == 5).count();
    assert!((850..=950).contains(&left), "{left} of 1,000 left");
}

/// There are more plans than room, and each comes again after longer than a plan that ran once stays. The
/// doorkeeper lets those in that come again.
#[test]
fn a_plan_that_comes_again_stays_although_it_was_evicted() {
    let mut store = Store::new(1_000);
    let mut noise = 1_000_000;
    let mut found = Vec::new();
    for _ in 0..10 {
        for key in 0..100 {
            store.run(key, 1.0);
            for _ in 0..50 {
                store.run(noise, 1.0);
                noise += 1;
            }
        }
        found.push((0..100).filter(|key| store.calls(*key) > 1).count());
    }
    assert_eq!(found[0], 0);
    assert!(found[9] > 90, "{found:?}");
    let hardly = (0..100).filter(|key| store.calls(*key) < 7).count();
    assert!(hardly < 10, "{hardly} of 100 were evicted later");
}

/// A workload changes: what ran in the past makes room within some half-lives.
#[test]
fn old_plans_make_room_for_a_new_workload() {
    let mut store = Store::new(1_000);
    for _ in 0..100 {
        for key in 0..1_000 {
            store.run(key, 10.0);
        }
    }
    store.now += 7 * 86_400 * 1_000_000;
    for _ in 0..20 {
        for key in 5_000..5_950 {
            store.run(key, 2.0);
        }
    }
    let kept = (5_000..5_950).filter(|key| store.calls(*key) >= 19).count();
    assert!(kept >= 900, "{kept} of 950 kept");
}
