//! The objects of the extension are as the library declares them.

use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::surface::{Object, declared};
use std::collections::BTreeSet;

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
        // The views for every day are narrow.
        let is_wide = object.name().starts_with("rowsource_top_") && object.columns.len() > 16;
        if is_wide || rows[0][0] != rows[0][1] {
            wrong.push(rows);
        }
    }
    assert!(wrong.is_empty(), "not as declared: {wrong:#?}");
}

/// Returns a statement that reads an object, or calls it with NULLs.
fn query(object: &Object) -> String {
    let nulls = object
        .arguments
        .iter()
        .map(|argument| match argument[1].as_deref() {
            Some("anycompatible") | None => "NULL::timestamptz".to_owned(),
            Some(of) => format!("NULL::{of}"),
        });
    let nulls: Vec<String> = nulls.collect();
    let arguments = if object.is_function() {
        format!("({})", nulls.join(", "))
    } else {
        String::new()
    };
    format!("SELECT count(*) FROM {}{arguments}", object.name())
}

#[test]
fn roles_may_use_what_is_declared() {
    let server = server("objects_roles");
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE ROLE regress_user LOGIN; CREATE ROLE regress_reader LOGIN IN ROLE pg_read_all_stats",
    );
    let objects = declared(&mut client);
    let mut named = BTreeSet::from(["sequence rowsource_snapshots_snap_id_seq".to_owned()]);
    let mut wrong = Vec::new();
    for object in &objects {
        let (catalog, of, may) = match object.is_function() {
            true => ("pg_proc", "regprocedure", "has_function_privilege"),
            false => ("pg_class", "regclass", "has_table_privilege"),
        };
        let sql = format!(
            "SELECT pg_describe_object('{catalog}'::regclass, '{}'::{of}, 0)",
            object.signature
        );
        named.insert(value(&mut client, &sql));
        for user in ["regress_user", "regress_reader"] {
            let expected = object.grantee == "PUBLIC"
                || object.grantee == "pg_read_all_stats" && user == "regress_reader";
            for privilege in ["EXECUTE", "SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"] {
                if object.is_function() == (privilege == "EXECUTE") {
                    let sql = format!(
                        "SELECT {may}('{user}', '{}'::{of}, '{privilege}')",
                        object.signature
                    );
                    let has = value::<bool>(&mut client, &sql);
                    if has != (expected && ["EXECUTE", "SELECT"].contains(&privilege)) {
                        wrong.push(format!("{user} {privilege} {}: {has}", object.signature));
                    }
                }
            }
            // What a role may use must not need what it may not use.
            let mut user_client = server.try_connect(user).expect("a session");
            let error = user_client.simple_query(&query(object)).err();
            let code = error.as_ref().and_then(|error| error.code());
            if expected && code == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
                wrong.push(format!("{user}: {}: {error:?}", query(object)));
            }
        }
    }
    assert!(wrong.is_empty(), "not as declared: {wrong:#?}");
    let sql = "SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
                WHERE extname = 'pg_rowsource' AND d.deptype = 'e' AND d.classid <> 'pg_type'::regclass";
    let all: BTreeSet<String> = texts(&mut client, sql).into_iter().flatten().flatten().collect();
    assert_eq!(
        all, named,
        "the objects of the extension and those that are declared"
    );
}
