//! Runs pg_regress over sql/*.sql and expected/*.out, as `make installcheck` does, on a server with default
//! settings.

use rowsource_tests::Server;
use rowsource_tests::environment::{environment, pg_config};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn sql_files_give_what_is_expected() {
    let environment = environment();
    let mut tests: Vec<String> = fs::read_dir(environment.root.join("sql"))
        .expect("sql/")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".sql").map(String::from))
        .collect();
    tests.sort();
    assert!(!tests.is_empty(), "no files in sql/");
    let server = Server::preloaded(
        "regress",
        &[
            "pg_rowsource.keep_constants = off",
            "pg_rowsource.max_overhead = 10",
        ],
    );
    let program = environment
        .tree()
        .join(pg_config("--pkglibdir").trim_start_matches('/'))
        .join("pgxs/src/test/regress/pg_regress");
    let output_folder = output_folder();
    let output = Command::new(program)
        .arg(format!("--bindir={}", environment.pgbin.display()))
        .arg(format!("--inputdir={}", environment.root.display()))
        .arg(format!("--outputdir={}", output_folder.display()))
        .arg(format!("--host={}", server.folder().display()))
        .args([
            "--port=5432",
            "--user=postgres",
            "--dbname=regression",
            "--load-extension=pg_rowsource",
        ])
        .args(["--encoding=UTF8", "--no-locale"])
        .args(&tests)
        .current_dir(&environment.root)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("pg_regress can be run");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let differences = fs::read_to_string(output_folder.join("regression.diffs")).unwrap_or_default();
    assert!(
        output.status.success(),
        "pg_regress failed (results in {}):\n{}{differences}",
        output_folder.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns the folder of regression.diffs and results/. Each run empties it first, and keeps it.
fn output_folder() -> PathBuf {
    let folder = environment().run.join("regress");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the output folder can be made");
    folder
}
