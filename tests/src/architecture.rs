//! `ARCHITECTURE.md`: its layers are those of `layers.rs`, and the files and tests that it names exist.

use crate::documents::{checkout, read};
use crate::layers::CRATES;
use crate::sources::rust_files;
use std::fmt::Write;
use std::{env, fs};

const PAGE: &str = "ARCHITECTURE.md";

/// Returns the tables of layers, from the top down.
fn layers() -> String {
    let mut text = String::new();
    for (source, layers) in CRATES {
        write!(
            text,
            "\n### {source}\n\n| folder | contains | imports |\n|---|---|---|\n"
        )
        .expect("a String takes any text");
        for layer in layers.iter().rev() {
            let (folder, contains) = (layer.folder, layer.contains);
            let imports = layer.imports.join(", ").replace("pg::", "");
            writeln!(text, "| `{folder}` | {contains} | {imports} |").expect("a String takes any text");
        }
    }
    text + "\n"
}

#[test]
fn accepted_layers_are_those_of_the_sources() {
    let page = read(PAGE);
    let (before, rest) = page.split_once("<!-- layers -->\n").expect("the layers begin");
    let (shown, after) = rest.split_once("<!-- end -->").expect("the layers end");
    if shown != layers() && env::var_os("ROWSOURCE_ACCEPT").is_some() {
        let page = format!("{before}<!-- layers -->\n{}<!-- end -->{after}", layers());
        return fs::write(checkout().join(PAGE), page).expect("the page can be written");
    }
    assert!(
        shown == layers(),
        "the layers of {PAGE} are old: run `make accept`"
    );
}

/// Returns what stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the rows of the table below a headline.
fn rows(page: &str, headline: &str) -> Vec<String> {
    let (_, section) = page
        .split_once(&format!("\n## {headline}\n"))
        .unwrap_or_else(|| panic!("no section {headline}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("|--"));
    rows.skip(1).map(str::to_owned).collect()
}

#[test]
fn files_that_are_named_exist() {
    let page = read(PAGE);
    let is_path = |name: &&str| name.ends_with(".rs") || name.contains('/') && !name.contains(' ');
    let folders = ["", "src", "src/pg", "core/src", "tests/tests", "tests/src"];
    let exists = |name: &str| {
        folders
            .iter()
            .any(|folder| checkout().join(folder).join(name).exists())
    };
    let missing: Vec<&str> = quoted(&page)
        .filter(is_path)
        .filter(|name| !exists(name))
        .collect();
    assert!(
        missing.is_empty(),
        "{PAGE} names files that do not exist: {missing:#?}"
    );
    assert!(quoted(&page).filter(is_path).count() > 50, "{PAGE} names files");
}

#[test]
fn invariants_have_tests() {
    let sources = ["tests", "core/src", "core/tests"]
        .into_iter()
        .flat_map(rust_files);
    let all: String = sources.map(|(_, text)| text).collect();
    let is_test = |name: &str| all.contains(&format!("fn {name}("));
    let rows = rows(&read(PAGE), "What always holds");
    for row in &rows {
        let tests: Vec<&str> = row
            .rsplit('|')
            .nth(1)
            .map(|cell| quoted(cell).collect())
            .unwrap_or_default();
        assert!(!tests.is_empty(), "an invariant names no test: {row}");
        for test in tests {
            assert!(is_test(test), "there is no test {test}: {row}");
        }
    }
    assert!(rows.len() >= 10, "{PAGE} has {} invariants", rows.len());
}
