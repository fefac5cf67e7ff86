//! Folds the plan of a started statement: partitions that are read in the same way are one node
//! (`rowsource_core::model::Fold`). A statement that reads no partition is never looked at.
//!
//! Nodes get numbers that are equal on each server and major: kinds of nodes count by their names, tables by
//! their order in the statement, indexes by what they index. So no catalog is read for the usual ones.

use super::by_tables::{ByTables, relation};
use super::entries::scanned_entry;
use super::identity::mixed;
use super::tree::{self, Found};
use super::whole::Whole;
use super::{aliases, temporary};
use crate::pg::handles::{Handle, StartedQuery};
use crate::pg::server::contained::{Unlocked, contained_or_cancelled};
use crate::pg::server::{self, memory};
use pgrx::pg_sys::{self, EState, Index, NodeTag};
use rowsource_core::model::{
    ChangedPartition, Fold, FoldedNode, LazyDescription, TableNames, UnfoldedNode, Unfolding,
};
use rowsource_core::plan::{Costs, PlanNode, Relationship, has_usual_characters};
use rustc_hash::FxHashMap;
use std::cell::OnceCell;

pub use super::by_tables::Roots;
pub use super::whole::SubplansOf;

/// The folded plan of a statement that is set up.
pub struct Folded<'q> {
    pub unfolding: Unfolding,
    /// What stands for the nodes of the folded plan whose partitions were all pruned, in their order.
    pub pruned: Vec<Found<'q>>,
}

/// Folds the plan of a statement that is set up. Returns `None` if it reads no partition, if there is no
/// memory, or if a catalog cannot be read. The caller must allow errors: those that must reach the user are
/// raised again.
#[cold]
#[inline(never)]
pub fn fold<'q>(query: StartedQuery<'q>, found: &[Found<'q>], subplans_of: SubplansOf) -> Option<Folded<'q>> {
    if !memory::has_headroom(found.len()) {
        return None;
    }
    let numbers = ByTables::of(query.plan())?;
    let estate = query.estate();
    let shown = &found[usize::from(found[0].hidden)..];
    // SAFETY: a statement is set up, so the session holds no lock.
    let unlocked = &mut unsafe { Unlocked::promised() };
    let (fold, number, whole, pruned, names) = contained_or_cancelled(unlocked, || {
        let mut whole = Whole::of(&numbers, estate, shown, found[0].hidden);
        let mut fold = Fold::new(&whole.parts, &whole.calls)?;
        if whole.add_calls(&numbers, &fold, subplans_of) {
            fold = Fold::new(&whole.parts, &whole.calls)?;
        }
        let pruned = whole.stand_ins(&fold);
        let names = Names::of(estate, &numbers.roots, found, &pruned);
        let number = fold.hash(|node| {
            // An Append scans neither a table nor an index.
            let of = |number: u64, table, index| mixed(mixed(number, table), index);
            if node.is_made() {
                return of(numbers.append(node.is_parallel), 0, 0);
            }
            let (part, plan) = (&whole.parts[node.first as usize], whole.plan(node.first as usize));
            of(
                part.number,
                numbers.table(plan, estate),
                numbers.index_of_table(plan),
            )
        });
        Some((fold, number, whole, pruned, names))
    })?;
    let nodes = shown.iter().zip(&whole.parts).map(|(place, part)| {
        let (object, table, entry) = scanned_partition(&numbers.roots, place);
        let entry = entry.or_else(|| aliases::scanned_entry(place.plan_state.plan()));
        let (alias, names) = entry.map_or((0, 0), |entry| names.of_entry(entry));
        UnfoldedNode {
            parent: part.parent.map(|parent| parent as u32),
            object,
            table,
            alias,
            names,
        }
    });
    let nodes = nodes.collect();
    let changed = changed_tables(shown).map(|(node, entry, table)| {
        let (alias, names) = names.of_entry(entry);
        ChangedPartition {
            node,
            table,
            alias,
            names,
        }
    });
    let changed = changed.collect();
    let unfolding = Unfolding {
        fold,
        number,
        nodes,
        changed,
        reserved: names.reserved,
        names: names.tables,
    };
    Some(Folded { unfolding, pruned })
}

/// How partitions are named.
struct Names {
    /// The number behind the alias of each entry.
    numbers: Vec<u32>,
    /// For each entry, which names are those of its table, from 1 on; 0 if there are none.
    table_of: Vec<u32>,
    tables: Vec<TableNames>,
    /// Those that are words which SQL reserves.
    reserved: Vec<String>,
}

impl Names {
    /// Finds the names of the partitions that these nodes scan. May raise.
    fn of(estate: Handle<EState>, roots: &Roots, found: &[Found], pruned: &[Found]) -> Names {
        let used = aliases::used(estate, found);
        let numbers = aliases::numbers(estate, &used);
        let of_pruned = aliases::used(estate, pruned);
        let folded = roots.of_used(used.iter().zip(&of_pruned).map(|(used, also)| *used || *also));
        let folded_numbers = aliases::numbers(estate, &folded);
        let mut names = Names {
            table_of: vec![0; numbers.len()],
            numbers,
            tables: Vec::new(),
            reserved: Vec::new(),
        };
        let mut known: FxHashMap<Index, u32> = FxHashMap::default();
        for entry in (1..used.len() as Index).filter(|entry| roots.is_partition(*entry)) {
            let root = roots.root(entry);
            let alias = |entry: Index, numbers: &[u32]| {
                let number = numbers.get(entry as usize).copied();
                aliases::alias(estate, entry, number.unwrap_or_default())
            };
            // If a partition is alone, EXPLAIN has no name for the table.
            let shown = match used.get(root as usize) {
                Some(true) => root,
                _ if used[entry as usize] => entry,
                _ => continue,
            };
            let tables = &mut names.tables;
            names.table_of[entry as usize] = *known.entry(root).or_insert_with(|| {
                tables.push(TableNames {
                    folded: alias(root, &folded_numbers),
                    table: alias(shown, &names.numbers),
                    partitions: aliases::alias(estate, entry, 0),
                });
                tables.len() as u32
            });
        }
        // Others may have other numbers, because partitions have the same alias.
        for entry in (1..used.len()).filter(|entry| used[*entry]) {
            let (at, number) = (entry as Index, names.numbers[entry]);
            if !roots.is_partition(at) && !known.contains_key(&at) && folded_numbers[entry] != number {
                names.tables.push(TableNames {
                    folded: aliases::alias(estate, at, folded_numbers[entry]),
                    table: aliases::alias(estate, at, number),
                    partitions: String::new(),
                });
                names.table_of[entry] = names.tables.len() as u32;
            }
        }
        let _unquoted = server::Unquoted::set();
        let all = names.tables.iter();
        let all = all.flat_map(|names| [&names.folded, &names.table, &names.partitions]);
        let reserved =
            all.filter(|name| has_usual_characters(name) && server::quoted_identifier(name) != **name);
        names.reserved = reserved.cloned().collect();
        names.reserved.sort_unstable();
        names.reserved.dedup();
        names
    }

    /// Returns the number behind the alias of an entry, and which names are those of its table.
    fn of_entry(&self, entry: Index) -> (u32, u32) {
        let at = entry as usize;
        (
            self.numbers.get(at).copied().unwrap_or_default(),
            self.table_of.get(at).copied().unwrap_or_default(),
        )
    }
}

/// Returns the OIDs of the index or the partition that a node scans and, of an index scan, of the partition;
/// and the number of the entry. All are 0 or `None` if it scans no partition.
fn scanned_partition(roots: &Roots, place: &Found) -> (u32, u32, Option<Index>) {
    let plan = place.plan_state.plan();
    let entry = scanned_entry(plan).filter(|entry| roots.is_partition(*entry));
    let Some(scanned) = entry else {
        return (0, 0, None);
    };
    let partition = relation(scanned, place.plan_state.estate());
    let (object, table) = match place.plan_state.index() {
        Some(index) if plan.tag() == NodeTag::T_BitmapIndexScan => (index.rd_id.to_u32(), 0),
        Some(index) => (index.rd_id.to_u32(), partition),
        None => (partition, 0),
    };
    (object, table, entry)
}

/// Returns whether a description has the nodes of this plan, which had the same number before it was folded,
/// and the partitions that it changes. Partitions that are temporary may have been made again meanwhile.
pub fn is_of(description: &LazyDescription, found: &[Found]) -> bool {
    let shown = &found[usize::from(found[0].hidden)..];
    let Some(unfolding) = description.unfolding() else {
        return false;
    };
    let tables = changed_tables(shown).map(|(node, _, table)| (node, table));
    let changed = unfolding.changed.iter();
    unfolding.nodes.len() == shown.len()
        && tables.eq(changed.map(|changed| (changed.node, changed.table)))
        && (!temporary::session_has_tables() || has_partitions(unfolding, shown))
}

/// Returns whether these nodes scan the partitions that are known.
#[cold]
#[inline(never)]
fn has_partitions(unfolding: &Unfolding, shown: &[Found]) -> bool {
    Roots::of(shown[0].plan_state.statement()).is_some_and(|roots| {
        let scanned = shown.iter().map(|place| scanned_partition(&roots, place));
        let known = unfolding.nodes.iter().map(|node| (node.object, node.table));
        scanned.map(|(object, table, _)| (object, table)).eq(known)
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
            (node as u32, entry, relation(entry, place.plan_state.estate()))
        })
    })
}

/// The nodes of a plan as they are described: all of them, or only those that the nodes of the folded plan
/// stand for first.
pub struct Shown<'a, 'q> {
    all: &'a [Found<'q>],
    pub fold: Option<&'a Fold>,
    /// If the plan is folded: what stands for nodes whose partitions were all pruned.
    pruned: &'a [Found<'q>],
    /// If the plan is folded: the nodes that are described.
    first: OnceCell<First<'q>>,
    /// If the plan is folded: the tables of its partitions.
    roots: OnceCell<Option<Roots>>,
}

impl<'a, 'q> Shown<'a, 'q> {
    /// Chooses the nodes of a plan that are described.
    pub const fn of(all: &'a [Found<'q>], fold: Option<&'a Fold>) -> Shown<'a, 'q> {
        Shown::with_pruned(all, fold, &[])
    }

    /// Does what [`Shown::of`] does for a folded plan, with what stands for nodes that have no states.
    pub const fn with_pruned(
        all: &'a [Found<'q>],
        fold: Option<&'a Fold>,
        pruned: &'a [Found<'q>],
    ) -> Shown<'a, 'q> {
        Shown {
            all,
            fold,
            pruned,
            first: OnceCell::new(),
            roots: OnceCell::new(),
        }
    }

    /// Returns the nodes as EXPLAIN orders them, as if the plan had only these. There is none for an Append
    /// that was made.
    pub fn found(&self) -> &[Found<'q>] {
        match self.fold {
            None => self.all,
            Some(fold) => &self.first(fold).found,
        }
    }

    fn first(&self, fold: &Fold) -> &First<'q> {
        self.first.get_or_init(|| First::of(fold, self.all, self.pruned))
    }

    /// Returns the nodes in the order of the folded plan: it is the same if EXPLAIN shows the InitPlans of an
    /// Append below its only partition.
    pub fn in_order_of_fold(&self) -> impl Iterator<Item = &Found<'q>> {
        let found = self.found();
        let order = self.fold.map(|fold| self.first(fold).places.iter().flatten());
        let all = if order.is_none() { found } else { &[] };
        order.into_iter().flatten().map(|at| &found[*at]).chain(all)
    }

    /// Returns the number of nodes that are described.
    pub fn nodes(&self) -> usize {
        match self.fold {
            Some(fold) => fold.nodes().len(),
            None => self.all.len() - usize::from(self.all[0].hidden),
        }
    }

    /// Returns whether there is something to describe for all of them, also for those whose partitions were
    /// all pruned.
    pub fn is_whole(&self) -> bool {
        let pruned = |fold: &Fold| fold.nodes().iter().filter(|node| node.is_pruned).count();
        self.fold.is_none_or(|fold| pruned(fold) == self.pruned.len())
    }

    /// Returns what the planner expected of the nodes that are described.
    pub fn costs(&self) -> Vec<Costs> {
        let all = self.all[usize::from(self.all[0].hidden)..].iter();
        let all = all.map(|place| tree::costs(place.plan_state));
        match self.fold {
            None => all.collect(),
            Some(fold) => {
                let mut folded = fold.costs(all);
                let nodes = folded.iter_mut().zip(fold.nodes());
                let pruned = nodes.filter(|(_, node)| node.is_pruned);
                for ((costs, _), place) in pruned.zip(self.pruned) {
                    *costs = tree::costs(place.plan_state);
                }
                for (made, below) in fold.made() {
                    folded[made] = folded[below];
                }
                folded
            }
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
        let hidden = usize::from(self.all[0].hidden);
        let places = self.first(fold).places.iter();
        let mut nodes: Vec<Option<PlanNode>> = nodes.into_iter().map(Some).collect();
        let described = places.map(|at| nodes.get_mut((*at)? - hidden)?.take());
        let mut all: Vec<PlanNode> = described.map(Option::unwrap_or_default).collect();
        for (made, below) in fold.made() {
            let below = &mut all[below];
            let append = PlanNode {
                operation: made_append(&fold.nodes()[made]).to_owned(),
                subplan_name: below.subplan_name.take(),
                relationship: std::mem::replace(&mut below.relationship, Relationship::Member),
                may_stop_early: below.may_stop_early,
                stops_with_reader: below.stops_with_reader,
                ..PlanNode::default()
            };
            all[made] = append;
        }
        let folded = fold.nodes().iter().zip(self.costs());
        for (id, (node, (folded, costs))) in all.iter_mut().zip(folded).enumerate() {
            (node.id, node.depth) = (id, folded.depth as usize);
            node.parent = folded.parent.map(|parent| parent as usize);
            node.set_costs(costs);
        }
        all
    }
}

/// Returns the name of an Append that was made.
pub fn made_append(node: &FoldedNode) -> &'static str {
    match node.is_parallel {
        true => "Parallel Append",
        false => "Append",
    }
}

/// The nodes of a plan that the nodes of the folded plan stand for first.
struct First<'q> {
    /// As EXPLAIN orders them.
    found: Vec<Found<'q>>,
    /// For each node of the folded plan, where it is; `None` for an Append that was made.
    places: Vec<Option<usize>>,
}

impl<'q> First<'q> {
    fn of(fold: &Fold, all: &[Found<'q>], pruned: &[Found<'q>]) -> First<'q> {
        let (hidden, nodes) = (usize::from(all[0].hidden), fold.nodes());
        let mut pruned = pruned.iter();
        let mut found_of: Vec<Option<&Found>> = Vec::with_capacity(nodes.len());
        for node in nodes {
            found_of.push(match node.is_pruned {
                _ if node.is_made() => None,
                true => pruned.next(),
                false => all.get(hidden + node.first as usize),
            });
        }
        // EXPLAIN shows what an Append that was made has below its only input.
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        for (made, below) in fold.made() {
            order[made + 1..=below].rotate_right(1);
        }
        let mut found: Vec<Found> = Vec::with_capacity(hidden + nodes.len());
        found.extend_from_slice(&all[..hidden]);
        let mut places = vec![None; nodes.len()];
        // Where the parent of what is below a node is. Of an Append that was made, it is the parent of that
        // first, and then the input.
        let mut parents: Vec<i32> = vec![hidden as i32 - 1; nodes.len()];
        for at in order {
            let above = nodes[at].parent.map(|above| above as usize);
            let parent = above.map_or(hidden as i32 - 1, |above| parents[above]);
            parents[at] = parent;
            let Some(place) = found_of[at] else {
                continue;
            };
            places[at] = Some(found.len());
            parents[at] = found.len() as i32;
            if let Some(above) = above.filter(|above| fold.is_made(*above) && !nodes[at].by_expression) {
                parents[above] = found.len() as i32;
            }
            found.push(Found {
                parent,
                depth: usize::try_from(parent).map_or(0, |parent| found[parent].depth + 1),
                ..*place
            });
        }
        First { found, places }
    }
}
