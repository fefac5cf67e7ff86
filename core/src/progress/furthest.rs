//! How far a statement was seen, in shared memory.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The bits for hundredths of a percent.
const BITS: u32 = 14;
/// All of them, which is more than 100 percent.
const ALL: u64 = (1 << BITS) - 1;

/// The furthest that any reader has seen of the executions of a block, one after the other. So no reader sees
/// less than another one did before. Zero bytes are nothing seen.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Furthest(AtomicU64);

impl Furthest {
    /// Notes that an execution is so far, in percent. Returns how far it is: no less than any reader has
    /// noted. Executions have rising numbers: of an older one than is noted, nothing is.
    pub fn note(&self, execution: u64, percent: f64) -> f64 {
        let execution = execution & (u64::MAX >> BITS);
        let hundredths = (percent.clamp(0.0, 100.0) * 100.0).round() as u64;
        let noted = self.0.fetch_update(Relaxed, Relaxed, |noted| {
            let is_more = match (noted >> BITS).cmp(&execution) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => noted & ALL < hundredths,
                std::cmp::Ordering::Greater => false,
            };
            is_more.then_some(execution << BITS | hundredths)
        });
        match noted {
            Err(noted) if noted >> BITS == execution => (noted & ALL) as f64 / 100.0,
            _ => hundredths as f64 / 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_falls_within_an_execution() {
        let furthest = Furthest::default();
        assert_eq!(furthest.note(1, 0.0), 0.0);
        assert_eq!(furthest.note(1, 88.7), 88.7);
        assert_eq!(furthest.note(1, 67.0), 88.7);
        assert_eq!(furthest.note(1, 99.99), 99.99);
        assert_eq!(furthest.note(1, f64::NAN), 99.99);
        // The next one begins from nothing. A reader that is late notes nothing of the one before.
        assert_eq!(furthest.note(3, 5.0), 5.0);
        assert_eq!(furthest.note(1, 100.0), 100.0);
        assert_eq!(furthest.note(3, 4.0), 5.0);
    }
}
