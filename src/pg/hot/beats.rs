//! The session's wish for beats ([`rowsource_core::beat`]). The heart is the background worker: see
//! `ash::heart`.

use super::state::HOT;
use super::timing;

/// Wishes for beats, until the outermost statement ends. Measures the clock's own cost again now and then.
#[inline(always)]
pub fn wish() {
    if !HOT.beats.has_wish() {
        begin();
    }
    timing::calibrate();
}

#[cold]
#[inline(never)]
fn begin() {
    HOT.beats.wish();
    timing::begin_beats();
}

#[cold]
#[inline(never)]
fn finish() {
    HOT.beats.end_wish();
    timing::discard_beats();
}

/// Wishes for no more beats. This is called whenever the outermost statement is left, also after an error.
#[inline(always)]
pub fn end() {
    if HOT.beats.is_wishing() {
        finish();
    }
}
