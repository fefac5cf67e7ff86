//! Chooses who may do what only few may do at a time.

/// Lets candidates have their turn one after the other: who comes late in the order is not left out. In each
/// round, the candidates ask in about the same order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    /// How many more may have their turn in this round.
    left: u32,
    /// How many candidates have asked in this round.
    asked: u32,
    /// The first candidate that may have its turn.
    first: u32,
}

impl Turns {
    /// Begins a round of `turns` turns. 0 is a pause.
    pub fn begin(&mut self, turns: u32) {
        // If turns were left over, the last candidate has been reached.
        if self.left > 0 {
            self.first = 0;
        }
        (self.left, self.asked) = (turns, 0);
    }

    /// Returns whether the next candidate has its turn. It takes none if it does not want one.
    pub fn take(&mut self, wants: bool) -> bool {
        let number = self.asked;
        self.asked = self.asked.saturating_add(1);
        if !wants || self.left == 0 || number < self.first {
            return false;
        }
        self.left -= 1;
        self.first = self.asked;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns who has a turn in a round.
    fn round(turns: &mut Turns, candidates: u32, most: u32, wants: impl Fn(u32) -> bool) -> Vec<u32> {
        turns.begin(most);
        (0..candidates).filter(|i| turns.take(wants(*i))).collect()
    }

    #[test]
    fn all_have_their_turn() {
        let mut turns = Turns::default();
        assert_eq!(round(&mut turns, 5, 2, |_| true), [0, 1]);
        assert!(round(&mut turns, 5, 0, |_| true).is_empty());
        assert_eq!(round(&mut turns, 5, 2, |_| true), [2, 3]);
        assert_eq!(round(&mut turns, 5, 2, |_| true), [4]);
        assert_eq!(round(&mut turns, 5, 2, |_| true), [0, 1]);
        // Who does not want one takes none.
        assert_eq!(round(&mut turns, 5, 2, |i| i != 2), [3, 4]);
        // Fewer candidates than before.
        assert!(round(&mut turns, 3, 2, |_| true).is_empty());
        assert_eq!(round(&mut turns, 3, 2, |_| true), [0, 1]);
    }

    #[test]
    fn none_of_many_waits_for_ever() {
        let mut turns = Turns::default();
        let (count, most, hold) = (500, 16, 10);
        let mut last = vec![None; count as usize];
        for now in 0..200 {
            let had = round(&mut turns, count, most, |i| {
                last[i as usize].is_none_or(|then: i32| now - then >= hold)
            });
            had.into_iter().for_each(|i| last[i as usize] = Some(now));
        }
        assert!(
            last.iter().all(|then| then.is_some_and(|then| then >= 160)),
            "{last:?}"
        );
    }
}
