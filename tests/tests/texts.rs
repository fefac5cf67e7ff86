//! The texts of statements and the conditions of plans: symbols replace the constants, as in pg_stat_statements. No two
//! statements share a row, none is without a text, and those that use the extension are not measured.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::waiting::until;

/// A server for the tests of this file. It keeps no constants, and measures all statements.
fn server() -> Server {
    let server = Server::start(
        "texts",
        &[
            "shared_preload_libraries = 'pg_stat_statements, pg_rowsource'",
            "pg_stat_statements.track = 'all'",
            "pg_rowsource.track = 'all'",
            "pg_rowsource.keep_constants = off",
            "max_parallel_workers_per_gather = 0",
            "jit = off",
        ],
    );
    run_each(
            &mut server.connect(),
            "CREATE EXTENSION pg_rowsource; CREATE EXTENSION pg_stat_statements;
             CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at timestamp DEFAULT '2024-01-01', ok bool DEFAULT true);
             INSERT INTO t SELECT g, 'name ' || g FROM generate_series(1, 1000) g; VACUUM ANALYZE t",
        );
    server
}

fn session() -> (Server, Client) {
    let server = server();
    let client = server.connect();
    (server, client)
}

/// The stored texts of the statements of this application, and pg_stat_statements' texts of the same queryids.
fn pairs(client: &mut Client, like: &str) -> Vec<(Option<String>, Option<String>)> {
    client
        .query(
            "SELECT p.query, s.query FROM pg_stat_rowsource_plans p LEFT JOIN pg_stat_statements s
                 ON (s.userid, s.dbid, s.queryid, s.toplevel) = (p.userid, p.datid, p.queryid, p.toplevel) WHERE p.query LIKE $1",
            &[&like],
        )
        .expect("the texts")
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

/// Returns everything that is stored of plans, except numbers.
fn stored(client: &mut Client) -> String {
    let parts = ["pg_stat_rowsource_plans", "pg_stat_rowsource"].map(|view| {
        value::<String>(
            client,
            &format!("SELECT coalesce(string_agg(v::text, E'\\n'), '') FROM {view} v"),
        )
    });
    parts.join("\n")
}

fn display(client: &mut Client) -> String {
    texts(client, "SELECT rowsource_display()")
        .into_iter()
        .flatten()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn texts_equal_those_of_pg_stat_statements() {
    let (_server, mut client) = session();
    let statements = [
        "SELECT /*p01*/ 1, -2, - 3.5e-1, +4, 'five', E'si\\'x', $$seven$$, $a$ eight $a$, B'101', X'1f'",
        "SELECT /*p02*/ U&'\\0061', U&'!0061' UESCAPE '!', N'n', 'a'\n'b', 'it''s'",
        "SELECT /*p03*/ TRUE, NULL, DATE '2024-01-01', INTERVAL '1' DAY, '1'::int, CAST('2' AS numeric(10,2)), 'x'::varchar(3)",
        "SELECT /*p04*/ id FROM t WHERE id=-1 OR id =- 1 OR id+-1=2 ORDER BY 1 LIMIT 5 OFFSET 2",
        "SELECT /*p05*/ id FROM t WHERE id IN (1, 2, 3) AND name IN ('a', 'b') AND id <> 7",
        "SELECT /*p06*/ id FROM t WHERE id = ANY (ARRAY[1, 2, 3]) AND id = ANY ('{4,5}')",
        "SELECT /*p07 'no' 1 */ id -- 'nor this' 2\nFROM t /* /* nested 3 */ */ WHERE name = 'é ü 漢字' AND id = 8",
        "   \n SELECT /*p08*/ extract(year FROM at), substring(name FROM 2 FOR 3), trim('n' FROM name) FROM t WHERE id = 1  \n ",
        "SELECT /*p09*/ \"id\" AS \"it's 1\", name AS x1 FROM t AS t2 WHERE t2.id BETWEEN 1 AND 2",
        "SELECT /*p10*/ count(*) FILTER (WHERE id > 10), 1::text || 'a' FROM t GROUP BY id % 10 HAVING count(*) > 3",
        "WITH /*p11*/ w AS (SELECT 1 AS a UNION ALL SELECT 2) SELECT a FROM w WHERE a > 0",
        "INSERT INTO /*p12*/ t VALUES (100000, 'x', '2020-01-01', false), (100001, NULL, DEFAULT, DEFAULT) ON CONFLICT DO NOTHING",
        "UPDATE /*p13*/ t SET name = 'y' || id WHERE id = 100001 RETURNING id, 'z'",
        "DELETE FROM /*p14*/ t WHERE id >= 100000",
        "VALUES /*p15*/ (1, 'a'), (2, 'b')",
        "SELECT /*p16*/ CASE id WHEN 1 THEN 'one' ELSE 'other' END, (ARRAY[1, 2])[1], ROW(1, 'x') FROM t WHERE id < 3",
        "PREPARE p17 (int, text) AS SELECT /*p17*/ id FROM t WHERE id = $1 AND name <> $2 AND id < 50 AND name <> 'no'",
        "EXECUTE p17 (5, 'secret')",
        "PREPARE p18 (int) AS SELECT /*p18*/ id FROM t WHERE id = $1 AND id IN (1, 2, 3)",
        "EXECUTE p18 (2)",
    ];
    for statement in statements {
        client
            .simple_query(statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    client
        .simple_query("SELECT /*p19*/ 'first';  SELECT /*p20*/ 'second', 2 ;SELECT /*p21*/ 3")
        .expect("three statements");
    client
        .query("SELECT /*p22*/ id FROM t WHERE id = $1 AND name <> 'x'", &[&5])
        .expect("a prepared statement");
    run_each(&mut client, "SET standard_conforming_strings = on");
    for number in 1..=22 {
        let like = format!("%/*p{number:02}%");
        let pairs = pairs(&mut client, &like);
        assert!(!pairs.is_empty(), "{like}");
        for (own, others) in pairs {
            assert!(own.is_some() && own == others, "{own:?}\n{others:?}");
            println!("{}", own.unwrap_or_default());
        }
    }
}

#[test]
fn no_literal_is_stored() {
    let (_server, mut client) = session();
    run_each(
        &mut client,
        "CREATE TABLE secrets (a text, b int, c date, d jsonb)",
    );
    run_each(
        &mut client,
        "INSERT INTO secrets SELECT 'x' || g, g, '2024-01-01', '{}' FROM generate_series(1, 2000) g;
         CREATE INDEX ON secrets (a text_pattern_ops); CREATE INDEX ON secrets (b); ANALYZE secrets;
         SELECT a FROM secrets WHERE a = 'sesame' AND b < 731955284;
         SELECT a FROM secrets WHERE a LIKE 'sesame%' AND c > '1999-09-09' AND b > -731955284;
         SELECT a FROM secrets WHERE a IN ('sesame', 'sesame2') OR b IN (731955284, 731955285);
         SELECT a FROM secrets WHERE d @> '{\"sesame\": 731955284}' AND a ~ ('ses' || 'ame');
         SELECT b FROM secrets ORDER BY b + 731955284, a || 'sesame' LIMIT 3;
         SELECT count(*) FROM secrets GROUP BY a || 'sesame' HAVING count(*) > 731955284;
         SELECT extract(year FROM c), overlay(a placing 'sesame' FROM 1) FROM secrets
             WHERE overlay(a placing 'sesame' FROM 1) = 'sesame' AND extract(year FROM c) = 731955284;
         SELECT a FROM secrets WHERE a::varchar(7) = 'sesame' AND position('sesame' IN a) > 0 AND a IS NORMALIZED;
         SELECT a FROM secrets TABLESAMPLE bernoulli (42.4242) REPEATABLE (731955284);
         SELECT x.a FROM secrets x LEFT JOIN secrets y ON x.b = y.b + 731955284 AND y.a <> 'sesame' WHERE x.b = 1;
         PREPARE s (text) AS SELECT a FROM secrets WHERE a = $1 AND b <> 731955284; EXECUTE s ('sesame'); EXECUTE s ('sesame3');
         DO 'BEGIN PERFORM a FROM secrets WHERE a = ''sesame'' AND b = 731955284; END';
         DECLARE c CURSOR WITH HOLD FOR SELECT a FROM secrets WHERE a = 'sesame' AND b = 731955284; FETCH c; CLOSE c;
         CREATE TABLE secrets2 AS SELECT a FROM secrets WHERE a = 'sesame' AND b = 731955284",
    );
    let stored = stored(&mut client);
    assert!(stored.contains("secrets"), "{stored}");
    for literal in ["sesame", "731955284", "1999-09"] {
        let lines: Vec<&str> = stored.lines().filter(|line| line.contains(literal)).collect();
        assert!(lines.is_empty(), "{literal}: {lines:#?}");
    }
}

#[test]
fn the_conditions_have_the_numbers_of_the_text() {
    let (_server, mut client) = session();
    run_each(
        &mut client,
        "SELECT /*numbered*/ 'a', id FROM t WHERE name <> 'b' AND id < 50 ORDER BY id + 7, name || 'c'",
    );
    let conditions = texts(
        &mut client,
        "SELECT p.query, string_agg(line, E'\\n') FROM pg_stat_rowsource_plans p,
             rowsource_display(p.queryid, p.planid) line WHERE query LIKE '%/*numbered*/%' GROUP BY 1",
    );
    let row: Vec<&str> = conditions[0].iter().flatten().map(String::as_str).collect();
    assert_eq!(
        row[0],
        "SELECT /*numbered*/ $1, id FROM t WHERE name <> $2 AND id < $3 ORDER BY id + $4, name || $5"
    );
    for condition in ["Index Cond: (id < $3)", "<> $2)"] {
        assert!(row[1].contains(condition), "{}", row[1]);
    }
}

/// In a custom plan, the values of parameters are constants.
#[test]
fn parameters_keep_their_numbers_in_custom_plans() {
    let (_server, mut client) = session();
    run_each(
        &mut client,
        "SET plan_cache_mode = force_custom_plan;
         PREPARE own (int, text) AS SELECT /*own*/ id FROM t WHERE name <> 'b' AND name <> $2 AND id < $1;
         EXECUTE own (50, 'c')",
    );
    let shown = display(&mut client);
    for condition in ["Index Cond: (id < $1)", "<> 'b'", "<> $2)"] {
        assert!(shown.contains(condition), "{condition} in {shown}");
    }
}

#[test]
fn the_last_statement_shows_its_literals() {
    let (_server, mut client) = session();
    for (sql, condition) in [
        (
            "SELECT name FROM t WHERE id = 17 AND name <> 'it''s'",
            "Index Cond: (id = 17)",
        ),
        (
            "SELECT name FROM t WHERE id = 123 AND name <> E'it\\'s'",
            "Index Cond: (id = 123)",
        ),
        (
            "SELECT name FROM t  WHERE id = -5 AND name <> 'x'",
            "Index Cond: (id = -5)",
        ),
        (
            "SELECT name FROM t WHERE id IN (3, 4,5) AND name <> 'x'",
            "Index Cond: (id = ANY (3, 4,5))",
        ),
        (
            "SELECT name FROM t WHERE id IN (6, 7,8) AND name NOT IN ('a', 'b, c', 'd')",
            "Filter: ((name)::text <> ALL ('a', 'b, c', 'd'))",
        ),
        (
            "SELECT name FROM t WHERE id = ANY (ARRAY[1, 2])",
            "Index Cond: (id = ANY (1, 2))",
        ),
        (
            "BEGIN; DECLARE c CURSOR FOR SELECT name FROM t WHERE id = 19; FETCH ALL FROM c; CLOSE c; COMMIT;",
            "Index Cond: (id = 19)",
        ),
    ] {
        run_each(&mut client, sql);
        let shown = display(&mut client);
        assert!(shown.contains(condition), "{sql}\n{shown}");
    }
    // It is the session's own: others see symbols.
    let shown = texts(
        &mut client,
        "SELECT string_agg(line, E'\\n') FROM rowsource_last() l, rowsource_display(l.queryid, l.planid) line",
    );
    assert!(
        shown[0][0].as_deref().unwrap_or_default().contains("(id = $1)"),
        "{shown:?}"
    );
    // Two prepared statements with the same queryid.
    run_each(
        &mut client,
        "PREPARE one AS SELECT name FROM t WHERE id = 1001; PREPARE two AS SELECT name FROM t WHERE id = 1002",
    );
    for (statement, literal) in [("one", "1001"), ("two", "1002"), ("one", "1001"), ("one", "1001")] {
        run_each(&mut client, &format!("EXECUTE {statement}"));
        let shown = display(&mut client);
        assert!(
            shown.contains(&format!("(id = {literal})")),
            "{statement}\n{shown}"
        );
    }
}

#[test]
fn constants_are_kept_on_request() {
    let (_server, mut client) = session();
    run_each(
        &mut client,
        "SET pg_rowsource.keep_constants = on; SELECT /*kept*/ name FROM t WHERE id = 77;
         SET pg_rowsource.keep_constants = off; SELECT /*not kept*/ name FROM t WHERE id = 78 AND name <> 'x'",
    );
    let kept = texts(
        &mut client,
        "SELECT query FROM pg_stat_rowsource_plans WHERE query LIKE '%kept*/%' ORDER BY 1",
    );
    assert_eq!(
        kept.into_iter().flatten().flatten().collect::<Vec<_>>(),
        [
            "SELECT /*kept*/ name FROM t WHERE id = 77",
            "SELECT /*not kept*/ name FROM t WHERE id = $1 AND name <> $2",
        ]
    );
    // The session's description of the plan had constants.
    run_each(
        &mut client,
        "SET pg_rowsource.keep_constants = on; SELECT name, id FROM t WHERE id = 1077;
         SET pg_rowsource.keep_constants = off; SELECT name, id FROM t WHERE id = 1078",
    );
    assert!(display(&mut client).contains("(id = 1078)"));
}

/// A plan is described again for other literals only as often as the session can afford.
#[test]
fn each_statement_has_its_text_with_constants_kept() {
    let (_server, mut client) = session();
    run_each(&mut client, "SET pg_rowsource.keep_constants = on");
    // Of a session that sends very many statements, no texts are kept.
    for id in 1000..=4000 {
        run_each(&mut client, &format!("SELECT name FROM t WHERE id = {id}"));
    }
    let shown = display(&mut client);
    assert!(
        shown.contains("text of an earlier execution") && !shown.contains("id = 4000"),
        "{shown}"
    );
    let (mut wrong, mut of_earlier) = (Vec::new(), 0);
    for id in 1..=100 {
        let statement = format!("SELECT name FROM t WHERE id = {id}");
        run_each(&mut client, &statement);
        let shown = display(&mut client);
        of_earlier += i32::from(shown.contains("with the literals of an earlier execution"));
        if shown.lines().nth(1).map(str::trim) != Some(&statement) {
            wrong.push(shown);
        }
    }
    assert!(of_earlier > 0, "each of 100 statements was described");
    assert!(wrong.is_empty(), "{} texts, such as {}", wrong.len(), wrong[0]);
}

#[test]
fn no_two_statements_share_a_row() {
    let (_server, mut client) = session();
    run_each(
        &mut client,
        "CREATE TABLE /*u1*/ made1 AS SELECT id FROM t WHERE id < 10; CREATE TABLE /*u2*/ made2 AS SELECT id FROM t WHERE id < 10;
         CREATE MATERIALIZED VIEW /*u3*/ view1 AS SELECT id FROM t WHERE id < 10;
         CREATE MATERIALIZED VIEW /*u4*/ view2 AS SELECT id FROM t WHERE id < 10;
         REFRESH /*u5*/ MATERIALIZED VIEW view1; REFRESH /*u6*/ MATERIALIZED VIEW view2;
         BEGIN; DECLARE /*u7*/ c1 CURSOR FOR SELECT id FROM t WHERE id < 10; DECLARE /*u8*/ c2 CURSOR FOR SELECT name FROM t;
         FETCH ALL FROM c1; FETCH ALL FROM c2; COMMIT",
    );
    client
        .batch_execute(
            "CREATE FUNCTION f1() RETURNS bigint VOLATILE BEGIN ATOMIC
                 INSERT INTO made1 VALUES (1); SELECT count(*) FROM made1 WHERE id > 4; END;
             CREATE FUNCTION f2() RETURNS bigint VOLATILE BEGIN ATOMIC
                 INSERT INTO made1 VALUES (2); SELECT count(*) FROM made1 WHERE id < 4; END;
             SELECT f1(), f2(); SELECT f1(), f2()",
        )
        .expect("functions");
    let rows = texts(
        &mut client,
        "SELECT queryid, count(*), count(DISTINCT query), max(query) FROM pg_stat_rowsource_plans GROUP BY queryid, toplevel, userid, datid",
    );
    for row in &rows {
        let row: Vec<&str> = row.iter().flatten().map(String::as_str).collect();
        assert_ne!(row[0], "0", "{row:?}");
        assert_eq!(row[2], "1", "{row:?}");
        assert!(!row[3].is_empty(), "{row:?}");
    }
    let of = |like: &str| {
        let matches = |row: &&Vec<Option<String>>| row[3].as_deref().is_some_and(|text| text.contains(like));
        rows.iter().filter(matches).count()
    };
    let inner = major(&mut client) >= 18;
    for number in [1, 2, 3, 4, 7, 8].into_iter().filter(|_| !inner) {
        assert_eq!(of(&format!("/*u{number}*/")), 1, "{number}: {rows:#?}");
    }
    for refresh in ["/*u5*/", "/*u6*/"] {
        assert_eq!(of(refresh), 1, "{refresh}: {rows:#?}");
    }
    // The names of cursors are not part of the statement.
    let cursors = "DO 'BEGIN END'; BEGIN; DECLARE x1 CURSOR FOR SELECT /*many*/ id, name FROM t WHERE id < 5;
         DECLARE x2 CURSOR FOR SELECT /*many*/ id, name FROM t WHERE id < 7; FETCH x1; FETCH x2; COMMIT";
    run_each(&mut client, cursors);
    let many = texts(
        &mut client,
        "SELECT query, calls FROM pg_stat_rowsource_plans WHERE query LIKE '%/*many*/%'",
    );
    assert_eq!(many.len(), 1, "{many:?}");
    for body in ["FROM made1", "INSERT INTO made1"] {
        assert!(
            of(body) >= 2 - usize::from(body.starts_with('I')),
            "{body}: {rows:#?}"
        );
    }
    assert_eq!(of("(no text)"), 0, "{rows:#?}");
}

#[test]
fn the_extensions_own_statements_are_not_measured() {
    let (_server, mut client) = session();
    run_each(
        &mut client,
        "SELECT /*before*/ count(*) FROM t WHERE id < 5; SELECT count(*) /*mine*/ FROM pg_stat_rowsource;
         SELECT count(*) /*mine*/ FROM pg_stat_rowsource; SELECT /*mine*/ rowsource_display();
         SELECT /*mine*/ rowsource_snapshot(); SELECT /*mine*/ count(*) FROM rowsource_interval_plans;
         SELECT /*mine*/ count(*) FROM rowsource_snapshots;
         SELECT /*mine*/ count(*) FROM t JOIN pg_stat_rowsource_plans p ON true;
         CREATE VIEW mine AS SELECT calls FROM pg_stat_rowsource_plans; SELECT /*mine*/ count(*) FROM mine",
    );
    let own: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE '%/*mine*/%' OR query LIKE '%rowsource%'",
    );
    assert_eq!(
        own,
        0,
        "{:#?}",
        texts(
            &mut client,
            "SELECT query FROM pg_stat_rowsource_plans WHERE query LIKE '%rowsource%'"
        )
    );
    assert!(display(&mut client).contains("executions"));
    let last = texts(
        &mut client,
        "SELECT query FROM rowsource_last() JOIN pg_stat_rowsource_plans USING (queryid, planid)",
    );
    assert_eq!(
        last[0][0].as_deref(),
        Some("SELECT /*before*/ count(*) FROM t WHERE id < $1")
    );
    // A session that knew the objects before they were created again.
    run_each(
        &mut client,
        "DROP VIEW mine; DROP EXTENSION pg_rowsource; CREATE EXTENSION pg_rowsource; SELECT /*again*/ count(*) FROM pg_stat_rowsource_plans;
         SELECT count(*) /*measured again*/ FROM t",
    );
    let again = texts(
        &mut client,
        "SELECT query FROM pg_stat_rowsource_plans WHERE query LIKE '%again*/%' AND NOT query LIKE '%WHERE%'",
    );
    assert_eq!(again.len(), 1, "{again:?}");
}

/// Clients look up tables one by one (`\d` of psql, ORMs), the extension's among them.
#[test]
fn a_constant_that_is_an_oid_of_the_extension_is_not_use() {
    let (server, mut client) = session();
    run_each(
        &mut client,
        "CREATE TABLE with_oid (id oid, v text); CREATE VIEW above AS SELECT queryid FROM pg_stat_rowsource_plans",
    );
    let [own, sequence, function] = [
        "'pg_stat_rowsource_plans'::regclass",
        "'rowsource_snapshots_snap_id_seq'::regclass",
        "'rowsource_display'::regproc",
    ]
    .map(|object| value::<u32>(&mut client, &format!("SELECT {object}::oid")));
    let cases = [
        "SELECT attname AS of_catalog FROM pg_attribute WHERE attrelid = $::oid",
        "SELECT pg_total_relation_size($::oid::regclass) AS of_function",
        "SELECT relname AS of_regclass FROM pg_class WHERE oid = $::regclass",
        "SELECT v AS of_table FROM with_oid WHERE id = $::oid",
        "SELECT v AS of_list FROM with_oid WHERE id IN ($::oid, 17)",
    ];
    // In a session that has not read the objects, and in one that has.
    let mut fresh = server.connect();
    for session in [&mut fresh, &mut client] {
        run_each(session, "SELECT count(*) FROM pg_stat_rowsource_plans");
        for case in cases {
            for oid in [own, sequence, function, 1, 2] {
                run_each(session, &case.replace('$', &oid.to_string()));
            }
        }
        run_each(session, "SELECT count(*) AS of_view FROM above");
    }
    drop(fresh);
    let rows = "SELECT substring(query FROM 'of_[a-z]+') AS what, sum(calls) FROM pg_stat_rowsource_plans
         WHERE toplevel AND query ~ 'of_[a-z]+' GROUP BY 1 ORDER BY 1";
    // The session stores its counts when it ends.
    until(
        &mut client,
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND query LIKE '%of_view FROM above'
             AND pid <> pg_backend_pid())",
    );
    let rows = texts(&mut client, rows);
    let expected = ["of_catalog", "of_function", "of_list", "of_regclass", "of_table"]
        .map(|what| vec![Some(what.to_owned()), Some("10".to_owned())]);
    assert_eq!(rows, expected);
}

#[test]
fn a_long_constant_is_not_printed() {
    let (_server, mut client) = session();
    let long = "s".repeat(20 << 20);
    client
        .batch_execute(&format!(
            "SELECT /*long*/ name FROM t WHERE name = '{long}' AND id < 5"
        ))
        .expect("a long statement");
    let texts = texts(
        &mut client,
        "SELECT query FROM pg_stat_rowsource_plans WHERE query LIKE '%/*long*/%'",
    );
    let text = texts[0][0].as_deref().unwrap_or_default();
    assert!(
        text.starts_with("SELECT /*long*/ name FROM t WHERE name = $1") && text.len() < 100,
        "{text:.100}"
    );
    let shown = display(&mut client);
    assert!(
        shown.len() < 40_000 && !shown.contains("(name = 'sss"),
        "{shown:.1000}"
    );
}

/// The script of CREATE EXTENSION is one text with many statements. CREATE SCHEMA runs other statements too, so both have rows.
#[test]
fn statements_of_scripts_have_their_own_rows() {
    let (_server, mut client) = session();
    run_each(
        &mut client,
        "SELECT rowsource_reset(); CREATE EXTENSION cube;
         CREATE SCHEMA inner_objects CREATE TABLE made (i int PRIMARY KEY, j int REFERENCES made) CREATE VIEW shown AS SELECT 1 AS one",
    );
    let rows = texts(
        &mut client,
        "SELECT DISTINCT left(query, 6), toplevel, caller_queryid IS NOT NULL FROM pg_stat_rowsource_plans",
    );
    let update = ["UPDATE", "f", "t"].map(|text| Some(text.to_string()));
    assert!(rows.contains(&update.to_vec()), "{rows:?}");
    let top = rows.iter().filter(|row| row[1] != update[1]).collect::<Vec<_>>();
    let create = ["CREATE", "t", "f"].map(|text| Some(text.to_string()));
    assert_eq!(top, [&create.to_vec()]);
    let shared: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE queryid = 0 OR query = ''
            OR (query LIKE '%;%' AND query NOT LIKE '%DO LANGUAGE%')",
    );
    assert_eq!(shared, 0);
    // The statements of this extension's own script are not measured, whether or not another script ran the same before.
    run_each(
        &mut client,
        "DROP EXTENSION pg_rowsource; CREATE EXTENSION pg_rowsource",
    );
    let own: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE '%pg_extension_config_dump%'",
    );
    assert_eq!(own, 0);
}

/// A statement that is planned inside a utility statement, and kept, has its own text, not a part of the utility's.
#[test]
fn plans_that_are_kept_have_their_own_text() {
    let server = Server::preloaded(
        "texts-kept-plans",
        &["compute_query_id = off", "plan_cache_mode = force_generic_plan"],
    );
    let mut client = server.connect();
    let before = format!("SELECT '{}'", "x".repeat(100_000));
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; SET pg_rowsource.track = 'all'",
    );
    for (name, utility) in [
        ("explained", "EXPLAIN EXECUTE explained(1)"),
        ("made", "CREATE TABLE copy AS EXECUTE made(1)"),
    ] {
        run_each(
            &mut client,
            &format!("PREPARE {name}(int) AS SELECT amname AS {name} FROM pg_am WHERE oid = $1"),
        );
        client
            .simple_query(&format!("{before}; {utility}"))
            .expect(utility);
        run_each(&mut client, &format!("EXECUTE {name}(2)"));
        let shown = display(&mut client);
        assert!(
            shown.contains(&format!("SELECT amname AS {name} FROM pg_am")),
            "{shown}"
        );
    }
    server.assert_no_crash();
}

/// A function that the planner runs inside a utility statement keeps its plan. It has its own text, and its own row.
#[test]
fn functions_run_by_the_planner_have_their_own_text() {
    let server = Server::preloaded("texts-planner", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; SET pg_rowsource.track = 'all'",
    );
    client
        .batch_execute(
            "CREATE FUNCTION constant() RETURNS bigint IMMUTABLE LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM pg_am; END",
        )
        .expect("a function");
    let before = format!("SELECT '{}'", "x".repeat(100_000));
    for utility in [
        "EXPLAIN SELECT constant()",
        "CREATE TABLE made AS SELECT constant()",
    ] {
        client
            .simple_query(&format!("{before}; {utility}; SELECT constant()"))
            .expect(utility);
    }
    let texts: Vec<String> = client
        .query(
            "SELECT query FROM pg_stat_rowsource_plans WHERE query LIKE '%count(*)%' AND calls > 0",
            &[],
        )
        .expect("the plans")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(!texts.is_empty());
    for text in &texts {
        assert!(text.trim_start().starts_with("SELECT count(*)"), "{text:.200}");
    }
    server.assert_no_crash();
}
