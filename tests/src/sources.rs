//! Where the project's sources may say `unsafe`, and how long a file may be.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the Rust files under a folder of the checkout: their paths in the checkout, and their text.
pub fn rust_files(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![checkout.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a source folder can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file can be read");
                let inside = path.strip_prefix(&checkout).expect("a path in the checkout");
                found.push((inside.to_path_buf(), text));
            }
        }
    }
    assert!(!found.is_empty(), "there are no Rust files in {folder}");
    found
}

/// Returns whether a line of code says `unsafe`. Comments may, and so may attributes (`#[unsafe(no_mangle)]`,
/// `allow(unsafe_code, reason = ...)`).
fn says_unsafe(line: &str) -> bool {
    let line = line.trim_start();
    let allowed = ["//", "#[", "#![", "reason = \""];
    let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.any(|word| word == "unsafe") && !allowed.iter().any(|start| line.starts_with(start))
}

#[test]
fn every_file_of_server_tests_is_run() {
    let files = rust_files("tests/tests");
    let (_, main) = files
        .iter()
        .find(|(path, _)| path.ends_with("main.rs"))
        .expect("the list");
    for (path, _) in &files {
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        assert!(
            name == "main" || main.contains(&format!("\nmod {name};\n")),
            "tests/tests/main.rs has no line `mod {name};`"
        );
    }
}

#[test]
fn unsafe_code_is_in_one_folder() {
    let mut found = String::new();
    for (path, text) in rust_files("src") {
        if !path.components().any(|part| part.as_os_str() == "pg") {
            for (number, line) in text.lines().enumerate().filter(|(_, line)| says_unsafe(line)) {
                found += &format!("{}:{}: {line}\n", path.display(), number + 1);
            }
        }
    }
    assert!(found.is_empty(), "unsafe outside of src/pg/:\n{found}");
}

#[test]
fn a_line_that_says_unsafe_is_found() {
    assert!(says_unsafe("    let x = unsafe { *p };"));
    assert!(says_unsafe("pub unsafe fn f() {}"));
    assert!(!says_unsafe("    // unsafe { *p }"));
    assert!(!says_unsafe("#[unsafe(no_mangle)]"));
    assert!(!says_unsafe("allow(unsafe_code)"));
}

#[test]
fn files_are_short() {
    let mut too_long = String::new();
    for (path, text) in ["src", "core/src", "tests", "bench/src", "cli/src"]
        .into_iter()
        .flat_map(rust_files)
    {
        let lines = text.lines().count();
        if lines > 600 {
            too_long += &format!("{} has {lines} lines: split it\n", path.display());
        } else if lines > 500 {
            eprintln!("warning: {} has {lines} lines, more than 500", path.display());
        }
    }
    assert!(too_long.is_empty(), "files of more than 600 lines:\n{too_long}");
}
