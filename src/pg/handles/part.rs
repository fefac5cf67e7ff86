//! Structs that are no nodes, and to which fields of nodes lead: what parallel workers reported, triggers,
//! compiled code, tuplestores.

use pgrx::pg_sys::{self, __IncompleteArrayField};

/// A struct that is no node, and to which fields of nodes lead.
///
/// # Safety
/// A field of a node that points to such a struct is null, or the struct is as live as the node.
pub unsafe trait Part {}

/// A struct that ends with an array, and that has the number of its members.
///
/// # Safety
/// There are as many members as the number says.
pub unsafe trait Counted: Part {
    type Member;

    /// Returns the array, and the number of its members.
    fn array(&self) -> (&__IncompleteArrayField<Self::Member>, i32);
}

/// Declares structs that end with an array of this name.
macro_rules! counted {
    ($($(#[$attribute:meta])* $name:ident: $array:ident, $member:ident;)+) => {
        $(
            $(#[$attribute])*
            // SAFETY: PostgreSQL allocates it in one piece with so many members, for as long as its node.
            unsafe impl $crate::pg::handles::part::Part for pgrx::pg_sys::$name {}
            $(#[$attribute])*
            // SAFETY: as above.
            unsafe impl $crate::pg::handles::part::Counted for pgrx::pg_sys::$name {
                type Member = pgrx::pg_sys::$member;

                fn array(&self) -> (&pgrx::pg_sys::__IncompleteArrayField<Self::Member>, i32) {
                    (&self.$array, self.num_workers)
                }
            }
        )+
    };
}
pub(in crate::pg) use counted;

counted! {
    SharedAggInfo: sinstrument, AggregateInstrumentation;
    SharedHashInfo: hinstrument, HashInstrumentation;
    SharedIncrementalSortInfo: sinfo, IncrementalSortInfo;
    SharedJitInstrumentation: jit_instr, JitInstrumentation;
    SharedMemoizeInfo: sinstrument, MemoizeInstrumentation;
    SharedSortInfo: sinstrument, TuplesortInstrumentation;
}

/// Declares structs that belong to the states of nodes, to the executor's state or to its relations.
macro_rules! parts {
    ($($name:ident)+) => {
        // SAFETY: PostgreSQL frees it with what it belongs to.
        $(unsafe impl Part for pg_sys::$name {})+
    };
}

parts! { HashInstrumentation HashJoinTableData JitContext JitInstrumentation TriggerDesc }
