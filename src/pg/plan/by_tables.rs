//! Numbers of nodes that are equal on each server and major, and for all partitions of a table. Kinds of
//! nodes count by their names, tables by their order in the statement, indexes by what they index. So no
//! catalog is read for the usual ones.

use super::entries::{for_each_entry, scanned_entry, scanned_index};
use super::identity::{Numbers, details, mixed};
use super::{definition, pruned, temporary};
use crate::pg::compat;
use crate::pg::handles::{Handle, PlanRef, PlanStateRef, PlannedStmtRef};
use crate::pg::server;
use pgrx::pg_sys::{self, EState, Index, NodeTag, Oid, RTEKind};
use rowsource_core::model::PlanPart;
use rowsource_core::stable_hash::StableHasher;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};

/// The tables of a statement's partitions.
pub struct Roots {
    /// For each entry of the range table, the number of the one whose partition it is, or its own number.
    /// Children of UNION ALL are not partitions.
    roots: Vec<u32>,
    /// For each entry, the number of the one whose child it is, also of UNION ALL; 0 if there is none.
    parents: Vec<u32>,
    /// The last Append, by its address, and parent of which an entry was found to be appended.
    appended: Cell<(usize, u32)>,
}

impl Roots {
    /// Reads them. Returns `None` if there are no partitions.
    pub fn of(statement: PlannedStmtRef) -> Option<Roots> {
        if statement.appendRelations.is_null() {
            return None;
        }
        let entries = statement.list::<pg_sys::RangeTblEntry>(|statement| &statement.rtable);
        let mut roots: Vec<u32> = (0..=entries.len() as u32).collect();
        let mut parents = vec![0; roots.len()];
        // A table comes before its partitions.
        let children = statement.list::<pg_sys::AppendRelInfo>(|statement| &statement.appendRelations);
        for info in children.iter() {
            let root = roots.get(info.parent_relid as usize).copied();
            let (Some(root), Some(child)) = (root, roots.get_mut(info.child_relid as usize)) else {
                continue;
            };
            parents[info.child_relid as usize] = info.parent_relid;
            if info.parent_reloid != Oid::INVALID {
                *child = root;
            }
        }
        let mut entries = roots.iter().enumerate();
        entries.any(|(entry, root)| entry as u32 != *root).then(|| Roots {
            roots,
            parents,
            appended: Cell::default(),
        })
    }

    /// Returns the number of the entry that the statement names.
    pub fn root(&self, entry: Index) -> Index {
        self.roots.get(entry as usize).copied().unwrap_or(entry)
    }

    /// Returns whether an entry is a partition of what an Append appends: of a table, of UNION ALL with it,
    /// or of aggregates that are made partition by partition, for which it names no table.
    fn is_appended(&self, entry: Index, append: PlanRef) -> bool {
        let parent = |entry: &u32| self.parents.get(*entry as usize).copied();
        // Most have the Append and the parent of the one before.
        let asked = (append.as_ptr() as usize, parent(&entry).unwrap_or_default());
        if self.appended.get() == asked {
            return true;
        }
        let mut above = std::iter::successors(parent(&entry), parent).take_while(|entry| *entry != 0);
        let is_appended = match names_none(append) {
            true => self.is_partition(entry),
            false => above.any(|entry| appends(append, entry)),
        };
        if is_appended {
            self.appended.set(asked);
        }
        is_appended
    }

    /// Returns the entries that are used if those of partitions are replaced by those of their tables. `used`
    /// says it of each entry, from 0 on.
    pub fn of_used(&self, used: impl ExactSizeIterator<Item = bool>) -> Vec<bool> {
        let mut of_tables = vec![false; used.len()];
        for (entry, _) in used.enumerate().filter(|(_, used)| *used) {
            if let Some(used) = of_tables.get_mut(self.root(entry as Index) as usize) {
                *used = true;
            }
        }
        of_tables
    }

    /// Returns whether an entry is a partition.
    pub fn is_partition(&self, entry: Index) -> bool {
        self.root(entry) != entry
    }

    /// Returns the number of the table whose partition a node scans; `None` if it scans no partition.
    pub fn entry_of_table(&self, state: PlanStateRef) -> Option<Index> {
        let entry = scanned_entry(state.plan()).filter(|entry| self.is_partition(*entry));
        entry.map(|entry| self.root(entry))
    }
}

/// The order of what a statement scans: for each entry of the range table, how many up to it can be scanned,
/// but for partitions. So it depends neither on partitions before it nor on the major: they add different
/// entries for views and groups.
pub(super) struct Ranks(Vec<u32>);

impl Ranks {
    /// Reads the range table of a statement.
    pub(super) fn of(statement: PlannedStmtRef, roots: Option<&Roots>) -> Ranks {
        let entries = statement.list::<pg_sys::RangeTblEntry>(|statement| &statement.rtable);
        let mut rank = 0;
        let ranks = entries.iter().zip(1..).map(|(entry, number)| {
            let is_scanned = match entry.rtekind {
                RTEKind::RTE_RELATION => entry.relkind as u8 != pg_sys::RELKIND_VIEW,
                RTEKind::RTE_SUBQUERY | RTEKind::RTE_JOIN | RTEKind::RTE_RESULT => false,
                kind => !compat::is_group(kind),
            };
            rank += u32::from(is_scanned && !roots.is_some_and(|roots| roots.is_partition(number)));
            rank
        });
        Ranks(std::iter::once(0).chain(ranks).collect())
    }

    /// Returns the place of an entry; of a partition, that of its table.
    pub(super) fn rank(&self, roots: Option<&Roots>, entry: Index) -> u32 {
        let root = roots.map_or(entry, |roots| roots.root(entry));
        self.0.get(root as usize).copied().unwrap_or_default()
    }
}

/// The number of an Append that is not parallel. The order of a plan's nodes, which its planid has, depends
/// on it.
const APPEND: u64 = 0x9e37_79b9;

/// Nodes are told apart by the tables whose partitions they read.
pub(super) struct ByTables {
    pub(super) roots: Roots,
    ranks: Ranks,
    /// Numbers of the names of kinds of nodes. Majors give these other tags.
    kinds: RefCell<FxHashMap<u32, u64>>,
}

impl ByTables {
    /// Reads the tables of a statement. Returns `None` if there are no partitions.
    pub(super) fn of(statement: PlannedStmtRef) -> Option<ByTables> {
        let roots = Roots::of(statement)?;
        let ranks = Ranks::of(statement, Some(&roots));
        let kinds = RefCell::default();
        Some(ByTables { roots, ranks, kinds })
    }

    /// Returns a number for the name of a kind of node.
    fn kind(&self, tag: NodeTag) -> u64 {
        let mut kinds = self.kinds.borrow_mut();
        *kinds.entry(tag as u32).or_insert_with(|| {
            let mut hash = StableHasher::new();
            hash.text(format!("{tag:?}").as_bytes());
            hash.finish() as u64
        })
    }

    /// Returns the number of an Append.
    pub(super) fn append(&self, is_parallel: bool) -> u64 {
        match is_parallel {
            true => self.kind(NodeTag::T_Append).wrapping_add(1),
            false => APPEND,
        }
    }

    /// Returns a number for the table that the statement names.
    fn rank(&self, entry: Index) -> i64 {
        i64::from(self.ranks.rank(Some(&self.roots), entry))
    }

    /// Returns what folding needs to know of a node, but for its place. May raise.
    pub(super) fn part(
        &self,
        plan: PlanRef,
        estate: Handle<EState>,
        state: Option<PlanStateRef>,
        append: Option<PlanRef>,
    ) -> PlanPart {
        let tag = plan.tag();
        let mut number = match tag {
            NodeTag::T_Append => self.append(plan.parallel_aware),
            tag => self.kind(tag).wrapping_add(u64::from(plan.parallel_aware)),
        };
        details(plan, estate, state, self, &mut |add| number = mixed(number, add));
        let is_append = matches!(tag, NodeTag::T_Append | NodeTag::T_MergeAppend);
        let (mut is_partition, mut is_appended) = (false, false);
        let mut look = |entry| {
            let is_child = self.roots.is_partition(entry);
            is_partition |= is_child && !is_append;
            is_appended |=
                (is_child || is_append) && append.is_some_and(|append| self.roots.is_appended(entry, append));
        };
        // A BitmapIndexScan is below the scan of its table.
        match scanned_entry(plan) {
            _ if tag == NodeTag::T_BitmapIndexScan => {}
            Some(entry) if entry != 0 => look(entry),
            _ => for_each_entry(plan, look),
        }
        PlanPart {
            number,
            is_append,
            is_partition,
            is_appended,
            is_in_parallel: plan.parallel_aware && server::appends_in_parallel(),
            is_for_each: self.is_for_each(plan, estate),
            by_core: matches!(
                tag,
                NodeTag::T_Hash | NodeTag::T_BitmapIndexScan | NodeTag::T_BitmapAnd | NodeTag::T_BitmapOr
            ),
            ..PlanPart::default()
        }
    }

    /// Returns whether an Append of partitions has such a node above each of them. The planner gives each
    /// child the filters that are tested once, and partitions the functions that return sets.
    fn is_for_each(&self, plan: PlanRef, estate: Handle<EState>) -> bool {
        let Some(mut below) = plan.follow(|plan| &plan.lefttree) else {
            return false;
        };
        if let Some(result) = plan.downcast::<pg_sys::Result>() {
            return !result.resconstantqual.is_null();
        }
        while below.tag() == NodeTag::T_Result {
            match below.follow(|plan| &plan.lefttree) {
                Some(next) => below = next,
                None => return false,
            }
        }
        let is_partitioned = || {
            let table = scanned_entry(below).map(|entry| self.roots.root(entry));
            let table = table.and_then(|table| estate.entry(table));
            table.is_some_and(|table| table.relkind as u8 == pg_sys::RELKIND_PARTITIONED_TABLE)
        };
        plan.tag() == NodeTag::T_ProjectSet && is_partitioned()
    }

    /// Returns a number for the table that a node scans or changes: its OID, or of a temporary one its name
    /// and columns; 0 if there is none. May raise.
    pub(super) fn table(&self, plan: PlanRef, estate: Handle<EState>) -> i64 {
        let entry = match plan.downcast::<pg_sys::ModifyTable>() {
            Some(modify) => Some(modify.nominalRelation),
            None => scanned_entry(plan),
        };
        entry.map_or(0, |entry| lasting(relation(self.roots.root(entry), estate)))
    }

    /// Returns such a number for the index that a node scans; 0 if there is none, or if it is a partition's.
    /// May raise.
    pub(super) fn index_of_table(&self, plan: PlanRef) -> i64 {
        let entry = scanned_entry(plan);
        let is_of_table = entry.is_some_and(|entry| !self.roots.is_partition(entry));
        let index = scanned_index(plan).filter(|_| is_of_table);
        index.map_or(0, |index| lasting(index.to_u32()))
    }
}

/// Returns a number for a relation that a temporary one keeps if it is made again. May raise.
fn lasting(oid: u32) -> i64 {
    let of_temporary = match oid != 0 && temporary::session_has_tables() {
        true => pruned::with_relation(Oid::from(oid), temporary::number).flatten(),
        false => None,
    };
    of_temporary.unwrap_or(i64::from(oid))
}

impl Numbers for ByTables {
    fn scanned(&self, plan: PlanRef, estate: Handle<EState>) -> i64 {
        match scanned_entry(plan) {
            Some(0) => {
                let mut joined = 0;
                for_each_entry(plan, |entry| joined = mixed(joined, self.rank(entry)));
                joined as i64
            }
            Some(entry) => self.relation(entry, estate),
            None => 0,
        }
    }

    fn index(&self, plan: PlanRef, estate: Handle<EState>, state: Option<PlanStateRef>, oid: Oid) -> i64 {
        let number = definition::known_number(oid, || {
            let entry = plan.cast::<pg_sys::Scan>().scanrelid;
            let table = estate.relations().get(entry as usize - 1).copied();
            if let (Some(index), Some(table)) = (state.and_then(|state| state.index()), table.flatten()) {
                return Some(definition::number(index, table));
            }
            let table = Oid::from(relation(entry, estate));
            let number = pruned::with_relation(oid, |index| {
                pruned::with_relation(table, |table| definition::number(index, table))
            });
            number.flatten()
        });
        number.unwrap_or_else(|| i64::from(oid.to_u32()))
    }

    fn pruned(&self, _state: Option<PlanStateRef>) -> i64 {
        0
    }

    fn relation(&self, entry: Index, _estate: Handle<EState>) -> i64 {
        self.rank(entry)
    }
}

/// Returns whether an Append or a MergeAppend is that of an entry's children.
fn appends(plan: PlanRef, entry: Index) -> bool {
    match plan.downcast::<pg_sys::MergeAppend>() {
        Some(append) => append.has_member(|append| &append.apprelids, entry),
        None => plan
            .downcast::<pg_sys::Append>()
            .is_some_and(|append| append.has_member(|append| &append.apprelids, entry)),
    }
}

/// Returns whether an Append or a MergeAppend does not say what it appends.
fn names_none(plan: PlanRef) -> bool {
    match plan.downcast::<pg_sys::MergeAppend>() {
        Some(append) => append.apprelids.is_null(),
        None => plan.cast::<pg_sys::Append>().apprelids.is_null(),
    }
}

/// Returns the OID of the relation of an entry; 0 if there is none.
pub(super) fn relation(entry: Index, estate: Handle<EState>) -> u32 {
    estate.entry(entry).map_or(0, |entry| entry.relid.to_u32())
}
