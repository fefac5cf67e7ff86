//! Medians with their range.

use rowsource_tests::statistics::median;
use serde::{Deserialize, Serialize};

/// The median of the rounds, with the lowest and the highest round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// Formats the spread as "1.043 (1.02-1.07)".
    pub fn as_ratio(&self) -> String {
        let digits = if self.median >= 10.0 { 1 } else { 3 };
        let wide = if self.median >= 10.0 { 1 } else { 2 };
        format!(
            "{:.digits$} ({:.wide$}-{:.wide$})",
            self.median, self.low, self.high
        )
    }
}

/// Returns the median and the range of the values.
pub fn spread(values: &[f64]) -> Spread {
    Spread {
        median: median(values),
        low: values.iter().copied().fold(f64::INFINITY, f64::min),
        high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

/// Divides each value by the base's value of the same round.
pub fn ratios(values: &[f64], base: &[f64]) -> Vec<f64> {
    values
        .iter()
        .zip(base)
        .map(|(value, base)| value / base)
        .collect()
}

/// Returns the median and the range of [`ratios`].
pub fn ratio(values: &[f64], base: &[f64]) -> Spread {
    spread(&ratios(values, base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_one_round() {
        // The machine was twice as slow in the second round.
        let found = ratio(&[11.0, 21.0, 12.0], &[10.0, 20.0, 10.0]);
        assert_eq!((found.median, found.low, found.high), (1.1, 1.05, 1.2));
    }
}
