//! Estimated time compared with true time: statements that burn a known time, simulated plans, which are also
//! sampled at fixed intervals, and narrow scans, whose true time samples of the stack tell.

mod burned;
mod frequencies;
mod narrow;
mod simulated;

use crate::measure::context::ExperimentContext;

/// Statements that burn a known time, and simulated plans.
pub fn run(context: &mut ExperimentContext) {
    context.begin_part(0.0, 0.1);
    simulated::run(context);
    context.begin_part(0.1, 0.6);
    simulated::honesty(context);
    context.begin_part(0.6, 1.0);
    let above = burned::run(context);
    assert_none_above(context, above);
}

/// Narrow scans.
pub fn run_narrow(context: &mut ExperimentContext) {
    let above = narrow::run(context);
    assert_none_above(context, above);
}

fn assert_none_above(context: &mut ExperimentContext, nodes: usize) {
    context.assert_exact(
        "nodes above their parents, among all that were measured on a server",
        0,
        nodes,
        nodes == 0,
    );
}
