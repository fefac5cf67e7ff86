//! One vocabulary: the objects of the extension have one word and one type for each thing, units in the
//! comments, and arguments in one order.

use rowsource_tests::Server;
use rowsource_tests::surface::{Object, declared};
use std::collections::{BTreeMap, BTreeSet};

/// Parts of names that are not used, because another word means the same. A moment that ends in `_at` may
/// have them.
const SYNONYMS: [(&str, &str); 19] = [
    ("dbid", "datid"),
    ("database", "datname"),
    ("dbname", "datname"),
    ("roleid", "userid"),
    ("usesysid", "userid"),
    ("role", "usename"),
    ("rolname", "usename"),
    ("username", "usename"),
    ("loops", "starts"),
    ("estimated", "plan_rows"),
    ("avg", "mean"),
    ("service", "time"),
    ("reqs", "reads, writes or requests"),
    ("seen", "a moment that ends in _at"),
    ("since", "a moment that ends in _at"),
    ("kind", "filetype"),
    ("sql", "query"),
    ("history", "ash, snapshot or interval"),
    ("iostat", "tempfile"),
];

/// PostgreSQL's own words for moments (`until` as in VALID UNTIL).
const MOMENTS: [&str; 7] = [
    "stats_reset",
    "backend_start",
    "query_start",
    "xact_start",
    "waitstart",
    "sample_time",
    "until",
];

/// The order of arguments: what, from when, until when, and how it is shown.
const ORDER: [&str; 10] = [
    "userid",
    "datid",
    "queryid",
    "planid",
    "pid",
    "snap_id",
    "which",
    "from_time",
    "to_time",
    "format",
];

/// The views with a queryid whose rows do not differ by the level of the statement.
const AT_ANY_LEVEL: [&str; 3] = [
    "rowsource_blockers",
    "rowsource_top_statements",
    "rowsource_trace_targets",
];

/// What the comments of columns say, by parts of their names. The first part that fits counts.
const UNITS: [(&str, &str); 10] = [
    ("_us", "microsecond"),
    ("_ns", "nanosecond"),
    ("_kb", "kb"),
    ("_time", "millisecond"),
    ("time_", "millisecond"),
    ("stderr_", "millisecond"),
    ("bytes", "byte"),
    ("blks_", "block"),
    ("percent", "percent"),
    ("rows", "row"),
];

/// Returns what the library declares for users.
fn objects(name: &str) -> Vec<Object> {
    let server = Server::preloaded(name, &[]);
    let mut objects = declared(&mut server.connect());
    objects.retain(|object| !object.comment.starts_with("Internal: "));
    assert!(objects.len() > 60, "{}", objects.len());
    objects
}

/// Returns the names and types of the arguments.
fn arguments(object: &Object) -> Vec<(&str, &str)> {
    fn text(part: &Option<String>) -> &str {
        part.as_deref().expect("a text")
    }
    let arguments = object.arguments.iter();
    arguments
        .map(|argument| (text(&argument[0]), text(&argument[1])))
        .collect()
}

/// Returns the names and types of the columns.
fn columns(object: &Object) -> impl Iterator<Item = (&str, &str)> {
    object
        .columns
        .iter()
        .map(|[name, of, _]| (name.as_str(), of.as_str()))
}

#[test]
fn a_word_has_one_type() {
    let mut types: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for object in objects("vocabulary-types") {
        for (word, of) in arguments(&object).into_iter().chain(columns(&object)) {
            // The arguments that are compared with names are texts, which PostgreSQL does not cut.
            // So are moments, which may also be values of other types.
            let of = if ["name", "anycompatible"].contains(&of) {
                "text"
            } else {
                of
            };
            assert!(
                !["numeric", "float4", "smallint"].contains(&of),
                "{}: {word}",
                object.signature
            );
            let is_time = word.ends_with("_time") && !MOMENTS.contains(&word);
            let should = match word {
                "from_time" | "to_time" => "text",
                _ if MOMENTS.contains(&word) || word.ends_with("_at") => "timestamptz",
                _ if is_time || word.contains("percent") => "float8",
                _ if of == "timestamptz" => "a name that ends in _at",
                _ => of,
            };
            assert_eq!(of, should, "{}: {word}", object.signature);
            let objects = types.entry(word.to_owned()).or_default();
            let names = objects.entry(of.to_owned()).or_default();
            names.insert(object.signature.clone());
        }
    }
    types.retain(|_, types| types.len() > 1);
    assert!(types.is_empty(), "words with several types: {types:#?}");
}

#[test]
fn a_thing_has_one_word() {
    let mut wrong = Vec::new();
    for object in objects("vocabulary-words") {
        let parts = arguments(&object).into_iter().chain(columns(&object));
        for word in parts.map(|(word, _)| word).chain([object.name()]) {
            for (synonym, right) in SYNONYMS {
                if !word.ends_with("_at") && word.split('_').any(|part| part == synonym) {
                    wrong.push(format!("{}: {word}, should be {right}", object.signature));
                }
            }
        }
        let is_view = object.kind == "VIEW";
        if is_view
            && !object.name().starts_with("pg_stat_rowsource")
            && !object.name().starts_with("rowsource_")
        {
            wrong.push(format!("{}: no prefix", object.signature));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn users_and_databases_have_ids_and_names() {
    for object in objects("vocabulary-names")
        .iter()
        .filter(|object| object.kind == "VIEW")
    {
        let has = |word: &str| columns(object).any(|(column, _)| column == word);
        let name = object.name();
        assert_eq!(has("usename"), has("userid"), "{name}");
        assert_eq!(has("datname"), has("datid"), "{name}");
        if has("queryid") {
            assert!(has("usename") && has("datname"), "{name}");
            assert_eq!(has("toplevel"), !AT_ANY_LEVEL.contains(&name), "{name}");
        }
        assert_eq!(has("wait_event"), has("wait_event_type"), "{name}");
    }
}

#[test]
fn arguments_have_one_order() {
    for object in objects("vocabulary-order") {
        let arguments = arguments(&object);
        let places: Vec<usize> = arguments
            .iter()
            .filter_map(|(word, _)| ORDER.iter().position(|of| of == word))
            .collect();
        assert!(places.is_sorted(), "{}: {arguments:?}", object.signature);
        let format = arguments.iter().position(|(word, _)| *word == "format");
        assert!(
            format.is_none_or(|place| place + 1 == arguments.len()),
            "{}: {arguments:?}",
            object.signature
        );
    }
}

#[test]
fn comments_say_units() {
    let mut wrong = Vec::new();
    for object in objects("vocabulary-units") {
        for [name, of, comment] in &object.columns {
            let is_number = ["float8", "bigint", "int"].contains(&of.as_str());
            let unit = UNITS.iter().find(|(part, _)| is_number && name.contains(part));
            // That of the last execution has the comment of its other column.
            let is_last = comment.ends_with(" of the last execution") && name.starts_with("last_");
            let says = |unit: &str| comment.to_lowercase().contains(unit);
            if let Some((_, unit)) = unit
                && !is_last
                && !says(unit)
            {
                wrong.push(format!("{}.{name}, no {unit}: {comment}", object.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
