//! A histogram as text: a line per bucket with its lower bound, a bar and its count, as DTrace prints them.

/// A bucket of a histogram of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Its lower bound in microseconds.
    pub from_us: f64,
    /// The number of values in it.
    pub count: u64,
}

/// The bar of a bucket that contains all values.
const BAR: &str = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";
const TITLE: &str = " Distribution ";
/// Lines are added for at most this many empty buckets between two others.
const MAX_GAP: usize = 64;

/// Returns the lines of the plot, the shortest times first; no lines if all counts are zero.
///
/// The buckets may be in any order, and empty ones may be missing. A bucket ends at twice its lower bound.
pub fn plot(buckets: &[Bucket]) -> Vec<String> {
    let mut buckets: Vec<Bucket> = buckets
        .iter()
        .copied()
        .filter(|bucket| bucket.count > 0 && bucket.from_us.is_finite())
        .collect();
    buckets.sort_by(|a, b| a.from_us.total_cmp(&b.from_us));
    let sum: f64 = buckets.iter().map(|bucket| bucket.count as f64).sum();
    if buckets.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{:>10}  {TITLE:-^width$} count",
        "value",
        width = BAR.len()
    )];
    let mut expected = buckets[0].from_us;
    for bucket in &buckets {
        // Bounds are powers of two; half of one allows for rounding.
        for _ in 0..MAX_GAP {
            if expected <= 0.0 || expected * 1.5 > bucket.from_us {
                break;
            }
            lines.push(line(expected, 0, sum));
            expected *= 2.0;
        }
        lines.push(line(bucket.from_us, bucket.count, sum));
        expected = bucket.from_us * 2.0;
    }
    lines
}

fn line(from_us: f64, count: u64, sum: f64) -> String {
    let length = (count as f64 / sum * BAR.len() as f64).round() as usize;
    let bar = BAR.get(..length).unwrap_or(BAR);
    format!("{:>10} |{bar:<width$} {count}", time(from_us), width = BAR.len())
}

/// Returns a time with three digits and its unit: `64ns`, `1.02us`, `16.8ms`.
fn time(us: f64) -> String {
    let (value, unit) = match us {
        ..1.0 => (us * 1e3, "ns"),
        ..1e3 => (us, "us"),
        ..1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    let decimals = match value {
        _ if value.fract() == 0.0 => 0,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plotted(buckets: &[(f64, u64)]) -> Vec<String> {
        let buckets: Vec<Bucket> = buckets
            .iter()
            .map(|&(from_us, count)| Bucket { from_us, count })
            .collect();
        plot(&buckets)
    }

    #[test]
    fn a_bar_is_as_long_as_the_buckets_share() {
        assert_eq!(
            plotted(&[(8.0, 25), (1.0, 50), (2.0, 25), (64.0, 0)]),
            [
                "     value  ------------- Distribution ------------- count",
                "       1us |@@@@@@@@@@@@@@@@@@@@                     50",
                "       2us |@@@@@@@@@@                               25",
                "       4us |                                         0",
                "       8us |@@@@@@@@@@                               25",
            ]
        );
    }

    #[test]
    fn the_first_bucket_may_begin_at_zero() {
        let lines = plotted(&[(0.0, 1), (0.064, 1)]);
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with("       0ns |@@@@@@@@@@@@@@@@@@@@ "),
            "{lines:?}"
        );
    }

    #[test]
    fn without_values_there_is_no_plot() {
        assert!(plotted(&[]).is_empty());
        assert!(plotted(&[(1.0, 0)]).is_empty());
        assert!(plotted(&[(f64::NAN, 3), (f64::INFINITY, 3)]).is_empty());
    }

    /// The plot has a bounded number of lines whatever the bounds are.
    #[test]
    fn odd_bounds_do_no_harm() {
        let lines = plotted(&[(1e-300, 1), (1e300, u64::MAX), (-5.0, 2), (1e300, u64::MAX)]);
        assert!(lines.len() <= 5 + MAX_GAP, "{}", lines.len());
        assert!(lines.iter().skip(1).all(|line| line.contains('|')));
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let times = [
            0.0,
            0.064,
            1.024,
            16.384,
            524.288,
            1048.576,
            16777.216,
            2147483.648,
        ];
        assert_eq!(
            times.map(time),
            [
                "0ns", "64ns", "1.02us", "16.4us", "524us", "1.05ms", "16.8ms", "2.15s"
            ]
        );
    }
}
