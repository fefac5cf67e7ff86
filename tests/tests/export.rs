//! Plans in the formats of other tools, as these tools read them.

use inferno::flamegraph;
use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use serde_json::Value;

const JOIN: &str = "SELECT count(*) FROM big JOIN small ON big.grp = small.id
     WHERE pg_sleep(0.0002 + 0 * big.id) IS NOT NULL AND small.id < 50";

/// Returns a session whose last measured statement is [`JOIN`], run `runs` times.
fn session_after(server: &Server, runs: usize) -> Client {
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE IF NOT EXISTS big AS SELECT i AS id, i % 100 AS grp FROM generate_series(1, 1000) i;
         CREATE TABLE IF NOT EXISTS small AS SELECT i AS id FROM generate_series(0, 99) i; ANALYZE big, small;
         SET enable_mergejoin = off; SET enable_nestloop = off;
         SET pg_rowsource.sampfreq = 1; SET pg_rowsource.statistics_level = typical",
    );
    for _ in 0..runs {
        run_each(&mut client, JOIN);
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    client
}

fn lines(client: &mut Client, sql: &str) -> Vec<String> {
    let rows = texts(client, sql);
    rows.into_iter()
        .map(|row| row[0].clone().expect("a line"))
        .collect()
}

/// Returns the milliseconds that the lines add up to.
fn sum_ms(folded: &[String]) -> f64 {
    let us = folded.iter().map(|line| {
        line.rsplit_once(' ')
            .expect("a weight")
            .1
            .parse::<f64>()
            .expect("a number")
    });
    us.sum::<f64>() / 1e3
}

const LAST_ROOT: &str = "SELECT last_total_time FROM pg_stat_rowsource n JOIN rowsource_last() l USING (queryid, planid) WHERE n.node_id = 0";

#[test]
fn folded_stacks_make_a_flame_graph() {
    let server = Server::preloaded("export-folded", &["max_parallel_workers_per_gather = 0"]);
    let mut client = session_after(&server, 2);
    let folded = lines(&mut client, "SELECT rowsource_folded()");
    assert!(
        folded
            .iter()
            .any(|line| line.starts_with("Aggregate;Hash Join;Seq Scan big ")),
        "{folded:#?}"
    );
    let root_ms: f64 = value(&mut client, LAST_ROOT);
    assert!(
        (sum_ms(&folded) - root_ms).abs() < 0.01 * root_ms,
        "{root_ms} {folded:#?}"
    );
    let mut picture = Vec::new();
    flamegraph::from_lines(
        &mut flamegraph::Options::default(),
        folded.iter().map(String::as_str),
        &mut picture,
    )
    .expect("inferno reads the lines");
    assert!(String::from_utf8_lossy(&picture).contains("Seq Scan big"));
    // The total of two executions, and their mean.
    let ids = "(SELECT queryid FROM rowsource_last()), (SELECT planid FROM rowsource_last())";
    let total = sum_ms(&lines(
        &mut client,
        &format!("SELECT rowsource_folded({ids}, 'total')"),
    ));
    let mean = sum_ms(&lines(
        &mut client,
        &format!("SELECT rowsource_folded({ids}, 'MEAN')"),
    ));
    let both_ms: f64 = value(&mut client, &LAST_ROOT.replace("last_total_time", "total_time"));
    assert!(
        both_ms > root_ms && (total / both_ms - 1.0).abs() < 0.01 && (total / mean - 2.0).abs() < 0.01,
        "{total} {mean}, in the view {both_ms} and {root_ms}"
    );
}

#[test]
fn a_file_of_speedscope_has_the_nodes_as_frames() {
    let server = Server::preloaded("export-speedscope", &["max_parallel_workers_per_gather = 0"]);
    let mut client = session_after(&server, 1);
    let files = lines(&mut client, "SELECT rowsource_speedscope()");
    assert_eq!(files.len(), 1);
    let file: Value = serde_json::from_str(&files[0]).expect("JSON");
    let frames = file["shared"]["frames"].as_array().expect("frames");
    assert!(
        frames.iter().any(|frame| frame["name"] == "Seq Scan big"),
        "{frames:?}"
    );
    let profile = &file["profiles"][0];
    let (samples, weights) = (profile["samples"].as_array(), profile["weights"].as_array());
    assert_eq!(samples.map(Vec::len), weights.map(Vec::len));
    let root_ms: f64 = value(&mut client, LAST_ROOT);
    let end_ms = profile["endValue"].as_f64().expect("a number") / 1e3;
    assert!((end_ms - root_ms).abs() < 0.01 * root_ms, "{end_ms} {root_ms}");
}

#[test]
fn a_plot_shows_where_the_calls_lie() {
    let server = Server::preloaded("export-plot", &["max_parallel_workers_per_gather = 0"]);
    let mut client = session_after(&server, 1);
    let scan: i32 = value(
        &mut client,
        "SELECT node_id FROM pg_stat_rowsource n JOIN rowsource_last() l USING (queryid, planid) WHERE object_name = 'big'",
    );
    let plot = lines(
        &mut client,
        &format!("SELECT rowsource_histogram_plot(node_id => {scan})"),
    );
    assert_eq!(plot[0], "calls that read no block");
    let counted: u64 = plot
        .iter()
        .filter(|line| line.contains('|'))
        .map(|line| {
            line.rsplit_once(' ')
                .expect("a count")
                .1
                .parse::<u64>()
                .expect("a number")
        })
        .sum();
    assert_eq!(counted, 1001, "each row and the end: {plot:#?}");
    // Each call slept: pg_sleep waits for whole milliseconds.
    let mode = plot
        .iter()
        .max_by_key(|line| line.matches('@').count())
        .expect("a bar");
    assert!(
        ["524us", "1.05ms", "2.10ms"]
            .iter()
            .any(|bound| mode.contains(bound)),
        "{plot:#?}"
    );
}

#[test]
fn bad_arguments_name_what_is_known_and_unknown_ids_are_errors() {
    let server = Server::preloaded("export-bad", &[]);
    let mut client = server.session();
    let (_, message) = must_fail(&mut client, "SELECT rowsource_folded(which => 'slow')");
    assert!(
        message.contains("\"slow\"") && message.contains("last, mean, total, slowest, failed, cancelled"),
        "{message}"
    );
    const FUNCTIONS: [&str; 5] = [
        "rowsource_explain",
        "rowsource_folded",
        "rowsource_speedscope",
        "rowsource_html",
        "rowsource_histogram_plot",
    ];
    for function in FUNCTIONS {
        for (ids, named) in [("1, 2", "queryid 1, planid 2 HINT"), ("1", "queryid 1 HINT")] {
            let (code, message) = must_fail(&mut client, &format!("SELECT * FROM {function}({ids})"));
            assert_eq!(code, SqlState::UNDEFINED_OBJECT);
            assert!(
                message.starts_with(&format!("no plan is kept for {named}")),
                "{message}"
            );
        }
    }
    for function in FUNCTIONS.iter().chain(&["rowsource_display"]) {
        let (code, message) = must_fail(&mut client, &format!("SELECT {function}(planid => 2)"));
        assert_eq!(code, SqlState::INVALID_PARAMETER_VALUE);
        assert!(
            message.contains("a planid needs the queryid"),
            "{function}: {message}"
        );
    }
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SELECT count(*) FROM pg_am",
    );
    for node in [-1, 2, i32::MAX] {
        let call = format!("SELECT rowsource_histogram_plot(node_id => {node})");
        let (_, message) = must_fail(&mut client, &call);
        assert!(
            message.contains(&format!("no node {node}")) && message.contains("0 to 1"),
            "{message}"
        );
    }
}

/// psql writes files in the database's encoding, and the programs that read documents expect UTF-8.
#[test]
fn documents_of_a_database_that_is_not_in_utf8_are_ascii() {
    let server = Server::preloaded("export-encoding", &[]);
    let mut utf8 = server.session();
    run_each(
        &mut utf8,
        "CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'; SET pg_rowsource.statistics_level = typical; SELECT 1 AS \"größer日本\" FROM pg_sleep(0.01)",
    );
    let foreign = texts(
        &mut utf8,
        "SELECT queryid::text || ', ' || planid FROM rowsource_last()",
    )[0][0]
        .clone()
        .expect("the ids");
    let mut latin1 = server
        .try_connect_to("postgres", "latin1")
        .expect("a session of the database");
    run_each(
        &mut latin1,
        "CREATE EXTENSION pg_rowsource; SET pg_rowsource.statistics_level = typical; SELECT 'größer' FROM pg_sleep(0.01)",
    );
    let mut document = |call: &str| {
        let document: String = value(&mut latin1, &format!("SELECT {call}"));
        assert!(document.is_ascii(), "{call}: {document}");
        document
    };
    // The other database's name has characters that this one's encoding lacks.
    for (ids, word) in [("", "größer"), (foreign.as_str(), "größer日本")] {
        let comma = if ids.is_empty() { "" } else { ", " };
        let explain = format!("rowsource_explain({ids}{comma}format => 'json')");
        let explained: Value = serde_json::from_str(&document(&explain)).expect("JSON");
        let text = explained[0]["Query Text"].as_str().expect("a text");
        assert!(text.contains(word), "{text}");
        let file: Value =
            serde_json::from_str(&document(&format!("rowsource_speedscope({ids})"))).expect("JSON");
        assert!(file["name"].as_str().expect("a name").contains(word), "{file}");
        let yaml = document(&format!("rowsource_explain({ids}{comma}format => 'yaml')"));
        assert!(yaml.contains("gr\\u00f6\\u00dfer"), "{yaml}");
        for call in [
            format!("rowsource_explain({ids}{comma}format => 'xml')"),
            format!("rowsource_html({ids})"),
        ] {
            assert!(document(&call).contains("gr&#xf6;&#xdf;er"), "{call}");
        }
    }
    let own: String = value(&mut utf8, "SELECT rowsource_explain(format => 'json')");
    assert!(own.contains("größer日本"), "UTF-8 stays: {own}");
}
