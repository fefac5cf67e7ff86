//! JSON, YAML and XML.

use super::explained::{ExplainFormat, Explained, Trigger};
use super::node::{body, end, head};
use super::value::{Field, Value, decimal, field};
use super::workers::{jit_item, workers_item};
use super::writer::{MAX_INDENT, Writer};

/// Returns the document. Ids are texts: a number with more than 53 bits is not exact in every program that
/// reads JSON.
pub(super) fn document(explained: &Explained, format: ExplainFormat) -> String {
    // A node is two levels of lists and objects below its parent. YAML needs its indentation; but JSON is
    // YAML too.
    let depth = explained.nodes.iter().map(|node| node.depth).max().unwrap_or(0);
    let is_deep = 2 * depth + 10 > MAX_INDENT;
    let format = match format {
        ExplainFormat::Yaml if is_deep => ExplainFormat::Json,
        _ => format,
    };
    let mut writer = Writer::new(format);
    writer.open_object(None, "Query");
    writer.fields(&[field("Query Text", explained.statement)]);
    write_nodes(explained, &mut writer);
    writer.fields(&[
        field("Query Identifier", explained.queryid.to_string().as_str()),
        field("Plan Identifier", explained.planid.to_string().as_str()),
    ]);
    if let Some(planning) = explained.planning {
        let scale = explained.scale().of_planning(planning.plannings);
        let buffers = scale.buffers(&planning.buffers).fields;
        writer.fields(&[
            field("Planning", Value::Object("Planning", buffers)),
            field("Planning Time", decimal(scale.mean(planning.ms), 3)),
        ]);
    }
    if let Some(triggers) = explained.triggers {
        let triggers = triggers.iter().map(|trigger| trigger_fields(explained, trigger));
        let triggers = Value::Objects("Trigger", triggers.collect());
        writer.fields(&[field("Triggers", triggers)]);
    }
    if let Some(jit) = explained.jit.filter(|jit| jit.functions > 0) {
        writer.fields(&jit_item(explained.scale(), &jit).fields);
    }
    writer.fields(&[field("Execution Time", decimal(explained.execution_ms, 3))]);
    for (label, text) in explained.ending() {
        writer.fields(&[field(label, text)]);
    }
    writer.close();
    writer.finished()
}

/// Writes the nodes. Each contains the nodes below it, however deep the plan is, without recursion.
fn write_nodes(explained: &Explained, writer: &mut Writer) {
    let scale = explained.scale();
    for (i, node) in explained.nodes.iter().enumerate() {
        let counts = explained.counts(scale, i);
        writer.open_object((i == 0).then_some("Plan"), "Plan");
        writer.fields(&head(node));
        writer.fields(&counts.actual_fields());
        let said = body(node, &counts, explained.quote);
        let workers = workers_item(explained, scale, i);
        let after = counts.usage().into_iter().chain(workers).chain(end(&counts));
        for item in said.into_iter().chain(after) {
            writer.fields(&item.fields);
        }
        let next = explained.nodes.get(i + 1).map_or(0, |next| next.depth);
        if next > node.depth {
            writer.open_list("Plans");
            continue;
        }
        if matches!(node.operation.as_str(), "Append" | "Merge Append") {
            // All of its inputs were removed.
            writer.open_list("Plans");
            writer.close();
        }
        writer.close();
        for _ in next..node.depth {
            writer.close();
            writer.close();
        }
    }
}

fn trigger_fields(explained: &Explained, trigger: &Trigger) -> Vec<Field> {
    let scale = explained.scale();
    let mut fields = vec![field("Trigger Name", trigger.name.as_str())];
    if let Some(constraint) = &trigger.constraint {
        fields.push(field("Constraint Name", constraint.as_str()));
    }
    if let Some(relation) = &trigger.relation {
        fields.push(field("Relation", relation.as_str()));
    }
    fields.push(field("Time", decimal(scale.mean(trigger.ms), 3)));
    fields.push(field("Calls", scale.whole(trigger.calls)));
    fields
}
