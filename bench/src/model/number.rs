//! Numbers as the report prints them.

use indicatif::HumanCount;

/// Formats a whole number with commas between its thousands.
pub fn count(number: f64) -> String {
    let rounded = number.round_ties_even();
    let sign = if rounded < 0.0 { "-" } else { "" };
    format!("{sign}{}", HumanCount(rounded.abs() as u64))
}

/// Formats a whole number as [`count`] does, always with a sign.
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
}
