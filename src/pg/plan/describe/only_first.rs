//! Has EXPLAIN print a folded plan: of partitions that are read in the same way, it sees only the first.

use crate::pg::handles::{Handle, PlannedStmtRef, StartedQuery};
use crate::pg::plan::entries::for_each_entry;
use crate::pg::plan::fold::Shown;
use pgrx::pg_sys::{self, Alias, Index, List, ListCell, NodeTag, PlanState, RTEKind, RangeTblEntry};

/// While this lives, each Append has only the first of the nodes that are folded, and the range table has no
/// other partitions. EXPLAIN would open each of them, for the names of its columns.
pub struct OnlyFirst<'q> {
    plan: PlannedStmtRef<'q>,
    table: Option<Table>,
    /// The range table as it was.
    before: *mut List,
    appends: Vec<Members>,
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
        };
        if shown.fold.is_none() {
            return changed;
        }
        changed.table = Table::of(query, shown);
        changed.appends = (0..shown.found().len())
            .filter_map(|at| Members::of(shown, at))
            .collect();
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
        }
    }
}

impl Table {
    /// Makes the range table in which the partitions are hidden that are not printed. EXPLAIN names all
    /// tables that an UPDATE or a DELETE changes, so these keep theirs.
    fn of(query: StartedQuery, shown: &Shown) -> Option<Table> {
        let (plan, estate) = (query.plan(), query.estate());
        let roots = shown.roots()?;
        if plan.commandType != pg_sys::CmdType::CMD_SELECT || plan.hasModifyingCTE {
            return None;
        }
        let entries = estate.es_range_table_size as Index;
        let mut is_printed = vec![false; entries as usize + 1];
        for place in shown.found() {
            let plan = place.plan_state.plan();
            if !matches!(plan.tag(), NodeTag::T_Append | NodeTag::T_MergeAppend) {
                for_each_entry(plan, |entry| is_printed[entry as usize] = true);
            }
        }
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
