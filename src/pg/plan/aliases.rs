//! The aliases that EXPLAIN shows: that of the statement, with a number if it was used before: `orders_1`.

use super::tree::Found;
use crate::pg::compat;
use crate::pg::handles::{Handle, PlanRef};
use crate::pg::server;
use pgrx::pg_sys::{self, EState, Index, NodeTag, RTEKind};
use rowsource_core::model::numbered;
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Returns the name of an entry of the range table without a number. Returns `None` if it has none. May
/// raise.
fn name<'q>(estate: Handle<'q, EState>, number: Index) -> Option<Cow<'q, [u8]>> {
    let entry = estate.entry(number)?;
    let of = |names: Option<Handle<'q, pg_sys::Alias>>| {
        let name = names.and_then(|names| names.string(|names| &names.aliasname));
        name.map(|name| Cow::Borrowed(name.to_bytes()))
    };
    if let Some(alias) = entry.follow(|entry| &entry.alias) {
        return of(Some(alias));
    }
    match entry.rtekind {
        RTEKind::RTE_JOIN => None,
        // It may have been renamed since a view was made of it.
        RTEKind::RTE_RELATION => match estate.relations().get(number as usize - 1).copied().flatten() {
            Some(relation) => Some(Cow::Borrowed(relation.name().to_bytes())),
            None => server::relation_alone(entry.relid.to_u32())
                .map(|name| Cow::Owned(server::to_database(&name))),
        },
        _ => of(entry.follow(|entry| &entry.eref)),
    }
}

/// Returns the alias of an entry with this number behind it. May raise.
pub fn alias(estate: Handle<EState>, entry: Index, number: u32) -> String {
    let name = name(estate, entry).unwrap_or_default();
    numbered(&server::from_database(&name), number)
}

/// Returns which entries of the range table EXPLAIN names for these nodes, from 1 on. As `ExplainPreScanNode`
/// in explain.c.
pub fn used(estate: Handle<EState>, found: &[Found]) -> Vec<bool> {
    let mut is_used = vec![false; estate.es_range_table_size as usize + 1];
    for place in found {
        for_each_named(place.plan_state.plan(), |entry| {
            if let Some(is_used) = is_used.get_mut(entry as usize) {
                *is_used = true;
            }
        });
    }
    is_used
}

/// Returns the entry that a node scans and whose alias EXPLAIN shows. Returns `None` for others, and for the
/// scans of other extensions.
pub fn scanned_entry(plan: PlanRef) -> Option<Index> {
    let is_scan = matches!(
        plan.tag(),
        NodeTag::T_SeqScan
            | NodeTag::T_SampleScan
            | NodeTag::T_IndexScan
            | NodeTag::T_IndexOnlyScan
            | NodeTag::T_BitmapHeapScan
            | NodeTag::T_TidScan
            | NodeTag::T_TidRangeScan
            | NodeTag::T_SubqueryScan
            | NodeTag::T_FunctionScan
            | NodeTag::T_TableFuncScan
            | NodeTag::T_ValuesScan
            | NodeTag::T_CteScan
            | NodeTag::T_NamedTuplestoreScan
            | NodeTag::T_WorkTableScan
    );
    is_scan.then(|| plan.cast::<pg_sys::Scan>().scanrelid)
}

/// Calls `each` with the entries that EXPLAIN names for a node.
fn for_each_named(plan: PlanRef, mut each: impl FnMut(Index)) {
    match plan.tag() {
        NodeTag::T_ForeignScan => {
            compat::foreign_entries(plan.cast()).for_each(each);
        }
        NodeTag::T_CustomScan => {
            let scan = plan.cast::<pg_sys::CustomScan>();
            scan.set(|scan| &scan.custom_relids).for_each(each);
        }
        NodeTag::T_Append => {
            let append = plan.cast::<pg_sys::Append>();
            append.set(|append| &append.apprelids).for_each(each);
        }
        NodeTag::T_MergeAppend => {
            let append = plan.cast::<pg_sys::MergeAppend>();
            append.set(|append| &append.apprelids).for_each(each);
        }
        NodeTag::T_ModifyTable => {
            let modify = plan.cast::<pg_sys::ModifyTable>();
            each(modify.nominalRelation);
            each(modify.exclRelRTI);
            compat::returned_entry(modify).into_iter().for_each(each);
        }
        NodeTag::T_Result => compat::replaced_entries(plan.cast()).for_each(each),
        _ => scanned_entry(plan).into_iter().for_each(each),
    }
}

/// Returns the number behind the alias of each entry that is used, from 1 on; 0 if there is none. As
/// `set_rtable_names` in ruleutils.c: an alias that was used before gets one. May raise.
pub fn numbers(estate: Handle<EState>, used: &[bool]) -> Vec<u32> {
    let named = (1..used.len()).filter(|at| used[*at]);
    let named = named.filter_map(|at| Some((at, name(estate, at as Index)?)));
    let named: Vec<(usize, Cow<[u8]>)> = named.collect();
    // The last number of each name. Partitions have the alias of their table, so there are few names.
    let mut last: FxHashMap<Cow<[u8]>, u32> = FxHashMap::default();
    let may_meet = named
        .iter()
        .any(|(_, name)| has_number(name) || name.len() > SHORT);
    let mut numbers = vec![0; used.len()];
    for (at, name) in named {
        let Some(number) = last.get_mut(&name) else {
            last.insert(name, 0);
            continue;
        };
        *number += 1;
        numbers[at] = *number;
        if may_meet {
            let mut number = *number;
            let text = server::from_database(&name);
            let numbered = |number| Cow::Owned(numbered(&text, number).into_bytes());
            while last.contains_key(&numbered(number)) {
                number += 1;
            }
            last.insert(numbered(number), 0);
            last.insert(name, number);
            numbers[at] = number;
        }
    }
    numbers
}

/// The most bytes of a name that is not cut when a number is added.
const SHORT: usize = 52;

/// Returns whether a name ends as one to which a number was added.
fn has_number(name: &[u8]) -> bool {
    let start = name.iter().rposition(|byte| *byte == b'_');
    let number = start.map_or(&[][..], |start| &name[start + 1..]);
    !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}
