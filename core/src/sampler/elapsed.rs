//! The difference of two clock readings.

/// Returns later minus earlier, and the number of backward steps. If the clock stepped back, the difference
/// is 0.
#[inline(always)]
pub(super) fn elapsed(earlier: u64, later: u64) -> (f64, u64) {
    if later >= earlier {
        ((later - earlier) as i64 as f64, 0)
    } else {
        (0.0, 1)
    }
}
