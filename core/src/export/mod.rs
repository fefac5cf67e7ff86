//! Plans in the formats that other tools read.

mod frames;
mod speedscope;

pub use frames::folded;
pub use speedscope::speedscope;
