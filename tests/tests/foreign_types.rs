//! Values and modifiers of types of another extension are not printed because the library looks at a plan.
//! The other extension is a small one in C, `explain_probe`.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::first_column;
use rowsource_tests::explain_probe::{calls, create_type, probed, session};
use rowsource_tests::session::{major, run_each, value};

/// Returns the condition of the scan, as it is stored.
fn filter(client: &mut Client) -> String {
    let lines = first_column(
        client,
        "SELECT rowsource_display(queryid, planid) FROM pg_stat_rowsource_plans WHERE query LIKE '%FROM ints%'",
    );
    let line = lines.iter().find(|line| line.to_lowercase().contains("filter"));
    line.unwrap_or_else(|| panic!("no filter: {lines:?}")).clone()
}

/// Values and modifiers of types of others are symbols in conditions.
#[test]
fn functions_of_types_do_not_run() {
    let server = probed("foreign-types");
    let mut client = session(&server, "none");
    create_type(&mut client);
    let conditions = [
        ("same(a, '5'::probe) > 0", "same(a, $"),
        ("same(a, '{5,6}'::probe[]) > 0", "same(a, $"),
        ("same(a, '5'::probe_domain) > 0", "same(a, $"),
        ("same(a, '(5,x)'::probe_row) > 0", "same(a, $"),
        ("a::probe::probe(3) IS NOT NULL", "::probe IS NOT NULL"),
        (
            "CASE WHEN a = 1 THEN a::probe ELSE NULL::probe(3) END IS NOT NULL",
            "NULL::probe",
        ),
    ];
    for keep in ["off", "on"] {
        run_each(&mut client, &format!("SET pg_rowsource.keep_constants = {keep}"));
        for (condition, expected) in conditions {
            let case = format!("{condition}, keep_constants {keep}");
            let before = calls(&mut client);
            run_each(&mut client, "SELECT rowsource_reset()");
            let statement = format!("SELECT count(*) FROM ints WHERE {condition}");
            let rows: i64 = value(&mut client, &statement);
            assert!(rows > 0, "{case}");
            assert_eq!(calls(&mut client), before, "{case}");
            let shown = filter(&mut client);
            assert!(shown.contains(expected), "{case}: {shown}");
            // The plan is as it was: a cached one runs again, and the user's EXPLAIN shows its constants.
            run_each(&mut client, &format!("PREPARE again AS {statement}"));
            for _ in 0..7 {
                assert_eq!(value::<i64>(&mut client, "EXECUTE again"), rows, "{case}");
            }
            assert_eq!(calls(&mut client), before, "{case}, prepared");
            let explained = first_column(&mut client, "EXPLAIN EXECUTE again").join(" ");
            run_each(&mut client, "DEALLOCATE again");
            assert!(calls(&mut client) > before, "{case}: {explained}");
        }
    }
    // EXPLAIN prints the columns of an Append as its first child computes them, also if that was pruned.
    run_each(
        &mut client,
        "CREATE TABLE parts (k int, a int) PARTITION BY LIST (k); CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2); CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3);
         INSERT INTO parts SELECT i % 3 + 1, i FROM generate_series(1, 30) i; ANALYZE parts;
         SET plan_cache_mode = force_generic_plan; SET pg_rowsource.keep_constants = off; SELECT rowsource_reset();
         PREPARE pruned(int) AS SELECT a FROM parts WHERE k >= $1 ORDER BY same(a, '5'::probe), a || 'a secret'",
    );
    let before = calls(&mut client);
    assert_eq!(client.query("EXECUTE pruned(2)", &[]).expect("rows").len(), 20);
    assert_eq!(calls(&mut client), before, "a pruned child");
    // Only the session itself sees its literals.
    let kept = "SELECT rowsource_explain(queryid, planid) FROM pg_stat_rowsource_plans WHERE query LIKE 'PREPARE pruned%'";
    let explained = first_column(&mut server.connect(), kept).join("\n");
    assert!(
        explained.contains("Sort Key: (same(") && !explained.contains("a secret"),
        "{explained}"
    );
    run_each(&mut client, "RESET plan_cache_mode");
    // A query without a text is printed to make one.
    let body = "SELECT count(*) FROM ints WHERE same(a, '5'::probe) > 0 AND a::probe::probe(3) IS NOT NULL";
    client
        .batch_execute(&format!(
            "CREATE FUNCTION atomic() RETURNS bigint VOLATILE LANGUAGE sql BEGIN ATOMIC {body}; END"
        ))
        .expect("the function");
    let mut client = session(&server, "none");
    run_each(
        &mut client,
        "SET pg_rowsource.track = 'all'; SELECT rowsource_reset()",
    );
    assert_eq!(value::<i64>(&mut client, "SELECT atomic()"), 3);
    assert_eq!(calls(&mut client), 0, "a query without a text");
    let query: String = value(
        &mut client,
        "SELECT query FROM pg_stat_rowsource_plans WHERE NOT toplevel AND query LIKE '%ints%'",
    );
    assert!(
        query.contains("same(a, $1)") && query.contains("::probe IS NOT NULL"),
        "{query}"
    );
    // What PostgreSQL prints itself is printed.
    run_each(
        &mut client,
        "SET pg_rowsource.keep_constants = on; CREATE DOMAIN small AS int; CREATE TYPE mood AS ENUM ('ok')",
    );
    for (condition, expected) in [
        ("a < 1000 AND a::small IN (1, 2)", "1000"),
        ("CASE WHEN a < 9 THEN 'ok'::mood END = 'ok'", "'ok'::mood"),
        ("int4range(a, 9) && '[1,7)'::int4range", "'[1,7)'::int4range"),
        ("a::varchar(10) < '77'", "varying(10)"),
    ] {
        run_each(&mut client, "SELECT rowsource_reset()");
        run_each(
            &mut client,
            &format!("SELECT count(*) FROM ints WHERE {condition}"),
        );
        let shown = filter(&mut client);
        assert!(shown.contains(expected), "{condition}: {shown}");
    }
    server.assert_no_crash();
}

/// A query without a text is printed to make one. Returns how often functions were called for that, and the
/// text.
fn atomic(server: &Server, number: usize, body: &str) -> (i32, String) {
    let mut client = session(server, "none");
    client
        .batch_execute(&format!(
            "CREATE FUNCTION atomic_{number}() RETURNS bigint VOLATILE LANGUAGE sql BEGIN ATOMIC {body}; END"
        ))
        .unwrap_or_else(|error| panic!("{body}: {error:?}"));
    let before = calls(&mut client);
    run_each(
        &mut client,
        "SET pg_rowsource.track = 'all'; SELECT rowsource_reset()",
    );
    assert!(
        value::<i64>(&mut client, &format!("SELECT atomic_{number}()")) > 0,
        "{body}"
    );
    let called = calls(&mut client) - before;
    let text = value(
        &mut client,
        "SELECT query FROM pg_stat_rowsource_plans WHERE NOT toplevel AND query ILIKE '%count(*)%'",
    );
    (called, text)
}

/// SQL has clauses with types of their own: RETURNING of SQL/JSON, XMLSERIALIZE, and lists of columns.
#[test]
fn modifiers_in_clauses_are_not_printed() {
    let server = probed("foreign-clauses");
    let mut client = session(&server, "none");
    create_type(&mut client);
    run_each(
        &mut client,
        "CREATE CAST (text AS probe) WITH INOUT AS IMPLICIT; CREATE CAST (json AS probe) WITH INOUT AS IMPLICIT;
         CREATE CAST (jsonb AS probe) WITH INOUT AS IMPLICIT",
    );
    let has_xml: bool = value(
        &mut client,
        "SELECT setting LIKE '%--with-libxml%' FROM pg_config WHERE name = 'CONFIGURE'",
    );
    let major = major(&mut client);
    assert!(
        has_xml || major == 16,
        "only the server from a wheel may have no XML"
    );
    // From a condition of a plan, and from the text of a query.
    let conditions = [
        (
            has_xml,
            "XMLSERIALIZE(CONTENT XMLELEMENT(NAME x, a) AS probe(3)) IS NOT NULL",
            "AS probe",
        ),
        (
            major >= 16,
            "JSON_OBJECT('a': a RETURNING probe(3)) IS NOT NULL",
            "RETURNING probe",
        ),
        (
            major >= 16,
            "JSON_ARRAY(a RETURNING probe(3)) IS NOT NULL",
            "RETURNING probe",
        ),
        (
            major >= 17,
            "JSON_VALUE(to_jsonb(a), '$' RETURNING probe(3)) IS NOT NULL",
            "RETURNING probe",
        ),
        (
            major >= 17,
            "JSON_QUERY(to_jsonb(a), '$' RETURNING probe(3)) IS NOT NULL",
            "RETURNING probe",
        ),
    ];
    let wanted = conditions.into_iter().filter(|(is_known, ..)| *is_known);
    for (number, (_, condition, printed)) in wanted.enumerate() {
        let statement = format!("SELECT count(*) FROM ints WHERE {condition}");
        let before = calls(&mut client);
        run_each(&mut client, "SELECT rowsource_reset()");
        assert_eq!(value::<i64>(&mut client, &statement), 3, "{condition}");
        let shown = filter(&mut client);
        assert_eq!(calls(&mut client), before, "{condition}: {shown}");
        let is_left_out = |text: &str| text.contains(printed) && !text.contains("probe(3)");
        assert!(is_left_out(&shown), "{condition}: {shown}");
        // The plan is as it was.
        run_each(&mut client, &format!("EXPLAIN {statement}"));
        assert!(calls(&mut client) > before, "{condition}");
        let (called, text) = atomic(&server, number, &statement);
        assert_eq!(called, 0, "{condition}: {text}");
        assert!(is_left_out(&text), "{condition}: {text}");
    }
    let lists = [
        (
            true,
            "json_to_recordset('[{\"p\": 5, \"t\": \"x\"}]') AS r(p probe(3), t varchar(7))",
            "r(p probe, t character varying(7))",
        ),
        (
            has_xml,
            "XMLTABLE('/r' PASSING ('<r><p>5</p></r>'::xml) COLUMNS n FOR ORDINALITY, p probe(3) PATH 'p', t varchar(7) PATH 'p')",
            "character varying(7)",
        ),
        (
            major >= 17,
            "JSON_TABLE('[5]'::jsonb, '$[*]' COLUMNS (n FOR ORDINALITY, p probe(3) PATH '$', NESTED PATH '$' COLUMNS (q probe(3) PATH '$'), t varchar(7) PATH '$'))",
            "character varying(7)",
        ),
    ];
    let wanted = lists.into_iter().filter(|(is_known, ..)| *is_known);
    for (number, (_, list, expected)) in (10..).zip(wanted) {
        let (called, text) = atomic(&server, number, &format!("SELECT count(*) FROM {list}"));
        assert_eq!(called, 0, "{list}: {text}");
        assert!(
            text.contains("p probe") && text.contains(expected),
            "{list}: {text}"
        );
    }
    server.assert_no_crash();
}

/// A null that a symbol replaces has no place for a modifier any more. In a custom plan, a null with a
/// modifier has the place of a parameter: here of a variable of PL/pgSQL, whose name looks like one.
#[test]
fn a_null_with_a_modifier_becomes_a_symbol() {
    let server = probed("foreign-nulls");
    let mut client = session(&server, "none");
    create_type(&mut client);
    client
        .batch_execute(
            "CREATE FUNCTION nulls() RETURNS bigint LANGUAGE plpgsql AS $$
                 DECLARE \"$7\" probe(3) := NULL; n bigint;
                 BEGIN SELECT count(*) INTO n FROM ints WHERE CASE WHEN a = 1 THEN a::probe ELSE $7 END IS NOT NULL; RETURN n; END$$",
        )
        .expect("the function");
    for keep in ["off", "on"] {
        run_each(
            &mut client,
            &format!(
                "SET pg_rowsource.keep_constants = {keep}; SET pg_rowsource.track = 'all'; SELECT rowsource_reset()"
            ),
        );
        let before = calls(&mut client);
        for _ in 0..3 {
            assert_eq!(value::<i64>(&mut client, "SELECT nulls()"), 1);
        }
        assert_eq!(calls(&mut client), before, "keep_constants {keep}");
        let shown = filter(&mut client);
        let expected = if keep == "off" {
            "ELSE $7"
        } else {
            "ELSE NULL::probe"
        };
        assert!(shown.contains(expected), "keep_constants {keep}: {shown}");
    }
    server.assert_no_crash();
}
