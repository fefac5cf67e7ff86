//! Statements inside functions, triggers and procedures, and the setting `track`.

use postgres::Client;
use rowsource_tests::callgrind::{Cost, of_a_unit, of_measuring_by_even_clock};
use rowsource_tests::explain::core_counts;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::{Server, differences, measure, measured_nodes};

const OBJECTS: &str = "
    CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 1000) i; VACUUM ANALYZE n;
    CREATE TABLE log (what text, n bigint);
    CREATE FUNCTION plain(int) RETURNS bigint LANGUAGE plpgsql AS
        'DECLARE r bigint; BEGIN SELECT count(*) INTO r FROM n WHERE id <= $1; RETURN r; END';
    CREATE FUNCTION in_sql(int) RETURNS SETOF int LANGUAGE sql VOLATILE AS 'SELECT id FROM n WHERE id <= $1';
    CREATE FUNCTION deep(int) RETURNS int LANGUAGE plpgsql AS
        'BEGIN IF $1 = 0 THEN RETURN (SELECT count(*) FROM n); END IF; RETURN (SELECT deep($1 - 1)); END';
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO log SELECT ''noted'', count(*) FROM changed; RETURN NULL; END';
    CREATE PROCEDURE steps() LANGUAGE plpgsql AS
        'BEGIN FOR i IN 1..3 LOOP INSERT INTO log SELECT ''step'', id FROM n WHERE id <= 10; COMMIT; END LOOP; END'";

fn session(server: &Server, track: &str) -> Client {
    let mut client = server.session();
    run_each(
        &mut client,
        &format!("SET pg_rowsource.track = '{track}'; SET max_parallel_workers_per_gather = 0"),
    );
    client
}

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &[]);
    run_each(&mut server.connect(), OBJECTS);
    server
}

/// Returns how many plans of nested statements are stored.
fn nested_plans(client: &mut Client) -> i64 {
    value(
        client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE NOT toplevel",
    )
}

#[test]
fn track_top_keeps_only_what_the_client_sent() {
    let server = server("track-top");
    let mut client = session(&server, "top");
    let nodes = measure(&mut client, "SELECT plain(id) FROM n WHERE id <= 5");
    assert_eq!(nodes.len(), 1, "{nodes:#?}");
    assert_eq!(nodes[0].rows, 5);
    assert_eq!(nested_plans(&mut client), 0);
}

#[test]
fn track_all_keeps_nested_statements_too() {
    let server = server("track-all");
    let mut client = session(&server, "all");
    let nodes = measure(&mut client, "SELECT plain(id) FROM n WHERE id <= 5");
    assert_eq!(
        nodes[0].rows, 5,
        "the last statement is the client's, not the function's: {nodes:#?}"
    );
    let row = client
        .query_one(
            "SELECT p.calls::bigint, n.starts::bigint, n.rows::bigint FROM pg_stat_rowsource_plans p
             JOIN pg_stat_rowsource n USING (userid, datid, queryid, planid, toplevel)
             WHERE NOT p.toplevel AND n.operation = 'Seq Scan'",
            &[],
        )
        .expect("one nested plan with one scan");
    assert_eq!(
        (row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)),
        (5, 5, 1 + 2 + 3 + 4 + 5)
    );
}

#[test]
fn nesting_does_not_disturb_the_outer_statement() {
    let server = server("outer");
    for track in ["top", "all"] {
        let mut client = session(&server, track);
        run_each(&mut client, "SET pg_rowsource.sampfreq = 1");
        for statement in [
            "SELECT plain(id) FROM n WHERE id <= 50",
            "SELECT count(*) FROM n, LATERAL in_sql(n.id) x WHERE n.id <= 20",
            "SELECT in_sql(id) FROM n WHERE id <= 20 ORDER BY 1",
            "SELECT deep(4) FROM n WHERE id <= 3",
            "SELECT (SELECT max(x) FROM in_sql(n.id) x) FROM n WHERE plain(id) < 30",
        ] {
            run_each(&mut client, statement);
            run_each(&mut client, statement);
            let core = core_counts(&mut client, statement);
            let measured = measure(&mut client, statement);
            assert_eq!(
                differences(&core, &measured),
                Vec::<String>::new(),
                "{statement} with track {track}"
            );
            rowsource_tests::measured::assert_consistent_times(&measured, statement);
        }
    }
}

#[test]
fn transition_tables_in_triggers() {
    let server = server("transition");
    let mut client = session(&server, "all");
    run_each(
        &mut client,
        "CREATE TABLE d AS SELECT * FROM n; CREATE TRIGGER t AFTER UPDATE ON d REFERENCING NEW TABLE AS changed
         FOR EACH STATEMENT EXECUTE FUNCTION note()",
    );
    let nodes = measure(&mut client, "UPDATE d SET id = id + 1 WHERE id <= 77");
    assert_eq!(nodes[0].operation, "Update");
    let rows: i64 = value(
        &mut client,
        "SELECT last_rows::bigint FROM pg_stat_rowsource WHERE operation = 'Named Tuplestore Scan'",
    );
    assert_eq!(rows, 77);
}

#[test]
fn procedures_that_commit() {
    let server = server("procedure");
    let mut client = session(&server, "all");
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; CALL steps(); SET pg_rowsource.statistics_level = basic",
    );
    let row = client
        .query_one(
            "SELECT sum(starts)::bigint, sum(rows)::bigint FROM pg_stat_rowsource WHERE operation = 'Seq Scan' AND NOT toplevel",
            &[],
        )
        .expect("the sums");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3, 30));
}

#[test]
fn recursive_statements_are_stored() {
    let server = server("recursion");
    let mut client = session(&server, "all");
    let nodes = measure(&mut client, "SELECT deep(30)");
    assert_eq!((nodes[0].starts, nodes[0].rows), (Some(1), 1));
    let scanned: i64 = value(
        &mut client,
        "SELECT sum(rows)::bigint FROM pg_stat_rowsource WHERE operation = 'Seq Scan' AND NOT toplevel",
    );
    assert_eq!(scanned, 1000);
}

#[test]
fn utility_statements() {
    let server = server("utility");
    let mut client = session(&server, "top");
    measure(&mut client, "SELECT count(*) FROM n WHERE id < 10");
    let plans = |client: &mut Client| value::<i64>(client, "SELECT count(*) FROM pg_stat_rowsource_plans");
    let before = plans(&mut client);
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; EXPLAIN SELECT max(id) FROM n; SET pg_rowsource.statistics_level = basic",
    );
    assert_eq!(
        plans(&mut client),
        before,
        "EXPLAIN without ANALYZE is not measured"
    );
    assert_eq!(
        measured_nodes(&mut client)[1].rows,
        9,
        "nor is it the last statement"
    );

    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let copied = {
        let mut reader = client
            .copy_out("COPY (SELECT id FROM n WHERE id <= 33) TO STDOUT")
            .expect("COPY");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).expect("rows");
        text.lines().count()
    };
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let nodes = measured_nodes(&mut client);
    assert_eq!(
        (copied, nodes[0].operation.as_str(), nodes[0].rows),
        (33, "Seq Scan", 33)
    );
}

#[test]
fn deep_nesting_costs_few_instructions_release() {
    const DEPTHS: [usize; 2] = [200, 800];
    /// The most instructions that measuring may add to a nested call. They are 6,000, and 12,000 where more
    /// statements are open than a session has memory ready for. Whoever looks at all statements above each
    /// nested one adds 1,500 for each instruction of that loop.
    const MOST: f64 = 14_000.0;
    let mut server = Server::preloaded("nesting-deep", &[]);
    run_each(
        &mut server.connect(),
        "CREATE TABLE one AS SELECT 1 AS id; VACUUM (FREEZE, ANALYZE);
         CREATE FUNCTION down(int) RETURNS int LANGUAGE plpgsql AS
             'BEGIN IF $1 = 0 THEN RETURN 0; END IF; RETURN (SELECT down($1 - 1) FROM one); END'",
    );
    server.stop();
    let parts = DEPTHS.map(|depth| format!("SELECT down({depth});\n\n"));
    let settings = ["max_stack_depth=7MB", "pg_rowsource.track=all"];
    let costs = of_measuring_by_even_clock(&server.data(), &settings, &parts);
    let Cost { without, added } = of_a_unit(DEPTHS, [costs[0], costs[1]]);
    println!("a nested call, between {DEPTHS:?}: {added:.0} instructions more than {without:.0}");
    assert!(added <= MOST, "{added:.0}");
}
