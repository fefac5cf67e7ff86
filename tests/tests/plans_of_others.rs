//! A session takes the description of a plan from the store if another session has run the plan before. What
//! it shows is its own.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::run_each;

fn lines(client: &mut Client, sql: &str) -> String {
    let rows = client.query(sql, &[]).expect(sql);
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    lines.join("\n")
}

/// Returns what the display shows of a statement that ran just now.
fn shown(client: &mut Client, statement: &str) -> String {
    client.query(statement, &[]).expect(statement);
    lines(
        client,
        "SELECT rowsource_display(format => 'ALLSTATS LAST +COST')",
    )
}

fn two_sessions(name: &str) -> (Server, Client, Client) {
    let server = Server::preloaded(name, &["jit = off", "max_parallel_workers_per_gather = 0"]);
    let mut first = server.connect();
    run_each(
        &mut first,
        "CREATE EXTENSION pg_rowsource; SET pg_rowsource.keep_constants = off;
         CREATE TABLE t AS SELECT i AS id, 'v' || i % 10 AS v FROM generate_series(1, 1000) i; ANALYZE t",
    );
    let mut second = server.connect();
    run_each(&mut second, "SET pg_rowsource.keep_constants = off");
    (server, first, second)
}

#[test]
fn literals_and_estimates_are_those_of_the_session() {
    let (_server, mut first, mut second) = two_sessions("others-literals");
    let statement = |id: i32, v: &str| {
        format!("SELECT id FROM t WHERE id < {id} AND v IN ('{v}', 'other') OR v = 'plus {v}'")
    };
    let of_first = shown(&mut first, &statement(10, "v1"));
    assert!(of_first.contains("id < 10"), "{of_first}");
    run_each(
        &mut first,
        "INSERT INTO t SELECT i, 'v' || i % 10 FROM generate_series(1001, 50000) i; ANALYZE t",
    );
    let mine = statement(40_000, "v2");
    let of_second = shown(&mut second, &mine);
    for part in ["id < 40000", "ANY ('v2', 'other')", "'plus v2'"] {
        assert!(of_second.contains(part), "{part}: {of_second}");
    }
    assert!(!of_second.contains("v1"), "{of_second}");
    // Costs and rows are those of core's EXPLAIN for this session's statement.
    let core = lines(&mut second, &format!("EXPLAIN {mine}"));
    let core = core.lines().next().expect("a plan");
    second.query(&mine, &[]).expect("a statement");
    let ours = lines(&mut second, "SELECT rowsource_explain()");
    assert!(ours.contains(core), "{core}: {ours}");
}

#[test]
fn renamed_columns_have_their_new_names() {
    let (_server, mut first, mut second) = two_sessions("others-renamed");
    shown(&mut first, "SELECT v FROM t WHERE id = 1");
    run_each(&mut first, "ALTER TABLE t RENAME id TO number");
    let shown = shown(&mut second, "SELECT v FROM t WHERE number = 2");
    assert!(shown.contains("Filter: (number = 2)"), "{shown}");
}

/// The text says nothing of the index.
#[test]
fn renamed_indexes_have_their_new_names() {
    let (_server, mut first, mut second) = two_sessions("others-index");
    run_each(&mut first, "CREATE INDEX t_old ON t (id); ANALYZE t");
    let of_first = shown(&mut first, "SELECT v FROM t WHERE id = 1");
    assert!(of_first.contains("t_old"), "{of_first}");
    run_each(&mut first, "ALTER INDEX t_old RENAME TO t_new");
    let of_second = shown(&mut second, "SELECT v FROM t WHERE id = 2");
    assert!(of_second.contains("t_new"), "{of_second}");
}

/// The session that has run the plan before shows the new names too.
#[test]
fn a_session_shows_new_names_of_plans_that_it_knows() {
    let (_server, mut first, mut second) = two_sessions("own-renamed");
    run_each(
        &mut first,
        "CREATE INDEX t_old ON t (id); CREATE TABLE u AS SELECT * FROM t; ANALYZE t; ANALYZE u",
    );
    let [by_index, of_table, of_column] = [
        "SELECT v FROM t WHERE id = 1",
        "SELECT count(*) FROM u WHERE v = 'v1'",
        "SELECT v FROM u WHERE v = 'v3' AND id > 7",
    ];
    // Some plans are those of a statement that the session keeps.
    for _ in 0..3 {
        assert!(shown(&mut first, by_index).contains("t_old"));
        assert!(shown(&mut first, of_table).contains("| u "));
        assert!(shown(&mut first, of_column).contains("(id > 7)"));
    }
    run_each(
        &mut second,
        "ALTER INDEX t_old RENAME TO t_new; ALTER TABLE u RENAME TO w; ALTER TABLE w RENAME id TO number",
    );
    let now = shown(&mut first, by_index);
    assert!(now.contains("t_new") && !now.contains("t_old"), "{now}");
    let now = shown(&mut first, &of_table.replace("FROM u", "FROM w"));
    assert!(now.contains("| w ") && !now.contains("| u "), "{now}");
    let now = shown(&mut first, "SELECT v FROM w WHERE v = 'v3' AND number > 7");
    assert!(now.contains("(number > 7)") && now.contains("| w "), "{now}");
    // Its own changes count too.
    run_each(&mut first, "ALTER INDEX t_new RENAME TO t_newest");
    let now = shown(&mut first, by_index);
    assert!(now.contains("t_newest"), "{now}");
}

/// The same query has its constants at other places in the text of another statement.
#[test]
fn literals_of_another_kind_of_statement_are_shown() {
    let (_server, mut first, mut second) = two_sessions("others-prepared");
    // The 10 is no constant.
    let statement = |id: i32| format!("SELECT v::varchar(10) FROM t WHERE id < {id}");
    let of_first = shown(&mut first, &statement(5));
    assert!(of_first.contains("id < 5"), "{of_first}");
    run_each(&mut second, &format!("PREPARE p AS {}", statement(7)));
    run_each(&mut second, "EXECUTE p");
    let of_second = lines(&mut second, "SELECT rowsource_display()");
    assert!(of_second.contains("Filter: (id < 7)"), "{of_second}");
}

/// A name that a transaction has changed counts in it, and does not count after it has failed.
#[test]
fn names_of_an_open_transaction_are_its_own() {
    let (_server, mut first, mut second) = two_sessions("others-open");
    run_each(&mut first, "CREATE TABLE w (a int, b int, c text, d text)");
    let statement = |column: &str, value: i32| format!("SELECT d FROM w WHERE {column} > {value}");
    // The second session looks at the table's columns.
    assert!(shown(&mut first, &statement("b", 1)).contains("(b > 1)"));
    assert!(shown(&mut second, &statement("b", 2)).contains("Filter: (b > 2)"));
    for end in ["ROLLBACK", "COMMIT"] {
        run_each(&mut second, "BEGIN; ALTER TABLE w RENAME a TO x");
        let of_second = shown(&mut second, &statement("x", 3));
        assert!(of_second.contains("Filter: (x > 3)"), "{of_second}");
        run_each(&mut second, end);
        let column = if end == "COMMIT" { "x" } else { "a" };
        let of_first = shown(&mut first, &statement(column, 4));
        assert!(
            of_first.contains(&format!("Filter: ({column} > 4)")),
            "{of_first}"
        );
    }
}

/// Neither a function's new name nor a table's alias is a part of the query's identity.
#[test]
fn functions_and_aliases_have_the_names_of_the_statement() {
    let (_server, mut first, mut second) = two_sessions("others-functions");
    run_each(
        &mut first,
        "CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1; END'",
    );
    let of_first = shown(&mut first, "SELECT v FROM t a WHERE f(a.id) > 990");
    assert!(of_first.contains("(f(id) > 990)"), "{of_first}");
    run_each(&mut first, "ALTER FUNCTION f RENAME TO g");
    let of_second = shown(&mut second, "SELECT v FROM t a WHERE g(a.id) > 991");
    assert!(of_second.contains("(g(id) > 991)"), "{of_second}");
    let joined = |a: &str, b: &str| {
        format!("SELECT {a}.v FROM t {a} JOIN t {b} ON {a}.id = {b}.id AND {a}.v < {b}.v WHERE {b}.id < 5")
    };
    let of_first = shown(&mut first, &joined("a", "b"));
    assert!(of_first.contains("(a.id = b.id)"), "{of_first}");
    let of_second = shown(&mut second, &joined("p", "c"));
    assert!(of_second.contains("(p.id = c.id)"), "{of_second}");
}
