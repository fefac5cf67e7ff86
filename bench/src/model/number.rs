//! Numbers as the report prints them.

/// Formats a whole number with commas between its thousands.
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
