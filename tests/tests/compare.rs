//! Why a statement takes longer than before: two plans, two executions, and plans of two servers.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{basic_server, measuring};

/// Starts a server with customers and their orders.
fn server(name: &str) -> Server {
    let server = basic_server(name, &[]);
    run_each(
        &mut server.connect(),
        "CREATE TABLE orders AS SELECT i AS id, i % 5000 AS customer, repeat('x', 50) AS note FROM generate_series(1, 60000) i;
         CREATE INDEX orders_customer_idx ON orders (customer); VACUUM ANALYZE orders",
    );
    server
}

const QUERY: &str = "SELECT count(note) FROM orders WHERE customer = 42";

/// Runs the query a few times, and returns its ids.
fn run(client: &mut Client, times: usize) -> (i64, i64) {
    for _ in 0..times {
        run_each(client, QUERY);
    }
    let row = client
        .query_one("SELECT queryid, planid FROM rowsource_last()", &[])
        .expect("ids");
    (row.get(0), row.get(1))
}

/// Returns the lines of a comparison.
fn lines(client: &mut Client, arguments: &str) -> Vec<String> {
    let rows = texts(client, &format!("SELECT rowsource_compare({arguments})"));
    rows.into_iter()
        .map(|mut row| row.remove(0).unwrap_or_default())
        .collect()
}

#[test]
fn an_index_that_is_gone_is_the_cause() {
    let server = server("compare");
    let mut client = measuring(&server);
    let (queryid, before) = run(&mut client, 6);
    run_each(&mut client, "DROP INDEX orders_customer_idx");
    let (same, now) = run(&mut client, 5);
    assert_eq!(queryid, same);
    assert_ne!(before, now);

    let found = lines(&mut client, &format!("{queryid}"));
    let text = found.join("\n");
    assert!(
        found[0].contains("x, 5 executions): Seq Scan on orders (id 1) +"),
        "{text}"
    );
    assert!(
        found[0].ends_with(", because index orders_customer_idx is gone"),
        "{text}"
    );
    assert!(
        found[1].starts_with(&format!(
            "A: planid {before}, mean of 6 executions, the last one ended at 20"
        )),
        "{text}"
    );
    assert!(
        found[2].starts_with(&format!(
            "B: planid {now}, mean of 5 executions, the last one ended at 20"
        )),
        "{text}"
    );
    assert!(found.iter().all(|line| line.chars().count() <= 120), "{text}");
    // It is the session's last statement.
    assert_eq!(lines(&mut client, ""), found);
    // The other way round, and by their ids.
    assert_eq!(
        lines(&mut client, &format!("{queryid}, '{before}', '{now}'")),
        found
    );
    assert_eq!(lines(&mut client, &format!("{queryid}, '{before}'")), found);
    let back = lines(&mut client, &format!("{queryid}, '{now}', '{before}'"));
    assert!(
        back[0].contains("x, 6 executions): Bitmap Heap Scan on orders (id 1) -"),
        "{back:?}"
    );

    // The parts are the difference of what the views show.
    let json = format!("SELECT rowsource_compare({queryid}, format => 'json')::jsonb AS j");
    let adds_up: String = value(
        &mut client,
        &format!(
            "WITH c AS MATERIALIZED ({json}), parts AS (SELECT sum(value::float8) AS ms FROM c, jsonb_each_text(j->'parts')),
                  nodes AS (SELECT sum(n.value::float8) AS ms FROM c, jsonb_array_elements(j->'nodes') e, jsonb_each_text(e->'parts') n),
                  outside AS (SELECT sum(value::float8) AS ms FROM c, jsonb_each_text(j->'outside')),
                  views AS (SELECT sum(total_time / calls * CASE planid WHEN {now} THEN 1 ELSE -1 END) AS ms
                              FROM pg_stat_rowsource_plans WHERE queryid = {queryid})
             SELECT format('%s %s %s %s', j->>'cause', abs(parts.ms - (j->>'difference')::float8) < 1e-6,
                           abs(nodes.ms + coalesce(outside.ms, 0) - parts.ms) < 1e-6, abs(views.ms - parts.ms) < 1e-6)
               FROM c, parts, nodes, outside, views"
        ),
    );
    assert_eq!(adds_up, "index gone t t t");

    // Rows are counted, so they are exact.
    let rows = lines(&mut client, &format!("{queryid}, metric => 'rows'"));
    let of_scan = rows
        .iter()
        .find(|line| line.contains("Seq Scan on orders (A: "))
        .expect("the scan");
    assert!(of_scan.contains("| 12 | 12 |          0 |"), "{rows:#?}");

    // Others see no plan.
    run_each(&mut client, "CREATE ROLE other LOGIN");
    let mut other = server.try_connect("other").expect("a session");
    let (_, message) = must_fail(&mut other, &format!("SELECT rowsource_compare({queryid})"));
    assert!(
        message.contains(&format!("no plan is kept for queryid {queryid}")),
        "{message}"
    );
}

#[test]
fn the_slowest_execution_is_compared_with_the_mean() {
    let server = server("compare-slowest");
    let mut client = measuring(&server);
    let query = |id: i64| {
        format!(
            "SELECT count(*) FROM (SELECT pg_sleep(CASE WHEN {id} = 7 THEN 0.05 ELSE 0.002 END) FROM orders WHERE id = {id}) s"
        )
    };
    for id in 1..=9 {
        run_each(&mut client, &query(id));
    }
    let queryid: i64 = value(&mut client, "SELECT queryid FROM rowsource_last()");
    let found = lines(&mut client, &format!("{queryid}"));
    let text = found.join("\n");
    assert!(found[0].contains("x, 1 execution): "), "{text}");
    assert!(found[0].contains(", because it waits"), "{text}");
    assert!(
        found[1].contains(", mean of 9 executions, the last one ended at "),
        "{text}"
    );
    assert!(found[2].contains(", slowest execution, it ended at "), "{text}");
    assert_eq!(
        lines(&mut client, &format!("{queryid}, 'mean', 'SLOWEST'")),
        found
    );
    let last = lines(&mut client, &format!("{queryid}, 'last'"));
    assert!(last[1].contains(", last execution, it ended at "), "{last:#?}");
    assert!(last[2].contains(", mean of 9 executions, "), "{last:#?}");
}

/// Sides that are no interval, or of which nothing is known.
fn wrong_intervals(client: &mut Client, queryid: i64, begin: &str, end: &str) {
    for (arguments, says) in [
        (
            format!("{queryid}, 'baseline bad'"),
            "there is no baseline \"bad\"".to_owned(),
        ),
        (format!("{queryid}, 'soon..'"), "\"soon\" is no moment".to_owned()),
        (
            format!("7, '{begin}..{end}', '{end}..'"),
            format!("queryid 7 did not run from {begin} to {end}"),
        ),
        (
            format!("7, '{begin}..{end}'"),
            format!("queryid 7 did not run from {begin} to {end}"),
        ),
        (
            format!("{queryid}, '{end}..'"),
            format!("no snapshot ends the interval, so it lasts until now, from {end} on"),
        ),
        (
            format!("{queryid}, '{begin}..', '{begin}..'"),
            "both sides are the same executions".to_owned(),
        ),
        (
            format!(
                "{queryid}, '{begin}..{end}', ('{begin}'::timestamptz + interval '1 us')::text || '..{end}'"
            ),
            "no snapshot tells the intervals apart: both are planid".to_owned(),
        ),
        // Both last until now, which is a little later for the second one.
        (
            format!(
                "{queryid}, '{end}..' || clock_timestamp(), (clock_timestamp() - interval '1 us')::text || '..'"
            ),
            "no snapshot tells the intervals apart: both are planid".to_owned(),
        ),
    ] {
        let (_, message) = must_fail(client, &format!("SELECT rowsource_compare({arguments})"));
        assert!(message.contains(&says), "{arguments}: {message}");
    }
}

#[test]
fn two_intervals_are_compared() {
    let server = server("compare-intervals");
    let mut client = measuring(&server);
    let snapshot = |client: &mut Client| -> String {
        run_each(client, "SELECT rowsource_snapshot()");
        value(client, "SELECT max(taken_at)::text FROM rowsource_snapshots")
    };
    let (queryid, _) = run(&mut client, 6);
    let begin = snapshot(&mut client);
    let (_, before) = run(&mut client, 2);
    let end = snapshot(&mut client);
    run_each(
        &mut client,
        &format!(
            "SELECT rowsource_baseline('a good time', '{begin}', '{end}'); DROP INDEX orders_customer_idx"
        ),
    );
    let (_, now) = run(&mut client, 5);
    let found = lines(
        &mut client,
        &format!("{queryid}, '{begin}..{end}', '{end} ..', metric => 'rows'"),
    );
    let text = found.join("\n");
    assert!(
        found[0].ends_with(", because index orders_customer_idx is gone"),
        "{text}"
    );
    assert_eq!(
        found[1],
        format!("A: planid {before}, mean of 2 executions from {begin} to {end}")
    );
    assert!(
        found[2].starts_with(&format!("B: planid {now}, mean of 5 executions from {end} to 20")),
        "{text}"
    );
    assert!(text.contains("| 12 | 12 |          0 |"), "{text}");
    let named = lines(
        &mut client,
        &format!("{queryid}, 'baseline a good time', '{end}..', 'rows'"),
    );
    assert_eq!((&named[..2], &named[3..]), (&found[..2], &found[3..]));
    // With one interval, the other side is what ran since.
    for sides in ["'baseline a good time'".to_owned(), format!("'{begin}..{end}'")] {
        let since = lines(&mut client, &format!("{queryid}, {sides}, metric => 'rows'"));
        assert_eq!((&since[..2], &since[3..]), (&found[..2], &found[3..]));
        assert!(
            since[2].starts_with(&format!("B: planid {now}, mean of 5 executions from {end} to 20")),
            "{since:#?}"
        );
    }
    // The rows of an execution and their times are those of the interval alone.
    let mean: f64 = value(
        &mut client,
        &format!(
            "SELECT (rowsource_compare({queryid}, '{begin}..{end}', format => 'json')::jsonb->>'a_mean_time')::float8"
        ),
    );
    let of_view: f64 = value(
        &mut client,
        &format!(
            "SELECT sum(total_time) / sum(calls) FROM rowsource_interval_plans('{begin}', '{end}') WHERE queryid = {queryid}"
        ),
    );
    assert!((mean - of_view).abs() < 1e-9 * mean, "{mean} {of_view}");
    wrong_intervals(&mut client, queryid, &begin, &end);
}

/// Returns the sentence that compares the last execution of a statement with its slowest one.
fn last_and_slowest(client: &mut Client, (queryid, planid): (i64, i64)) -> String {
    let arguments = format!("{queryid}, '{planid} last', '{planid} slowest', format => 'json'");
    value(
        client,
        &format!("SELECT rowsource_compare({arguments})::jsonb->>'sentence'"),
    )
}

/// Many rows come where few are expected, and are gone again. Whether the table was analysed, its database
/// knows. Nothing is guessed elsewhere.
#[test]
fn a_wrong_estimate_says_whether_the_table_was_analysed() {
    let server = basic_server("compare-analysed", &["autovacuum = off"]);
    let mut client = measuring(&server);
    run_each(
        &mut client,
        "CREATE DATABASE elsewhere;
         CREATE TABLE wide AS SELECT i AS id, repeat('x', 100) AS pad FROM generate_series(1, 300) i;
         CREATE UNIQUE INDEX ON wide (id); ANALYZE wide;
         CREATE TABLE events AS SELECT i AS id, CASE WHEN i % 400 = 0 THEN 9 ELSE i % 5 END AS kind FROM generate_series(1, 20000) i;
         CREATE INDEX ON events (kind);
         SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; SET enable_material = off;
         SET enable_bitmapscan = off; SET enable_seqscan = off",
    );
    let sql = "SELECT count(d.pad) FROM events e JOIN wide d ON d.id = 1 + e.id % 299 WHERE e.kind = 9";
    let ids = |client: &mut Client| -> (i64, i64) {
        run_each(client, "SELECT rowsource_reset()");
        run_each(client, sql);
        for change in [
            "INSERT INTO events SELECT i, 9 FROM generate_series(20001, 40000) i",
            "DELETE FROM events WHERE id > 20000 AND kind = 9",
        ] {
            run_each(client, change);
            run_each(client, "SELECT pg_stat_force_next_flush()");
            (0..2).for_each(|_| run_each(client, sql));
        }
        let row = client.query_one("SELECT queryid, planid FROM rowsource_last()", &[]);
        let row = row.expect("ids");
        (row.get(0), row.get(1))
    };
    let is = |sentence: &str, known: &str| {
        assert!(
            sentence.contains("rows of Index Scan using events_kind_idx on events were expected and ")
                && sentence.ends_with(known),
            "{sentence}"
        );
    };
    let found = ids(&mut client);
    is(
        &last_and_slowest(&mut client, found),
        " came (the table was never analysed)",
    );
    run_each(&mut client, "VACUUM ANALYZE events");
    let found = ids(&mut client);
    is(
        &last_and_slowest(&mut client, found),
        " rows of the table changed since it was analysed)",
    );
    let mut other = server.try_connect_to("postgres", "elsewhere").expect("a session");
    run_each(&mut other, "CREATE EXTENSION pg_rowsource");
    is(
        &last_and_slowest(&mut other, found),
        " came (whether the table was analysed, only the database \"postgres\" knows: connect to it)",
    );
    // A partitioned table is what its partitions are.
    run_each(
        &mut client,
        "DROP TABLE events; CREATE TABLE events (id int, kind int) PARTITION BY RANGE (id);
         CREATE TABLE events_a PARTITION OF events FOR VALUES FROM (0) TO (9000);
         CREATE TABLE events_b PARTITION OF events FOR VALUES FROM (9000) TO (50000);
         INSERT INTO events SELECT i, CASE WHEN i % 400 = 0 THEN 9 ELSE i % 5 END FROM generate_series(1, 20000) i;
         CREATE INDEX ON events (kind)",
    );
    let found = ids(&mut client);
    is(
        &last_and_slowest(&mut client, found),
        " came (the table was never analysed)",
    );
    run_each(&mut client, "VACUUM ANALYZE events_a; VACUUM ANALYZE events_b");
    let found = ids(&mut client);
    is(
        &last_and_slowest(&mut client, found),
        " rows of the table changed since it was analysed)",
    );
    server.assert_no_crash();
}

#[test]
fn plans_of_two_servers_are_compared() {
    let (staging, production) = (server("compare-staging"), server("compare-production"));
    let mut there = measuring(&staging);
    let (queryid, planid) = run(&mut there, 3);
    let written: String = value(&mut there, &format!("SELECT rowsource_plan({queryid}, {planid})"));
    let mut client = measuring(&production);
    run_each(&mut client, "DROP INDEX orders_customer_idx");
    let (queryid, now) = run(&mut client, 4);
    let compared = client
        .query("SELECT rowsource_compare($1, a => $2)", &[&queryid, &written])
        .expect("a comparison");
    let found: Vec<String> = compared.iter().map(|row| row.get(0)).collect();
    // That the index exists there, nobody knows here.
    assert!(
        found[0].ends_with(", because the plan is another one"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with(&format!("A: planid {planid}, mean of 3 executions")),
        "{found:#?}"
    );
    assert!(
        found[2].starts_with(&format!("B: planid {now}, mean of 4 executions")),
        "{found:#?}"
    );
    // A side of a comparison is one, too, and two of them need no query.
    let again = client
        .query(
            "SELECT rowsource_compare(a => j->>'a', b => j->>'b')
               FROM (SELECT rowsource_compare($1, a => $2, format => 'json')::jsonb AS j) c",
            &[&queryid, &written],
        )
        .expect("a comparison");
    assert_eq!(
        again
            .iter()
            .map(|row| row.get::<_, String>(0))
            .collect::<Vec<_>>(),
        found
    );
    for (from, to, says) in [
        ("{", "", "no side of a comparison"),
        ("\"nodes\"", "\"noses\"", "missing field `nodes`"),
        (
            "\"rowsource_plan\":1",
            "\"rowsource_plan\":9",
            "it has the format 9",
        ),
        ("\"executions\":3", "\"executions\":-3", "invalid value"),
    ] {
        let broken = written.replacen(from, to, 1);
        assert_ne!(broken, written, "{written}");
        let error = client
            .query("SELECT rowsource_compare($1, a => $2)", &[&queryid, &broken])
            .expect_err("broken");
        let error = error
            .as_db_error()
            .map(|error| error.message().to_owned())
            .unwrap_or_default();
        assert!(error.contains(says), "{from}: {error}");
    }
}

#[test]
fn wrong_arguments_have_clear_errors() {
    let server = server("compare-errors");
    let mut client = measuring(&server);
    let (queryid, planid) = run(&mut client, 1);
    for (arguments, says) in [
        ("1", "no plan is kept for queryid 1"),
        (
            &format!("{queryid}, '{planid}', 'mean'"),
            "both sides are the same executions",
        ),
        (
            &format!("{queryid}, 'fastest'"),
            "\"fastest\" is no side of a comparison",
        ),
        (&format!("{queryid}, '1 2'"), "\"1 2\" is no side of a comparison"),
        (
            &format!("{queryid}, 'failed'"),
            "no failed execution is kept of queryid",
        ),
        (
            &format!("{queryid}, '1'"),
            &format!("no plan is kept for queryid {queryid}, planid 1"),
        ),
        (
            &format!("{queryid}, 'last', metric => 'cost'"),
            "unknown word \"cost\" for the argument \"metric\"",
        ),
        (
            &format!("{queryid}, 'last', format => 'xml'"),
            "unknown word \"xml\" for the argument \"format\"",
        ),
    ] {
        let (_, message) = must_fail(&mut client, &format!("SELECT rowsource_compare({arguments})"));
        assert!(message.contains(says), "{arguments}: {message}");
    }
}
