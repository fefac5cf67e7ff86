//! Remembers which statements have the hint `gather_plan_statistics`, so that their texts are searched once.
//! At level basic this is most of what a prepared statement would cost.

use super::parsed;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::handles::QueryRef;
use crate::pg::server::SourceText;
use crate::session::TextId;
use rowsource_core::hint;
use std::cell::Cell;

/// How many statements are remembered. One takes the place of another if their plans lie at addresses with
/// the same bits.
const PLACES: usize = 16;
/// PostgreSQL's plans of two statements are at least this many bytes apart, as a power of two.
const APART: u32 = 7;

/// A text that was searched, and whether it has the hint.
type Searched = Cell<(Option<TextId>, bool)>;

/// The texts that were searched last.
static SEARCHED: BackendLocal<[Searched; PLACES]> =
    BackendLocal::new([const { Cell::new((None, false)) }; PLACES]);

/// Returns whether a query's text has the hint.
#[inline]
pub fn is_hinted(query: QueryRef) -> bool {
    let text = parsed::text_id(query);
    let searched = &SEARCHED.inner()[(text.plan >> APART) % PLACES];
    let (known, is_hinted) = searched.get();
    if known == Some(text) {
        return is_hinted;
    }
    let is_hinted = search(query);
    searched.set((Some(text), is_hinted));
    is_hinted
}

/// Searches a query's text for the hint.
#[inline(never)]
fn search(query: QueryRef) -> bool {
    hint::present(SourceText::of(query).commented())
}
