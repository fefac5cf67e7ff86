//! Plans in the formats that other tools read.

mod call_plots;
mod escape;
mod explain;
mod frames;
mod html;
mod misestimates;
mod speedscope;

pub use call_plots::call_plots;
pub use escape::{Syntax, in_ascii};
pub use explain::{ExplainFormat, Explained, Planned, Trigger, explain};
pub use frames::folded;
pub use html::Page;
pub use speedscope::speedscope;
