//! Has EXPLAIN print a folded plan: of partitions that are read in the same way, it sees only the first.

use crate::pg::handles::{Handle, PlanRef, PlannedStmtRef, StartedQuery};
use crate::pg::plan::entries::for_each_entry;
use crate::pg::plan::fold::Shown;
use crate::pg::plan::pruned;
use pgrx::pg_sys::{self, Alias, Index, List, ListCell, NodeTag, PlanState, RTEKind, RangeTblEntry};

/// While this lives, each Append has only the first of the nodes that are folded, and the range table has no
/// other partitions. EXPLAIN would open each of them, for the names of its columns. Nodes that change
/// partitions change none, because EXPLAIN would name all of them.
pub struct OnlyFirst<'q> {
    plan: PlannedStmtRef<'q>,
    table: Option<Table>,
    /// The range table as it was.
    before: *mut List,
    appends: Vec<Members>,
    /// How many tables a node changes, and where that is.
    changed: Vec<(*mut i32, i32)>,
}

/// A range table in which what is not printed is one entry without columns.
struct Table {
    list: Box<List>,
    _cells: Vec<ListCell>,
    _hidden: Box<(RangeTblEntry, Alias)>,
}

/// The members of an Append, and what they were.
struct Members {
    members: *mut *mut *mut PlanState,
    count: *mut i32,
    before: (*mut *mut PlanState, i32),
    first: Vec<*mut PlanState>,
}

impl<'q> OnlyFirst<'q> {
    /// Begins that.
    ///
    /// # Safety
    /// Until the result is dropped, which must happen, nothing but EXPLAIN may use the query.
    pub unsafe fn set(query: StartedQuery<'q>, shown: &Shown<'_, 'q>) -> OnlyFirst<'q> {
        let plan = query.plan();
        let mut changed = OnlyFirst {
            plan,
            table: None,
            before: plan.rtable,
            appends: Vec::new(),
            changed: Vec::new(),
        };
        if shown.fold.is_none() {
            return changed;
        }
        changed.table = Table::of(query, shown);
        changed.appends = (0..shown.found().len())
            .filter_map(|at| Members::of(shown, at))
            .collect();
        let states = shown.found().iter().map(|place| place.plan_state);
        let modify = states.filter_map(|state| {
            let modify = state.downcast::<pg_sys::ModifyTableState>()?;
            let nominal = state.plan().cast::<pg_sys::ModifyTable>().nominalRelation;
            let mut tables = modify.tables();
            let is_named = tables.any(|table| table.ri_RangeTableIndex != nominal);
            is_named.then(|| (modify.part(|modify| &modify.mt_nrels).as_ptr(), modify.mt_nrels))
        });
        changed.changed = modify.collect();
        // SAFETY: the plan and its states are live. Nothing else uses them, by the caller's promise, and what
        // they point to now lives as long as `changed`, which changes them back.
        unsafe {
            if let Some(table) = &mut changed.table {
                (*plan.as_ptr()).rtable = &raw mut *table.list;
            }
            for append in &mut changed.appends {
                *append.members = append.first.as_mut_ptr();
                *append.count = append.first.len() as i32;
            }
            for (place, _) in &changed.changed {
                **place = 0;
            }
        }
        changed
    }
}

impl Drop for OnlyFirst<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `set`.
        unsafe {
            (*self.plan.as_ptr()).rtable = self.before;
            for append in &self.appends {
                (*append.members, *append.count) = append.before;
            }
            for (place, count) in &self.changed {
                **place = *count;
            }
        }
    }
}

impl Table {
    /// Returns which entries of the range table EXPLAIN looks at, from 1 on.
    fn printed(query: StartedQuery, shown: &Shown) -> Vec<bool> {
        let (plan, entries) = (query.plan(), query.estate().es_range_table_size);
        let mut is_printed = vec![false; entries as usize + 1];
        let mut print = |entry: Index| {
            if let Some(is_printed) = is_printed.get_mut(entry as usize) {
                *is_printed = true;
            }
        };
        for plan in shown.found().iter().map(|place| place.plan_state.plan()) {
            if let Some(modify) = plan.downcast::<pg_sys::ModifyTable>() {
                print(modify.nominalRelation);
                print(modify.exclRelRTI);
                modify
                    .integers(|modify| &modify.resultRelations)
                    .take(1)
                    .for_each(|entry| print(*entry as Index));
            }
            if !matches!(plan.tag(), NodeTag::T_Append | NodeTag::T_MergeAppend) {
                for_each_entry(plan, &mut print);
                continue;
            }
            // EXPLAIN prints the columns of its first input, which may have been pruned, for its own.
            let mut below: Vec<PlanRef> = pruned::first_input(plan).into_iter().collect();
            while let Some(plan) = below.pop() {
                match pruned::first_input(plan) {
                    Some(first) => below.push(first),
                    None => {
                        for_each_entry(plan, &mut print);
                        below.extend(pruned::inputs(plan));
                    }
                }
            }
        }
        // It looks for the table of a partition from one to the next.
        let children = plan.list::<pg_sys::AppendRelInfo>(|plan| &plan.appendRelations);
        let parents: Vec<(Index, Index)> = children
            .iter()
            .map(|child| (child.child_relid, child.parent_relid))
            .collect();
        // A table comes before its partitions.
        for (child, parent) in parents.into_iter().rev() {
            if is_printed.get(child as usize).copied().unwrap_or(false)
                && let Some(is_printed) = is_printed.get_mut(parent as usize)
            {
                *is_printed = true;
            }
        }
        is_printed
    }

    /// Makes the range table in which the partitions are hidden that are not printed.
    fn of(query: StartedQuery, shown: &Shown) -> Option<Table> {
        let estate = query.estate();
        let roots = shown.roots()?;
        let entries = estate.es_range_table_size as Index;
        let is_printed = Table::printed(query, shown);
        let is_hidden = |entry: Index| !is_printed[entry as usize] && roots.is_partition(entry);
        let first = estate.entry((1..=entries).find(|entry| is_hidden(*entry))?)?;
        let mut hidden = Box::new((*first, *first.follow(|entry| &entry.eref)?.get()));
        let (entry, names) = &mut *hidden;
        names.colnames = std::ptr::null_mut();
        entry.eref = &raw mut *names;
        entry.rtekind = RTEKind::RTE_RESULT;
        entry.relid = pg_sys::InvalidOid;
        let hidden_entry = &raw mut *entry;
        let cells = (1..=entries).map(|number| {
            let entry = match is_hidden(number) {
                true => hidden_entry,
                false => estate.entry(number).map_or(hidden_entry, Handle::as_ptr),
            };
            ListCell {
                ptr_value: entry.cast(),
            }
        });
        let mut cells: Vec<ListCell> = cells.collect();
        let list = Box::new(List {
            type_: NodeTag::T_List,
            length: cells.len() as i32,
            max_length: cells.len() as i32,
            elements: cells.as_mut_ptr(),
            initial_elements: Default::default(),
        });
        Some(Table {
            list,
            _cells: cells,
            _hidden: hidden,
        })
    }
}

impl Members {
    /// Returns the members of an Append, and the first of the nodes below it that are folded. Returns `None`
    /// for other nodes.
    fn of(shown: &Shown, at: usize) -> Option<Members> {
        let state = shown.found()[at].plan_state;
        let (members, count) = match state.tag() {
            NodeTag::T_AppendState => {
                let append = state.cast::<pg_sys::AppendState>();
                (
                    append.part(|append| &append.appendplans),
                    append.part(|append| &append.as_nplans),
                )
            }
            NodeTag::T_MergeAppendState => {
                let append = state.cast::<pg_sys::MergeAppendState>();
                (
                    append.part(|append| &append.mergeplans),
                    append.part(|append| &append.ms_nplans),
                )
            }
            _ => return None,
        };
        let below = shown.found().iter().filter(|below| below.parent == at as i32);
        let first = below
            .filter(|below| !below.by_expression)
            .map(|below| below.plan_state.as_ptr());
        Some(Members {
            members: members.as_ptr(),
            count: count.as_ptr(),
            before: (*members, *count),
            first: first.collect(),
        })
    }
}
