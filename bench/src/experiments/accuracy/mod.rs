//! Estimated time compared with true time: statements that burn a known time, narrow scans that run in parts, and
//! simulated plans, which are also sampled at fixed intervals.

mod burned;
mod frequencies;
mod narrow;
mod simulated;

use crate::measure::context::ExperimentContext;

pub fn run(context: &mut ExperimentContext) {
    context.begin_part(0.0, 0.15);
    simulated::run(context);
    context.begin_part(0.15, 0.75);
    let burned = burned::run(context);
    context.begin_part(0.75, 1.0);
    let narrow = narrow::run(context);
    let found = burned + narrow;
    context.assert_exact(
        "nodes above their parents, among all that were measured on a server",
        0,
        found,
        found == 0,
    );
}
