//! Who makes room in a full table: the role that has the most of it. So no role can push out what belongs to
//! roles that have less.

/// Returns the role that makes room for an entry of `newcomer` in a table of at most `MOST` entries: the one
/// with the most, if the new one counts. Of several it is the newcomer, if it has an entry, else any.
pub fn crowded<const MOST: usize>(owners: impl Iterator<Item = u32>, newcomer: u32) -> u32 {
    let mut sorted = [0; MOST];
    let mut count = 0;
    for (place, owner) in sorted.iter_mut().zip(owners) {
        *place = owner;
        count += 1;
    }
    let sorted = &mut sorted[..count];
    sorted.sort_unstable();
    let groups = sorted.chunk_by(|one, next| one == next);
    groups
        .filter_map(|group| Some((*group.first()?, group.len())))
        .map(|(owner, entries)| {
            let is_newcomer = owner == newcomer;
            (entries + usize::from(is_newcomer), is_newcomer, owner)
        })
        .max()
        .map_or(newcomer, |(_, _, owner)| owner)
}

#[cfg(test)]
mod tests {
    use super::crowded;

    const MOST: usize = 5;

    #[test]
    fn who_has_the_most_makes_room() {
        let crowded = |owners: &[u32], newcomer| crowded::<MOST>(owners.iter().copied(), newcomer);
        assert_eq!(crowded(&[1, 2, 2, 3], 1), 1);
        assert_eq!(crowded(&[1, 2, 2, 2, 3], 1), 2);
        assert_eq!(crowded(&[1, 2, 2, 3], 2), 2);
        assert_eq!(crowded(&[1, 2, 2], 4), 2);
        assert_eq!(crowded(&[], 4), 4);
    }
}
