//! Compares two EXPLAIN (FORMAT JSON) documents: the same fields and, except for times, the same values.

use serde_json::Value;

/// Keys whose values are times or depend on them.
const TIMES: [&str; 6] = [
    "Actual Startup Time",
    "Actual Total Time",
    "Planning Time",
    "Execution Time",
    "Time",
    "Timing",
];

/// Keys whose values depend on how the processes divided the work: some are the leader's alone.
const DIVISION: [&str; 7] = [
    "Workers",
    "Workers Launched",
    "Sort Method",
    "Sort Space Used",
    "Sort Space Type",
    "Exact Heap Blocks",
    "Lossy Heap Blocks",
];

/// How a plan's processes divided its work.
#[derive(Clone, Copy, PartialEq)]
pub enum Division {
    /// There is one process.
    None,
    /// One process of several did all of it. Keys that depend on which one are not compared.
    OneOfSeveral,
    /// By chance. Numbers are not compared either.
    ByChance,
}

/// Returns all differences of the documents. `under` is the path of keys for the message.
pub fn shape_differences(core: &Value, measured: &Value, division: Division, under: &str) -> Vec<String> {
    match (core, measured) {
        (Value::Object(core), Value::Object(measured)) => {
            let keys = |object: &serde_json::Map<String, Value>| {
                let mut keys: Vec<String> = object.keys().cloned().collect();
                keys.sort();
                keys.join(", ")
            };
            if keys(core) != keys(measured) {
                return vec![format!(
                    "{under}: core has the fields {}; measured {}",
                    keys(core),
                    keys(measured)
                )];
            }
            core.iter()
                .filter(|(key, _)| !(division != Division::None && DIVISION.contains(&key.as_str())))
                .flat_map(|(key, value)| {
                    if TIMES.contains(&key.as_str()) {
                        time_differences(&measured[key], &format!("{under}/{key}"))
                    } else {
                        shape_differences(value, &measured[key], division, &format!("{under}/{key}"))
                    }
                })
                .collect()
        }
        (Value::Array(core), Value::Array(measured)) if core.len() == measured.len() => core
            .iter()
            .zip(measured)
            .enumerate()
            .flat_map(|(index, (core, measured))| {
                shape_differences(core, measured, division, &format!("{under}/{index}"))
            })
            .collect(),
        (Value::Number(_), Value::Number(_)) if division == Division::ByChance => Vec::new(),
        // The name of a foreign key's trigger ends in its OID, which changes when the table is created again.
        (Value::String(core), Value::String(measured))
            if without_number(core) == without_number(measured) =>
        {
            Vec::new()
        }
        _ if core == measured => Vec::new(),
        _ => vec![format!("{under}: core {core}, measured {measured}")],
    }
}

fn without_number(name: &str) -> &str {
    let stem = name.trim_end_matches(|character: char| character.is_ascii_digit());
    if stem.starts_with("RI_ConstraintTrigger_") {
        stem
    } else {
        name
    }
}

fn time_differences(time: &Value, under: &str) -> Vec<String> {
    match time.as_f64() {
        Some(ms) if ms.is_finite() && (0.0..600_000.0).contains(&ms) => Vec::new(),
        Some(ms) => vec![format!("{under}: absurd time {ms}")],
        None if time.is_object() => Vec::new(),
        None => vec![format!("{under}: not a number: {time}")],
    }
}
