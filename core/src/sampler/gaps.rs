//! What the timer of a node needs once not all calls are timed. What need not be precise takes half a word:
//! each session's first block of shared memory has room for four nodes.

use super::watch::Watch;

/// Weighted sums over the short samples.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Samples {
    pub(super) weight: f64,
    pub(super) ticks: f64,
    /// Their variance: g(g-1) times half the squared difference to the previous sample, so that phases of
    /// different cost do not count as noise.
    pub(super) variance: f32,
    pub(super) previous: f32,
    /// What one step of a coarse clock in one sample adds to the estimate. Such a step may have been missed,
    /// or be the only one.
    pub(super) step: f32,
    /// The factor g(g-1)/2 of the previous sample.
    pub(super) previous_factor: f32,
}

impl Samples {
    /// Returns the square of the standard error of their ticks.
    #[inline(always)]
    pub(super) fn error_squared(&self) -> f32 {
        self.variance + self.step * self.step
    }
}

/// The estimated number and time of long calls that are not counted individually.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct LongCalls {
    pub(super) weight: f64,
    pub(super) ticks: f64,
    pub(super) variance: f32,
    /// The part of it that is that of the beats.
    pub(super) common: f32,
}

/// The estimated number and time of first calls of a start that are not counted individually.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct FirstCalls {
    pub(super) weight: f32,
    pub(super) ticks: f32,
}

/// The state of a timer that has chosen a gap.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Gaps {
    /// The number of calls that earlier executions made; 0 if it is not known.
    pub(super) known_calls: f64,
    /// The number of calls of the block that follow its timed one.
    pub(super) left: u32,
    /// The number of calls until the last timed one, without its upper half.
    pub(super) own_calls: u32,
    pub(super) detected_calls: u64,
    pub(super) detected_ticks: f64,
    pub(super) detected_variance: f32,
    /// The usual ticks from the last reading to a call of this node.
    pub(super) distance: f32,
    pub(super) samples: Samples,
    pub(super) long: LongCalls,
    pub(super) first: FirstCalls,
    pub(super) watch: Watch,
    /// The largest term of the variances of samples and long calls.
    pub(super) largest: f32,
    /// The usual ticks from one call to the next.
    pub(super) cycle: f32,
    /// The end of the last timed call.
    pub(super) own_reading: u64,
}
