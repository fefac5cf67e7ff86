//! Sums of waits.

use super::super::event::Wait;
use crate::waits::plan::EventWaits;
use std::collections::BTreeMap;

/// The waits for one event. Times are microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// How often.
    pub times: u64,
    /// The longest one.
    pub max_us: u64,
    /// All of them.
    pub total_us: u64,
    /// How long the last one took so far.
    last_us: u64,
}

impl Waited {
    /// Adds a wait.
    pub fn add_wait(&mut self, wait: &Wait) {
        if wait.is_rest {
            self.last_us = self.last_us.saturating_add(wait.elapsed_us);
        } else {
            self.times = self.times.saturating_add(1);
            self.last_us = wait.elapsed_us;
        }
        self.max_us = self.max_us.max(self.last_us);
        self.total_us = self.total_us.saturating_add(wait.elapsed_us);
    }

    /// Adds waits of the store.
    pub fn add_stored(&mut self, waits: &EventWaits) {
        self.add(&Waited {
            times: waits.waits,
            max_us: waits.max_ns / 1_000,
            total_us: waits.ns / 1_000,
            last_us: 0,
        });
    }

    /// Adds the waits of another statement.
    pub fn add(&mut self, other: &Waited) {
        self.times = self.times.saturating_add(other.times);
        self.max_us = self.max_us.max(other.max_us);
        self.total_us = self.total_us.saturating_add(other.total_us);
    }
}

/// The waits by their events.
pub type Waits = BTreeMap<String, Waited>;

/// The most events that are added up.
const MAX_EVENTS: usize = 500;

/// Adds a wait to the sum of its event. Returns how many bytes more are kept.
pub fn add(waits: &mut Waits, wait: &Wait) -> usize {
    if let Some(waited) = waits.get_mut(&wait.name) {
        waited.add_wait(wait);
    } else if waits.len() < MAX_EVENTS {
        waits.entry(wait.name.clone()).or_default().add_wait(wait);
        return wait.name.len() + size_of::<(String, Waited)>();
    }
    0
}
