//! The nodes of an execution whose plan was folded ([`super::fold`]), as its session and those that watch it
//! see them: each partition by itself.

use super::description::PlanDescription;
use super::fold::Fold;
use super::node::NodeStats;
use super::partitions::{PartitionSum, list_length};
use crate::plan::{Attribute, PlanNode};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

/// A node of the plan that the folded description does not have by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfoldedNode {
    /// The index of its parent.
    pub parent: Option<u32>,
    /// The OID of the index or the partition that it scans; 0 if it scans no partition.
    pub object: u32,
    /// The OID of the partition of an index scan; 0 if it is none.
    pub table: u32,
    /// The number behind the alias of the partition; 0 if there is none.
    pub alias: u32,
}

/// A partition that a node changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPartition {
    /// The index of the node.
    pub node: u32,
    /// The OID of the partition.
    pub table: u32,
    /// The number behind the alias of the partition; 0 if there is none.
    pub alias: u32,
}

/// What tells the nodes of an execution apart that are one node in the description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfolding {
    /// Which nodes are one.
    pub fold: Fold,
    /// The number that sessions know the folded plan by.
    pub number: i64,
    /// The plan's nodes.
    pub nodes: Vec<UnfoldedNode>,
    /// The partitions that its nodes change, which the folded description does not have.
    pub changed: Vec<ChangedPartition>,
}

/// Returns the name of the relation with an OID, if it is known.
pub type NameOf = fn(u32) -> Option<String>;

impl Unfolding {
    /// Returns what each partition did in an execution, ordered by the nodes of the folded plan. Those that
    /// did not run, or for which there is no memory, are left out.
    pub fn partitions(&self, nodes: &[NodeStats]) -> Vec<PartitionSum> {
        let mut partitions = Vec::new();
        for (i, stats) in nodes.iter().enumerate() {
            let relid = self.partition(i).filter(|_| stats.starts.get_or_zero() > 0);
            if let Some(relid) = relid.filter(|_| partitions.try_reserve(1).is_ok()) {
                partitions.push(PartitionSum::new(self.fold.of(i) as u32, relid, stats));
            }
        }
        partitions.sort_unstable_by_key(|partition| partition.node);
        partitions
    }

    /// Returns the length of the list of the partitions that took the longest.
    pub fn list_length(&self) -> usize {
        let is_scan = |node: &usize| self.partition(*node).is_some();
        let scans = (0..self.nodes.len()).filter(is_scan);
        let folded: FxHashSet<usize> = scans.map(|node| self.fold.of(node)).collect();
        list_length(folded.len())
    }

    /// Returns the OID of the partition that a node scans, or of its index if that is all; `None` if it scans
    /// no partition.
    pub fn partition(&self, node: usize) -> Option<u32> {
        let node = self.nodes.get(node).filter(|node| node.object != 0)?;
        Some(if node.table == 0 { node.object } else { node.table })
    }

    /// Returns the description of all nodes of the plan.
    pub fn unfold(&self, folded: &PlanDescription, name_of: NameOf) -> PlanDescription {
        let mut nodes: Vec<PlanNode> = Vec::with_capacity(self.nodes.len());
        // For each node the aliases in the description, and those here: of the scans whose subplan it is in,
        // and its own.
        let mut aliases: Vec<Vec<(String, String)>> = Vec::with_capacity(self.nodes.len());
        for (id, unfolded) in self.nodes.iter().enumerate() {
            let at = self.fold.of(id);
            let Some(folded_node) = folded.nodes.get(at) else {
                break;
            };
            let parent = unfolded.parent.map(|parent| parent as usize);
            let mut node = PlanNode {
                id,
                parent,
                depth: parent
                    .and_then(|parent| nodes.get(parent))
                    .map_or(0, |parent| parent.depth + 1),
                ..folded_node.clone()
            };
            // The parent of the Append that was made is the node's own.
            let made = folded_node.parent.filter(|parent| self.fold.is_made(*parent));
            if let Some(made) = made.and_then(|made| folded.nodes.get(made)) {
                node.relationship = made.relationship;
                node.subplan_name.clone_from(&made.subplan_name);
            }
            let base = (unfolded.object != 0)
                .then(|| node.alias_or_name().map(str::to_owned))
                .flatten();
            if let Some(name) = name_if_any(unfolded.object, name_of) {
                node.object_name = Some(name);
            }
            if let Some(name) = name_if_any(unfolded.table, name_of) {
                node.table = Some(name.into());
            }
            // What is below a scan are its subplans.
            let mut renamed = parent
                .and_then(|parent| aliases.get(parent).cloned())
                .unwrap_or_default();
            if let Some(base) = base {
                let alias = numbered(&base, unfolded.alias);
                node.alias = None;
                if node.alias_or_name() != Some(&alias) {
                    node.alias = Some(alias.clone().into());
                }
                renamed.retain(|(earlier, _)| *earlier != base);
                renamed.push((base, alias));
            }
            aliases.push(renamed);
            nodes.push(node);
        }
        for (at, (base, alias)) in aliases
            .iter()
            .enumerate()
            .flat_map(|(at, renamed)| renamed.iter().map(move |names| (at, names)))
        {
            // The nodes up to the Append have this partition, too.
            let mut above = Some(at);
            while let Some(node) = above.and_then(|at| nodes.get_mut(at)) {
                node.rename_prefix(&quoted(base), &quoted(alias));
                let parent = node.parent.filter(|_| self.nodes[at].object != 0);
                above = parent.filter(|parent| !nodes[*parent].operation.ends_with("Append"));
            }
        }
        for changed in &self.changed {
            let Some(node) = nodes.get_mut(changed.node as usize) else {
                continue;
            };
            let base = node.alias_or_name().unwrap_or_default().to_owned();
            let name = name_of(changed.table).unwrap_or_else(|| base.clone());
            let alias = numbered(&base, changed.alias);
            node.attributes
                .extend([(Attribute::TargetTable, name), (Attribute::TargetAlias, alias)]);
        }
        let mut description = folded.clone();
        description.nodes = nodes;
        description
    }
}

/// Returns an alias with a number behind it.
fn numbered(alias: &str, number: u32) -> String {
    match number {
        0 => alias.to_owned(),
        number => format!("{alias}_{number}"),
    }
}

/// Quotes a name as PostgreSQL does, but for words that it reserves.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match name.chars().all(is_plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

fn name_if_any(oid: u32, name_of: NameOf) -> Option<String> {
    if oid == 0 { None } else { name_of(oid) }
}
