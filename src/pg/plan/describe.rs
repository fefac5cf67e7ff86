//! Describes a plan with PostgreSQL's EXPLAIN (FORMAT JSON), once, not at each execution.
//!
//! If constants are kept, a plan that the session knows is described again only if its statement's text has
//! changed, because then its literals may have changed too, and only if the session's budget allows it.
//! Describing may take 0.2 % of a session's time. A session can save time for a few hundred descriptions. So
//! an interactive user or a script sees the literals of the last execution. For a connection that sends
//! thousands of statements a second, the cost is negligible, and the display says that the literals are
//! older.
//!
//! Unless the setting `keep_constants` is on, symbols like `$1` replace all constants, in the statement's
//! text and in the conditions. Then a description is right for all executions, and a known plan is described
//! again only if a table, an index or a column has another name. The session looks for that when it has heard
//! that a catalog was changed.
//!
//! The cost and the size of a description are bounded for any statement. `printing` makes EXPLAIN shorten
//! long constants. If the conditions are still too long, the plan is described without them (`named`).

mod constants;
mod explained;
mod foreign;
mod modifiers;
mod named;
mod only_first;
mod parsed;
mod planid;
mod printing;
mod relations;
mod search_path;
mod symbols;
mod types;
pub mod unended;

use super::fold::Shown;
use super::reading;
use super::tree::Found;
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat::{self, jumble};
use crate::pg::handles::{Handle, PlanRef, StartedQuery};
use crate::pg::server::contained::{Unlocked, contained_or_cancelled};
use crate::pg::server::{self, memory};
use explained::{explained, in_scratch};
use pgrx::pg_sys;
use rowsource_core::clock::system;
use rowsource_core::model::{LazyDescription, MAX_UNDECODED, PlanDescription, PlanIds, PlanKey, Unfolding};
use rowsource_core::normalise::{Constants, Place, Text, block, fingerprint, replaced};
use rowsource_core::plan::{ExplainedPlan, PlanNode};
use rustc_hash::FxBuildHasher;
use std::borrow::Cow;
use std::cell::Cell;
use std::hash::BuildHasher;
use std::rc::Rc;
use symbols::Symbols;
use unended::InProgress;

pub use parsed::hide_foreign;
pub use search_path::Unasked;

/// The maximal budget of a session in nanoseconds, which is also the initial one.
const MAX_BUDGET: i64 = 10_000_000;
/// A session may spend one of this many nanoseconds on describing.
const SHARE: u64 = 500;

/// The time that a session may still spend on describing known plans again.
#[derive(Clone, Copy)]
struct Budget {
    /// Nanoseconds. Negative after a description that took longer than the budget allowed.
    left: i64,
    /// When it was last increased, in nanoseconds.
    at: u64,
}

impl Budget {
    /// Increases the budget by the time since the last call. Returns whether any budget is left.
    fn allows(now: u64) -> bool {
        let Budget { left, at } = BUDGET.get();
        let earned = i64::try_from(now.saturating_sub(at) / SHARE).unwrap_or(MAX_BUDGET);
        let left = left.saturating_add(earned).min(MAX_BUDGET);
        BUDGET.set(Budget { left, at: now });
        left > 0
    }

    /// Subtracts the nanoseconds that a description took.
    fn pay(spent: u64) {
        let spent = i64::try_from(spent).unwrap_or(i64::MAX);
        let Budget { left, at } = BUDGET.get();
        BUDGET.set(Budget {
            left: left.saturating_sub(spent),
            at,
        });
    }
}

static BUDGET: BackendLocal<Cell<Budget>> = BackendLocal::new(Cell::new(Budget {
    left: MAX_BUDGET,
    at: 0,
}));

/// Returns whether the session may describe a known plan again now.
pub fn may_describe_again() -> bool {
    Budget::allows(system::monotonic())
}

/// Does what is a part of describing, and is paid for as that.
pub fn paid<T>(work: impl FnOnce() -> T) -> T {
    let start = system::monotonic();
    let result = work();
    Budget::pay(system::monotonic().saturating_sub(start));
    result
}

/// The constants that the parser found in the first text of a queryid.
#[derive(Clone)]
pub struct ParsedConstants {
    pub constants: Rc<Constants>,
    /// The hash of that text.
    text: u64,
}

impl ParsedConstants {
    /// Makes them from the constants that were found in a text.
    pub fn new(constants: Constants, text: &[u8]) -> Self {
        ParsedConstants {
            constants: Rc::new(constants),
            text: FxBuildHasher.hash_one(text),
        }
    }

    /// Returns whether they were found in this text.
    fn are_of(&self, text: &[u8]) -> bool {
        self.text == FxBuildHasher.hash_one(text)
    }
}

/// The text of a statement, and where its constants are.
pub struct StatementText<'a> {
    /// The text without spaces at its ends, in the server's encoding. A long text is cut.
    pub bytes: Cow<'a, [u8]>,
    /// Where the text begins in its query string. `None` if the statement was not made from it.
    pub location: Option<usize>,
    /// The constants that the parser found, if that is known.
    pub constants: Option<ParsedConstants>,
}

impl StatementText<'_> {
    /// Returns the text in the form that `core` expects.
    pub fn as_text(&self) -> Text<'_> {
        Text {
            bytes: &self.bytes,
            backslashes: jumble::backslashes_escape(),
        }
    }

    /// Returns the constants, and their places in the text. If the parser's are not known, all literals
    /// count. Returns `None` if there is no memory.
    fn constants(&self) -> Option<(Rc<Constants>, Vec<Place>)> {
        let text = self.as_text();
        let parsed = self.constants.as_ref().and_then(|parsed| {
            let places = parsed.constants.places(text)?;
            Some((parsed.constants.clone(), places))
        });
        parsed.or_else(|| {
            let constants = Constants::literals(text)?;
            let places = constants.places(text)?;
            Some((Rc::new(constants), places))
        })
    }

    /// Returns whether a description was made of a text that differs only in the values of its constants.
    fn is_described_by(&self, description: &LazyDescription) -> bool {
        match &self.constants {
            Some(parsed) if parsed.are_of(&self.bytes) => description.has_constants(&parsed.constants),
            _ => self
                .constants()
                .is_some_and(|(constants, _)| description.has_constants(&constants)),
        }
    }
}

/// Returns the description of the plan of a started statement with this key, and whether its literals are
/// those of an earlier execution. Creates the description unless this session knows a usable one, or `stored`
/// returns the one that another session has made; `before` returns that of the plan with a planid or, if
/// there is none, of the plan before. Of a known one, the second value is how many changes of catalogs the
/// session had heard of when its names were last compared. Returns `None` if there is no memory for it.
///
/// # Safety
/// As for [`describe`].
#[inline(never)]
pub unsafe fn description<'a, 'q>(
    query: StartedQuery<'q>,
    key: &PlanKey,
    text: impl FnOnce() -> StatementText<'a>,
    known: Option<(&Rc<LazyDescription>, &Cell<u64>)>,
    stored: impl FnOnce() -> Option<LazyDescription>,
    before: impl FnOnce(i64) -> Option<LazyDescription>,
    shown: &Shown<'_, 'q>,
) -> Option<(Rc<LazyDescription>, bool)> {
    // SAFETY: the caller promises the same.
    let describe = |text: &StatementText, before| unsafe { describe(query, key, text, before, shown) };
    let has_memory = || memory::has_headroom(shown.nodes()) && shown.is_whole();
    let may_describe = || Budget::allows(system::monotonic()) && has_memory();
    if let Some((known, compared_at)) = known {
        if is_of_all(known) {
            if has_names_of_today(known, compared_at, shown) || !may_describe() {
                return Some((known.clone(), false));
            }
            let heard = server::catalog_changes();
            let description = describe(&text(), before)?;
            compared_at.set(heard);
            return Some((Rc::new(description), false));
        }
        // Without constants, a description is not made again for other literals. It is made because the
        // setting changed.
        if guc::keep_constants() {
            let text = text();
            if is_of(known, query, &text) {
                return Some((known.clone(), false));
            }
            if !may_describe() {
                return Some((known.clone(), true));
            }
            return describe(&text, before).map(|description| (Rc::new(description), false));
        }
    }
    let stored = match known {
        None if !guc::keep_constants() && (shown.nodes() <= MAX_UNDECODED || has_memory()) => stored(),
        _ => None,
    };
    let text = text();
    if let Some(usable) = stored.and_then(|stored| usable(stored, &text, shown)) {
        return Some((Rc::new(usable), false));
    }
    if !has_memory() {
        return None;
    }
    Some((Rc::new(describe(&text, before)?), false))
}

/// Returns whether a plan's description is right for all executions.
#[inline(always)]
pub fn is_of_all(description: &LazyDescription) -> bool {
    description.is_normalised() && !guc::keep_constants()
}

/// Returns whether a description has the names that relations and columns have today. `compared_at` is how
/// many changes of catalogs the session had heard of when they were last compared. That of a folded plan must
/// be looked at again after each change.
#[inline(always)]
pub fn has_current_names(description: &LazyDescription, compared_at: &Cell<u64>, found: &[Found]) -> bool {
    compared_at.get() == server::catalog_changes()
        || description.fold().is_none() && compare_names(description, compared_at, &Shown::of(found, None))
}

/// Returns the subplans that the expressions of a node call.
pub fn subplans(plan: PlanRef<'_>) -> Vec<Handle<'_, pg_sys::SubPlan>> {
    printing::subplans(plan)
}

/// Does what [`has_current_names`] does for the nodes as they are described.
#[inline(always)]
fn has_names_of_today(description: &LazyDescription, compared_at: &Cell<u64>, shown: &Shown) -> bool {
    compared_at.get() == server::catalog_changes() || compare_names(description, compared_at, shown)
}

/// Compares the names of a description with those of today.
#[cold]
#[inline(never)]
fn compare_names(description: &LazyDescription, compared_at: &Cell<u64>, shown: &Shown) -> bool {
    let heard = server::catalog_changes();
    let names = relations::names(shown);
    let is_same = names.is_some_and(|names| description.has_names(names));
    if is_same {
        compared_at.set(heard);
    }
    is_same
}

/// Returns whether a plan's description is right for an execution, including the literals.
pub fn is_of(description: &LazyDescription, query: StartedQuery, text: &StatementText) -> bool {
    if !guc::keep_constants() {
        return false;
    }
    let description = description.decoded();
    (query.params.is_null() || description.generic) && description.is_of(&text.bytes)
}

/// Returns a description that the store has of this plan, with what is known of its nodes today. Returns
/// `None` if its relations or columns have other names now, or if the text has other words: names that were
/// changed, aliases, or another statement around the query.
fn usable(stored: LazyDescription, text: &StatementText, shown: &Shown) -> Option<LazyDescription> {
    if stored.nodes() != shown.nodes()
        || !stored.has_names(relations::names(shown)?)
        || !text.is_described_by(&stored)
    {
        return None;
    }
    Some(stored.planned(shown.costs().into_iter(), relations::extents(shown)))
}

/// Describes the plan, and subtracts the time from the budget. Returns `None` if there is no memory.
///
/// # Safety
/// * The caller must allow errors: those that must reach the user are raised again.
/// * No reference to any part of the query may be in use.
#[inline(never)]
unsafe fn describe<'q>(
    query: StartedQuery<'q>,
    key: &PlanKey,
    text: &StatementText,
    before: impl FnOnce(i64) -> Option<LazyDescription>,
    shown: &Shown<'_, 'q>,
) -> Option<LazyDescription> {
    let found = shown.found();
    let start = system::monotonic();
    let constants = if guc::keep_constants() {
        None
    } else {
        Some(text.constants()?)
    };
    let symbols = constants.as_ref().map(|(constants, places)| Symbols {
        location: text.location,
        places,
        text: &text.bytes,
        next: constants.next_number(),
        lists: Vec::new(),
    });
    let hash = FxBuildHasher.hash_one(key);
    let is_unended = unended::contains(hash);
    let in_progress = InProgress(hash);
    let printed = match is_unended {
        true => None,
        // SAFETY: the caller promises the same.
        false => unsafe { explained(query, shown, symbols) },
    };
    let mut plan = match printed {
        Some(plan) => ExplainedPlan {
            names: relations::names(shown),
            ..plan
        },
        None => named::plan(found),
    };
    // SAFETY: a statement is set up, so the session holds no lock.
    let unlocked = &mut unsafe { Unlocked::promised() };
    contained_or_cancelled(unlocked, || {
        relations::add(found, &mut plan.nodes);
        relations::name_tables(shown, &mut plan.nodes);
        Some(())
    });
    let hidden = usize::from(found[0].hidden);
    let stopped_early = reading::stopped_early(found);
    for (node, (may_stop_early, stops_with_reader)) in
        plan.nodes.iter_mut().zip(stopped_early.into_iter().skip(hidden))
    {
        node.may_stop_early = may_stop_early;
        node.stops_with_reader = stops_with_reader;
    }
    plan.nodes = shown.with_made(plan.nodes);
    Budget::pay(system::monotonic().saturating_sub(start));
    let kept = constants.map(|(constants, places)| {
        let kept = replaced(&text.bytes, &places, server::MAX_SHOWN_TEXT);
        (kept, constants)
    });
    let extents = relations::extents(shown);
    let ids = ids(unlocked, query, key, text, shown);
    let mut description = described(text, kept, plan, ids);
    if let Some(before) = before(ids.planid) {
        let before = before.decoded();
        description.gone_indexes = match before.ids.planid == ids.planid {
            true => before.gone_indexes.clone(),
            false => contained_or_cancelled(unlocked, || Some(relations::gone_indexes(&before.nodes)))
                .unwrap_or_default(),
        };
    }
    if compat::HAS_PLAN_ADVICE {
        description.advice = contained_or_cancelled(unlocked, || compat::plan_advice(query.plan()));
    }
    let description = LazyDescription::new(description, extents);
    in_progress.end();
    Some(description)
}

/// Returns the numbers of a plan and of its statement. If a catalog cannot be read, the planid is the number
/// that sessions know the plan by.
fn ids(
    unlocked: &mut Unlocked,
    query: StartedQuery,
    key: &PlanKey,
    text: &StatementText,
    shown: &Shown,
) -> PlanIds {
    let planid = in_scratch(|| contained_or_cancelled(unlocked, || Some(planid::planid(query, shown))));
    PlanIds {
        planid: planid.unwrap_or(key.planid),
        by_oids: key.planid,
        textid: fingerprint(text.as_text()),
        assigned: compat::plan_id(&query.plan()),
    }
}

/// Returns the description of an execution whose plan is described folded. When it is decoded, its size is
/// added to `decoded_bytes`.
pub fn unfolded(
    description: Rc<LazyDescription>,
    unfolding: Rc<Unfolding>,
    found: &[Found],
    decoded_bytes: Rc<Cell<usize>>,
) -> Rc<LazyDescription> {
    let all = Shown::of(found, None);
    let (costs, extents) = (all.costs(), relations::extents(&all));
    let name_of = server::relation_alone;
    Rc::new(LazyDescription::unfolded(
        description,
        unfolding,
        costs,
        extents,
        name_of,
        decoded_bytes,
    ))
}

/// Returns the nodes of a started statement's plan, as they are described.
///
/// # Safety
/// As for [`describe`].
pub unsafe fn nodes<'q>(query: StartedQuery<'q>, found: &[Found<'q>]) -> Vec<PlanNode> {
    // SAFETY: the caller promises the same.
    let plan = unsafe { explained(query, &Shown::of(found, None), None) };
    plan.unwrap_or_else(|| named::plan(found)).nodes
}

/// Describes a utility statement, as one node with this name. Returns `None` if there is no memory.
pub fn utility(text: &StatementText, command: &str, planid: i64, is_block: bool) -> Option<LazyDescription> {
    let ids = PlanIds {
        planid,
        by_oids: planid,
        textid: fingerprint(text.as_text()),
        assigned: 0,
    };
    let plan = ExplainedPlan {
        nodes: vec![PlanNode {
            operation: command.to_owned(),
            may_stop_early: true,
            ..PlanNode::default()
        }],
        ..ExplainedPlan::default()
    };
    if guc::keep_constants() {
        return Some(LazyDescription::new(described(text, None, plan, ids), Vec::new()));
    }
    let block = is_block
        .then(|| block(text.as_text(), server::MAX_SHOWN_TEXT))
        .flatten();
    let kept = match block {
        Some(kept) => (kept, Rc::default()),
        None => {
            let (constants, places) = text.constants()?;
            (replaced(&text.bytes, &places, server::MAX_SHOWN_TEXT), constants)
        }
    };
    Some(LazyDescription::new(
        described(text, Some(kept), plan, ids),
        Vec::new(),
    ))
}

/// A text without constants, whether it was cut, and what is known of the constants.
type Kept = ((Vec<u8>, bool), Rc<Constants>);

/// Returns the description of a plan. `kept` is the text that is stored, unless constants are kept.
fn described(text: &StatementText, kept: Option<Kept>, plan: ExplainedPlan, ids: PlanIds) -> PlanDescription {
    let (kept, constants) = kept.unzip();
    let (kept, is_cut) = match kept {
        Some((kept, is_cut)) => (Cow::Owned(kept), is_cut),
        None => (Cow::Borrowed(&*text.bytes), false),
    };
    let (shown, is_cut) = shown(&kept, is_cut);
    let mut description = match constants {
        Some(constants) => PlanDescription::normalised(shown, is_cut, plan, Rc::unwrap_or_clone(constants)),
        None => PlanDescription::new(&text.bytes, shown, is_cut, plan),
    };
    description.ids = ids;
    description
}

/// Returns the text that is stored, and whether it is cut.
fn shown(kept: &[u8], is_cut: bool) -> (String, bool) {
    let clipped = server::first_bytes(kept, server::MAX_SHOWN_TEXT);
    let is_cut = is_cut || clipped.len() < kept.len();
    let mark = if is_cut { "..." } else { "" };
    // It is allocated in one piece, because a text that grows leaves holes in the heap.
    ([&server::from_database(clipped), mark].concat(), is_cut)
}
