//! Plans in the formats that other tools read.

mod frames;
mod html;
mod speedscope;

pub use frames::folded;
pub use html::{Page, buckets};
pub use speedscope::speedscope;
