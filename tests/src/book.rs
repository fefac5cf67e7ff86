//! Whether README and the book are complete, and whether their links lead somewhere.

use crate::documents::{anchors, blocks, checkout, documents, links, read};
use std::fs;
use std::path::Path;

const SCRIPT: &str = "pg_rowsource--0.2.0.sql";

/// These are unmarked in two files: excerpts of trace files and of reports, which are no examples of SQL.
const WITH_UNMARKED_BLOCKS: [&str; 2] = ["docs/tkprof.md", "docs/trace.md"];

fn assert_none_missing(what: &str, missing: Vec<String>) {
    assert!(missing.is_empty(), "{what}: {missing:#?}");
}

#[test]
fn the_readme_is_one_screen() {
    let lines = read("README.md").lines().count();
    assert!(
        lines <= 150,
        "README.md has {lines} lines: at most 150 are allowed"
    );
}

#[test]
fn the_summary_lists_every_chapter() {
    let listed = documents();
    let files = fs::read_dir(checkout().join("docs")).expect("docs can be read");
    let names = files.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name")
    });
    let chapters = names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md");
    let missing = chapters
        .map(|name| format!("docs/{name}"))
        .filter(|file| !listed.contains(file));
    assert_none_missing("chapters that docs/SUMMARY.md does not list", missing.collect());
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    let others = [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "bench/README.md",
        "docs/SUMMARY.md",
    ];
    let files = documents().into_iter().chain(others.map(str::to_owned));
    for file in files {
        let text = read(&file);
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&file).parent().expect("a folder");
            let path = checkout().join(folder).join(target);
            let found = match target {
                "" => Ok(text.clone()),
                _ if path.extension().is_some_and(|extension| extension == "md") => fs::read_to_string(&path),
                _ => fs::metadata(&path).map(|_| String::new()),
            };
            let has_anchor = |text: String| anchor.is_empty() || anchors(&text).iter().any(|a| a == anchor);
            if !found.is_ok_and(has_anchor) {
                wrong.push(format!("{file}: {link}"));
            }
        }
    }
    assert_none_missing("links that lead nowhere", wrong);
}

/// Returns whether a text begins like a statement of SQL.
fn begins_like_sql(text: &str) -> bool {
    const WORDS: [&str; 10] = [
        "select", "with", "explain", "set", "do", "create", "drop", "alter", "call", "insert",
    ];
    let first = text.split_whitespace().next().unwrap_or("").to_lowercase();
    WORDS.contains(&first.as_str())
}

#[test]
fn examples_of_sql_are_marked_as_such() {
    let mut wrong = Vec::new();
    for file in documents() {
        let may_lack_marks = WITH_UNMARKED_BLOCKS.contains(&file.as_str());
        for block in blocks(&read(&file)) {
            let is_known = ["sql", "text", "sh", "ini", "oracle"].contains(&block.info.as_str());
            let is_marked = is_known || may_lack_marks && block.info.is_empty();
            let is_alone = block.info == "text" && !block.follows && !may_lack_marks;
            let is_hidden_sql = is_alone && begins_like_sql(&block.text) && !block.text.contains("cron.");
            if !is_marked || is_hidden_sql {
                wrong.push(format!("{file}:{}: ```{}", block.line, block.info));
            }
        }
    }
    assert_none_missing("blocks that are not marked, or whose SQL is not", wrong);
}

/// Returns the oldest supported major: the first feature of the library that is one.
fn oldest_major() -> u32 {
    let manifest = read("Cargo.toml");
    let majors = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("pg")?.split_once(" = ")?.0.parse().ok());
    majors.min().expect("a major")
}

/// Returns the date of a version in the changelog of the packages, as in the changelog: 2026-11-23.
fn date_of_package(version: &str) -> Option<String> {
    const MONTHS: &str = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
    let log = read("debian/changelog");
    let entry = log
        .split("pg-rowsource (")
        .find(|entry| entry.starts_with(&format!("{version}-")))?;
    let date: Vec<&str> = entry.split(">  ").nth(1)?.split_whitespace().collect();
    let month = MONTHS.split(' ').position(|month| month == date[2])? + 1;
    Some(format!("{}-{month:02}-{}", date[3], date[1]))
}

#[test]
fn dates_of_versions_agree() {
    let log = read("CHANGELOG.md");
    let versions = log
        .lines()
        .filter_map(|line| line.strip_prefix("## ")?.split_once(" ("));
    let mut compared = 0;
    for (version, date) in versions {
        let date = Some(date.trim_end_matches(')').to_owned());
        assert_eq!(
            date_of_package(version),
            date,
            "the date of {version} in debian/changelog"
        );
        compared += 1;
    }
    assert!(compared >= 1, "CHANGELOG.md has {compared} versions with a date");
}

#[test]
fn versions_agree() {
    let control = read("pg_rowsource.control");
    let version = control
        .split("default_version = '")
        .nth(1)
        .and_then(|rest| rest.split('\'').next());
    let version = version.expect("a version");
    let expected = [
        (
            "META.json",
            format!("\"version\": \"{version}\",\n   \"maintainer\""),
        ),
        ("META.json", format!("\"file\": \"pg_rowsource--{version}.sql\"")),
        ("META.json", format!("\"version\": \"{version}\"\n")),
        (
            "Cargo.toml",
            format!("[workspace.package]\nversion = \"{version}\""),
        ),
        ("debian/changelog", format!("pg-rowsource ({version}-")),
        ("CHANGELOG.md", version.to_owned()),
        (SCRIPT, format!("/* pg_rowsource--{version}.sql */")),
        ("META.json", format!("\"PostgreSQL\": \"{}.0.0\"", oldest_major())),
        ("debian/pgversions", format!("{}+\n", oldest_major())),
    ];
    let lacks = |(file, text): &&(&str, String)| !read(file).contains(text);
    let missing = expected
        .iter()
        .filter(lacks)
        .map(|(file, text)| format!("{file}: {text}"));
    assert_none_missing("files of another version", missing.collect());
}
