//! The names of events whose numbers are good for one run of the server only: those of extensions. PostgreSQL
//! gives them numbers in the order in which the extensions ask. What is stored has another number instead,
//! which follows from the name.

use super::{CLASS, Event};
use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The bit that PostgreSQL's numbers do not have.
const LASTING: Event = 0x0080_0000;
/// The words of a name. PostgreSQL's names have 63 bytes at most.
const WORDS: usize = 8;
const MAX_NAME: usize = WORDS * 8;

/// Returns the number of an event with this name that is good for ever. Its class is that of `event`.
pub fn lasting(event: Event, name: &str) -> Event {
    let mut hasher = FxHasher::default();
    hasher.write(name.as_bytes());
    let hash = hasher.finish();
    event & CLASS | LASTING | (hash ^ hash >> 32) as Event & (LASTING - 1)
}

/// Returns whether [`lasting`] has made this number.
pub fn is_lasting(event: Event) -> bool {
    event & LASTING != 0
}

/// A name. All who write it write the same.
#[derive(Default)]
struct Entry {
    /// The lasting number; 0 if the place is free.
    event: AtomicU32,
    is_written: AtomicBool,
    /// The bytes of the name, behind which there are zeros.
    name: [AtomicU64; WORDS],
}

/// The names of up to `N` such events, for memory that many processes share. Names are only added. Zero bytes
/// are an empty list.
pub struct Names<const N: usize>([Entry; N]);

impl<const N: usize> Default for Names<N> {
    fn default() -> Self {
        Names(std::array::from_fn(|_| Entry::default()))
    }
}

impl<const N: usize> Names<N> {
    /// Returns the lasting number of an event, and remembers its name, if there is room.
    pub fn learn(&self, event: Event, name: &str) -> Event {
        let lasting = lasting(event, name);
        let claim = |entry: &&Entry| {
            let found = entry
                .event
                .compare_exchange(0, lasting, Ordering::Relaxed, Ordering::Relaxed);
            found.is_ok() || found == Err(lasting)
        };
        if let Some(entry) = self.0.iter().find(claim) {
            entry.write(name);
        }
        lasting
    }

    /// Returns the name of a lasting number, if it is known.
    pub fn name(&self, lasting: Event) -> Option<String> {
        let entry = self
            .0
            .iter()
            .find(|entry| entry.event.load(Ordering::Relaxed) == lasting)?;
        entry.read()
    }

    /// Returns all that are known.
    pub fn all(&self) -> Vec<(Event, String)> {
        let known = |entry: &Entry| Some((entry.event.load(Ordering::Relaxed), entry.read()?));
        self.0.iter().filter_map(known).collect()
    }
}

impl Entry {
    fn write(&self, name: &str) {
        if self.is_written.load(Ordering::Acquire) {
            return;
        }
        let mut bytes = [0; MAX_NAME];
        let length = name.floor_char_boundary(MAX_NAME);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        for (word, bytes) in self.name.iter().zip(bytes.chunks_exact(8)) {
            let bytes = bytes.try_into().unwrap_or_default();
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        self.is_written.store(true, Ordering::Release);
    }

    fn read(&self) -> Option<String> {
        if !self.is_written.load(Ordering::Acquire) {
            return None;
        }
        let words = self.name.iter().map(|word| word.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words
            .flat_map(u64::to_ne_bytes)
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENSION: Event = 0x0700_0000;

    #[test]
    fn a_name_has_one_number_for_ever() {
        let names = Names::<4>::default();
        let first = names.learn(EXTENSION | 1, "PostgresFdwConnect");
        assert_eq!(first, names.learn(EXTENSION | 9, "PostgresFdwConnect"));
        let second = names.learn(EXTENSION | 1, "DblinkConnect");
        assert_ne!(first, second);
        assert!(is_lasting(first) && first & CLASS == EXTENSION && !is_lasting(EXTENSION | 1));
        assert_eq!(names.name(first).as_deref(), Some("PostgresFdwConnect"));
        assert_eq!(names.name(EXTENSION | 1), None);
        // Another server that has loaded the names knows the numbers.
        let other = Names::<4>::default();
        for (event, name) in names.all() {
            assert_eq!(other.learn(event, &name), event);
        }
        assert_eq!(other.name(second).as_deref(), Some("DblinkConnect"));
    }

    #[test]
    fn a_full_list_and_long_names() {
        let names = Names::<2>::default();
        let long = "\u{e9}".repeat(40);
        let events = ["a", &long, "c"].map(|name| names.learn(EXTENSION, name));
        assert_eq!(names.name(events[0]).as_deref(), Some("a"));
        assert_eq!(names.name(events[1]).as_deref(), Some(&long[..64]));
        assert_eq!(names.name(events[2]), None);
        assert_eq!(names.all().len(), 2);
    }
}
