//! Computes the statistics that tests need.

/// Returns the median; for an even count, the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

/// Returns an interval that contains the median of what these values are drawn from in 99 of 100 cases,
/// whatever their distribution: the values at two places of their order. Fewer than eight values cover it
/// more seldom; then it is from the lowest to the highest.
pub fn interval_of_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // The probability that at most `below` of the values are below the median is the probability of at most
    // `below` heads in `count` tosses.
    let mut below = 0;
    let (mut heads, mut tail) = (0.5f64.powi(count as i32), 0.0);
    while tail + heads <= 0.005 {
        tail += heads;
        heads *= (count - below) as f64 / (below + 1) as f64;
        below += 1;
    }
    let first = below.saturating_sub(1);
    (sorted[first], sorted[count - 1 - first])
}

/// Returns the smallest value.
pub fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::interval_of_median;

    #[test]
    fn an_interval_covers_the_median() {
        let first = |count: u32| interval_of_median(&(0..count).map(f64::from).collect::<Vec<_>>()).0;
        // From tables of the sign test, two-sided, one per cent.
        assert_eq!([5, 8, 12, 16, 20, 30].map(first), [0.0, 0.0, 1.0, 2.0, 3.0, 7.0]);
        assert_eq!(interval_of_median(&[3.0, 1.0, 2.0]), (1.0, 3.0));
    }
}
