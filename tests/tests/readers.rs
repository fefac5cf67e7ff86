//! Programs that people read plans with read ours: pev2 and speedscope in a browser, and the parsers
//! dataxplan, pgplan and plananalyze. `tests/readers` has their versions. Where they cannot be installed,
//! these tests are skipped.

use postgres::Client;
use rowsource_tests::environment::readers;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::run_each;
use rowsource_tests::{Server, browser};
use serde_json::Value;
use std::process::Command;

/// A hash join, a sort, an InitPlan, a subplan, a filter, and a node that never runs.
const STATEMENT: &str = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 20)
    SELECT o.customer, count(*), (SELECT max(id) FROM customers WHERE id < o.customer) FROM orders o
    JOIN customers c ON c.id = o.customer JOIN r ON r.n = c.id
    WHERE o.amount > 3 OR o.id = (SELECT max(id) FROM orders WHERE amount < 0) GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10";

/// Returns a session that has run [`STATEMENT`] twice, as its last measured statement.
fn session_after(server: &Server) -> Client {
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE customers AS SELECT i AS id FROM generate_series(1, 200) i;
         CREATE TABLE orders AS SELECT i AS id, 1 + i % 200 AS customer, i % 97 AS amount FROM generate_series(1, 20000) i;
         ANALYZE customers; ANALYZE orders; SET pg_rowsource.sampfreq = 1; SET pg_rowsource.statistics_level = typical",
    );
    for _ in 0..2 {
        client.simple_query(STATEMENT).expect(STATEMENT);
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    client
}

/// Returns the names of the nodes of a document, in its order.
fn node_types(plan: &Value, types: &mut Vec<String>) {
    types.extend(plan["Node Type"].as_str().map(str::to_owned));
    for below in plan["Plans"].as_array().into_iter().flatten() {
        node_types(below, types);
    }
}

/// Returns a text as a literal of JavaScript inside a page.
fn javascript(text: &str) -> String {
    Value::from(text).to_string().replace('<', "\\u003c")
}

#[test]
fn pev2_shows_every_node_needs_readers() {
    let server = Server::preloaded("readers-pev2", &["max_parallel_workers_per_gather = 0"]);
    let mut client = session_after(&server);
    let npm = readers().join("npm");
    let json = first_column(&mut client, "SELECT rowsource_explain(format => 'json')").remove(0);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let mut types = Vec::new();
    node_types(&document[0]["Plan"], &mut types);
    assert!(types.len() > 12, "{types:?}");
    // An execution that was kept whole has lines that EXPLAIN does not have.
    for (format, which) in [("json", "mean"), ("text", "mean"), ("text", "slowest")] {
        let sql = format!("SELECT rowsource_explain(format => '{format}', which => '{which}')");
        let plan = first_column(&mut client, &sql).join("\n");
        let page = format!(
            r##"<!DOCTYPE html><html><head><meta charset="utf-8"><script src="file://{npm}/vue/dist/vue.global.prod.js"></script>
            <script src="file://{npm}/pev2/dist/pev2.umd.js"></script><link rel="stylesheet" href="file://{npm}/pev2/dist/pev2.css">
            </head><body><div id="app"><pev2 :plan-source="plan" plan-query=""></pev2></div>
            <script>const app = Vue.createApp({{data() {{ return {{plan: {plan}}} }}}});
            app.component("pev2", pev2.Plan); app.mount("#app")</script></body></html>"##,
            npm = npm.display(),
            plan = javascript(&plan)
        );
        let opened = browser::open(&format!("pev2-{format}-{which}"), &page, true);
        assert!(opened.console.is_empty(), "{:?}", opened.console);
        let shown = opened.document.matches("class=\"text-start plan-node").count();
        assert_eq!(shown, types.len(), "{format}: {}", opened.document);
        for node_type in &types {
            assert!(
                opened.document.contains(node_type.as_str()),
                "{format}: {node_type}"
            );
        }
    }
}

/// Has speedscope open the text that a function returns.
fn in_speedscope(client: &mut Client, name: &str, call: &str) -> browser::Opened {
    let page = readers().join("npm/speedscope/dist/release/index.html");
    let file: String = client
        .query_one(
            &format!("SELECT replace(encode(convert_to({call}, 'UTF8'), 'base64'), E'\\n', '')"),
            &[],
        )
        .expect("a profile")
        .get(0);
    // The picture is a canvas. The view "Sandwich" lists the frames. Its tab is there when the profile is
    // read.
    let script = format!(
        "speedscope.loadFileFromBase64('plan.json', '{file}');
         const search = setInterval(() => {{ for (const tab of document.querySelectorAll('div'))
             if (/Sandwich$/.test(tab.textContent) && tab.textContent.length < 20) {{
                 tab.click(); clearInterval(search) }} }}, 100)"
    );
    browser::open_with(name, &script, |script| {
        format!("file://{}#localProfilePath={}", page.display(), script.display())
    })
}

#[test]
fn speedscope_shows_every_timed_node_needs_readers() {
    let server = Server::preloaded("readers-speedscope", &["max_parallel_workers_per_gather = 0"]);
    let mut client = session_after(&server);
    let opened = in_speedscope(&mut client, "speedscope", "rowsource_speedscope()");
    let all = opened.console.join("\n");
    assert!(all.contains("Importing as speedscope json file"), "{all}");
    assert!(!all.to_lowercase().contains("error"), "{all}");
    for frame in ["Hash Join", "Seq Scan orders", "Limit"] {
        assert!(opened.document.contains(frame), "{frame}: {}", opened.document);
    }
    assert!(opened.picture.len() > 15_000, "{} bytes", opened.picture.len());
}

#[test]
fn speedscope_opens_a_trace_needs_readers() {
    let server = Server::preloaded("readers-trace", &["max_parallel_workers_per_gather = 0"]);
    let mut client = session_after(&server);
    run_each(
        &mut client,
        "SET pg_rowsource.sampfreq = 1; SELECT rowsource_trace_start();
         SELECT count(*), pg_sleep(0.01) FROM orders JOIN customers USING (id); SELECT rowsource_trace_stop()",
    );
    let opened = in_speedscope(&mut client, "speedscope-trace", "rowsource_trace_events()");
    let all = opened.console.join("\n");
    assert!(all.contains("Importing as Trace Event Format profile"), "{all}");
    for frame in [
        "SELECT count(*), pg_sleep",
        "FETCH",
        "Hash Join",
        "Seq Scan on orders",
        "Timeout PgSleep",
    ] {
        assert!(opened.document.contains(frame), "{frame}: {}", opened.document);
    }
    assert!(opened.picture.len() > 15_000, "{} bytes", opened.picture.len());
}

#[test]
fn parsers_read_the_json_needs_readers() {
    let server = Server::preloaded("readers-parsers", &["max_parallel_workers_per_gather = 0"]);
    let mut client = session_after(&server);
    let programs = readers().join("python/bin");
    run_each(
        &mut client,
        "SET pg_rowsource.sampfreq = 0; SET pg_rowsource.statistics_level = typical",
    );
    client
        .simple_query("SELECT count(*) FROM orders WHERE amount > 3")
        .expect("a statement");
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let of_statement =
        "SELECT queryid || ', ' || planid FROM pg_stat_rowsource_plans WHERE query LIKE 'WITH RECURSIVE%'";
    let ids = first_column(&mut client, of_statement).remove(0);
    for (name, call) in [
        ("last", format!("rowsource_explain({ids}, 'last', 'json')")),
        ("mean", format!("rowsource_explain({ids}, 'mean', 'json')")),
        ("total", format!("rowsource_explain({ids}, 'total', 'json')")),
        ("slowest", format!("rowsource_explain({ids}, 'slowest', 'json')")),
        ("untimed", "rowsource_explain(format => 'json')".to_owned()),
    ] {
        let json = first_column(&mut client, &format!("SELECT {call}")).remove(0);
        let file = server.folder().join(format!("{name}.json"));
        std::fs::write(&file, json).expect("a file");
        for (program, first, says) in [
            ("dataxplan", None, "execution time"),
            ("plananalyze", None, "Execution Time"),
            ("pgplan", Some("analyze"), "Execution Time"),
        ] {
            let mut command = Command::new(programs.join(program));
            let output = command.args(first).arg(&file).output().expect(program);
            let [said, complained] =
                [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            assert!(output.status.success(), "{program} {name}: {said}{complained}");
            assert!(
                said.contains(says) && complained.is_empty(),
                "{program} {name}: {said}{complained}"
            );
        }
    }
}
