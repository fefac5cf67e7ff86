//! Records as bytes. More than half of the bytes of a node's statistics are zeros, so runs of zeros are
//! replaced by their length.

use serde::{Deserialize, Serialize};

/// Why a record cannot be written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackError {
    /// The bytes are no record.
    Damaged,
    /// There is no memory for it.
    Memory,
}

/// Appends a record.
pub(super) fn append(bytes: &mut Vec<u8>, record: &impl Serialize) -> Result<(), PackError> {
    let size = postcard::experimental::serialized_size(record).map_err(|_| PackError::Damaged)?;
    bytes.try_reserve(size).map_err(|_| PackError::Memory)?;
    let at = bytes.len();
    bytes.resize(at + size, 0);
    let room = bytes.get_mut(at..).unwrap_or_default();
    postcard::to_slice(record, room)
        .map(drop)
        .map_err(|_| PackError::Damaged)
}

/// Reads a record, and returns it with the bytes after it.
pub(super) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), PackError> {
    postcard::take_from_bytes(bytes).map_err(|_| PackError::Damaged)
}

/// Replaces each run of zero bytes by a zero and the length of the run.
pub(super) fn without_zeros(bytes: &[u8]) -> Result<Vec<u8>, PackError> {
    let mut packed = Vec::new();
    let size = runs(bytes).map(|(_, zeros)| if zeros > 0 { 2 } else { 1 }).sum();
    packed.try_reserve_exact(size).map_err(|_| PackError::Memory)?;
    for (first, zeros) in runs(bytes) {
        packed.push(first);
        if zeros > 0 {
            packed.push(zeros as u8);
        }
    }
    Ok(packed)
}

/// Returns the bytes, with the length of the run for a run of zeros, and 0 for any other byte.
fn runs(bytes: &[u8]) -> impl Iterator<Item = (u8, usize)> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let is_in_run = |&&byte: &&u8| first == 0 && byte == 0;
        let zeros = rest.iter().take(MAX_RUN).take_while(is_in_run).count();
        rest = rest.get(zeros.max(1)..).unwrap_or_default();
        Some((first, zeros))
    })
}

/// The longest run of zeros that [`without_zeros`] replaces at once.
const MAX_RUN: usize = u8::MAX as usize;

/// Undoes [`without_zeros`]. The result has at most `max` bytes.
pub(super) fn with_zeros(packed: &[u8], max: usize) -> Result<Vec<u8>, PackError> {
    let (bytes, is_all) = beginning(packed, max)?;
    is_all.then_some(bytes).ok_or(PackError::Damaged)
}

/// Undoes [`without_zeros`] for at most `max` bytes, and returns whether these are all. The packed bytes may
/// be cut behind what these take.
pub(super) fn beginning(packed: &[u8], max: usize) -> Result<(Vec<u8>, bool), PackError> {
    let mut bytes = Vec::new();
    let mut rest = packed.iter();
    while let Some(&byte) = rest.next() {
        let count = match byte {
            0 => usize::from(*rest.next().ok_or(PackError::Damaged)?),
            _ => 1,
        };
        let is_more = bytes.len() + count > max;
        let count = count.min(max - bytes.len());
        bytes.try_reserve(count).map_err(|_| PackError::Memory)?;
        bytes.resize(bytes.len() + count, byte);
        if is_more {
            return Ok((bytes, false));
        }
    }
    Ok((bytes, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn runs_of_zeros_come_back() {
        const MAX: usize = 10_000;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(815);
        for length in [0, 1, 2, 254, 255, 256, 510, 511, 5_000] {
            let zeros = vec![0; length];
            assert_eq!(
                with_zeros(&without_zeros(&zeros).expect("memory"), MAX),
                Ok(zeros)
            );
            let mixed: Vec<u8> = (0..length).map(|_| random.random_range(0..3)).collect();
            assert_eq!(
                with_zeros(&without_zeros(&mixed).expect("memory"), MAX),
                Ok(mixed)
            );
        }
        assert_eq!(with_zeros(&[1, 0], MAX), Err(PackError::Damaged));
        let endless = [0, 255].repeat(MAX / 255 + 1);
        assert_eq!(with_zeros(&endless, MAX), Err(PackError::Damaged));
    }
}
