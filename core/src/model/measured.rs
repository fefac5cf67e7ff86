//! A value that may be unknown.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// A value that may be unknown because it was not measured. An unknown value is zero, so sums need no check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Serialize, Deserialize)]
pub struct Measured<T> {
    known: bool,
    value: T,
}

impl<T: Copy> Measured<T> {
    /// Returns the value, or `None` if it was not measured.
    #[inline(always)]
    pub fn get(&self) -> Option<T> {
        self.known.then_some(self.value)
    }

    /// Returns the value, or zero if it was not measured.
    #[inline(always)]
    pub fn get_or_zero(&self) -> T {
        self.value
    }

    /// Returns a mutable reference to the value, or `None` if it was not measured.
    #[inline(always)]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.known.then_some(&mut self.value)
    }
}

impl<T> From<T> for Measured<T> {
    #[inline(always)]
    fn from(value: T) -> Self {
        Measured { known: true, value }
    }
}

impl<T: Default> From<Option<T>> for Measured<T> {
    #[inline(always)]
    fn from(value: Option<T>) -> Self {
        Measured {
            known: value.is_some(),
            value: value.unwrap_or_default(),
        }
    }
}

impl<T: AddAssign> AddAssign for Measured<T> {
    #[inline(always)]
    fn add_assign(&mut self, add: Self) {
        self.known |= add.known;
        self.value += add.value;
    }
}

impl Measured<u32> {
    /// Keeps the larger of the two values.
    #[inline(always)]
    pub fn raise_to(&mut self, other: Self) {
        self.known |= other.known;
        self.value = self.value.max(other.value);
    }
}
