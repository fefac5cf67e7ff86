//! The objects of the extension are as the library declares them.

use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::surface::declared;

/// Starts a server with the extension.
fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &[]);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server
}

#[test]
fn columns_are_as_declared() {
    let server = server("objects_columns");
    let mut client = server.connect();
    let mut wrong = Vec::new();
    for object in declared(&mut client)
        .iter()
        .filter(|object| !object.is_function())
    {
        let types: Vec<String> = object
            .columns
            .iter()
            .map(|[name, of, _]| format!("('{name}', '{of}'::regtype)"))
            .collect();
        let sql = format!(
            "SELECT (SELECT array_agg((attname, atttypid::regtype)::text ORDER BY attnum) FROM pg_attribute
                      WHERE attrelid = '{}'::regclass AND attnum > 0)::text,
                    (SELECT array_agg((name, of)::text) FROM (VALUES {}) AS declared (name, of))::text",
            object.name(),
            types.join(", ")
        );
        let rows = texts(&mut client, &sql);
        if rows[0][0] != rows[0][1] {
            wrong.push(rows);
        }
    }
    assert!(wrong.is_empty(), "not as declared: {wrong:#?}");
}
