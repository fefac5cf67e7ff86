//! The numbers that EXPLAIN adds to the aliases of partitions: `orders_1`, `orders_2`.

use super::entries::for_each_entry;
use super::tree::Found;
use crate::pg::handles::{Handle, StartedQuery};
use pgrx::pg_sys::{self, Index, RTEKind, RangeTblEntry};
use rustc_hash::FxHashMap;

/// Returns the name of an entry of the range table in the statement.
pub fn alias<'q>(entry: Handle<'q, RangeTblEntry>) -> &'q [u8] {
    let names = entry.follow(|entry| &entry.eref);
    let name = names.and_then(|names| names.string(|names| &names.aliasname));
    name.map_or(b"", |name| name.to_bytes())
}

/// Returns the number behind the alias of each entry of the range table, from 1 on; 0 if there is none. As
/// `select_rtable_names_for_explain` in ruleutils.c: an alias that was used before gets one.
pub fn numbers(query: StartedQuery, found: &[Found]) -> Vec<u32> {
    let estate = query.estate();
    let entries = estate.es_range_table_size as usize;
    let mut is_used = vec![false; entries + 1];
    let mut use_entry = |entry: Index| {
        if let Some(is_used) = is_used.get_mut(entry as usize) {
            *is_used = true;
        }
    };
    for place in found {
        let plan = place.plan_state.plan();
        for_each_entry(plan, &mut use_entry);
        if let Some(modify) = plan.downcast::<pg_sys::ModifyTable>() {
            use_entry(modify.nominalRelation);
            use_entry(modify.exclRelRTI);
        }
    }
    let mut numbers = vec![0; entries + 1];
    // The last number of each name.
    let mut last: FxHashMap<Vec<u8>, u32> = FxHashMap::default();
    for at in (1..=entries).filter(|at| is_used[*at]) {
        let Some(entry) = estate.entry(at as Index) else {
            continue;
        };
        if entry.rtekind == RTEKind::RTE_JOIN {
            continue;
        }
        let name = alias(entry);
        let Some(mut number) = last.get(name).copied() else {
            last.insert(name.to_vec(), 0);
            continue;
        };
        loop {
            number += 1;
            let with_number = [name, format!("_{number}").as_bytes()].concat();
            if last.insert(with_number, 0).is_none() {
                break;
            }
        }
        last.insert(name.to_vec(), number);
        numbers[at] = number;
    }
    numbers
}
