//! The numbers that EXPLAIN adds to the aliases of partitions: `orders_1`, `orders_2`.

use super::entries::for_each_entry;
use super::tree::Found;
use crate::pg::handles::{Handle, StartedQuery};
use pgrx::pg_sys::{self, Index, RTEKind, RangeTblEntry};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

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
    let used = (1..=entries).filter(|at| is_used[*at]);
    let named = used.filter_map(|at| Some((at, estate.entry(at as Index)?)));
    let named = named.filter(|(_, entry)| entry.rtekind != RTEKind::RTE_JOIN);
    let named: Vec<(usize, &[u8])> = named.map(|(at, entry)| (at, alias(entry))).collect();
    // The last number of each name. Partitions have the alias of their table, so there are few names.
    let mut last: FxHashMap<Cow<[u8]>, u32> = FxHashMap::default();
    let may_meet = named.iter().any(|(_, name)| has_number(name));
    let mut numbers = vec![0; entries + 1];
    for (at, name) in named {
        let Some(number) = last.get_mut(name) else {
            last.insert(name.into(), 0);
            continue;
        };
        *number += 1;
        numbers[at] = *number;
        if may_meet {
            let mut number = *number;
            let numbered = |number| Cow::from([name, format!("_{number}").as_bytes()].concat());
            while last.contains_key(&numbered(number)) {
                number += 1;
            }
            last.insert(numbered(number), 0);
            last.insert(name.into(), number);
            numbers[at] = number;
        }
    }
    numbers
}

/// Returns whether a name ends as one to which a number was added.
fn has_number(name: &[u8]) -> bool {
    let start = name.iter().rposition(|byte| *byte == b'_');
    let number = start.map_or(&[][..], |start| &name[start + 1..]);
    !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}
