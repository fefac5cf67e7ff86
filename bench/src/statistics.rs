//! Medians with their spread.

use crate::record::Spread;
use rowsource_tests::statistics::median;

/// The median of the values, and their range.
pub fn spread(values: &[f64]) -> Spread {
    Spread {
        median: median(values),
        low: values.iter().copied().fold(f64::INFINITY, f64::min),
        high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

/// Each value over the one of the same round.
pub fn ratios(values: &[f64], base: &[f64]) -> Vec<f64> {
    values
        .iter()
        .zip(base)
        .map(|(value, base)| value / base)
        .collect()
}

/// The ratio of a round, its median and range.
pub fn ratio(values: &[f64], base: &[f64]) -> Spread {
    spread(&ratios(values, base))
}

impl Spread {
    /// "1.043 (1.02-1.07)".
    pub fn as_ratio(&self) -> String {
        let digits = if self.median >= 10.0 { 1 } else { 3 };
        let wide = if self.median >= 10.0 { 1 } else { 2 };
        format!(
            "{:.digits$} ({:.wide$}-{:.wide$})",
            self.median, self.low, self.high
        )
    }
}

/// A number with commas between its thousands.
pub fn count(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits"))
        .collect();
    let sign = if number < 0.0 && digits != "0" { "-" } else { "" };
    format!("{sign}{}", groups.join(","))
}

/// The same, with its sign.
pub fn difference(number: f64) -> String {
    let text = count(number);
    if text.starts_with('-') {
        text
    } else {
        format!("+{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(999.4), "999");
        assert_eq!(count(20_000_006.0), "20,000,006");
        assert_eq!(count(-1234.0), "-1,234");
        assert_eq!(difference(1234.0), "+1,234");
        assert_eq!(count(-0.3), "0");
    }

    #[test]
    fn a_ratio_is_of_one_round() {
        // The machine was twice as slow in the second round.
        let found = ratio(&[11.0, 21.0, 12.0], &[10.0, 20.0, 10.0]);
        assert_eq!((found.median, found.low, found.high), (1.1, 1.05, 1.2));
    }
}
