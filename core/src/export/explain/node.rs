//! What EXPLAIN says of a node: its name, its costs, its conditions and keys, and what PostgreSQL knows of
//! it. Words and order are those of `ExplainNode` in explain.c.

use super::counts::Counts;
use super::facts::{add_conditions, facts};
use super::list::items;
use super::value::{Field, Item, Value, decimal, field};
use crate::model::NodeKind;
use crate::model::facts::{PARTITIONS_PLANNED, PARTITIONS_RUN, SUBPLANS_REMOVED};
use crate::plan::{Attribute, ObjectKind, PlanNode, Relationship};

/// Returns the first line of a node in the text format, without costs.
pub(super) fn title(node: &PlanNode, quote: &dyn Fn(&str) -> String) -> String {
    let alias = node.alias.iter().map(|alias| format!(" {}", quote(alias)));
    let alias: String = alias.collect();
    let operation = &node.operation;
    let Some(object) = &node.object_name else {
        return operation.clone();
    };
    let object = quote(object);
    match (&node.table, node.object_kind) {
        (_, ObjectKind::Relations) => operation.clone(),
        (Some(table), _) => format!("{operation} using {object} on {}{alias}", quote(table)),
        _ if operation.ends_with("Bitmap Index Scan") => format!("{operation} on {object}"),
        _ => format!("{operation} on {object}{alias}"),
    }
}

/// Returns the costs of a node in the text format, as far as they are known.
pub(super) fn costs(node: &PlanNode) -> String {
    if node.total_cost.is_nan() {
        return format!("  (rows={:.0})", node.plan_rows);
    }
    format!(
        "  (cost={:.2}..{:.2} rows={:.0} width={:.0})",
        node.startup_cost, node.total_cost, node.plan_rows, node.plan_width
    )
}

/// Returns the fields that name a node and its object, and its costs.
pub(super) fn head(node: &PlanNode) -> Vec<Field> {
    let (is_parallel, operation) = without("Parallel ", &node.operation);
    let (is_async, operation) = without("Async ", operation);
    let (is_backward, operation) = match operation.strip_suffix(" Backward") {
        Some(operation) => (true, operation),
        None => (false, operation),
    };
    let kind = kind(operation);
    let mut fields = kind.before;
    if node.depth > 0 {
        let relationship = match (node.relationship, &node.subplan_name) {
            (Relationship::Unknown, Some(_)) => Relationship::SubPlan,
            (Relationship::Unknown, None) => Relationship::Outer,
            (known, _) => known,
        };
        fields.push(field("Parent Relationship", relationship.name()));
    }
    if let Some(name) = &node.subplan_name {
        fields.push(field("Subplan Name", name.as_str()));
    }
    fields.extend(kind.provider);
    fields.push(field("Parallel Aware", is_parallel));
    fields.push(field("Async Capable", is_async));
    if matches!(operation, "Index Scan" | "Index Only Scan") {
        let direction = match is_backward {
            true => "Backward",
            false if attribute(node, Attribute::NoMovement).next().is_some() => "NoMovement",
            false => "Forward",
        };
        fields.push(field("Scan Direction", direction));
    }
    add_object(node, operation, &mut fields);
    fields.extend(kind.after);
    let costs = [
        ("Startup Cost", node.startup_cost, 2),
        ("Total Cost", node.total_cost, 2),
        ("Plan Rows", node.plan_rows, 0),
        ("Plan Width", node.plan_width, 0),
    ];
    let known = costs.into_iter().filter(|(_, number, _)| !number.is_nan());
    fields.extend(known.map(|(label, number, decimals)| field(label, decimal(number, decimals))));
    fields
}

fn without<'a>(prefix: &str, text: &'a str) -> (bool, &'a str) {
    match text.strip_prefix(prefix) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

/// The fields that the text format joins in a node's name.
#[derive(Default)]
struct Kind {
    before: Vec<Field>,
    /// The provider of a custom scan.
    provider: Option<Field>,
    /// What follows the object.
    after: Option<Field>,
}

/// Returns the fields that a node's name stands for. It undoes `crate::plan::naming`.
fn kind(operation: &str) -> Kind {
    let named = |node_type: &str, others: &[(&str, &str)]| {
        let others = others.iter().map(|(label, value)| field(label, *value));
        Kind {
            before: std::iter::once(field("Node Type", node_type))
                .chain(others)
                .collect(),
            ..Kind::default()
        }
    };
    if matches!(operation, "Insert" | "Update" | "Delete" | "Merge") {
        return named("ModifyTable", &[("Operation", operation)]);
    }
    if let Some(what) = operation.strip_prefix("Foreign ") {
        let what = if what == "Scan" { "Select" } else { what };
        return named("Foreign Scan", &[("Operation", what)]);
    }
    if let Some(provider) = operation.strip_prefix("Custom Scan (") {
        return Kind {
            provider: Some(field("Custom Plan Provider", provider.trim_end_matches(')'))),
            ..named("Custom Scan", &[])
        };
    }
    if let Some((node_type, join_type)) = join(operation) {
        return Kind {
            after: Some(field("Join Type", join_type)),
            ..named(node_type, &[])
        };
    }
    for (prefix, strategy) in [("HashSetOp", "Hashed"), ("SetOp", "Sorted")] {
        if let Some(command) = operation.strip_prefix(prefix) {
            let command = command.trim_start();
            return Kind {
                after: (!command.is_empty()).then(|| field("Command", command)),
                ..named("SetOp", &[("Strategy", strategy)])
            };
        }
    }
    let (mode, aggregate) = match operation.split_once(' ') {
        Some((mode @ ("Partial" | "Finalize"), aggregate)) => (mode, aggregate),
        _ => ("Simple", operation),
    };
    let strategy = match aggregate {
        "Aggregate" => "Plain",
        "GroupAggregate" => "Sorted",
        "HashAggregate" => "Hashed",
        "MixedAggregate" => "Mixed",
        _ => return named(operation, &[]),
    };
    named("Aggregate", &[("Strategy", strategy), ("Partial Mode", mode)])
}

/// Returns the node type and the join type of a join.
fn join(operation: &str) -> Option<(&'static str, &str)> {
    let methods = [
        ("Hash ", "Hash Join"),
        ("Merge ", "Merge Join"),
        ("Nested Loop", "Nested Loop"),
    ];
    methods.into_iter().find_map(|(prefix, node_type)| {
        let rest = operation.strip_prefix(prefix)?;
        let join_type = match rest {
            "" | "Join" => "Inner",
            _ => rest.strip_suffix(" Join")?.trim_start(),
        };
        Some((node_type, join_type))
    })
}

fn add_object(node: &PlanNode, operation: &str, fields: &mut Vec<Field>) {
    let Some(object) = &node.object_name else {
        return;
    };
    let alias = |own: &str| field("Alias", node.alias.as_deref().unwrap_or(own));
    match node.object_kind {
        ObjectKind::Relations => {}
        ObjectKind::Index | ObjectKind::Unknown
            if node.table.is_some() || operation == "Bitmap Index Scan" =>
        {
            fields.push(field("Index Name", object.as_str()));
            if let Some(table) = &node.table {
                fields.push(field("Relation Name", &**table));
                fields.push(alias(table));
            }
        }
        ObjectKind::Alias => fields.push(alias(object)),
        ObjectKind::Unknown => fields.extend([field("Relation Name", object.as_str()), alias(object)]),
        kind => fields.extend([field(kind.label(), object.as_str()), alias(object)]),
    }
}

/// Returns what EXPLAIN says of a node after its costs and counts, and before its blocks.
pub(super) fn body(node: &PlanNode, counts: &Counts, quote: &dyn Fn(&str) -> String) -> Vec<Item> {
    let mut body = Vec::new();
    let has = |wanted| {
        let mut attributes = node.attributes.iter();
        attributes.any(|(attribute, _)| *attribute == wanted)
    };
    if counts.scale.major >= 18 {
        body.push(flag("Disabled", has(Attribute::Disabled)));
    }
    if join(without("Parallel ", &node.operation).1).is_some() {
        body.push(flag("Inner Unique", has(Attribute::InnerUnique)).line_if(false));
    }
    add_attributes(node, quote, &mut body);
    add_keys(node, &mut body);
    if let Some(mode) = attribute(node, Attribute::CacheMode).next() {
        body.push(Item::text("Cache Mode", mode));
    }
    body.extend(cache_estimates(node));
    add_conditions(node, counts, &mut body);
    if let (ObjectKind::Relations, Some(relations)) = (node.object_kind, &node.object_name) {
        body.push(Item::text("Relations", relations));
    }
    let evaluated = attribute(node, Attribute::ParamEvaluated).map(str::to_owned);
    body.extend(facts(counts, evaluated.collect()));
    if node.operation == "Gather" {
        body.push(flag("Single Copy", has(Attribute::SingleCopy)));
    }
    body
}

/// Returns what EXPLAIN says of a node after its blocks.
pub(super) fn end(counts: &Counts) -> impl Iterator<Item = Item> {
    let is_append = counts.kind() == NodeKind::Append;
    let sum = |slot| if is_append { counts.sum(slot) } else { 0 };
    let (removed, planned, run) = (
        sum(SUBPLANS_REMOVED),
        sum(PARTITIONS_PLANNED),
        sum(PARTITIONS_RUN),
    );
    let removed = is_append.then(|| Item::number("Subplans Removed", removed).line_if(removed > 0));
    // The nodes below stand for partitions, which core prints one by one.
    let partitions = (planned > 0).then(|| {
        let fields = [("Partitions Planned", planned), ("Partitions Run", run)];
        let fields = fields.map(|(label, number)| field(label, number));
        Item::packed(fields.into(), format!("Partitions: {run} of {planned}"))
    });
    removed.into_iter().chain(partitions)
}

/// Returns what the planner expected of a Memoize.
fn cache_estimates(node: &PlanNode) -> Option<Item> {
    let number = |wanted| attribute(node, wanted).next();
    let (capacity, keys) = (
        number(Attribute::EstimatedCapacity)?,
        number(Attribute::EstimatedKeys)?,
    );
    let (lookups, hits) = (
        number(Attribute::EstimatedLookups)?,
        number(Attribute::EstimatedHits)?,
    );
    let of = |label, number: &str| field(label, Value::Number(number.to_owned()));
    Some(Item::packed(
        vec![
            of("Estimated Capacity", capacity),
            of("Estimated Distinct Lookup Keys", keys),
            of("Estimated Lookups", lookups),
            of("Estimated Hit Percent", hits),
        ],
        format!("Estimates: capacity={capacity} distinct keys={keys} lookups={lookups} hit percent={hits}%"),
    ))
}

/// Makes an item whose line is shown if it is true.
fn flag(label: &str, is_true: bool) -> Item {
    Item {
        lines: vec![format!("{label}: true")],
        fields: vec![field(label, is_true)],
    }
    .line_if(is_true)
}

/// Returns the texts of an attribute.
fn attribute(node: &PlanNode, wanted: Attribute) -> impl Iterator<Item = &str> {
    let attributes = node.attributes.iter();
    attributes
        .filter(move |(attribute, _)| *attribute == wanted)
        .map(|(_, text)| text.as_str())
}

/// Adds the attributes that come before conditions.
fn add_attributes(node: &PlanNode, quote: &dyn Fn(&str) -> String, body: &mut Vec<Item>) {
    let first = |wanted| attribute(node, wanted).next();
    let all = |wanted| attribute(node, wanted).map(str::to_owned).collect::<Vec<_>>();
    if let Some(method) = first(Attribute::SamplingMethod) {
        let parameters = all(Attribute::SamplingParameter);
        let mut line = format!("Sampling: {method} ({})", parameters.join(", "));
        let mut fields = vec![
            field("Sampling Method", method),
            field("Sampling Parameters", Value::List(parameters)),
        ];
        if let Some(seed) = first(Attribute::RepeatableSeed) {
            line += &format!(" REPEATABLE ({seed})");
            fields.push(field("Repeatable Seed", seed));
        }
        body.push(Item::packed(fields, line));
    }
    for (wanted, label) in [(Attribute::Window, "Window"), (Attribute::Replaces, "Replaces")] {
        body.extend(first(wanted).map(|text| Item::text(label, text)));
    }
    add_targets(node, quote, body);
    if let Some(resolution) = first(Attribute::ConflictResolution) {
        body.push(Item::text("Conflict Resolution", resolution));
    }
    let arbiters = all(Attribute::ConflictArbiterIndex);
    if !arbiters.is_empty() {
        body.push(Item::list("Conflict Arbiter Indexes", arbiters));
    }
}

/// Adds the tables that a node changes, if they are not the one that the statement names.
fn add_targets(node: &PlanNode, quote: &dyn Fn(&str) -> String, body: &mut Vec<Item>) {
    let names = attribute(node, Attribute::TargetTable);
    let aliases = attribute(node, Attribute::TargetAlias);
    let mut item = Item::default();
    let mut tables = Vec::new();
    for (name, alias) in names.zip(aliases) {
        let mut line = format!("{} on {}", node.operation, quote(name));
        if alias != name {
            line += &format!(" {}", quote(alias));
        }
        item.lines.push(line);
        tables.push(vec![field("Relation Name", name), field("Alias", alias)]);
    }
    if !tables.is_empty() {
        let tables = Value::Objects("Target Table", tables);
        item.fields.push(field("Target Tables", tables));
        body.push(item);
    }
}

/// Adds the keys. Several `Group Key`s or `Hash Key`s, or one below a `Sort Key`, are those of grouping sets.
fn add_keys(node: &PlanNode, body: &mut Vec<Item>) {
    let lists = |label: &str| {
        let labels = node.keys.iter().map(|(found, _)| found.as_str());
        labels.filter(|found| *found == label).count()
    };
    let (sorts, groups, hashes) = (lists("Sort Key"), lists("Group Key"), lists("Hash Key"));
    if hashes > 0 || groups > 1 || groups == 1 && (sorts > 0 || node.keys[0].1 == "()") {
        body.push(grouping_sets(node));
        return;
    }
    for (label, keys) in &node.keys {
        body.push(match label.as_str() {
            // PostgreSQL prints the keys of Memoize as one text.
            "Cache Key" => Item::text(label, keys),
            _ => Item {
                lines: vec![format!("{label}: {keys}")],
                fields: vec![field(
                    label,
                    Value::List(items(keys).into_iter().map(str::to_owned).collect()),
                )],
            },
        });
    }
}

/// Returns the keys of grouping sets. Each set of hashed keys is by itself; sets of sorted keys share a sort.
fn grouping_sets(node: &PlanNode) -> Item {
    let mut item = Item::default();
    let mut sets: Vec<Vec<Field>> = Vec::new();
    let mut indent = "";
    let list = |keys: &str| -> Vec<String> {
        match keys {
            "()" => Vec::new(),
            _ => items(keys).into_iter().map(str::to_owned).collect(),
        }
    };
    for (label, keys) in &node.keys {
        match label.as_str() {
            "Sort Key" => {
                indent = "  ";
                item.lines.push(format!("Sort Key: {keys}"));
                sets.push(vec![field("Sort Key", Value::List(list(keys)))]);
            }
            "Group Key" => {
                item.lines.push(format!("{indent}Group Key: {keys}"));
                let last = sets.last_mut().and_then(|set| set.last_mut());
                match last {
                    Some((label, Value::Lists(_, lists))) if label == "Group Keys" => lists.push(list(keys)),
                    Some((label, _)) if label == "Sort Key" => {
                        let keys = Value::Lists("Group Key", vec![list(keys)]);
                        if let Some(set) = sets.last_mut() {
                            set.push(field("Group Keys", keys));
                        }
                    }
                    _ => sets.push(vec![field(
                        "Group Keys",
                        Value::Lists("Group Key", vec![list(keys)]),
                    )]),
                }
            }
            _ => {
                indent = "";
                item.lines.push(format!("{label}: {keys}"));
                sets.push(vec![field(
                    "Hash Keys",
                    Value::Lists("Hash Key", vec![list(keys)]),
                )]);
            }
        }
    }
    item.fields
        .push(field("Grouping Sets", Value::Objects("Grouping Set", sets)));
    item
}
