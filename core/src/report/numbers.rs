//! Formats counts, sizes, times and errors for the display. NaN and infinity become empty texts.

/// Numbers below this are written in full, others in the next unit: `44248` and `99999`, but `100K`.
const FIRST_SHORTENED: f64 = 100_000.0;

/// From this number of a unit on, the next unit is used: `3749K` and `9999K`, but `10M`.
const UNIT_LIMIT: f64 = 10_000.0;

/// Returns `number` in one of `units`. Each unit is `step` times the previous one. The number is rounded, not
/// truncated.
fn in_units(number: f64, step: f64, units: &[&str]) -> String {
    if !number.is_finite() {
        return String::new();
    }
    let mut scaled = number.max(0.0);
    for (index, unit) in units.iter().enumerate() {
        let limit = if index == 0 && unit.is_empty() {
            FIRST_SHORTENED
        } else {
            UNIT_LIMIT
        };
        if scaled.round() < limit {
            return format!("{:.0}{unit}", scaled.round());
        }
        scaled /= step;
    }
    // The number is too large for the last unit, like the planner's upper limit of 1e100 rows.
    format!("{number:.0e}")
}

/// Returns rows, starts or blocks: `44248`, `3749K`, `10M`.
pub(super) fn count(number: f64) -> String {
    in_units(number, 1000.0, &["", "K", "M", "G", "T"])
}

/// Returns bytes in powers of 1024: `48684`, `7129K`.
pub(super) fn bytes(number: f64) -> String {
    in_units(number, 1024.0, &["", "K", "M", "G", "T", "P"])
}

/// Returns kilobytes in powers of 1024, the unit of work areas: `25K`, `2048K`, `12M`.
pub(super) fn kilobytes(number: u64) -> String {
    if number == 0 {
        "0".to_owned()
    } else {
        in_units(number as f64, 1024.0, &["K", "M", "G", "T", "P"])
    }
}

/// Returns the planner's cost, with EXPLAIN's two decimals if it is short: `8.44`, `2781`, `1693K`.
pub(super) fn cost(number: f64) -> String {
    if (0.0..1000.0).contains(&number) {
        format!("{number:.2}")
    } else {
        count(number)
    }
}

/// Returns with how many decimals the times of a table are shown whose longest has this many milliseconds.
/// All of them have the same number, so they can be compared at a glance. Short statements show microseconds.
/// No time of less than a day takes more than nine columns.
pub(super) fn decimals(longest: f64) -> usize {
    match longest {
        10_000.0..100_000.0 => 2,
        100_000.0..1_000_000.0 => 1,
        1_000_000.0.. => 0,
        _ => 3,
    }
}

/// Returns a time in milliseconds.
pub(super) fn time(milliseconds: f64, decimals: usize) -> String {
    if !milliseconds.is_finite() {
        return String::new();
    }
    format!("{:.decimals$}", milliseconds.max(0.0))
}

/// Returns one standard error in per cent of its time; empty if there is none.
pub(super) fn relative_error(error: f64, of: f64) -> String {
    let percent = 100.0 * error / of;
    // The limits allow for rounding: 9.97 would be written 10.0.
    match percent {
        _ if error <= 0.0 || of <= 0.0 || !percent.is_finite() => String::new(),
        ..0.05 => "<0.1%".to_owned(),
        ..9.95 => format!("{percent:.1}%"),
        ..999.5 => format!("{percent:.0}%"),
        _ => ">999%".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shortened() {
        for (number, text) in [
            (0.0, "0"),
            (-3.0, "0"),
            (0.4, "0"),
            (44_248.0, "44248"),
            (99_999.4, "99999"),
            (99_999.5, "100K"),
            (100_000.0, "100K"),
            (3_749_000.0, "3749K"),
            (9_999_499.0, "9999K"),
            (9_999_500.0, "10M"),
            (10_000_000.0, "10M"),
            (10_400_000.0, "10M"),
            (1e10, "10G"),
            (u64::MAX as f64, "2e19"),
            (1e100, "1e100"),
            (f64::NAN, ""),
            (f64::INFINITY, ""),
        ] {
            assert_eq!(count(number), text, "{number}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (number, text) in [
            (48_684.0, "48684"),
            (7_300_176.0, "7129K"),
            (1e7, "9766K"),
            (962_696_000.0, "918M"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (number, text) in [
            (0, "0"),
            (25, "25K"),
            (2048, "2048K"),
            (9999, "9999K"),
            (10_000, "10M"),
            (12_288, "12M"),
            (u64::MAX, "2e19"),
        ] {
            assert_eq!(kilobytes(number), text);
        }
    }

    #[test]
    fn costs_have_decimals_while_short() {
        for (number, text) in [
            (0.0, "0.00"),
            (8.437, "8.44"),
            (2781.02, "2781"),
            (1_693_000.0, "1693K"),
            (1e10, "10G"),
            (f64::NAN, ""),
        ] {
            assert_eq!(cost(number), text);
        }
    }

    #[test]
    fn times_of_a_table_have_as_many_decimals_as_fit() {
        for (milliseconds, text) in [
            (0.0, "0.000"),
            (512.0314, "512.031"),
            (9_999.999_9, "10000.000"),
            (59_999.999_9, "60000.00"),
            (450_000.06, "450000.1"),
            (86_400_000.0, "86400000"),
            (-1.0, "0.000"),
            (f64::NAN, ""),
            (f64::INFINITY, ""),
        ] {
            assert_eq!(time(milliseconds, decimals(milliseconds)), text);
        }
    }

    #[test]
    fn errors_are_per_cent_of_the_time() {
        for (error, of, text) in [
            (0.0, 100.0, ""),
            (1.0, 0.0, ""),
            (f64::NAN, 100.0, ""),
            (1.0, f64::NAN, ""),
            (-1.0, 100.0, ""),
            (0.049, 100.0, "<0.1%"),
            (0.05, 100.0, "0.1%"),
            (0.4, 100.0, "0.4%"),
            (9.94, 100.0, "9.9%"),
            (9.96, 100.0, "10%"),
            (120.0, 100.0, "120%"),
            (5000.0, 100.0, ">999%"),
        ] {
            assert_eq!(relative_error(error, of), text, "{error} of {of}");
        }
    }
}
