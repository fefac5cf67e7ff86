//! `rowsource_explain()` prints what core's EXPLAIN (ANALYZE, BUFFERS, WAL) prints of the same execution, but for times.
//!
//! These are the exceptions:
//! * An EXECUTE of a plan that exists is not planned, and the planning of a CREATE TABLE AS is not measured, so they have neither
//!   `Planning` nor `Planning Time`.
//! * What each worker did is printed as by EXPLAIN (VERBOSE). It is compared by itself.
//! * Work files are timed without `track_io_timing` too. The comparison turns that off.
//! * `Query Text`, `Query Identifier` and `Plan Identifier` are added. Core prints the first two only in other places.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::cases::{self, Case};
use rowsource_tests::explain::{all_options, explain_json, first_column};
use rowsource_tests::facts;
use rowsource_tests::schema;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::shape::{Division, shape_differences};
use rowsource_tests::warm_up::warmed_up;
use serde_json::{Value, json};
use std::collections::HashSet;

const OPTIONS: &str = "ANALYZE, BUFFERS, WAL";
/// The leader does all of a parallel plan's work.
const ALONE: &str = "SET max_parallel_workers = 0";

/// Runs a statement at level typical.
fn run_measured(client: &mut Client, statement: &str) {
    client
        .batch_execute("SET pg_rowsource.statistics_level = typical")
        .expect("the level can be set");
    client.simple_query(statement).expect(statement);
    client
        .batch_execute("SET pg_rowsource.statistics_level = basic")
        .expect("the level can be set");
}

/// Returns the document of the session's last statement.
fn printed_json(client: &mut Client) -> Value {
    let rows = first_column(client, "SELECT rowsource_explain(format => 'json')");
    assert_eq!(rows.len(), 1);
    serde_json::from_str(&rows[0]).unwrap_or_else(|error| panic!("{}\n{error}", rows[0]))
}

fn printed_text(client: &mut Client) -> Vec<String> {
    first_column(client, "SELECT rowsource_explain()")
}

/// Removes the exceptions from a document of core's.
fn without_exceptions(core: &mut Value, is_planned: bool) {
    match core {
        Value::Object(fields) => {
            if !is_planned {
                fields.remove("Planning");
                fields.remove("Planning Time");
            }
            fields
                .values_mut()
                .for_each(|value| without_exceptions(value, is_planned));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|value| without_exceptions(value, is_planned)),
        _ => {}
    }
}

/// Returns the lines of a text without times and without the exceptions.
fn comparable(lines: &[String], is_planned: bool, is_parallel: bool) -> Vec<String> {
    // What only some of the processes know.
    const DIVISION: [&str; 4] = ["Sort Method", "Heap Blocks", "Workers Launched", "Worker "];
    let mut comparable = Vec::new();
    let mut in_planning = false;
    for line in lines {
        in_planning = !is_planned && (line.starts_with("Planning:") || in_planning && line.starts_with("  "));
        let trimmed = line.trim_start();
        let is_time = ["Planning Time", "Execution Time"]
            .iter()
            .any(|label| line.starts_with(label));
        let is_division = DIVISION.iter().any(|label| trimmed.starts_with(label));
        if in_planning || is_time || is_parallel && is_division {
            continue;
        }
        if trimmed.starts_with("Timing: Generation") {
            comparable.push("Timing".to_owned());
            continue;
        }
        // `(actual time=0.010..0.020 rows=1 loops=1)`, `Trigger a: time=0.010 calls=1`.
        let words = line.split(' ').map(|word| match word.split_once("time=") {
            Some((before, _)) => format!("{before}time"),
            None => word.to_owned(),
        });
        comparable.push(words.collect::<Vec<_>>().join(" "));
    }
    comparable
}

/// Returns the differences between a case's output and core's, and adds to `seen` what core's contains.
fn differences(server: &Server, case: &Case, seen: &mut HashSet<String>) -> Vec<String> {
    let options = all_options(&mut server.connect(), OPTIONS);
    let (settings, division) = match case.parallel {
        true => (ALONE, Division::OneOfSeveral),
        false => ("", Division::None),
    };
    let core = || warmed_up(server.session(), case, settings);
    let mut core_json = explain_json(&mut core(), case.statement, &format!("{options}, FORMAT JSON"));
    let core_text = first_column(&mut core(), &format!("EXPLAIN ({options}) {}", case.statement));

    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.keep_constants = on; SET pg_rowsource.tempfile_timing = off;
         SET pg_rowsource.statistics_level = typical",
    );
    let mut client = warmed_up(client, case, settings);
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    run_measured(&mut client, case.statement);
    let mut found_json = printed_json(&mut client);
    let found_text = printed_text(&mut client);

    let statement = found_json[0].as_object_mut().expect("a statement");
    for key in ["Query Text", "Query Identifier", "Plan Identifier"] {
        assert!(
            statement.remove(key).is_some_and(|value| value.is_string()),
            "{key}"
        );
    }
    let mut unplanned = ["EXECUTE", "CREATE TABLE"].iter();
    let is_planned = !unplanned.any(|first| case.statement.starts_with(first));
    without_exceptions(&mut core_json, is_planned);
    facts::add_contents(&core_json, seen);
    without_exceptions(&mut found_json, is_planned);
    let mut differences = shape_differences(&core_json, &found_json, division, "");
    let [core, found] = [core_text, found_text].map(|lines| comparable(&lines, is_planned, case.parallel));
    if core != found {
        let lines = (0..core.len().max(found.len())).filter(|i| core.get(*i) != found.get(*i));
        differences.extend(lines.take(3).map(|i| {
            format!(
                "line {i}:\n      core  {:?}\n      found {:?}",
                core.get(i),
                found.get(i)
            )
        }));
    }
    differences
}

#[test]
fn it_prints_what_explain_prints() {
    let server = Server::preloaded("explain-function", &[]);
    schema::create(&server);
    let only = std::env::var("ROWSOURCE_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut compared = 0;
    let mut seen = HashSet::new();
    for case in cases::all().filter(|case| case.name.contains(&only)) {
        compared += 1;
        let found = differences(&server, case, &mut seen);
        if !found.is_empty() {
            failures.push(format!("{}\n    {}", case.name, found.join("\n    ")));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {compared} statements differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{compared} statements are printed as by core");
    if only.is_empty() {
        let has_jit: bool = value(&mut server.connect(), "SELECT pg_jit_available()");
        assert_eq!(
            facts::missing_in_documents(&seen, has_jit),
            Vec::<&str>::new(),
            "what no case has"
        );
    }
    server.assert_no_crash();
}

/// What EXPLAIN says of each process of a parallel plan by itself.
const OF_EACH_PROCESS: [&str; 22] = [
    "Workers",
    "Workers Launched",
    "Sort Method",
    "Sort Space Used",
    "Sort Space Type",
    "Full-sort Groups",
    "Pre-sorted Groups",
    "HashAgg Batches",
    "Peak Memory Usage",
    "Disk Usage",
    "Cache Hits",
    "Cache Misses",
    "Cache Evictions",
    "Cache Overflows",
    "Exact Heap Blocks",
    "Lossy Heap Blocks",
    "JIT",
    "Planned Partitions",
    "Single Copy",
    "Average Prefetch Distance",
    "Prefetch Capacity",
    "I/O Count",
];

/// Adds to `found` what a document says of the processes, node by node, without times.
fn add_processes(value: &Value, found: &mut Vec<String>) {
    if let Value::Array(items) = value {
        items.iter().for_each(|item| add_processes(item, found));
    }
    let Value::Object(fields) = value else { return };
    for key in OF_EACH_PROCESS {
        if let Some(value) = fields.get(key) {
            let mut value = value.clone();
            remove_times(&mut value);
            let node = fields
                .get("Node Type")
                .and_then(Value::as_str)
                .unwrap_or_default();
            found.push(format!("{node} {key}: {value}"));
        }
    }
    for key in ["Plan", "Plans"] {
        fields
            .get(key)
            .into_iter()
            .for_each(|below| add_processes(below, found));
    }
}

fn remove_times(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_times),
        Value::Object(fields) => {
            fields.retain(|key, _| {
                !matches!(
                    key.as_str(),
                    "Actual Startup Time" | "Actual Total Time" | "Timing"
                )
            });
            fields.values_mut().for_each(remove_times);
        }
        _ => {}
    }
}

/// Returns the lines of a text that say what each worker did, without times.
fn worker_lines(lines: &[String]) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut of_worker = None;
    let found = lines.iter().filter(|line| {
        if line.trim_start().starts_with("Worker ") {
            of_worker = Some(indent(line));
        } else if of_worker.is_some_and(|worker| indent(line) <= worker) {
            of_worker = None;
        }
        of_worker.is_some()
    });
    comparable(&found.cloned().collect::<Vec<_>>(), true, false)
}

/// Each process has a cache of its own, so the sum of all blocks depends on how many processes there are.
const MEMOIZE: Case = Case::new(
    "memoize under gather",
    "SELECT count(t.pad) FROM big JOIN t ON t.id = big.k % 300",
    &["Gather", "Memoize"],
)
.settings(
    "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET jit = off;
     SET max_parallel_workers_per_gather = 2; SET enable_hashjoin = off; SET enable_mergejoin = off",
)
.parallel();

/// One worker does all of the work. So what it did is the same in each run, unless it ends so early that another one takes its
/// place.
#[test]
fn workers_are_printed_as_by_explain_verbose() {
    const ONE_WORKER: &str = "SET max_parallel_workers = 1; SET parallel_leader_participation = off";
    const TRIES: usize = 8;
    let server = Server::preloaded("explain-workers", &[]);
    schema::create(&server);
    let only = std::env::var("ROWSOURCE_CASE").unwrap_or_default();
    let mut seen = Vec::new();
    let mut launched = false;
    let all = cases::all().chain([&MEMOIZE]);
    for case in all.filter(|case| case.parallel && case.name.contains(&only)) {
        let by_core = || {
            let options = all_options(&mut server.connect(), "ANALYZE, VERBOSE, BUFFERS, WAL");
            let prepared = || warmed_up(server.session(), case, ONE_WORKER);
            let json = explain_json(
                &mut prepared(),
                case.statement,
                &format!("{options}, FORMAT JSON"),
            );
            let text = first_column(
                &mut prepared(),
                &format!("EXPLAIN ({options}) {}", case.statement),
            );
            (json, text)
        };
        let measured = || {
            let mut client = server.session();
            run_each(
                &mut client,
                "SET pg_rowsource.tempfile_timing = off; SET pg_rowsource.statistics_level = typical",
            );
            let mut client = warmed_up(client, case, ONE_WORKER);
            run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
            run_measured(&mut client, case.statement);
            (printed_json(&mut client), printed_text(&mut client))
        };
        let comparable = |(json, text): (Value, Vec<String>)| {
            let mut found = Vec::new();
            add_processes(&json, &mut found);
            (found, worker_lines(&text))
        };
        let mut pairs = (0..TRIES).map(|_| (comparable(by_core()), comparable(measured())));
        let mut last = None;
        let is_equal = pairs.any(|(core, found)| {
            let is_equal = core == found;
            last = Some((core, found));
            is_equal
        });
        let (core, found) = last.expect("a pair");
        assert!(is_equal, "{}: {core:#?}\n{found:#?}", case.name);
        launched |= found.0.contains(&"Gather Workers Launched: 1".to_owned());
        seen.extend(found.1);
    }
    assert!(launched || !only.is_empty(), "no case launched a worker");
    // Only the session's last statement has parts of workers.
    let mut client = server.session();
    run_each(&mut client, &format!("{}; {ONE_WORKER}", MEMOIZE.settings));
    run_measured(&mut client, MEMOIZE.statement);
    let has_parts = |lines: &[String]| lines.iter().any(|line| line.contains("Worker 0: "));
    assert!(has_parts(&printed_text(&mut client)));
    let ids = last_ids(&mut client);
    for which in ["last", "mean", "total"] {
        let sql = format!("SELECT rowsource_explain({ids}, which => '{which}')");
        assert!(!has_parts(&first_column(&mut client, &sql)), "{which}");
    }
    run_measured(&mut client, "SELECT 1");
    assert!(!has_parts(&printed_text(&mut client)));
    // Each of these is said of at least one worker.
    let has_jit: bool = value(&mut client, "SELECT pg_jit_available()");
    for expected in [
        "Worker 0:  actual time rows=",
        "Buffers: ",
        "Sort Method: ",
        "Full-sort Groups: ",
        "Batches: 1  Memory Usage: ",
        "Hits: ",
        "Options: Inlining",
    ] {
        let is_seen = seen.iter().any(|line| line.trim_start().starts_with(expected));
        let is_possible = has_jit || !expected.starts_with("Options");
        assert!(
            is_seen || !is_possible || !only.is_empty(),
            "no {expected} in {seen:#?}"
        );
    }
    server.assert_no_crash();
}

/// Returns the lines of a document without times and ids.
fn comparable_document(document: &str) -> Vec<String> {
    const LEFT_OUT: [&str; 4] = ["Query Text", "Query-Text", "Query Identifier", "Plan Identifier"];
    let mut lines = Vec::new();
    for line in document.lines() {
        let trimmed = line.trim_start().trim_start_matches("- ");
        let label = trimmed.trim_start_matches('<').replace('-', " ");
        let is_left_out = LEFT_OUT.iter().any(|left| label.starts_with(left));
        if is_left_out {
            continue;
        }
        match label.find("Time") {
            Some(at) => lines.push(label[..at].to_owned()),
            None => lines.push(line.replacen("- ", "  ", 1)),
        }
    }
    lines
}

#[test]
fn yaml_and_xml_are_laid_out_as_by_core() {
    let server = Server::preloaded("explain-layout", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.session();
    let options = all_options(&mut client, OPTIONS);
    run_each(
        &mut client,
        "CREATE TABLE g AS SELECT i AS id, i % 10 AS a, i % 7 AS b FROM generate_series(1, 2000) i;
         CREATE INDEX ON g (a); VACUUM ANALYZE g; SET enable_seqscan = off; SET pg_rowsource.keep_constants = on",
    );
    for statement in [
        "SELECT a, b, count(*) FROM g GROUP BY GROUPING SETS ((a, b), (a), ())",
        "SELECT a, b, count(*) FROM g GROUP BY CUBE (a, b)",
        "SELECT a, b FROM g ORDER BY a, b LIMIT 5",
        "SELECT * FROM (SELECT a, b FROM g ORDER BY a, b) x, (VALUES ('<&>'), ('\"')) v (t) WHERE t <> '<' LIMIT 5",
    ] {
        for format in ["yaml", "xml", "json"] {
            let explain = format!("EXPLAIN ({options}, FORMAT {format}) {statement}");
            first_column(&mut client, &explain);
            let core = first_column(&mut client, &explain).remove(0);
            run_measured(&mut client, statement);
            let sql = format!("SELECT rowsource_explain(format => '{format}')");
            let found = first_column(&mut client, &sql).remove(0);
            if format == "json" {
                // Core prints the ids of other places in other lines.
                assert!(found.starts_with("[\n  {\n    \"Query Text\": "), "{found}");
                continue;
            }
            assert_eq!(
                comparable_document(&found),
                comparable_document(&core),
                "{found}\n{core}"
            );
        }
    }
    server.assert_no_crash();
}

/// Returns the ids of the session's last statement, as arguments.
fn last_ids(client: &mut Client) -> String {
    value(
        client,
        "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()",
    )
}

#[test]
fn which_executions_are_printed() {
    let server = Server::preloaded("explain-which", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id, i % 100 AS k FROM generate_series(1, 1000) i; ANALYZE n;
         SET plan_cache_mode = force_generic_plan; PREPARE q (int) AS SELECT count(*) FROM n WHERE k < $1",
    );
    for k in [10, 30, 50] {
        run_measured(&mut client, &format!("EXECUTE q ({k})"));
    }
    let ids = last_ids(&mut client);
    let mut scan = |which: &str, key: &str| {
        let sql = format!("SELECT rowsource_explain({ids}, '{which}', 'JSON')");
        let document: Value = serde_json::from_str(&first_column(&mut client, &sql)[0]).expect("JSON");
        assert!(document[0]["Execution Time"].as_f64() > Some(0.0), "{document}");
        document[0]["Plan"]["Plans"][0][key].as_f64()
    };
    for (which, rows, loops, removed) in [
        ("last", 500.0, 1.0, 500.0),
        (" Mean", 300.0, 1.0, 700.0),
        ("total", 300.0, 3.0, 700.0),
    ] {
        assert_eq!(scan(which, "Actual Rows"), Some(rows), "{which}");
        assert_eq!(scan(which, "Actual Loops"), Some(loops), "{which}");
        assert_eq!(scan(which, "Rows Removed by Filter"), Some(removed), "{which}");
    }
    let blocks = |blocks: Option<f64>| blocks.expect("blocks");
    let (one, all) = (
        blocks(scan("mean", "Shared Hit Blocks")),
        blocks(scan("total", "Shared Hit Blocks")),
    );
    assert_eq!(3.0 * one, all);
    // The conditions of other sessions' statements show parameters, those of the session's own last one its literals.
    let of_id = first_column(&mut client, &format!("SELECT rowsource_explain({ids})"));
    assert!(
        of_id.iter().any(|line| line.ends_with("Filter: (k < $1)")),
        "{of_id:#?}"
    );
    server.assert_no_crash();
}

#[test]
fn what_a_statement_did_outside_of_its_nodes() {
    let server = Server::preloaded("explain-triggers", &[]);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p SELECT generate_series(1, 3);
         CREATE TABLE c (id int, p int CONSTRAINT to_p REFERENCES p);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    );
    run_each(
        &mut client,
        "CREATE TRIGGER noted BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION note()",
    );
    let insert = "INSERT INTO c SELECT i, 1 + i % 3 FROM generate_series(1, 20) i";
    run_measured(&mut client, insert);
    let text = printed_text(&mut client);
    for expected in ["Trigger for constraint to_p: time=", "Trigger noted: time="] {
        let line = text.iter().find(|line| line.starts_with(expected));
        assert!(line.is_some_and(|line| line.ends_with("calls=20")), "{text:#?}");
    }
    let ids = last_ids(&mut client);
    run_measured(&mut client, insert);
    let document = printed_json(&mut client);
    let calls = |document: &Value| {
        let triggers = document[0]["Triggers"].as_array().expect("triggers").clone();
        let noted = triggers
            .iter()
            .find(|trigger| trigger["Trigger Name"] == "noted")
            .expect("noted");
        assert_eq!(noted["Relation"], "c");
        noted["Calls"].as_u64()
    };
    assert_eq!(calls(&document), Some(20));
    assert!(document[0]["Planning Time"].as_f64() > Some(0.0), "{document}");
    let mut of = |which: &str| -> Value {
        let sql = format!("SELECT rowsource_explain({ids}, '{which}', 'json')");
        serde_json::from_str(&first_column(&mut client, &sql)[0]).expect("JSON")
    };
    assert_eq!(calls(&of("total")), Some(40));
    assert_eq!(calls(&of("mean")), Some(20));
    assert!(of("mean")[0]["Planning Time"].as_f64() > Some(0.0));
    // Of the last of several executions, only the session that ran it knows that.
    assert_eq!(of("last")[0]["Triggers"], Value::Null);
    // A statement without triggers has none of the one before it.
    run_measured(&mut client, "SELECT 1");
    assert_eq!(printed_json(&mut client)[0]["Triggers"], json!([]));
    server.assert_no_crash();
}

#[test]
fn what_was_not_measured_is_left_out() {
    let server = Server::preloaded("explain-rows", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i FROM generate_series(1, 1000) i; SET client_min_messages = error;
         SET pg_rowsource.sampfreq = 3",
    );
    run_measured(&mut client, "SELECT count(*) FROM n WHERE i > 100");
    let lines = printed_text(&mut client);
    assert!(
        lines[1].ends_with(" (actual rows=900 loops=1)")
            || lines[1].ends_with(" (actual rows=900.00 loops=1)"),
        "{lines:#?}"
    );
    // The blocks of planning are always counted.
    let of_nodes = lines.iter().take_while(|line| !line.starts_with("Planning"));
    assert!(
        !of_nodes.clone().any(|line| line.contains("Buffers")),
        "{lines:#?}"
    );
    run_each(&mut client, "SET pg_rowsource.sampfreq = 0");
    run_measured(&mut client, "SELECT count(*) FROM n WHERE i > 200");
    let plan = &printed_json(&mut client)[0]["Plan"];
    assert_eq!(plan["Actual Total Time"], Value::Null);
    assert!(plan["Shared Hit Blocks"].as_u64() > Some(0), "{plan}");
    // An error ended it. What it did up to then is printed.
    run_each(
        &mut client,
        "RESET pg_rowsource.sampfreq; SET pg_rowsource.statistics_level = typical",
    );
    must_fail(&mut client, "SELECT 1 / (i - 500) FROM n");
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let plan = &printed_json(&mut client)[0]["Plan"];
    assert_eq!(plan["Actual Rows"].as_f64(), Some(499.0), "{plan}");
    server.assert_no_crash();
}

#[test]
fn bad_arguments_name_what_is_known() {
    let server = Server::preloaded("explain-bad", &[]);
    let mut client = server.session();
    for (call, word, known) in [
        (
            "rowsource_explain(format => 'html')",
            "html",
            "text, json, yaml, xml",
        ),
        ("rowsource_explain(format => '')", "", "text, json, yaml, xml"),
        (
            "rowsource_explain(which => 'fastest')",
            "fastest",
            "last, mean, total, slowest, failed, cancelled",
        ),
    ] {
        let (_, message) = must_fail(&mut client, &format!("SELECT {call}"));
        assert!(
            message.contains(&format!("\"{word}\"")) && message.contains(known),
            "{call}: {message}"
        );
    }
    let (_, message) = must_fail(&mut client, "SELECT rowsource_explain(1, 2)");
    assert!(message.starts_with("no plan is kept for queryid 1, planid 2"));
    let (_, message) = must_fail(&mut client, "SELECT rowsource_display(format => 'Json')");
    assert!(message.contains("rowsource_explain(format => 'json')"));
    // Others' plans are not there for a user who may not see them.
    run_measured(&mut client, "SELECT 4711");
    let ids = last_ids(&mut client);
    run_each(&mut client, "CREATE ROLE curious LOGIN");
    let mut curious = server.try_connect("curious").expect("a session");
    let call = format!("SELECT rowsource_explain({ids})");
    let (_, message) = must_fail(&mut curious, &call);
    assert!(message.starts_with("no plan is kept for"), "{message}");
    run_each(&mut client, "GRANT pg_read_all_stats TO curious");
    assert!(!texts(&mut curious, &call).is_empty());
    server.assert_no_crash();
}
