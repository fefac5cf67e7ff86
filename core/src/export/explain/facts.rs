//! What PostgreSQL knows of a node: its conditions with the rows that they removed, and the facts of its
//! kind. Words and order are those of explain.c.

use super::counts::Counts;
use super::value::{Field, Item, Value, decimal, field};
use crate::model::NodeKind;
use crate::model::facts::{
    CONFLICTS, HEAP_FETCHES, INDEX_SEARCHES, SORT_METHODS, STORAGE, Shown, Slot, names,
};
use crate::plan::PlanNode;

/// Adds the conditions, each with how many rows it removed.
pub(super) fn add_conditions(node: &PlanNode, counts: &Counts, body: &mut Vec<Item>) {
    let mut conditions: Vec<&(String, String)> = node.predicates.iter().collect();
    if counts.scale.major >= 18 {
        conditions.sort_by_key(|(label, _)| label != "Run Condition");
    }
    let mut hashing = hash_aggregate(counts);
    for (label, condition) in &conditions {
        body.push(Item::text(label, condition));
        if label == "Filter" {
            body.extend(hashing.take());
        }
        let of_condition = |shown: Shown| matches!(shown, Shown::With(of) if of == label);
        body.extend(removed(counts, of_condition, true));
    }
    body.extend(hashing);
    // The conditions of a very large plan are not described.
    let is_hidden =
        |shown: Shown| matches!(shown, Shown::With(of) if !conditions.iter().any(|(label, _)| label == of));
    body.extend(removed(counts, is_hidden, false));
}

/// Returns how many rows conditions removed in each loop.
fn removed(counts: &Counts, wanted: impl Fn(Shown) -> bool, if_none: bool) -> Vec<Item> {
    let facts = counts.kind().facts().iter().filter(|fact| wanted(fact.shown));
    facts
        .filter_map(|fact| {
            let Slot::Sum(slot) = fact.slot else { return None };
            let (total, per_loop) = (counts.sum(slot), counts.sum_per_loop(slot));
            let item = Item {
                lines: vec![format!("{}: {per_loop:.0}", fact.key)],
                fields: vec![field(fact.key, decimal(per_loop, 0))],
            };
            (if_none || total > 0).then(|| item.line_if(total > 0))
        })
        .collect()
}

/// Returns what PostgreSQL knows of a node of this kind. `evaluated` are the parameters that a Gather passes
/// to its workers.
pub(super) fn facts(counts: &Counts, evaluated: Vec<String>) -> Vec<Item> {
    let kind = counts.kind();
    let facts = counts.facts();
    let mut items = Vec::new();
    if kind == NodeKind::IndexOnlyScan {
        items.push(Item::number("Heap Fetches", counts.sum(HEAP_FETCHES)));
    }
    match kind {
        NodeKind::IndexScan | NodeKind::IndexOnlyScan | NodeKind::BitmapIndexScan
            if counts.scale.major >= 18 =>
        {
            items.push(Item::number("Index Searches", counts.sum(INDEX_SEARCHES)));
        }
        NodeKind::BitmapHeapScan => {
            items.push(heap_blocks(counts));
            items.extend(scan_io(counts));
        }
        NodeKind::TableScan => items.extend(scan_io(counts)),
        NodeKind::Gather => {
            items.push(Item::number("Workers Planned", counts.sum(2)));
            if !evaluated.is_empty() {
                items.push(Item::list("Params Evaluated", evaluated));
            }
            items.push(Item::number("Workers Launched", counts.sum(3)));
        }
        NodeKind::InsertOnConflict => {
            let conflicts = counts.sum(CONFLICTS);
            let inserted = counts.other_input_rows(conflicts);
            items.push(Item::number("Tuples Inserted", inserted));
            items.push(Item::number("Conflicting Tuples", conflicts));
        }
        NodeKind::Merge => items.push(merged([counts.sum(0), counts.sum(1), counts.sum(2)], counts)),
        NodeKind::Sort => items.extend(sort(counts)),
        NodeKind::IncrementalSort => items.extend(incremental_sort(counts)),
        NodeKind::Hash if facts.peaks[2] > 0 => items.push(hash(counts)),
        NodeKind::Memoize if counts.own_facts().sums[1] > 0 => items.push(memoize(counts)),
        NodeKind::Storage => {
            let storage = all(facts.methods, &STORAGE).join(", ");
            if !storage.is_empty() {
                let kb = u64::from(facts.peaks[0]);
                items.push(Item::packed(
                    vec![field("Storage", storage.as_str()), field("Maximum Storage", kb)],
                    format!("Storage: {storage}  Maximum Storage: {kb}kB"),
                ));
            }
        }
        _ => {}
    }
    items
}

/// Returns what PostgreSQL knows of what a parallel worker did. `counts` are those of the worker.
pub(super) fn worker_facts(counts: &Counts) -> Vec<Item> {
    if !counts.facts().is_known() {
        return Vec::new();
    }
    match counts.kind() {
        NodeKind::Sort => sort(counts).into_iter().collect(),
        NodeKind::IncrementalSort => incremental_sort(counts),
        NodeKind::HashAggregate => {
            let (fields, words) = hash_aggregate_memory(counts);
            vec![Item::packed(fields, words.join("  "))]
        }
        NodeKind::Memoize => vec![memoize(counts)],
        NodeKind::BitmapHeapScan => {
            let has_blocks = counts.sum(2) + counts.sum(3) > 0;
            let blocks = has_blocks.then(|| heap_blocks(counts));
            blocks.into_iter().chain(scan_io(counts)).collect()
        }
        NodeKind::TableScan => scan_io(counts).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn heap_blocks(counts: &Counts) -> Item {
    let [exact, lossy] = [counts.own_sum(2), counts.own_sum(3)];
    let words = counted(&[("exact", exact), ("lossy", lossy)]);
    let fields = vec![
        field("Exact Heap Blocks", exact),
        field("Lossy Heap Blocks", lossy),
    ];
    Item::packed(fields, format!("Heap Blocks:{words}")).line_if(!words.is_empty())
}

/// Returns how a scan read blocks ahead, in all processes that `counts` are of.
fn scan_io(counts: &Counts) -> Option<Item> {
    let io = counts.facts().scan_io()?;
    let (distance, size, in_progress) = (io.mean_distance(), io.mean_size(), io.mean_in_progress());
    let (max, capacity) = (u64::from(io.max_distance), u64::from(io.capacity));
    let (reads, waits) = (counts.scale.whole(io.reads), counts.scale.whole(io.waits));
    let mut lines = vec![format!(
        "Prefetch: avg={distance:.2} max={max} capacity={capacity}"
    )];
    if reads > 0 {
        lines.push(format!(
            "I/O: count={reads} waits={waits} size={size:.2} in-progress={in_progress:.2}"
        ));
    }
    let fields = vec![
        field("Average Prefetch Distance", decimal(distance, 3)),
        field("Max Prefetch Distance", max),
        field("Prefetch Capacity", capacity),
        field("I/O Count", reads),
        field("I/O Waits", waits),
        field("Average I/O Size", decimal(size, 3)),
        field("Average I/Os In Progress", decimal(in_progress, 3)),
    ];
    Some(Item { lines, fields })
}

/// Returns the counts that are not zero, with their names.
fn counted(counts: &[(&str, u64)]) -> String {
    let shown = counts.iter().filter(|(_, count)| *count > 0);
    shown.map(|(name, count)| format!(" {name}={count}")).collect()
}

fn merged([inserted, updated, deleted]: [u64; 3], counts: &Counts) -> Item {
    let skipped = counts.other_input_rows(inserted + updated + deleted);
    let all = [
        ("inserted", inserted),
        ("updated", updated),
        ("deleted", deleted),
        ("skipped", skipped),
    ];
    let words = counted(&all);
    let fields = vec![
        field("Tuples Inserted", inserted),
        field("Tuples Updated", updated),
        field("Tuples Deleted", deleted),
        field("Tuples Skipped", skipped),
    ];
    Item::packed(fields, format!("Tuples:{words}")).line_if(!words.is_empty())
}

/// Returns the names of the methods whose bits are set.
fn all(methods: u32, known: &'static [&'static str]) -> Vec<&'static str> {
    names(methods, known).collect()
}

fn sort(counts: &Counts) -> Option<Item> {
    let facts = counts.own_facts();
    let methods = all(facts.methods, &SORT_METHODS);
    // Core prints one. If executions or processes used several, that is the one that needed most.
    let method = *methods.last()?;
    let (kind, kb) = match facts.disk_kb.get() {
        Some(kb) => ("Disk", kb),
        None => ("Memory", facts.memory_kb.get_or_zero()),
    };
    let mut fields = vec![
        field("Sort Method", method),
        field("Sort Space Used", u64::from(kb)),
        field("Sort Space Type", kind),
    ];
    let plural = if methods.len() > 1 { "s" } else { "" };
    let line = format!("Sort Method{plural}: {}  {kind}: {kb}kB", methods.join(", "));
    if methods.len() > 1 {
        let methods = methods.into_iter().map(str::to_owned).collect();
        fields.push(field("Sort Methods Used", Value::List(methods)));
    }
    Some(Item::packed(fields, line))
}

/// Returns the groups of an incremental sort. The first of each pair of sums and peaks is of the groups that
/// it sorted by all keys, the second of presorted groups.
fn incremental_sort(counts: &Counts) -> Vec<Item> {
    let facts = counts.own_facts();
    let of = |(which, name): (usize, &str)| {
        let groups = facts.sums[which];
        if groups == 0 {
            return None;
        }
        let shown = counts.own_sum(which).max(1);
        let methods = all(facts.methods >> (8 * which), &SORT_METHODS);
        let plural = if methods.len() > 1 { "s" } else { "" };
        let mut line = format!(
            "{name} Groups: {shown}  Sort Method{plural}: {}",
            methods.join(", ")
        );
        let methods = methods.into_iter().map(str::to_owned).collect();
        let mut group = vec![
            field("Group Count", shown),
            field("Sort Methods Used", Value::List(methods)),
        ];
        for (space, kind) in ["Memory", "Disk"].into_iter().enumerate() {
            let peak = u64::from(facts.peaks[2 * space + which]);
            if peak == 0 {
                continue;
            }
            let average = facts.sums[2 * (space + 1) + which] / groups;
            line += &format!("  Average {kind}: {average}kB  Peak {kind}: {peak}kB");
            group.push(field(
                &format!("Sort Space {kind}"),
                Value::Object(
                    "Sort Space",
                    vec![
                        field("Average Sort Space Used", average),
                        field("Peak Sort Space Used", peak),
                    ],
                ),
            ));
        }
        let label = format!("{name} Groups");
        Some(Item::packed(
            vec![field(&label, Value::Object("Incremental Sort Groups", group))],
            line,
        ))
    };
    let names = ["Full-sort", "Pre-sorted"].into_iter().enumerate();
    names.filter_map(of).collect()
}

fn hash(counts: &Counts) -> Item {
    let facts = counts.facts();
    let [buckets, first_buckets, batches, first_batches] = facts.peaks;
    let kb = facts.memory_kb.get_or_zero();
    let line = if (buckets, batches) == (first_buckets, first_batches) {
        format!("Buckets: {buckets}  Batches: {batches}  Memory Usage: {kb}kB")
    } else {
        format!(
            "Buckets: {buckets} (originally {first_buckets})  Batches: {batches} (originally {first_batches})  Memory Usage: {kb}kB"
        )
    };
    let fields = [
        ("Hash Buckets", buckets),
        ("Original Hash Buckets", first_buckets),
        ("Hash Batches", batches),
        ("Original Hash Batches", first_batches),
        ("Peak Memory Usage", kb),
    ];
    Item::packed(
        fields
            .map(|(label, number)| field(label, u64::from(number)))
            .to_vec(),
        line,
    )
}

/// Returns what is known of an aggregate that hashes its groups.
fn hash_aggregate(counts: &Counts) -> Option<Item> {
    if counts.kind() != NodeKind::HashAggregate {
        return None;
    }
    let partitions = counts.own_facts().peaks[0];
    let (mut fields, mut words) = hash_aggregate_memory(counts);
    fields.insert(0, field("Planned Partitions", u64::from(partitions)));
    if partitions > 0 {
        words.insert(0, format!("Planned Partitions: {partitions}"));
    }
    Some(Item::packed(fields, words.join("  ")))
}

/// Returns the fields and the words for the memory of such an aggregate. There are none if it did nothing.
fn hash_aggregate_memory(counts: &Counts) -> (Vec<Field>, Vec<String>) {
    let facts = counts.own_facts();
    let batches = facts.peaks[1];
    let (mut fields, mut words) = (Vec::new(), Vec::new());
    if let Some(kb) = facts.memory_kb.get() {
        let disk = facts.disk_kb.get_or_zero();
        fields.push(field("HashAgg Batches", u64::from(batches)));
        fields.push(field("Peak Memory Usage", u64::from(kb)));
        fields.push(field("Disk Usage", u64::from(disk)));
        words.push(format!("Batches: {batches}  Memory Usage: {kb}kB"));
        if batches > 1 {
            words.push(format!("Disk Usage: {disk}kB"));
        }
    }
    (fields, words)
}

fn memoize(counts: &Counts) -> Item {
    let kb = u64::from(counts.own_facts().memory_kb.get_or_zero());
    let all: Vec<(&str, u64)> = ["Hits", "Misses", "Evictions", "Overflows"]
        .into_iter()
        .enumerate()
        .map(|(slot, name)| (name, counts.own_sum(slot)))
        .collect();
    let mut line: String = all
        .iter()
        .map(|(name, count)| format!("{name}: {count}  "))
        .collect();
    line += &format!("Memory Usage: {kb}kB");
    let counted = all
        .iter()
        .map(|(name, count)| field(&format!("Cache {name}"), *count));
    let fields = counted.chain([field("Peak Memory Usage", kb)]).collect();
    Item::packed(fields, line)
}
