//! Estimated against true time: hostile statements that burn a known time, narrow scans run in parts, and simulated
//! plans, where sampling at fixed intervals stands beside.

mod burned;
mod narrow;
mod simulated;

use crate::lab::Lab;

/// The frequencies compared.
const SAMPFREQS: [u32; 3] = [16, 128, 1024];

pub fn run(lab: &mut Lab) {
    lab.part(0.0, 0.15);
    simulated::run(lab);
    lab.part(0.15, 0.75);
    let burned = burned::run(lab);
    lab.part(0.75, 1.0);
    let narrow = narrow::run(lab);
    let found = burned + narrow;
    lab.must(
        "nodes above their parents, of all that were measured on a server",
        0,
        found,
        found == 0,
    );
}
