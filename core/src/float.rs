//! Arithmetic in a few instructions. The comparisons of the standard library also order values that are not
//! numbers, and its logarithm is exact.

/// Returns the smaller of a value and its limit; the limit if the value is not a number.
#[inline(always)]
pub(crate) fn at_most<T: PartialOrd>(value: T, limit: T) -> T {
    if value < limit { value } else { limit }
}

/// Returns the larger of a value and its limit; the limit if the value is not a number.
#[inline(always)]
pub(crate) fn at_least<T: PartialOrd>(value: T, limit: T) -> T {
    if value > limit { value } else { limit }
}

/// Returns the binary logarithm of a positive number, with an error of at most 0.0004. It is exact for powers
/// of two.
#[inline(always)]
pub(crate) fn log2(value: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    // The number is m times a power of two, and m is from 1 to 2.
    let m = f64::from_bits(bits & MANTISSA | 1f64.to_bits());
    // The logarithm of m is near m - 1, and equal to it at both ends. The polynomial is the rest, fitted at
    // Chebyshev nodes.
    let rest = 0.765_066 + m * (m * 0.081_616 - 0.405_901);
    exponent as f64 + (m - 1.0) * (1.0 + (2.0 - m) * rest)
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

    #[test]
    fn logarithms_are_nearly_exact() {
        for i in 1..100_000u32 {
            let value = 1e-6 * f64::from(i).powi(3);
            let error = log2(value) - value.log2();
            assert!(error.abs() < 4e-4, "{value}: {error}");
        }
        assert_eq!([0.25, 1.0, 2.0, 1_024.0].map(log2), [-2.0, 0.0, 1.0, 10.0]);
        assert!(log2(f64::INFINITY).is_finite() && log2(f64::MIN_POSITIVE).is_finite());
    }
}
