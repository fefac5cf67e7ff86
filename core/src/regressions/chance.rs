//! Whether a difference is more than chance: Welch's test, Student's distribution, and the correction for
//! many tests.

/// The number of values, their mean, and their variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moments {
    pub count: f64,
    pub mean: f64,
    variance: f64,
}

/// More degrees of freedom than these change nothing, but make the computation longer.
const MAX_DEGREES: f64 = 10_000.0;

impl Moments {
    /// Returns those of `count` values from their sum and the sum of their squares.
    pub fn of(count: u64, sum: f64, squares: f64) -> Moments {
        let count = count as f64;
        let mean = if count > 0.0 { sum / count } else { 0.0 };
        // The difference of two large numbers has an error, which must not look like no variance at all.
        let rounded = squares.abs() * f64::EPSILON;
        let variance = (squares - sum * mean).max(rounded) / (count - 1.0).max(1.0);
        Moments {
            count,
            mean,
            variance,
        }
    }

    /// Returns those of the same values, each multiplied.
    pub fn times(self, factor: f64) -> Moments {
        Moments {
            mean: self.mean * factor,
            variance: self.variance * factor * factor,
            ..self
        }
    }

    /// Returns those of the same values, with something added to each.
    pub fn plus(self, shift: f64) -> Moments {
        Moments {
            mean: self.mean + shift,
            ..self
        }
    }

    /// Returns one standard error of the mean. One value has none.
    pub fn error(&self) -> Option<f64> {
        (self.count >= 2.0).then(|| (self.variance / self.count).sqrt())
    }

    /// Returns how probable one more such value is to be as large as `value`. With fewer than two it is 1.
    pub fn chance_of_one(&self, value: f64) -> f64 {
        if self.count < 2.0 {
            return 1.0;
        }
        let error = (self.variance * (1.0 + 1.0 / self.count)).sqrt();
        if error > 0.0 {
            tail((value - self.mean) / error, (self.count - 1.0).min(MAX_DEGREES))
        } else {
            1.0
        }
    }

    /// Returns how probable it is that later values are by chance so much larger than these: Welch's test,
    /// one-sided. Without two values on each side it is 1.
    pub fn chance_of_larger(&self, later: &Moments) -> f64 {
        if self.count < 2.0 || later.count < 2.0 {
            return 1.0;
        }
        let (ours, theirs) = (self.variance / self.count, later.variance / later.count);
        let variance = ours + theirs;
        let difference = later.mean - self.mean;
        if variance <= 0.0 {
            return if difference > 0.0 { 0.0 } else { 1.0 };
        }
        let per_degree = ours * ours / (self.count - 1.0) + theirs * theirs / (later.count - 1.0);
        let degrees = (variance * variance / per_degree).clamp(1.0, MAX_DEGREES);
        tail(difference / variance.sqrt(), degrees)
    }
}

/// Returns how probable a value above `t` is in Student's distribution.
fn tail(t: f64, degrees: f64) -> f64 {
    if t.is_nan() {
        return 1.0;
    }
    let both = incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5);
    if t > 0.0 { both / 2.0 } else { 1.0 - both / 2.0 }
}

/// Returns the regularised incomplete beta function, by its continued fraction (Lentz's algorithm, as in
/// Numerical Recipes 6.4).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// Returns the continued fraction of the incomplete beta function. It takes about as many steps as the root
/// of the larger parameter.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const STEPS: u32 = 500;
    const TINY: f64 = 1e-300;
    let not_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / not_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut result = d;
    for step in 1..=STEPS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = result;
        for term in [even, odd] {
            d = 1.0 / not_zero(1.0 + term * d);
            c = not_zero(1.0 + term / c);
            result *= c * d;
        }
        if (result / before - 1.0).abs() < 1e-12 {
            break;
        }
    }
    result
}

/// Returns the logarithm of the gamma function (Lanczos's approximation).
fn log_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.120_865_097_386_617_9e-2,
        -0.539_523_938_495_3e-5,
    ];
    let mut sum = 1.000_000_000_190_015;
    for (coefficient, at) in COEFFICIENTS.iter().zip(1..) {
        sum += coefficient / (x + f64::from(at));
    }
    let shifted = x + 5.5;
    (x + 0.5) * shifted.ln() - shifted + (2.506_628_274_631_000_5 * sum / x).ln()
}

/// Returns the largest probability that is still no chance, if of all differences that are called real at
/// most the part `rate` is chance (Benjamini and Hochberg, 1995). Sorts the probabilities.
pub(super) fn largest_not_chance(probabilities: &mut [f64], rate: f64) -> f64 {
    probabilities.sort_unstable_by(f64::total_cmp);
    let per_rank = rate / probabilities.len().max(1) as f64;
    let ranked = probabilities.iter().zip(1u32..);
    ranked
        .filter(|(probability, rank)| **probability <= f64::from(*rank) * per_rank)
        .map(|(probability, _)| *probability)
        .last()
        .unwrap_or(-1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_students_distribution() {
        // From tables, the last ones from the normal distribution.
        for (t, degrees, truth) in [
            (0.0, 3.0, 0.5),
            (1.0, 1.0, 0.25),
            (6.314, 1.0, 0.05),
            (2.920, 2.0, 0.05),
            (2.571, 5.0, 0.025),
            (4.144, 10.0, 0.001),
            (2.626, 100.0, 0.005),
            (3.090, 1e4, 0.001),
            (6.0, 1e4, 1e-9),
        ] {
            let found = tail(t, degrees);
            assert!(
                (found / truth - 1.0).abs() < 0.03,
                "{t}, {degrees}: {found}, not {truth}"
            );
            assert!((tail(-t, degrees) - (1.0 - found)).abs() < 1e-12);
        }
        assert_eq!(tail(f64::NAN, 3.0), 1.0);
        assert_eq!(tail(f64::INFINITY, 3.0), 0.0);
    }

    #[test]
    fn welch_needs_two_values_on_each_side() {
        let of = |values: &[f64]| {
            let squares = values.iter().map(|value| value * value).sum();
            Moments::of(values.len() as u64, values.iter().sum(), squares)
        };
        assert_eq!(of(&[1.0]).chance_of_larger(&of(&[9.0, 9.1])), 1.0);
        assert_eq!(of(&[]).chance_of_larger(&of(&[])), 1.0);
        assert!(of(&[1.0, 1.0, 1.0]).chance_of_larger(&of(&[2.0, 2.0])) < 1e-9);
        assert!(of(&[1.0, 1.0, 1.0]).chance_of_larger(&of(&[1.0, 1.0])) > 0.4);
        // t = 2.853 with 27.89 degrees of freedom; the tail was integrated numerically.
        let one = [
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4,
        ];
        let other = [
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5, 24.4,
        ];
        let found = of(&one).chance_of_larger(&of(&other));
        assert!((found / 0.004_035_969 - 1.0).abs() < 1e-6, "{found}");
    }

    #[test]
    fn many_tests_need_smaller_probabilities() {
        assert_eq!(largest_not_chance(&mut [], 0.01), -1.0);
        assert_eq!(largest_not_chance(&mut [0.009], 0.01), 0.009);
        assert_eq!(largest_not_chance(&mut [0.009, 0.5, 0.6], 0.01), -1.0);
        // The second one is small enough for its rank, so the first one is too.
        assert_eq!(largest_not_chance(&mut [0.8, 0.0066, 0.006], 0.01), 0.0066);
    }
}
