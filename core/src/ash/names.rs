//! The names of applications, which the ring stores once.
//!
//! A name is known by its number, from 1 on. If all places are taken, a new name replaces the one that was used least recently. A
//! place knows from which record on it has its name, so an older record does not get another application's name.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// The bytes of a name, a zero byte at its end included: those of PostgreSQL's NAMEDATALEN.
pub const NAME_BYTES: usize = 64;
const WORDS: usize = NAME_BYTES / 8;
/// The number of names. A record has ten bits for one.
pub(super) const PLACES: usize = 1023;
/// While the name changes.
const CHANGING: u64 = u64::MAX;

/// A place for a name. Zero bytes are one without a name.
#[repr(C)]
pub(super) struct Place {
    /// The records from this number on may have the name.
    since: AtomicU64,
    /// The record that used it last.
    used: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Place {
    /// Returns the name's words, if records of this number have it.
    fn read(&self, record: u64) -> Option<[u64; WORDS]> {
        let since = self.since.load(Acquire);
        let words = std::array::from_fn(|i| self.words[i].load(Relaxed));
        fence(Acquire);
        (since <= record && self.since.load(Relaxed) == since && words[0] != 0).then_some(words)
    }

    fn has(&self, words: &[u64; WORDS]) -> bool {
        self.words
            .iter()
            .zip(words)
            .all(|(mine, other)| mine.load(Relaxed) == *other)
    }
}

/// Returns the words of a name: of its bytes up to the first zero byte.
fn words(name: &[u8; NAME_BYTES]) -> [u64; WORDS] {
    let length = name[..NAME_BYTES - 1]
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(NAME_BYTES - 1);
    std::array::from_fn(|i| {
        u64::from_le_bytes(std::array::from_fn(|j| {
            if i * 8 + j < length { name[i * 8 + j] } else { 0 }
        }))
    })
}

/// Returns the number of a name for a record that is about to be written; 0 for an empty one. `hint` is the number that it probably
/// has. Only the writer may call this.
pub(super) fn number(places: &[Place; PLACES], hint: u16, name: &[u8; NAME_BYTES], record: u64) -> u16 {
    let words = words(name);
    if words[0] == 0 {
        return 0;
    }
    let found = usize::from(hint)
        .checked_sub(1)
        .filter(|i| places.get(*i).is_some_and(|place| place.has(&words)))
        .or_else(|| places.iter().position(|place| place.has(&words)));
    let i = found.unwrap_or_else(|| {
        let oldest = places.iter().enumerate();
        let oldest = oldest.min_by_key(|(_, place)| place.used.load(Relaxed));
        let i = oldest.map_or(0, |(i, _)| i);
        let place = &places[i];
        place.since.store(CHANGING, Relaxed);
        fence(Release);
        for (word, new) in place.words.iter().zip(words) {
            word.store(new, Relaxed);
        }
        place.since.store(record, Release);
        i
    });
    places[i].used.store(record, Relaxed);
    i as u16 + 1
}

/// Returns the bytes of the name that a record has.
pub(super) fn name(places: &[Place; PLACES], number: u16, record: u64) -> Option<Vec<u8>> {
    let place = places.get(usize::from(number.checked_sub(1)?))?;
    let words = place.read(record)?;
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES));
    Some(bytes)
}

#[cfg(test)]
impl Place {
    /// Returns a place without a name.
    pub(super) fn zero() -> Place {
        Place {
            since: AtomicU64::new(0),
            used: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }
}
