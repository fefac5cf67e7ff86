//! The SQL script has what the library declares.

use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::surface::declared;
use std::fs;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compares a file with what it should be, or writes it.
fn assert_or_write(file: &str, wanted: &str) {
    let path = environment().root.join(file);
    let is = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    if std::env::var_os("ROWSOURCE_ACCEPT").is_some() {
        fs::write(&path, wanted).expect("the file can be written");
        return;
    }
    let differs = is.lines().zip(wanted.lines()).find(|(is, wanted)| is != wanted);
    assert!(
        is == wanted,
        "run make accept: the first difference in {file} is {differs:#?}"
    );
}

#[test]
fn the_script_has_what_the_library_declares() {
    let server = Server::preloaded("surface", &[]);
    let objects = declared(&mut server.connect());
    let statements: Vec<&str> = objects.iter().map(|object| &*object.statements).collect();
    let file = format!("pg_rowsource--{VERSION}.sql");
    let script = format!(
        "/* {file} */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\\echo Use \"CREATE EXTENSION pg_rowsource\" to load this file. \\quit

-- `make accept` writes this file: it has what the library declares in src/functions.

{}",
        statements.join("\n")
    );
    assert_or_write(&file, &script);
}
