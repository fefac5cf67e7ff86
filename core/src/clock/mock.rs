//! A clock for tests. The test sets its time, advances it, or makes it step back.

use std::cell::Cell;

/// A clock that a test controls. Every method takes `&self`, so it can be shared by reference.
///
/// ```
/// use rowsource_core::clock::mock::Mock;
/// let clock = Mock::new(1000);
/// let read = || clock.read();
/// clock.advance(250);
/// assert_eq!(read(), 1250);
/// clock.step_back(1250);
/// assert_eq!(read(), 0);
/// ```
#[derive(Debug, Default)]
pub struct Mock {
    now: Cell<u64>,
    per_reading: Cell<u64>,
    readings: Cell<u64>,
}

impl Mock {
    /// Returns a clock whose time is `now` ticks.
    pub const fn new(now: u64) -> Mock {
        Mock {
            now: Cell::new(now),
            per_reading: Cell::new(0),
            readings: Cell::new(0),
        }
    }

    /// Makes every reading advance the clock by `ticks`.
    pub fn with_cost(self, ticks: u64) -> Mock {
        self.per_reading.set(ticks);
        self
    }

    /// Reads the clock.
    pub fn read(&self) -> u64 {
        let now = self.now.get();
        self.readings.set(self.readings.get() + 1);
        self.advance(self.per_reading.get());
        now
    }

    /// Returns the value of the next reading, without reading.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Returns how often the clock was read.
    pub fn readings(&self) -> u64 {
        self.readings.get()
    }

    /// Sets the time.
    pub fn set(&self, now: u64) {
        self.now.set(now);
    }

    /// Advances the clock by `ticks`.
    pub fn advance(&self, ticks: u64) {
        self.now.set(self.now.get().saturating_add(ticks));
    }

    /// Steps back by `ticks`, but not below 0.
    pub fn step_back(&self, ticks: u64) {
        self.now.set(self.now.get().saturating_sub(ticks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_advances_the_clock_by_its_cost() {
        let clock = Mock::new(10).with_cost(3);
        assert_eq!([clock.read(), clock.read(), clock.now()], [10, 13, 16]);
        assert_eq!(clock.readings(), 2);
    }

    #[test]
    fn it_can_be_set_and_step_back() {
        let clock = Mock::new(10);
        clock.set(100);
        clock.step_back(30);
        assert_eq!(clock.read(), 70);
        clock.step_back(1000);
        assert_eq!(clock.read(), 0);
        clock.set(u64::MAX);
        clock.advance(1);
        assert_eq!(clock.read(), u64::MAX);
    }
}
