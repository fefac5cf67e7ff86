//! Chooses the wrapper of a node.

use super::host::Host;
use super::kinds::mode::*;
use super::kinds::scope::*;
use super::kinds::{Accounting, Scope, Timed};

/// Returns whether such a wrapper counts calls instead of rows, if the node's caller reads each start to its
/// end.
pub fn counts_calls(timed: Timed, accounting: Accounting) -> bool {
    match accounting {
        Accounting::Leaf | Accounting::Switch => timed == Timed::Sampled,
        Accounting::FusedScan => matches!(timed, Timed::Sampled | Timed::Never),
        _ => false,
    }
}

/// Returns the wrapper for a node, whose caller can move the counters of `before`, and which can itself move
/// those of `after`. `is_drained` says that the caller reads each start of the node to its end, and calls
/// nothing else meanwhile.
pub fn method<H: Host>(
    timed: Timed,
    accounting: Accounting,
    before: Scope,
    after: Scope,
    is_drained: bool,
) -> H::Method {
    match timed {
        Timed::Never if accounting == Accounting::FusedScan => scan_method::<H, NEVER>(after),
        Timed::Never => plain_method::<H, NEVER>(accounting, after),
        Timed::Sampled => match accounting {
            Accounting::FusedScan => scan_method::<H, SAMPLED>(after),
            Accounting::Leaf if is_drained => call_method::<H, LEAF, true>(before, after),
            Accounting::Leaf => call_method::<H, LEAF, false>(before, after),
            Accounting::Switch if is_drained => call_method::<H, SWITCH, true>(before, after),
            Accounting::Switch => call_method::<H, SWITCH, false>(before, after),
            _ => plain_method::<H, SAMPLED>(accounting, after),
        },
        Timed::EveryTsc => plain_method::<H, EVERY_TSC>(accounting, after),
        Timed::Every => plain_method::<H, EVERY>(accounting, after),
    }
}

/// Returns a wrapper that checks all counters that can move in the statement.
fn plain_method<H: Host, const TIMED: u8>(accounting: Accounting, scope: Scope) -> H::Method {
    match accounting {
        // The end of every call must be timed, so a fused scan gets the usual wrapper. The fused aggregate
        // charges for it.
        Accounting::None | Accounting::FusedScan => H::call_method::<TIMED, NONE, ALL, ALL, false>(),
        Accounting::Leaf | Accounting::Switch if scope == Scope::All => {
            H::call_method::<TIMED, SWITCH, ALL, ALL, false>()
        }
        Accounting::Leaf | Accounting::Switch => H::call_method::<TIMED, SWITCH, READS, READS, false>(),
        Accounting::FusedAggregate => H::call_method::<TIMED, FUSED_AGGREGATE, ALL, ALL, false>(),
        Accounting::SubplanRoot => H::call_method::<TIMED, SUBPLAN_ROOT, ALL, ALL, false>(),
    }
}

/// Returns a wrapper that checks only what can move.
fn call_method<H: Host, const ACCOUNTING: u8, const IS_DRAINED: bool>(
    before: Scope,
    after: Scope,
) -> H::Method {
    match (before, after) {
        (Scope::All, _) | (_, Scope::All) => H::call_method::<SAMPLED, ACCOUNTING, ALL, ALL, IS_DRAINED>(),
        (Scope::Shared, Scope::Shared) => H::call_method::<SAMPLED, ACCOUNTING, SHARED, SHARED, IS_DRAINED>(),
        (_, Scope::Shared) => H::call_method::<SAMPLED, ACCOUNTING, READS, SHARED, IS_DRAINED>(),
        _ => H::call_method::<SAMPLED, ACCOUNTING, READS, READS, IS_DRAINED>(),
    }
}

fn scan_method<H: Host, const TIMED: u8>(scope: Scope) -> H::Method {
    match scope {
        Scope::All => H::scan_method::<TIMED, ALL>(),
        _ => H::scan_method::<TIMED, SHARED>(),
    }
}
