//! What tells the planner to make a plan again. From 19 on, pg_plan_advice puts it into plans that it sees
//! while its setting always_store_advice_details is on.

use crate::pg::handles::PlannedStmtRef;

/// Whether plans may have it.
pub const HAS_PLAN_ADVICE: bool = cfg!(pg_ge_19);

/// A longer one is not kept: a part of it is of no use.
#[cfg(pg_ge_19)]
const MAX_BYTES: usize = 4_096;

/// Returns the advice in a plan.
#[cfg(pg_ge_19)]
pub fn plan_advice(plan: PlannedStmtRef) -> Option<Box<str>> {
    use crate::pg::handles::{Handle, ListOf};
    use crate::pg::server;
    use pgrx::pg_sys::{self, DefElem, Node};

    // Other extensions may put anything beside it.
    fn named<'q>(list: ListOf<'q, Node>, name: &[u8]) -> Option<Handle<'q, Node>> {
        let mut elements = list.iter().filter_map(Handle::downcast::<DefElem>);
        let is_named = |element: &Handle<'q, DefElem>| {
            let found = element.string(|element| &element.defname);
            found.is_some_and(|found| found.to_bytes() == name)
        };
        elements.find(is_named)?.follow(|element| &element.arg)
    }
    let details = named(plan.list(|plan| &plan.extension_state), b"pg_plan_advice")?;
    let details = ListOf::of(details.downcast()?);
    let advice = named(details, b"advice_string")?.downcast::<pg_sys::String>()?;
    let advice = advice.string(|advice| &advice.sval)?.to_bytes();
    let is_kept = !advice.is_empty() && advice.len() <= MAX_BYTES;
    is_kept.then(|| server::from_database(advice).trim_end().into())
}

/// Returns nothing: PostgreSQL has none.
#[cfg(not(pg_ge_19))]
pub fn plan_advice(_plan: PlannedStmtRef) -> Option<Box<str>> {
    None
}
