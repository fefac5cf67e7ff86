//! Comparisons: every variant once a round, so that whatever else the machine does meets them all alike, and each
//! is compared with what it stood beside.

use crate::lab::Lab;
use crate::record::Spread;
use crate::statistics::ratio;

/// What was measured of one variant, one value a round.
pub struct Series<T> {
    pub name: String,
    pub values: Vec<T>,
}

impl<T> Series<T> {
    pub fn of(&self, figure: impl Fn(&T) -> f64) -> Vec<f64> {
        self.values.iter().map(figure).collect()
    }
}

/// Runs each variant once a round, not always in the same order: what follows on a long one is not always the same.
/// A round before the first warms caches and plans, and is thrown away.
pub fn interleave<T>(
    lab: &Lab,
    what: &str,
    names: &[String],
    rounds: usize,
    mut run: impl FnMut(usize) -> T,
) -> Vec<Series<T>> {
    let mut series: Vec<Series<T>> = names
        .iter()
        .map(|name| Series {
            name: name.clone(),
            values: Vec::new(),
        })
        .collect();
    let steps = ((rounds + 1) * names.len()) as f64;
    let mut step = 0.0;
    for round in 0..=rounds {
        for at in 0..names.len() {
            let variant = (at + round) % names.len();
            lab.at(step / steps, &format!("{what}, round {round} of {rounds}"));
            let value = run(variant);
            if round > 0 {
                series[variant].values.push(value);
            }
            step += 1.0;
        }
    }
    series
}

/// Each variant's ratio to the first.
pub fn ratios_to_first<T>(series: &[Series<T>], figure: impl Fn(&T) -> f64) -> Vec<Spread> {
    let base = series[0].of(&figure);
    series
        .iter()
        .map(|variant| ratio(&variant.of(&figure), &base))
        .collect()
}
