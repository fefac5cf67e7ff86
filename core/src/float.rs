//! Comparisons that take one instruction. Those of the standard library also order values that are not numbers.

/// Returns the smaller of a value and its limit; the limit if the value is not a number.
#[inline(always)]
pub(crate) fn at_most(value: f64, limit: f64) -> f64 {
    if value < limit { value } else { limit }
}

/// Returns the larger of a value and its limit; the limit if the value is not a number.
#[inline(always)]
pub(crate) fn at_least(value: f64, limit: f64) -> f64 {
    if value > limit { value } else { limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_within_their_limits() {
        assert_eq!(
            (at_most(1.0, 2.0), at_most(3.0, 2.0), at_most(f64::NAN, 2.0)),
            (1.0, 2.0, 2.0)
        );
        assert_eq!(
            (at_least(3.0, 2.0), at_least(1.0, 2.0), at_least(f64::NAN, 2.0)),
            (3.0, 2.0, 2.0)
        );
    }
}
