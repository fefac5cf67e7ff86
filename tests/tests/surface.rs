//! The SQL script has what the library declares.

use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{run_each, texts};
use std::fs;

/// The lines around what the library declares.
const BEGIN: &str = "-- What the library declares in src/functions: `make accept` writes it.\n";
const END: &str = "-- End of what the library declares.\n";

#[test]
fn the_script_has_what_the_library_declares() {
    let server = Server::preloaded("surface", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE FUNCTION pg_temp.declarations() RETURNS SETOF text AS 'pg_rowsource', 'rowsource_declarations_0_2' LANGUAGE C",
    );
    let rows = texts(&mut client, "SELECT pg_temp.declarations()");
    let functions: Vec<String> = rows.into_iter().flatten().flatten().collect();
    assert!(functions.len() > 20, "{functions:#?}");
    let declared = format!("{BEGIN}\n{}\n{END}", functions.join("\n"));

    let path = environment().root.join("pg_rowsource--0.2.0.sql");
    let script = fs::read_to_string(&path).expect("the script");
    let (before, rest) = script.split_once(BEGIN).expect("the first mark");
    let (_, after) = rest.split_once(END).expect("the last mark");
    let wanted = format!("{before}{declared}{after}");
    if std::env::var_os("ROWSOURCE_ACCEPT").is_some() {
        fs::write(&path, &wanted).expect("the script can be written");
    } else {
        let differs = script
            .lines()
            .zip(wanted.lines())
            .find(|(is, wanted)| is != wanted);
        assert!(
            script == wanted,
            "run make accept: the first difference is {differs:#?}"
        );
    }
    // All other functions are written in SQL.
    let undeclared = before.contains("LANGUAGE C") || after.contains("LANGUAGE C");
    assert!(
        !undeclared,
        "the script has functions in C that the library does not declare"
    );
}
