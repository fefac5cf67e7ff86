//! The nodes of an execution whose plan was folded ([`super::fold`]), as its session and those that watch it
//! see them: each partition by itself.

use super::description::PlanDescription;
use super::fold::Fold;
use super::node::NodeStats;
use super::partitions::{PartitionSum, list_length};
use crate::plan::{Attribute, PlanNode, Relationship, Rename, Renames, has_usual_characters, in_quotes};
use rustc_hash::{FxHashMap, FxHashSet};
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
    /// Which of the names are those of its table, from 1 on; 0 if it has the names of the description.
    pub names: u32,
}

/// The names of a table in the texts of conditions: of one with partitions, or of another one whose alias has
/// another number because partitions have the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableNames {
    /// In the folded description, for the table and all of its partitions.
    pub folded: String,
    /// Of the table, as EXPLAIN shows it.
    pub table: String,
    /// Of its partitions, without their numbers; empty if it has none.
    pub partitions: String,
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
    /// Which of the names are those of its table, from 1 on; 0 if it has the names of the description.
    pub names: u32,
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
    /// The names of the tables whose partitions it reads or changes, and of others that have other names.
    pub names: Vec<TableNames>,
    /// Those of these names that conditions have in quotes, though they have only usual characters: they are
    /// words that SQL reserves.
    pub reserved: Vec<String>,
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

    /// Returns how many bytes it takes.
    pub fn size(&self) -> usize {
        let names = self.names.iter().map(|names| {
            size_of_val(names) + names.folded.len() + names.table.len() + names.partitions.len()
        });
        let reserved = self.reserved.iter().map(|name| size_of_val(name) + name.len());
        size_of::<Self>()
            + self.fold.size()
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.changed)
            + names.chain(reserved).sum::<usize>()
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

    /// Returns the names with a number.
    fn names(&self, number: u32) -> Option<&TableNames> {
        self.names.get((number as usize).checked_sub(1)?)
    }

    /// Returns what to replace in conditions so that a name becomes another one.
    fn rename_of(&self, from: &str, to: &str) -> Rename {
        let is_reserved = |name: &str| self.reserved.iter().any(|reserved| reserved == name);
        Rename::new(from, to, |name| {
            match has_usual_characters(name) && !is_reserved(name) {
                true => name.to_owned(),
                false => in_quotes(name),
            }
        })
    }

    /// Returns the description of all nodes of the plan.
    pub fn unfold(&self, folded: &PlanDescription, name_of: NameOf) -> PlanDescription {
        let mut nodes: Vec<PlanNode> = Vec::with_capacity(self.nodes.len());
        // For each node, the input of an Append that it is in, or is.
        let mut members: Vec<Option<usize>> = Vec::with_capacity(self.nodes.len());
        // For each of these inputs, the names of its partitions.
        let mut renamed: FxHashMap<usize, Renames> = FxHashMap::default();
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
            let is_input = self.fold.nodes().get(at).is_some_and(|node| !node.by_expression);
            let made = folded_node
                .parent
                .filter(|parent| is_input && self.fold.is_made(*parent));
            if let Some(made) = made.and_then(|made| folded.nodes.get(made)) {
                node.relationship = made.relationship;
                node.subplan_name.clone_from(&made.subplan_name);
            }
            let is_named = node.alias_or_name().is_some();
            if let Some(name) = name_if_any(unfolded.object, name_of) {
                node.object_name = Some(name);
            }
            if let Some(name) = name_if_any(unfolded.table, name_of) {
                node.table = Some(name.into());
            }
            let above = parent.and_then(|parent| nodes.get(parent).zip(Some(parent)));
            let is_member = made.is_some()
                || node.relationship == Relationship::Member
                    && above.is_some_and(|(above, _)| above.operation.ends_with("Append"));
            let member = match above {
                _ if is_member => Some(id),
                Some((_, parent)) => members[parent],
                None => None,
            };
            members.push(member);
            if let Some(names) = self.names(unfolded.names).filter(|_| is_named) {
                let alias = match unfolded.object {
                    0 => names.table.clone(),
                    _ => numbered(&names.partitions, unfolded.alias),
                };
                node.alias = None;
                if node.alias_or_name() != Some(&alias) {
                    node.alias = Some(alias.clone().into());
                }
                if unfolded.object != 0 {
                    let rename = self.rename_of(&names.folded, &alias);
                    renamed.entry(member.unwrap_or(id)).or_default().add(rename);
                }
            }
            nodes.push(node);
        }
        self.rename(&mut nodes, &members, &renamed);
        for changed in &self.changed {
            let Some(node) = nodes.get_mut(changed.node as usize) else {
                continue;
            };
            let partitions = self.names(changed.names).map(|names| &*names.partitions);
            let base = partitions.or(node.alias_or_name()).unwrap_or_default().to_owned();
            let name = name_of(changed.table).unwrap_or_else(|| base.clone());
            let alias = numbered(&base, changed.alias);
            node.attributes
                .extend([(Attribute::TargetTable, name), (Attribute::TargetAlias, alias)]);
        }
        let mut description = folded.clone();
        description.nodes = nodes;
        description
    }

    /// Gives the conditions of the nodes the names that EXPLAIN shows. `members` has for each node the input
    /// of an Append that it is in, and `renamed` the names of the partitions in these.
    fn rename(&self, nodes: &mut [PlanNode], members: &[Option<usize>], renamed: &FxHashMap<usize, Renames>) {
        let mut tables = Renames::default();
        for names in &self.names {
            tables.add(self.rename_of(&names.folded, &names.table));
        }
        // The input around each node's parent.
        let around: Vec<Option<usize>> = nodes.iter().map(|node| members[node.parent?]).collect();
        for (node, member) in nodes.iter_mut().zip(members) {
            node.rename_prefixes(|alias| {
                // A partition's name hides that of its table, and that of the partition around.
                let inputs = std::iter::successors(*member, |member| around[*member]);
                let of_inputs = inputs.filter_map(|member| renamed.get(&member)?.of(alias)).next();
                of_inputs.or_else(|| tables.of(alias))
            });
        }
    }
}

/// The most bytes of a name.
const MAX_NAME: usize = 63;

/// Returns an alias with a number behind it. A long one is cut, as EXPLAIN does.
pub fn numbered(alias: &str, number: u32) -> String {
    if number == 0 {
        return alias.to_owned();
    }
    let number = format!("_{number}");
    let kept = alias.floor_char_boundary(MAX_NAME - number.len());
    format!("{}{number}", &alias[..kept.min(alias.len())])
}

fn name_if_any(oid: u32, name_of: NameOf) -> Option<String> {
    if oid == 0 { None } else { name_of(oid) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Calls, PlanPart};

    fn node(parent: Option<usize>, operation: &str, alias: Option<&str>, filter: &str) -> PlanNode {
        PlanNode {
            parent,
            operation: operation.to_owned(),
            object_name: alias.map(|_| "t".to_owned()),
            object_kind: crate::plan::ObjectKind::Relation,
            alias: alias.map(Into::into),
            relationship: match parent {
                Some(_) => Relationship::Member,
                None => Relationship::Unknown,
            },
            predicates: vec![("Filter".to_owned(), filter.to_owned())],
            ..PlanNode::default()
        }
    }

    #[test]
    fn each_partition_has_its_own_alias_in_all_conditions_below_its_append() {
        // A join of two tables whose alias is the same, partition by partition.
        let part = |parent, number, is_append, is_partition| PlanPart {
            parent,
            number,
            is_append,
            is_partition,
            is_appended: is_partition,
            ..PlanPart::default()
        };
        let mut parts = vec![part(None, 0, true, false)];
        for _ in 0..2 {
            let join = parts.len();
            parts.push(part(Some(0), 1, false, false));
            parts.push(part(Some(join), 2, false, true));
            parts.push(part(Some(join), 3, false, true));
        }
        let fold = Fold::new(&parts, &Calls::default()).expect("partitions");
        assert_eq!(fold.nodes().len(), 4);
        let names = |folded: &str, table: &str| TableNames {
            folded: folded.to_owned(),
            table: table.to_owned(),
            partitions: "a".to_owned(),
        };
        let scans = [(2, 1, 1), (3, 4, 2), (5, 2, 1), (6, 5, 2)];
        let mut nodes: Vec<UnfoldedNode> = parts
            .iter()
            .map(|part| UnfoldedNode {
                parent: part.parent.map(|parent| parent as u32),
                ..UnfoldedNode::default()
            })
            .collect();
        for (node, alias, names) in scans {
            nodes[node] = UnfoldedNode {
                object: node as u32,
                alias,
                names,
                ..nodes[node]
            };
        }
        let unfolding = Unfolding {
            fold,
            nodes,
            names: vec![names("a", "a"), names("a_1", "a_3")],
            ..Unfolding::default()
        };
        let mut inner = node(Some(1), "Index Scan", Some("a_1"), "(a_1.x = a.x)");
        inner.relationship = Relationship::Inner;
        let mut outer = node(Some(1), "Seq Scan", Some("a"), "(a.x > 1)");
        outer.relationship = Relationship::Outer;
        let mut folded = PlanDescription::default();
        folded.nodes.extend([
            node(None, "Append", None, "(a.y = a_1.y)"),
            node(Some(0), "Nested Loop", None, "(a.x <> a_1.x)"),
            outer,
            inner,
        ]);
        let unfolded = unfolding.unfold(&folded, |_| None);
        let filters: Vec<&str> = unfolded.nodes.iter().map(|node| &*node.predicates[0].1).collect();
        let expected = [
            "(a.y = a_3.y)",
            "(a_1.x <> a_4.x)",
            "(a_1.x > 1)",
            "(a_4.x = a_1.x)",
            "(a_2.x <> a_5.x)",
            "(a_2.x > 1)",
            "(a_5.x = a_2.x)",
        ];
        assert_eq!(filters, expected);
    }

    #[test]
    fn long_aliases_are_cut_before_their_number() {
        assert_eq!(numbered("orders", 0), "orders");
        assert_eq!(numbered("orders", 12), "orders_12");
        let long = "a".repeat(63);
        assert_eq!(numbered(&long, 7), format!("{}_7", "a".repeat(61)));
        let wide = "\u{e9}".repeat(31);
        assert_eq!(numbered(&wide, 10), format!("{}_10", "\u{e9}".repeat(30)));
    }
}
