//! Plans in the formats that other tools read.

mod call_plots;
mod frames;
mod html;
mod speedscope;

pub use call_plots::call_plots;
pub use frames::folded;
pub use html::Page;
pub use speedscope::speedscope;
