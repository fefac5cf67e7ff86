//! Counts how deep the running code is nested in statements, procedures and DO blocks.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::beats;
use std::cell::Cell;

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static DEPTH: BackendLocal<Cell<u32>> = BackendLocal::new(Cell::new(0));

/// Returns the current nesting level; 0 is the top level.
pub fn depth() -> u32 {
    DEPTH.get()
}

/// Enters one more level.
pub fn enter() {
    DEPTH.set(DEPTH.get() + 1);
}

/// Sets the level.
pub fn set(depth: u32) {
    DEPTH.set(depth);
}

/// Leaves the innermost level. Wishes for no more beats if that was the last one.
pub fn leave() {
    DEPTH.set(DEPTH.get() - 1);
    if DEPTH.get() == 0 {
        beats::end();
    }
}
