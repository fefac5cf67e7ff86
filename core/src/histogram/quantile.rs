//! Percentiles of a histogram.

/// Values that were counted together: the bounds between which they lie, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// The lower bound.
    pub from: f64,
    /// The upper bound.
    pub to: f64,
    /// The number of values.
    pub count: f64,
}

/// Returns the value that a part of all values did not exceed: 0.5 is the median. Returns `None` if there are
/// no values. Between their bounds, values are taken as evenly distributed. The smallest values must come
/// first.
pub fn quantile(counted: impl Iterator<Item = Counted> + Clone, part: f64) -> Option<f64> {
    let total: f64 = counted.clone().map(|values| values.count).sum();
    let rank = part * total;
    let mut below = 0.0;
    for Counted { from, to, count } in counted.filter(|values| values.count > 0.0) {
        if below + count >= rank {
            let within = ((rank - below) / count).clamp(0.0, 1.0);
            return Some(from + (to - from) * within);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_the_bounds_of_its_values() {
        let counted = |counts: [f64; 3]| {
            let bounds = [(0.0, 1.0), (1.0, 2.0), (8.0, 16.0)];
            let values = bounds.into_iter().zip(counts);
            values.map(|((from, to), count)| Counted { from, to, count })
        };
        assert_eq!(quantile(counted([0.0; 3]), 0.5), None);
        let values = counted([0.0, 90.0, 10.0]);
        assert_eq!(
            [0.0, 0.45, 0.9, 0.95, 1.0].map(|part| quantile(values.clone(), part)),
            [1.0, 1.5, 2.0, 12.0, 16.0].map(Some)
        );
        assert_eq!(quantile(counted([1.0, 0.0, 1.0]), 0.5), Some(1.0));
    }
}
