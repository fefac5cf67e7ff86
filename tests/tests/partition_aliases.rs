//! The session's own last statement shows partitions as EXPLAIN does: with the same aliases, also in
//! conditions.

use rowsource_tests::explain::first_column;
use rowsource_tests::session::run_each;
use rowsource_tests::store::{basic_server, measured};
use serde_json::Value;

/// What is compared of each node.
const SHOWN: [&str; 12] = [
    "Parent Relationship",
    "Subplan Name",
    "CTE Name",
    "Relation Name",
    "Alias",
    "Filter",
    "Index Cond",
    "Hash Cond",
    "Merge Cond",
    "Join Filter",
    "Sort Key",
    "Group Key",
];

const STATEMENTS: [&str; 26] = [
    "SELECT * FROM p",
    "SELECT * FROM p AS q WHERE q.v > q.id",
    "SELECT * FROM p WHERE id < 10",
    "SELECT * FROM p WHERE id < 10 ORDER BY v, p.id",
    "SELECT * FROM p x JOIN p y ON x.id = y.v WHERE x.v > y.id",
    "SELECT * FROM (SELECT * FROM p WHERE v > id) a JOIN (SELECT * FROM p WHERE v < id) b ON a.id = b.v WHERE a.v > b.id",
    "SELECT * FROM p, (SELECT p.v, count(*) FROM p GROUP BY p.v) b WHERE p.id = b.v",
    "SELECT * FROM p UNION ALL SELECT * FROM p WHERE v > id",
    "SELECT * FROM p WHERE v = (SELECT max(v) FROM p WHERE id > v)",
    "SELECT * FROM p WHERE id < 10 AND v > (SELECT min(v) FROM p WHERE id < 5 AND id > v)",
    "WITH r AS MATERIALIZED (SELECT v FROM p WHERE id > 20) SELECT * FROM p WHERE id < 10 AND v > id AND v < (SELECT max(v) FROM r)",
    "SELECT * FROM p WHERE v = (SELECT count(*) FROM r WHERE r.v = p.id)",
    "SELECT * FROM p WHERE v IN (SELECT v FROM p p_1 WHERE id > v)",
    "SELECT * FROM p AS p_1_1, p, (VALUES (1)) AS p_1 (id), p AS p_2 WHERE p.id = p_2.v AND p_1_1.v = p.v",
    "SELECT * FROM renamed JOIN p ON renamed.id = p.v WHERE p.id > renamed.v",
    "SELECT * FROM p AS an_alias_that_has_so_many_letters_that_a_number_leaves_no_room_a JOIN r USING (id) WHERE an_alias_that_has_so_many_letters_that_a_number_leaves_no_room_a.v > r.v",
    "SELECT * FROM p AS \"Mixed Case\", r AS \"Mixed Case_1\" WHERE \"Mixed Case\".v = \"Mixed Case_1\".v",
    "SELECT * FROM p AS \"order\" WHERE \"order\".v >= \"order\".id",
    "SELECT * FROM p AS \"left\" JOIN p AS \"end\" ON \"left\".id = \"end\".v JOIN p AS \"do\" ON \"do\".id = \"left\".id WHERE \"left\".v > \"end\".id",
    "WITH p AS MATERIALIZED (SELECT * FROM p) SELECT * FROM p JOIN p b ON p.id = b.v",
    "WITH RECURSIVE p (id, v) AS (SELECT id, v FROM public.p UNION SELECT p.v, p.id FROM p JOIN public.p b ON p.id = b.v) SELECT * FROM p",
    "SELECT * FROM p, LATERAL (SELECT * FROM p b WHERE b.v > p.id OFFSET 0) c",
    "SELECT * FROM (p JOIN r USING (id)) AS p_1 JOIN p AS b ON b.v = p_1.id",
    "SELECT * FROM xmltable('/a' PASSING '<a/>' COLUMNS id int) AS p (id), p AS b WHERE b.id = p.id",
    "UPDATE p SET v = v + 1 WHERE v > id",
    "DELETE FROM p USING p AS b WHERE p.v = b.id AND b.v > p.id RETURNING p.v",
];

/// Joins partition by partition, by hash, by merge and in nested loops.
const SETTINGS: [&str; 6] = [
    "SET enable_partitionwise_join = off",
    "SET quote_all_identifiers = on",
    "SET quote_all_identifiers = on; SET enable_partitionwise_join = on; SET enable_hashjoin = off",
    "SET enable_partitionwise_join = on; SET enable_partitionwise_aggregate = on",
    "SET enable_partitionwise_join = on; SET enable_hashjoin = off",
    "SET enable_partitionwise_join = on; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; SET enable_material = off",
];

/// Adds what a plan shows, node by node.
fn add(plan: &Value, shown: &mut Vec<String>) {
    let mut line = plan["Node Type"].as_str().unwrap_or_default().to_owned();
    for key in SHOWN {
        if let Some(value) = plan.get(key) {
            line.push_str(&format!(" {key}: {value}"));
        }
    }
    for table in plan["Target Tables"].as_array().into_iter().flatten() {
        line.push_str(&format!(" target {} {}", table["Relation Name"], table["Alias"]));
    }
    shown.push(line);
    for below in plan["Plans"].as_array().into_iter().flatten() {
        add(below, shown);
    }
}

fn shown(json: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(json).expect("JSON");
    let mut shown = Vec::new();
    add(&document[0]["Plan"], &mut shown);
    shown
}

#[test]
fn conditions_have_the_aliases_of_explain() {
    let server = basic_server("partition-aliases", &["pg_rowsource.keep_constants = on"]);
    run_each(
        &mut server.connect(),
        "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
         CREATE TABLE p2a PARTITION OF p2 FOR VALUES FROM (10) TO (15);
         CREATE TABLE p2b PARTITION OF p2 FOR VALUES FROM (15) TO (20);
         CREATE TABLE p3 PARTITION OF p DEFAULT;
         INSERT INTO p SELECT i, 37 * i % 30 FROM generate_series(0, 29) i;
         CREATE INDEX ON p (id); CREATE TABLE r AS SELECT * FROM p;
         CREATE TABLE other (id int, v int) PARTITION BY RANGE (id);
         CREATE TABLE other_1 PARTITION OF other FOR VALUES FROM (0) TO (20);
         CREATE TABLE other_2 PARTITION OF other DEFAULT;
         INSERT INTO other SELECT * FROM r;
         CREATE VIEW renamed AS SELECT other.id, other.v FROM other WHERE other.v <> other.id;
         ALTER TABLE other RENAME TO p_2;
         VACUUM ANALYZE",
    );
    let mut differ = Vec::new();
    let mut compared = 0;
    for settings in SETTINGS {
        let mut client = server.connect();
        run_each(&mut client, settings);
        for statement in STATEMENTS {
            run_each(&mut client, "BEGIN");
            let core = first_column(&mut client, &format!("EXPLAIN (FORMAT JSON) {statement}")).join("\n");
            measured(&mut client, statement);
            run_each(&mut client, "ROLLBACK");
            let own = first_column(&mut client, "SELECT rowsource_explain(format => 'json')").join("\n");
            let (core, own) = (shown(&core), shown(&own));
            compared += 1;
            if core != own {
                let pairs: Vec<String> = (0..core.len().max(own.len()))
                    .map(|at| [core.get(at), own.get(at)])
                    .filter(|[core, own]| core != own)
                    .map(|pair| format!("{pair:#?}"))
                    .collect();
                differ.push(format!("{settings}\n{statement}\n{}", pairs.join("\n")));
            }
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {compared}:\n{}",
        differ.len(),
        differ.join("\n\n")
    );
}

/// A description may have been printed with another `quote_all_identifiers`: by another session, or by this
/// one before.
#[test]
fn aliases_are_found_however_names_were_printed() {
    const STATEMENT: &str =
        "SELECT * FROM p AS \"order\" JOIN p AS \"do\" USING (id) WHERE \"order\".v > \"do\".v";
    const SETTINGS: &str =
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_partitionwise_join = on";
    let server = basic_server("partition-quotes", &[]);
    run_each(
        &mut server.connect(),
        "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
         CREATE TABLE p2 PARTITION OF p DEFAULT",
    );
    let conditions = |lines: &[String]| {
        let lines = lines.iter().filter(|line| line.contains("Join Filter: "));
        let conditions = lines.map(|line| line[line.find('(').unwrap_or(0)..].trim().to_owned());
        conditions.collect::<Vec<String>>()
    };
    for first in ["off", "on"] {
        run_each(&mut server.connect(), "SELECT rowsource_reset()");
        for is_same_session in [false, true] {
            let mut client = server.connect();
            run_each(&mut client, SETTINGS);
            for setting in [first, if first == "on" { "off" } else { "on" }] {
                if !is_same_session {
                    client = server.connect();
                    run_each(&mut client, SETTINGS);
                }
                run_each(&mut client, &format!("SET quote_all_identifiers = {setting}"));
                let core = first_column(&mut client, &format!("EXPLAIN (COSTS off) {STATEMENT}"));
                measured(&mut client, STATEMENT);
                let own = first_column(
                    &mut client,
                    "SELECT rowsource_display(format => 'BASIC LAST +PREDICATE')",
                );
                let [mut core, mut own] = [core, own].map(|lines| conditions(&lines));
                assert_eq!(core.len(), 2, "{core:?}");
                if is_same_session {
                    // The session knows the plan, and does not print it again.
                    for line in core.iter_mut().chain(&mut own) {
                        line.retain(|c| c != '"');
                    }
                }
                assert_eq!(own, core, "{first}, {setting}, {is_same_session}");
            }
        }
    }
}
