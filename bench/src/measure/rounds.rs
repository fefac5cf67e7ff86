//! Interleaved comparisons. Every variant runs once a round, so that other work on the machine disturbs all
//! of them alike. Each is compared with the base of the same round.

use super::context::ExperimentContext;
use crate::model::spread::{Spread, ratio};
use rowsource_tests::statistics::median;

/// The measurements of one variant, one value for each round.
pub struct Series<T> {
    pub name: String,
    pub values: Vec<T>,
}

impl<T> Series<T> {
    /// Returns one value of each round.
    pub fn of(&self, value: impl Fn(&T) -> f64) -> Vec<f64> {
        self.values.iter().map(value).collect()
    }
}

/// Runs each variant once a round. The order changes from round to round, so that no variant always follows
/// the same one. Discards a first round, which warms caches and plans.
pub fn interleave<T>(
    context: &ExperimentContext,
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
            context.at(step / steps, &format!("{what}, round {round} of {rounds}"));
            let value = run(variant);
            if round > 0 {
                series[variant].values.push(value);
            }
            step += 1.0;
        }
    }
    series
}

/// Returns the ratio of each variant to the first.
pub fn ratios_to_first<T>(series: &[Series<T>], value: impl Fn(&T) -> f64) -> Vec<Spread> {
    let base = series[0].of(&value);
    series
        .iter()
        .map(|variant| ratio(&variant.of(&value), &base))
        .collect()
}

/// Returns the median of what each round's value is above that of the first variant.
pub fn median_added<T>(series: &[Series<T>], at: usize, value: impl Fn(&T) -> f64) -> f64 {
    let added: Vec<f64> = series[at]
        .of(&value)
        .iter()
        .zip(series[0].of(&value))
        .map(|(own, base)| own - base)
        .collect();
    median(&added)
}
