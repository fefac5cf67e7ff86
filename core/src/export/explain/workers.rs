//! What each parallel worker did of a node, as EXPLAIN (ANALYZE, VERBOSE) prints it, and what was compiled.

use super::counts::{Counts, Scale};
use super::explained::Explained;
use super::facts::worker_facts;
use super::value::{Item, Value, decimal, field};
use crate::model::{Jit, WorkerPart};

/// Returns the parts of the workers of node `i`, if they are known.
pub(super) fn workers_item(explained: &Explained, scale: Scale, i: usize) -> Option<Item> {
    let mut lines = Vec::new();
    let mut workers = Vec::new();
    for part in explained.parts(i)? {
        let said = part_item(scale, part);
        lines.extend(said.lines.iter().enumerate().map(|(i, line)| match i {
            0 => format!("Worker {}:  {line}", part.worker),
            _ => format!("  {line}"),
        }));
        let number = field("Worker Number", u64::from(part.worker));
        workers.push(std::iter::once(number).chain(said.fields).collect());
    }
    Some(Item {
        lines,
        fields: vec![field("Workers", Value::Objects("Worker", workers))],
    })
}

/// Returns what a worker did.
fn part_item(scale: Scale, part: &WorkerPart) -> Item {
    let counts = Counts::new(scale, Some(&part.stats), None);
    let mut all = Item::default();
    let ran = counts.actual().map(|actual| Item {
        lines: vec![actual],
        fields: counts.actual_fields(),
    });
    let usage = if ran.is_some() { counts.usage() } else { Vec::new() };
    let jit = part.jit.filter(|jit| jit.functions > 0);
    let jit = jit.map(|jit| jit_item(scale, &jit));
    let items = ran
        .into_iter()
        .chain(worker_facts(&counts))
        .chain(jit)
        .chain(usage);
    for item in items {
        all.lines.extend(item.lines);
        all.fields.extend(item.fields);
    }
    all
}

/// Returns what was compiled.
pub(super) fn jit_item(scale: Scale, jit: &Jit) -> Item {
    // From 17 on, PostgreSQL times a part of the generation by itself.
    let has_deform = scale.major >= 17;
    let times = [
        ("Generation", jit.generation_ms),
        ("Inlining", jit.inlining_ms),
        ("Optimization", jit.optimization_ms),
        ("Emission", jit.emission_ms),
        ("Total", jit.total_ms()),
    ];
    let ms = |sum: f64| decimal(scale.mean(sum), 3);
    let timing = times.map(|(name, sum)| match name {
        "Generation" if has_deform => field(
            name,
            Value::Object(
                name,
                vec![field("Deform", ms(jit.deform_ms)), field("Total", ms(sum))],
            ),
        ),
        _ => field(name, ms(sum)),
    });
    let in_text = times.map(|(name, sum)| {
        let part = match name {
            "Generation" if has_deform => format!(" (Deform {:.3} ms)", scale.mean(jit.deform_ms)),
            _ => String::new(),
        };
        format!("{name} {:.3} ms{part}", scale.mean(sum))
    });
    let functions = scale.whole(jit.functions);
    let options = jit.options();
    let in_text_options = options.map(|(name, is_on)| format!("{name} {is_on}"));
    let options = options.map(|(name, is_on)| field(name, is_on));
    Item {
        lines: vec![
            "JIT:".to_owned(),
            format!("  Functions: {functions}"),
            format!("  Options: {}", in_text_options.join(", ")),
            format!("  Timing: {}", in_text.join(", ")),
        ],
        fields: vec![field(
            "JIT",
            Value::Object(
                "JIT",
                vec![
                    field("Functions", functions),
                    field("Options", Value::Object("Options", options.to_vec())),
                    field("Timing", Value::Object("Timing", timing.to_vec())),
                ],
            ),
        )],
    }
}
