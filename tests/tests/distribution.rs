//! META.json conforms to PGXN's specification (version 1.0.0), and its content is true.

use rowsource_tests::environment::environment;
use serde_json::Value;
use std::fs;

fn meta() -> Value {
    let text = fs::read_to_string(environment().root.join("META.json")).expect("META.json");
    serde_json::from_str(&text).expect("META.json is JSON")
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    let found = found.unwrap_or_else(|| panic!("META.json has no text at {pointer}"));
    assert!(!found.trim().is_empty(), "{pointer} is empty");
    found
}

fn is_semver(version: &str) -> bool {
    let parts: Vec<&str> = version.split('.').collect();
    let number = |part: &&str| part.parse::<u32>().is_ok_and(|n| n.to_string() == **part);
    parts.len() == 3 && parts.iter().all(number)
}

/// Returns the value of `KEY = 'VALUE'` or `KEY = "VALUE"` in a file of the checkout.
fn assigned(file: &str, key: &str) -> String {
    let text = fs::read_to_string(environment().root.join(file)).expect(file);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
    let value = line.unwrap_or_else(|| panic!("{file} has no {key}"));
    value.trim().trim_matches(['\'', '"']).to_string()
}

#[test]
fn meta_json_is_valid() {
    const KEYS: [&str; 14] = [
        "abstract",
        "description",
        "generated_by",
        "license",
        "maintainer",
        "meta-spec",
        "name",
        "no_index",
        "prereqs",
        "provides",
        "release_status",
        "resources",
        "tags",
        "version",
    ];
    const LICENSES: [&str; 4] = ["postgresql", "mit", "bsd", "apache_2_0"];
    let meta = meta();
    for key in meta.as_object().expect("an object").keys() {
        assert!(
            KEYS.contains(&key.as_str()) || key.to_lowercase().starts_with("x_"),
            "unknown key {key}"
        );
    }
    assert_eq!(text(&meta, "/name"), "pg_rowsource");
    text(&meta, "/abstract");
    text(&meta, "/maintainer");
    assert!(LICENSES.contains(&text(&meta, "/license")));
    assert_eq!(text(&meta, "/meta-spec/version"), "1.0.0");
    assert!(["stable", "testing", "unstable"].contains(&text(&meta, "/release_status")));
    let version = text(&meta, "/version");
    assert!(is_semver(version), "{version}");
    assert!(is_semver(text(&meta, "/prereqs/runtime/requires/PostgreSQL")));
    let tags = meta["tags"].as_array().expect("tags");
    assert!(
        tags.iter()
            .all(|tag| tag.as_str().is_some_and(|tag| (1..256).contains(&tag.len())))
    );
}

#[test]
fn meta_json_names_existing_files_and_versions() {
    let meta = meta();
    let version = text(&meta, "/version");
    assert_eq!(assigned("pg_rowsource.control", "default_version"), version);
    assert_eq!(assigned("Cargo.toml", "version"), version);
    let provided = meta["provides"].as_object().expect("provides");
    assert_eq!(provided.len(), 1);
    for (name, extension) in provided {
        assert_eq!(name, "pg_rowsource");
        assert_eq!(text(extension, "/version"), version);
        text(extension, "/abstract");
        for file in ["/file", "/docfile"] {
            let file = text(extension, file);
            assert!(environment().root.join(file).is_file(), "there is no {file}");
        }
        assert!(text(extension, "/file").contains(version));
    }
}
