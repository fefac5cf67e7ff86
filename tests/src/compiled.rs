//! Shared objects that tests need: a few lines of C, compiled when a test needs them.

use crate::environment::{environment, pg_config};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a source below `tests/` into the run folder. Returns the object's path.
pub fn object(source: &str) -> PathBuf {
    let environment = environment();
    let source = environment.root.join("tests").join(source);
    let name = source.file_stem().expect("a name").to_string_lossy().into_owned();
    let object = environment.run.join(format!("rowsource_{name}.so"));
    // Compiled under a unique name, then renamed: two tests may do this at the same time.
    let fresh = environment.run.join(format!(
        "rowsource_{name}-{}-{:?}.so",
        std::process::id(),
        std::thread::current().id()
    ));
    compile(&source, &fresh);
    fs::rename(&fresh, &object).expect("the object can be renamed");
    object
}

fn compile(source: &Path, object: &Path) {
    let output = Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-Wl,-z,lazy", "-I"])
        .arg(pg_config("--includedir-server"))
        .arg("-o")
        .arg(object)
        .arg(source)
        .arg("-ldl")
        .output()
        .expect("gcc can be run");
    assert!(
        output.status.success(),
        "gcc {}: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}
