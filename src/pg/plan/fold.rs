//! Folds the plan of a started statement: partitions that are read in the same way are one node
//! (`rowsource_core::model::Fold`). A statement that reads no partition is never looked at.
//!
//! Nodes get numbers that are equal on each server and major: kinds of nodes count by their names, tables by
//! their order in the statement, indexes by what they index. So no catalog is read for the usual ones.

use super::entries::{for_each_entry, scanned_entry};
use super::identity::{Numbers, details, mixed};
use super::tree::{self, Found};
use super::{aliases, definition};
use crate::pg::handles::{Handle, PlanRef, PlanStateRef, PlannedStmtRef, StartedQuery};
use crate::pg::server::contained::{Unlocked, contained_or_cancelled};
use crate::pg::server::memory;
use pgrx::pg_sys::{self, EState, Index, NodeTag, Oid, RTEKind};
use rowsource_core::model::{ChangedPartition, Fold, LazyDescription, PlanPart, UnfoldedNode, Unfolding};
use rowsource_core::plan::{Costs, PlanNode, Relationship};
use rowsource_core::stable_hash::StableHasher;
use rustc_hash::FxHashMap;
use std::cell::{OnceCell, RefCell};

/// The tables of a statement's partitions: for each entry of the range table, the number of the one whose
/// partition it is, or its own number. Children of UNION ALL are not partitions.
pub struct Roots(Vec<u32>);

impl Roots {
    /// Reads them. Returns `None` if there are no partitions.
    pub fn of(statement: PlannedStmtRef) -> Option<Roots> {
        if statement.appendRelations.is_null() {
            return None;
        }
        let entries = statement.list::<pg_sys::RangeTblEntry>(|statement| &statement.rtable);
        let mut roots: Vec<u32> = (0..=entries.len() as u32).collect();
        // A table comes before its partitions.
        let children = statement.list::<pg_sys::AppendRelInfo>(|statement| &statement.appendRelations);
        for child in children
            .iter()
            .filter(|child| child.parent_reloid != Oid::INVALID)
        {
            let root = roots.get(child.parent_relid as usize).copied();
            if let (Some(root), Some(child)) = (root, roots.get_mut(child.child_relid as usize)) {
                *child = root;
            }
        }
        let mut entries = roots.iter().enumerate();
        entries
            .any(|(entry, root)| entry as u32 != *root)
            .then_some(Roots(roots))
    }

    /// Returns the number of the entry that the statement names.
    pub fn root(&self, entry: Index) -> Index {
        self.0.get(entry as usize).copied().unwrap_or(entry)
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

/// Folds the plan of a statement that is set up. Returns `None` if it reads no partition, if there is no
/// memory, or if a catalog cannot be read. The caller must allow errors: those that must reach the user are
/// raised again.
#[cold]
#[inline(never)]
pub fn fold(query: StartedQuery, found: &[Found]) -> Option<Unfolding> {
    if !memory::has_headroom(found.len()) {
        return None;
    }
    let numbers = ByTables::of(query.plan())?;
    let hidden = usize::from(found[0].hidden);
    let shown = &found[hidden..];
    // SAFETY: a statement is set up, so the session holds no lock.
    let unlocked = &mut unsafe { Unlocked::promised() };
    let parts = contained_or_cancelled(unlocked, || {
        let parts = shown.iter().map(|place| numbers.part(place, hidden));
        Some(parts.collect::<Vec<PlanPart>>())
    })?;
    let fold = Fold::new(&parts)?;
    let number = fold.hash(|node| {
        if node.is_made() {
            return APPEND;
        }
        let (part, place) = (&parts[node.first as usize], &shown[node.first as usize]);
        let number = mixed(part.number, i64::from(numbers.table(place)));
        mixed(number, i64::from(numbers.index_of_table(place)))
    });
    let aliases = aliases::numbers(query, found);
    let alias = |entry: Index| aliases.get(entry as usize).copied().unwrap_or_default();
    let nodes = shown.iter().zip(&parts).map(|(place, part)| {
        let mut node = UnfoldedNode {
            parent: part.parent.map(|parent| parent as u32),
            ..UnfoldedNode::default()
        };
        let plan = place.plan_state.plan();
        let entry = scanned_entry(plan).filter(|entry| numbers.roots.is_partition(*entry));
        if let Some(entry) = entry {
            let partition = relation(entry, place.plan_state);
            node.alias = alias(entry);
            (node.object, node.table) = match place.plan_state.index() {
                Some(index) if plan.tag() == NodeTag::T_BitmapIndexScan => (index.rd_id.to_u32(), 0),
                Some(index) => (index.rd_id.to_u32(), partition),
                None => (partition, 0),
            };
        }
        node
    });
    let nodes = nodes.collect();
    let changed = changed_tables(shown).map(|(node, entry, table)| ChangedPartition {
        node,
        table,
        alias: alias(entry),
    });
    let changed = changed.collect();
    Some(Unfolding {
        fold,
        number,
        nodes,
        changed,
    })
}

/// Returns whether a description has the nodes of this plan, which had the same number before it was folded,
/// and the partitions that it changes.
pub fn is_of(description: &LazyDescription, found: &[Found]) -> bool {
    let shown = &found[usize::from(found[0].hidden)..];
    description.unfolding().is_some_and(|unfolding| {
        let tables = changed_tables(shown).map(|(node, _, table)| (node, table));
        let changed = unfolding.changed.iter();
        unfolding.nodes.len() == shown.len()
            && tables.eq(changed.map(|changed| (changed.node, changed.table)))
    })
}

/// Returns the partitions that nodes change, if EXPLAIN shows them: the node, the number of the entry and the
/// OID.
fn changed_tables<'q>(shown: &[Found<'q>]) -> impl Iterator<Item = (u32, Index, u32)> {
    shown.iter().enumerate().flat_map(|(node, place)| {
        let state = place.plan_state.downcast::<pg_sys::ModifyTableState>();
        let shown = state.filter(|state| {
            let nominal = place
                .plan_state
                .plan()
                .cast::<pg_sys::ModifyTable>()
                .nominalRelation;
            state.mt_nrels != 1 || state.tables().any(|table| table.ri_RangeTableIndex != nominal)
        });
        let tables = shown.into_iter().flat_map(|state| state.tables());
        tables.map(move |table| {
            let entry = table.ri_RangeTableIndex;
            (node as u32, entry, relation(entry, place.plan_state))
        })
    })
}

/// The nodes of a plan as they are described: all of them, or only those that the nodes of the folded plan
/// stand for first.
pub struct Shown<'a, 'q> {
    all: &'a [Found<'q>],
    pub fold: Option<&'a Fold>,
    /// If the plan is folded: the nodes that are described.
    first: OnceCell<Vec<Found<'q>>>,
    /// If the plan is folded: the tables of its partitions.
    roots: OnceCell<Option<Roots>>,
}

impl<'a, 'q> Shown<'a, 'q> {
    /// Chooses the nodes of a plan that are described.
    pub const fn of(all: &'a [Found<'q>], fold: Option<&'a Fold>) -> Shown<'a, 'q> {
        Shown {
            all,
            fold,
            first: OnceCell::new(),
            roots: OnceCell::new(),
        }
    }

    /// Returns the nodes in the order of the folded plan, as if the plan had only these. There is none for an
    /// Append that was made.
    pub fn found(&self) -> &[Found<'q>] {
        match self.fold {
            None => self.all,
            Some(fold) => self.first.get_or_init(|| first_nodes(fold, self.all)),
        }
    }

    /// Returns the number of nodes that are described.
    pub fn nodes(&self) -> usize {
        match self.fold {
            Some(fold) => fold.nodes().len(),
            None => self.all.len() - usize::from(self.all[0].hidden),
        }
    }

    /// Returns what the planner expected of the nodes that are described.
    pub fn costs(&self) -> Vec<Costs> {
        let all = self.all[usize::from(self.all[0].hidden)..].iter();
        let all = all.map(|place| tree::costs(place.plan_state));
        match self.fold {
            None => all.collect(),
            Some(fold) => fold.costs(all),
        }
    }

    /// Returns the tables of the partitions, if the plan is folded.
    pub fn roots(&self) -> Option<&Roots> {
        self.fold?;
        let roots = || Roots::of(self.all[0].plan_state.statement());
        self.roots.get_or_init(roots).as_ref()
    }

    /// Returns the description of the nodes, in which those that were made are missing, with these.
    pub fn with_made(&self, nodes: Vec<PlanNode>) -> Vec<PlanNode> {
        let Some(fold) = self.fold else {
            return nodes;
        };
        let mut all: Vec<PlanNode> = Vec::with_capacity(fold.nodes().len());
        let mut nodes = nodes.into_iter().peekable();
        for (id, (folded, costs)) in fold.nodes().iter().zip(&self.costs()).enumerate() {
            let mut node = match nodes.peek() {
                Some(below) if folded.is_made() => PlanNode {
                    operation: "Append".to_owned(),
                    subplan_name: below.subplan_name.clone(),
                    relationship: below.relationship,
                    may_stop_early: below.may_stop_early,
                    stops_with_reader: below.stops_with_reader,
                    ..PlanNode::default()
                },
                _ => match nodes.next() {
                    Some(node) => node,
                    None => break,
                },
            };
            (node.id, node.depth) = (id, folded.depth as usize);
            node.parent = folded.parent.map(|parent| parent as usize);
            if node.parent.is_some_and(|parent| fold.is_made(parent)) {
                (node.subplan_name, node.relationship) = (None, Relationship::Member);
            }
            node.set_costs(*costs);
            all.push(node);
        }
        all
    }
}

/// Returns the nodes of a plan that the nodes of the folded plan stand for first.
fn first_nodes<'q>(fold: &Fold, found: &[Found<'q>]) -> Vec<Found<'q>> {
    let hidden = usize::from(found[0].hidden);
    let mut first: Vec<Found> = Vec::with_capacity(hidden + fold.nodes().len());
    first.extend_from_slice(&found[..hidden]);
    // Where the nodes of the folded plan are in the result; those that were made are where their parent is.
    let mut places: Vec<i32> = Vec::with_capacity(fold.nodes().len());
    for node in fold.nodes() {
        let parent = match node.parent {
            Some(parent) => places[parent as usize],
            None => hidden as i32 - 1,
        };
        if node.is_made() {
            places.push(parent);
            continue;
        }
        places.push(first.len() as i32);
        first.push(Found {
            parent,
            depth: usize::try_from(parent).map_or(0, |parent| first[parent].depth + 1),
            ..found[hidden + node.first as usize]
        });
    }
    first
}

/// Nodes are told apart by the tables whose partitions they read.
struct ByTables {
    roots: Roots,
    /// For each entry of the range table, how many up to it can be scanned, but for partitions. Majors add
    /// different entries for views and groups.
    ranks: Vec<i64>,
    /// Numbers of the names of kinds of nodes. Majors give these other tags.
    kinds: RefCell<FxHashMap<u32, u64>>,
}

/// The number of an Append.
const APPEND: u64 = 0x9e37_79b9;

impl ByTables {
    /// Reads the tables of a statement. Returns `None` if there are no partitions.
    fn of(statement: PlannedStmtRef) -> Option<ByTables> {
        let roots = Roots::of(statement)?;
        let entries = statement.list::<pg_sys::RangeTblEntry>(|statement| &statement.rtable);
        let mut rank = 0;
        let ranks = entries.iter().zip(1..).map(|(entry, number)| {
            let is_scanned = match entry.rtekind {
                RTEKind::RTE_RELATION => entry.relkind as u8 != pg_sys::RELKIND_VIEW,
                RTEKind::RTE_SUBQUERY | RTEKind::RTE_JOIN | RTEKind::RTE_RESULT => false,
                _ => true,
            };
            rank += i64::from(is_scanned && !roots.is_partition(number));
            rank
        });
        let ranks = std::iter::once(0).chain(ranks).collect();
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

    /// Returns a number for the table that the statement names.
    fn rank(&self, entry: Index) -> i64 {
        let root = self.roots.root(entry) as usize;
        self.ranks.get(root).copied().unwrap_or_default()
    }

    /// Returns what folding needs to know of a node. May raise.
    fn part(&self, place: &Found, hidden: usize) -> PlanPart {
        let plan = place.plan_state.plan();
        let tag = plan.tag();
        let mut number = self.kind(tag).wrapping_add(u64::from(plan.parallel_aware));
        if tag == NodeTag::T_Append && !plan.parallel_aware {
            number = APPEND;
        } else {
            details(place.plan_state, self, &mut |add| number = mixed(number, add));
        }
        let is_append = matches!(tag, NodeTag::T_Append | NodeTag::T_MergeAppend);
        let mut is_partition = false;
        // A BitmapIndexScan is below the scan of its table.
        if !is_append && tag != NodeTag::T_BitmapIndexScan {
            for_each_entry(plan, |entry| is_partition |= self.roots.is_partition(entry));
        }
        PlanPart {
            parent: usize::try_from(place.parent - hidden as i32).ok(),
            number,
            is_append,
            is_partition,
            by_expression: place.by_expression,
        }
    }

    /// Returns the OID of the table that a node scans or changes; 0 if there is none.
    fn table(&self, place: &Found) -> u32 {
        let plan = place.plan_state.plan();
        let entry = match plan.downcast::<pg_sys::ModifyTable>() {
            Some(modify) => Some(modify.nominalRelation),
            None => scanned_entry(plan),
        };
        entry.map_or(0, |entry| relation(self.roots.root(entry), place.plan_state))
    }

    /// Returns the OID of the index that a node scans; 0 if there is none, or if it is a partition's.
    fn index_of_table(&self, place: &Found) -> u32 {
        let entry = scanned_entry(place.plan_state.plan());
        let is_of_table = entry.is_some_and(|entry| !self.roots.is_partition(entry));
        let index = place.plan_state.index().filter(|_| is_of_table);
        index.map_or(0, |index| index.rd_id.to_u32())
    }
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

    fn index(&self, state: PlanStateRef, oid: Oid) -> i64 {
        let entry = state.plan().cast::<pg_sys::Scan>().scanrelid;
        let table = state.estate().relations().get(entry as usize - 1).copied();
        match (state.index(), table.flatten()) {
            (Some(index), Some(table)) => definition::number(index, table),
            _ => i64::from(oid.to_u32()),
        }
    }

    fn relation(&self, entry: Index, _estate: Handle<EState>) -> i64 {
        self.rank(entry)
    }
}

/// Returns the OID of the relation of an entry; 0 if there is none.
fn relation(entry: Index, state: PlanStateRef) -> u32 {
    state
        .estate()
        .entry(entry)
        .map_or(0, |entry| entry.relid.to_u32())
}
