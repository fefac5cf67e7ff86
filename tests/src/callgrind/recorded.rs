//! The recorded instructions.

use super::{CALLS, SHORT};

/// The recorded instructions that the library adds. The counts may fall: then record the new values here.
pub struct Recorded {
    pub major: i32,
    /// The [`CALLS`].
    pub calls: [f64; CALLS.len()],
    /// The [`SHORT`] statements. CI counts them on 15 and on the newest major.
    pub statements: Option<[f64; SHORT.len()]>,
}

pub const RECORDED: &[Recorded] = &[
    Recorded {
        major: 15,
        calls: [12.5, 23.1, 55.0],
        statements: Some([2_510.0, 2_540.0, 2_720.0, 4_090.0, 4_730.0, 580.0]),
    },
    Recorded {
        major: 17,
        calls: [13.5, 24.2, 56.5],
        statements: Some([2_410.0, 2_430.0, 2_570.0, 3_940.0, 4_500.0, 490.0]),
    },
    Recorded {
        major: 18,
        calls: [13.5, 24.2, 56.5],
        statements: Some([2_400.0, 2_430.0, 2_600.0, 3_940.0, 4_510.0, 500.0]),
    },
    Recorded {
        major: 19,
        calls: [12.7, 23.2, 55.4],
        statements: Some([2_620.0, 2_640.0, 2_810.0, 4_240.0, 5_030.0, 580.0]),
    },
];

/// Instructions may be this many times the recorded ones. Runs of one build differ by 1 %, alone or beside
/// other work.
const MARGIN: f64 = 1.03;
/// Those of a statement may always be this many more. What it costs differs by up to 90 from session to
/// session, with the library and without it: now and then, one of many statements prunes a page of a catalog.
const MARGIN_OF_STATEMENTS: f64 = 140.0;

/// Returns the recorded instructions of a major. If there are none, only the design's budget holds.
pub fn recorded(major: i32) -> Option<&'static Recorded> {
    RECORDED.iter().find(|recorded| recorded.major == major)
}

/// Returns a message if more instructions of a call were counted than recorded. Prints one if fewer were
/// counted.
pub fn call_above_recorded(what: &str, counted: f64, recorded: Option<f64>) -> Option<String> {
    above_recorded(what, counted, recorded?, 0.0)
}

/// Returns a message if more instructions of a statement were counted than recorded. Prints one if fewer were
/// counted.
pub fn statement_above_recorded(what: &str, counted: f64, recorded: Option<f64>) -> Option<String> {
    above_recorded(what, counted, recorded?, MARGIN_OF_STATEMENTS)
}

fn above_recorded(what: &str, counted: f64, recorded: f64, margin: f64) -> Option<String> {
    let margin = margin.max(recorded * (MARGIN - 1.0));
    if counted < recorded - margin {
        println!("{what}: {counted:.1} instructions, {recorded} recorded: record the new value");
    }
    (counted > recorded + margin).then(|| format!("{what}: {counted:.1} instructions, {recorded} recorded"))
}
