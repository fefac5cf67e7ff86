//! Statements on temporary tables of the same name and columns share a plan, though each table has its own
//! OID.

use postgres::Client;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{basic_server, info, kept, measure_all, measuring};

const MAKE: &str = "CREATE TEMPORARY TABLE work (id int PRIMARY KEY, word text) ON COMMIT DROP";

/// Runs a transaction that makes a table, fills it and reads it in several ways.
fn transaction(client: &mut Client, word: &str) {
    client
        .batch_execute(&format!(
            "BEGIN; SET LOCAL pg_rowsource.statistics_level = 'basic'; {MAKE};
             SET LOCAL pg_rowsource.statistics_level = 'typical';
             INSERT INTO work SELECT i, '{word}' FROM generate_series(1, 300) i;
             SELECT count(*) FROM work WHERE word = '{word}';
             SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
             SELECT word FROM work WHERE id = {};
             SET LOCAL enable_bitmapscan = on; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;
             SELECT count(*), 'bitmap' FROM work WHERE id < 9;
             UPDATE work SET word = word || 'x' WHERE id = 5;
             DELETE FROM work WHERE id = 7;
             COMMIT",
            word.len()
        ))
        .expect("a transaction");
}

/// Returns the calls of each stored plan on the table.
fn calls(client: &mut Client) -> Vec<i64> {
    kept(client, "%work%").iter().map(|plan| plan.calls).collect()
}

#[test]
fn each_transaction_makes_the_same_plans() {
    let server = basic_server("same", &[]);
    let (mut reader, mut one, mut two) = (server.connect(), measuring(&server), measuring(&server));
    run_each(&mut reader, "SELECT rowsource_reset()");
    for i in 1..=10 {
        transaction(&mut one, &"a".repeat(i));
        transaction(&mut two, "other");
    }
    assert_eq!(calls(&mut reader), [20; 6]);
    // COMMIT is the seventh.
    assert_eq!(info(&mut reader, "plans"), 7);
    // What was planned for them is counted.
    let plans: i64 = value(
        &mut reader,
        "SELECT sum(plans)::bigint FROM pg_stat_rowsource_plans WHERE calls = 20",
    );
    assert_eq!(plans, 120);
    let rows: i64 = value(
        &mut reader,
        "SELECT sum(rows)::bigint FROM pg_stat_rowsource WHERE node_id = 0 AND operation = 'Aggregate'",
    );
    assert_eq!(rows, 40);
    server.assert_no_crash();
}

/// A prepared statement runs many times on one table.
#[test]
fn a_prepared_statement_has_one_plan() {
    let server = basic_server("prepared", &[]);
    let (mut reader, mut client) = (server.connect(), server.connect());
    run_each(&mut client, "CREATE TEMPORARY TABLE work (id int, word text)");
    measure_all(&mut client);
    run_each(
        &mut client,
        "PREPARE one AS SELECT word, id FROM work WHERE id = $1",
    );
    for i in 0..20 {
        run_each(&mut client, &format!("EXECUTE one({i})"));
    }
    assert_eq!(calls(&mut reader), [20]);
    // The queryid does not depend on spaces, case and constants.
    let same = "SELECT word, id FROM work WHERE id = 1";
    run_each(
        &mut client,
        &format!("{same}; {}", same.to_lowercase().replace("= 1", "=  2")),
    );
    let mut all = calls(&mut reader);
    all.sort_unstable();
    assert_eq!(all, [2, 20]);
    server.assert_no_crash();
}

#[test]
fn other_tables_have_other_plans() {
    let server = basic_server("others", &[]);
    let (mut reader, mut client) = (server.connect(), server.connect());
    let statement = "SELECT count(*) FROM work";
    let mut run = |make: &str| {
        run_each(&mut client, make);
        measure_all(&mut client);
        run_each(&mut client, statement);
        run_each(
            &mut client,
            "SET pg_rowsource.statistics_level = 'basic'; DROP TABLE work",
        );
    };
    run("CREATE TEMPORARY TABLE work (id int, word text)");
    run("CREATE TEMPORARY TABLE work (id int, word text)");
    run("CREATE TEMPORARY TABLE work (id int, word varchar(5))");
    run("CREATE TEMPORARY TABLE work (id int)");
    // A table that is not temporary has an OID that stays.
    run("CREATE TABLE work (id int, word text)");
    let mut all = calls(&mut reader);
    all.sort_unstable();
    assert_eq!(all, [1, 1, 1, 2]);
    server.assert_no_crash();
}

/// A session that has a temporary table finds the same plans of other tables as a session that has none.
#[test]
fn plans_of_other_tables_stay_the_same() {
    let server = basic_server("unchanged", &[]);
    let mut reader = server.connect();
    run_each(
        &mut reader,
        "CREATE TABLE work (id int PRIMARY KEY, word text); INSERT INTO work SELECT i, 'x' FROM generate_series(1, 1000) i;
         ANALYZE work",
    );
    let (mut without, mut with) = (server.connect(), server.connect());
    run_each(&mut with, "CREATE TEMPORARY TABLE other (id int)");
    for client in [&mut without, &mut with] {
        measure_all(client);
        run_each(
            client,
            "SELECT word FROM work WHERE id = 5; SELECT count(*) FROM work JOIN work AS more USING (word) WHERE work.id < 9;
             UPDATE work SET word = 'y' WHERE id = 3",
        );
    }
    assert_eq!(calls(&mut reader), [2, 2, 2]);
    server.assert_no_crash();
}
