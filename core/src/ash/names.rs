//! The names of applications, which the ring stores once for each role.
//!
//! A name is known by its number, from 1 on. If all places are taken, the role with the most of them makes
//! room: a new name replaces the one of it that was used least recently, but none of the same moment. A place
//! knows since when it has its name, so an older sample does not get another application's name.

use crate::room::crowded;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

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
    /// The samples from this time on may have the name.
    since: AtomicU64,
    /// The time of the sample that used it last.
    used: AtomicU64,
    /// The role whose sessions have it.
    userid: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl Place {
    /// Returns the name's words, if samples of this time have it.
    fn read(&self, at: u64) -> Option<[u64; WORDS]> {
        let since = self.since.load(Acquire);
        let words = std::array::from_fn(|i| self.words[i].load(Relaxed));
        fence(Acquire);
        (since <= at && self.since.load(Relaxed) == since && words[0] != 0).then_some(words)
    }

    fn has(&self, userid: u32, words: &[u64; WORDS]) -> bool {
        let mut both = self.words.iter().zip(words);
        self.userid.load(Relaxed) == userid && both.all(|(mine, other)| mine.load(Relaxed) == *other)
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

/// Returns the number of a name of a role's session for a sample of this time; 0 for an empty one, and if
/// there is no room. `hint` is the number that it probably has. Only the writer may call this.
pub(super) fn number(
    places: &[Place; PLACES],
    hint: u16,
    userid: u32,
    name: &[u8; NAME_BYTES],
    at: u64,
) -> u16 {
    let words = words(name);
    if words[0] == 0 {
        return 0;
    }
    let found = usize::from(hint)
        .checked_sub(1)
        .filter(|i| places.get(*i).is_some_and(|place| place.has(userid, &words)))
        .or_else(|| places.iter().position(|place| place.has(userid, &words)));
    let made = || {
        let i = room(places, userid).filter(|i| places[*i].used.load(Relaxed) != at)?;
        let place = &places[i];
        place.since.store(CHANGING, Relaxed);
        fence(Release);
        place.userid.store(userid, Relaxed);
        for (word, new) in place.words.iter().zip(words) {
            word.store(new, Relaxed);
        }
        place.since.store(at, Release);
        Some(i)
    };
    let Some(i) = found.or_else(made) else { return 0 };
    places[i].used.store(at, Relaxed);
    i as u16 + 1
}

/// Returns the place for another name of a role.
#[cold]
fn room(places: &[Place; PLACES], userid: u32) -> Option<usize> {
    let free = places.iter().position(|place| place.words[0].load(Relaxed) == 0);
    free.or_else(|| {
        let owner = |place: &Place| place.userid.load(Relaxed);
        let crowded = crowded::<PLACES>(places.iter().map(owner), userid);
        let of_crowded = places
            .iter()
            .enumerate()
            .filter(|(_, place)| owner(place) == crowded);
        let oldest = of_crowded.min_by_key(|(_, place)| place.used.load(Relaxed));
        oldest.map(|(i, _)| i)
    })
}

/// Returns the bytes of the name that a sample of this time has.
pub(super) fn name(places: &[Place; PLACES], number: u16, at: u64) -> Option<Vec<u8>> {
    let place = places.get(usize::from(number.checked_sub(1)?))?;
    let words = place.read(at)?;
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES));
    Some(bytes)
}

/// A place that is saved.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct SavedName {
    since: u64,
    used: u64,
    userid: u32,
    words: [u64; WORDS],
}

/// Returns what is saved of the names. Nobody may write meanwhile.
pub(super) fn saved(places: &[Place; PLACES]) -> Vec<SavedName> {
    let of = |place: &Place| SavedName {
        since: place.since.load(Relaxed),
        used: place.used.load(Relaxed),
        userid: place.userid.load(Relaxed),
        words: std::array::from_fn(|i| place.words[i].load(Relaxed)),
    };
    places
        .iter()
        .map(of)
        .take_while(|name| name.words[0] != 0)
        .collect()
}

/// Fills empty places with what was saved. Only the writer may call this.
pub(super) fn restore(places: &[Place; PLACES], saved: &[SavedName]) {
    for (place, name) in places.iter().zip(saved) {
        place.used.store(name.used, Relaxed);
        place.userid.store(name.userid, Relaxed);
        for (word, new) in place.words.iter().zip(name.words) {
            word.store(new, Relaxed);
        }
        place.since.store(name.since, Release);
    }
}

#[cfg(test)]
impl Place {
    /// Returns a place without a name.
    pub(super) fn zero() -> Place {
        Place {
            since: AtomicU64::new(0),
            used: AtomicU64::new(0),
            userid: AtomicU32::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }
}
