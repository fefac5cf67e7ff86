//! Folds the nodes of core's EXPLAIN by the rule of the book's page on partitions: what does the same below
//! an Append to partitions of one table is one node. EXPLAIN does not say what an Append appends: whole
//! queries, if one of them reads no partition, and others do more than to read one. It is written without the
//! library's code, so that both can be compared.

use crate::explain::NodeCounts;
use crate::facts;
use postgres::Client;
use std::collections::{BTreeMap, BTreeSet};

/// The tables of partitions, and what indexes index, by names.
struct Catalog {
    /// The topmost table of each one that has or is a partition.
    tables: BTreeMap<String, String>,
    indexes: BTreeMap<String, String>,
}

impl Catalog {
    fn read(client: &mut Client) -> Catalog {
        let mut pairs = |sql: &str| -> BTreeMap<String, String> {
            let rows = client.query(sql, &[]).expect("catalogs");
            rows.iter().map(|row| (row.get(0), row.get(1))).collect()
        };
        Catalog {
            tables: pairs(
                "WITH RECURSIVE up AS (
                     SELECT inhparent AS relation, inhparent AS top FROM pg_inherits
                     WHERE inhparent NOT IN (SELECT inhrelid FROM pg_inherits)
                     UNION
                     SELECT inhrelid, top FROM pg_inherits JOIN up ON inhparent = relation)
                 SELECT c.relname::text, t.relname::text
                 FROM up JOIN pg_class c ON c.oid = relation JOIN pg_class t ON t.oid = top",
            ),
            indexes: pairs(
                "SELECT c.relname::text, concat_ws(' ', amname, indisunique, indoption, indnkeyatts,
                     pg_get_expr(indpred, indrelid),
                     (SELECT string_agg(pg_get_indexdef(indexrelid, at, true), ',' ORDER BY at)
                      FROM generate_series(1, indnatts) at))
                 FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam",
            ),
        }
    }

    /// Returns the table of the partition that a node scans, and its alias without its number. A partition
    /// has the alias of its table, so one that is named itself is none.
    fn partition(&self, node: &NodeCounts) -> Option<(&str, String)> {
        let (relation, alias) = (node.relation.as_ref()?, node.alias.as_ref()?);
        let table = self.tables.get(relation).filter(|_| alias != relation)?;
        let number = alias
            .rsplit_once('_')
            .filter(|(_, number)| number.parse::<u32>().is_ok());
        Some((table, number.map_or(alias.clone(), |(name, _)| name.to_owned())))
    }
}

/// A node, what is below it, and what tells it apart from others.
struct Tree {
    node: NodeCounts,
    below: Vec<Tree>,
    is_partition: bool,
    has_partition: bool,
    /// Of an Append: whether each of its inputs has a partition.
    all_have_partition: bool,
    does: String,
}

impl Tree {
    /// Takes the first node and all below it.
    fn take(
        nodes: &mut std::iter::Peekable<std::vec::IntoIter<NodeCounts>>,
        catalog: &Catalog,
        table: &str,
    ) -> Tree {
        let node = nodes.next().expect("a node");
        let partition = catalog.partition(&node);
        let table = partition.as_ref().map_or(table, |(table, _)| *table).to_owned();
        let mut below = Vec::new();
        while nodes.peek().is_some_and(|next| next.depth > node.depth) {
            below.push(Tree::take(nodes, catalog, &table));
        }
        let scanned = match &partition {
            Some(partition) => format!("{partition:?}"),
            None => format!("{:?} {:?}", node.relation, node.alias),
        };
        // What a BitmapIndexScan reads is the index of the table above it.
        let is_below_partition = !table.is_empty() && node.relation.is_none();
        let index = match node.index.as_ref() {
            Some(index) if partition.is_some() || is_below_partition => catalog.indexes.get(index),
            index => index,
        };
        let inputs = || below.iter().filter(|below| !below.node.is_by_expression);
        let mut does: Vec<&str> = inputs().map(|below| &*below.does).collect();
        let all_have_partition = inputs().all(|below| below.has_partition);
        if is_append(&node) {
            let (alike, others): (Vec<&Tree>, Vec<&Tree>) =
                inputs().partition(|below| below.is_appended(all_have_partition));
            let alike: BTreeSet<&str> = alike.iter().map(|below| &*below.does).collect();
            does = others.iter().map(|below| &*below.does).collect();
            does.extend(alike);
        }
        Tree {
            all_have_partition,
            does: format!("{} {scanned} {index:?} ({})", node.operation, does.join(", ")),
            has_partition: partition.is_some() || inputs().any(|below| below.has_partition),
            is_partition: partition.is_some(),
            below,
            node,
        }
    }
}

impl Tree {
    /// Returns whether an input of an Append is one of its partitions, or reads one partition by partition.
    fn is_appended(&self, all_have_partition: bool) -> bool {
        let reads_one = |tree: &Tree| {
            let passes_on = ["Sort", "Incremental Sort"].contains(&&*tree.node.operation);
            passes_on && tree.below.iter().any(|below| below.is_appended(false))
        };
        let is_append = is_append(&self.node) && self.all_have_partition;
        self.has_partition && (all_have_partition || self.is_partition || is_append || reads_one(self))
    }
}

fn is_append(node: &NodeCounts) -> bool {
    node.operation.ends_with("Append")
}

/// Returns the sums of nodes that are one.
fn sum(nodes: &[NodeCounts]) -> NodeCounts {
    let mut sum = nodes[0].clone();
    if nodes.len() > 1 {
        let rows = nodes.iter().map(NodeCounts::total_rows);
        sum.rows = Some(rows.fold((0.0, 0.0), |sum, rows| (sum.0 + rows.0, sum.1 + rows.1)));
        let facts: Vec<_> = nodes.iter().map(|node| (&node.facts, node.loops)).collect();
        sum.facts = facts::of_several(&facts);
    }
    for node in &nodes[1..] {
        sum.loops += node.loops;
        sum.counters
            .iter_mut()
            .zip(node.counters)
            .for_each(|(sum, count)| *sum += count);
    }
    sum
}

/// Says of an Append which of its partitions ran.
fn add_partitions(append: &mut NodeCounts, partitions: &[bool]) {
    let removed = append
        .facts
        .get("Subplans Removed")
        .and_then(serde_json::Value::as_u64);
    if !partitions.is_empty() || removed.is_some_and(|removed| removed > 0) {
        let planned = partitions.len() as u64 + removed.unwrap_or(0);
        let run = partitions.iter().filter(|run| **run).count();
        append
            .facts
            .insert("Partitions Planned".to_owned(), planned.into());
        append.facts.insert("Partitions Run".to_owned(), run.into());
    }
}

/// Adds the nodes that are one, and what is below them.
fn add(mut alike: Vec<Tree>, depth: usize, is_below_append: bool, folded: &mut Vec<NodeCounts>) {
    let nodes: Vec<NodeCounts> = alike.iter().map(|tree| tree.node.clone()).collect();
    let mut sum = NodeCounts { depth, ..sum(&nodes) };
    let is_alone = alike[0].is_partition && !is_below_append;
    let partitions: Vec<bool> = match (is_alone, is_append(&sum)) {
        (true, _) => nodes.iter().map(|node| node.loops > 0).collect(),
        (_, true) => {
            let below = alike.iter().flat_map(|tree| &tree.below);
            let is_appended = |below: &Tree| below.is_appended(alike[0].all_have_partition);
            let below =
                below.filter(|it| is_appended(it) && !it.node.is_by_expression && !is_append(&it.node));
            below.map(|below| below.node.loops > 0).collect()
        }
        _ => Vec::new(),
    };
    if is_append(&sum) {
        add_partitions(&mut sum, &partitions);
    }
    if is_alone {
        let mut append = sum.clone();
        let is_parallel = sum.operation.starts_with("Parallel ");
        append.operation = if is_parallel { "Parallel Append" } else { "Append" }.to_owned();
        append.facts.clear();
        add_partitions(&mut append, &partitions);
        folded.push(append);
        sum.depth += 1;
        sum.init_plan = false;
        // The Append has the InitPlans.
        for tree in &mut alike {
            let below = std::mem::take(&mut tree.below);
            let (init_plans, others): (Vec<Tree>, Vec<Tree>) =
                below.into_iter().partition(|below| below.node.init_plan);
            tree.below = others;
            for init_plan in init_plans {
                add(vec![init_plan], sum.depth, false, folded);
            }
        }
    }
    let (depth, is_append) = (sum.depth + 1, is_append(&sum));
    let all_have_partition = alike[0].all_have_partition;
    folded.push(sum);
    // Inputs by their place; what does the same to partitions; expressions by what they do.
    let mut groups: Vec<((bool, String, usize), Vec<Tree>)> = Vec::new();
    for tree in alike {
        let (mut inputs, mut expressions) = (0, BTreeMap::<String, usize>::new());
        for below in tree.below {
            let key = if below.node.is_by_expression {
                let same = expressions.entry(below.does.clone()).or_default();
                *same += 1;
                (true, below.does.clone(), *same)
            } else if is_append && below.is_appended(all_have_partition) {
                (false, below.does.clone(), 0)
            } else {
                inputs += 1;
                (false, String::new(), inputs)
            };
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.push(below),
                None => groups.push((key, vec![below])),
            }
        }
    }
    for (_, group) in groups {
        let first = &group[0];
        let is_below_append = !first.node.is_by_expression
            && if is_append {
                first.is_appended(all_have_partition)
            } else {
                is_below_append
            };
        add(group, depth, is_below_append, folded);
    }
}

/// Folds the nodes of a plan.
pub fn folded(client: &mut Client, nodes: Vec<NodeCounts>) -> Vec<NodeCounts> {
    let catalog = Catalog::read(client);
    if !nodes.iter().any(|node| catalog.partition(node).is_some()) {
        return nodes;
    }
    let root = Tree::take(&mut nodes.into_iter().peekable(), &catalog, "");
    let mut folded = Vec::new();
    add(vec![root], 0, false, &mut folded);
    folded
}

/// Sorts what is below each Append by `key`, of which the folded nodes have no order.
pub fn sorted<T: Clone, K: Ord>(
    nodes: &[T],
    depth: fn(&T) -> usize,
    is_append: fn(&T) -> bool,
    key: fn(&T) -> K,
) -> Vec<T> {
    let Some((first, mut rest)) = nodes.split_first() else {
        return Vec::new();
    };
    let mut groups: Vec<Vec<T>> = Vec::new();
    while let Some(child) = rest.first() {
        let end = (1..rest.len()).find(|at| depth(&rest[*at]) <= depth(child));
        let (group, others) = rest.split_at(end.unwrap_or(rest.len()));
        groups.push(sorted(group, depth, is_append, key));
        rest = others;
    }
    if is_append(first) {
        groups.sort_by_cached_key(|group| group.iter().map(key).collect::<Vec<K>>());
    }
    std::iter::once(first.clone())
        .chain(groups.into_iter().flatten())
        .collect()
}
