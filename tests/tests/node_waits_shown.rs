//! Displays and exports show what the nodes of a plan waited for.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};

/// Returns the lines of a display or an export.
fn lines(client: &mut Client, call: &str) -> Vec<String> {
    let rows = texts(client, &format!("SELECT {call}"));
    rows.into_iter().flatten().flatten().collect()
}

#[test]
fn displays_show_waits() {
    let server = Server::preloaded("node-waits-display", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = basic; CREATE TABLE t AS SELECT i AS id, 0 AS v FROM generate_series(1, 1000) i;
         VACUUM ANALYZE t; SET pg_rowsource.statistics_level = typical",
    );
    // Returns how many milliseconds the session itself has counted, because a busy machine makes a sleep
    // longer.
    let run = |client: &mut Client, seconds: f64| {
        let slept = "SELECT coalesce(sum(wait_time), 0)::float8 FROM pg_stat_rowsource_session_waits
                      WHERE pid = pg_backend_pid() AND wait_event = 'PgSleep'";
        let before: f64 = value(client, slept);
        run_each(
            client,
            &format!(
                "SELECT count(*) FROM t WHERE CASE WHEN id = 5 THEN pg_sleep({seconds}) IS NOT NULL ELSE true END"
            ),
        );
        let ms = value::<f64>(client, slept) - before;
        assert!(ms > 900.0 * seconds, "{ms} ms of a sleep of {seconds} s");
        ms
    };
    // Much slower, so that it is the slower one on a busy machine, too.
    let slow = run(&mut client, 0.7);
    let last = run(&mut client, 0.1);
    let both = slow + last;
    let is_near = |ms: f64, expected: f64| (ms - expected).abs() < 0.01;
    let ids: String = value(
        &mut client,
        "SELECT format('queryid => %s, planid => %s', queryid, planid) FROM rowsource_last()",
    );
    let sleep = |lines: &[String], id: &str| {
        let line = lines
            .iter()
            .find(|line| line.contains(&format!("   {id} - Timeout:PgSleep: ")));
        line.unwrap_or_else(|| panic!("{lines:#?}")).clone()
    };
    let top = texts(
        &mut client,
        &format!(
            "SELECT node_id, operation, object_name, wait_event_type, wait_event, waits, abs(wait_time - {both}) < 0.01, percent > 90
               FROM rowsource_top_waits LIMIT 1"
        ),
    );
    let expected = ["1", "Seq Scan", "t", "Timeout", "PgSleep", "2", "t", "t"];
    assert_eq!(top, [expected.map(|text| Some(text.to_owned()))]);
    for (call, waits, expected) in [
        (
            "rowsource_display(format => 'ALLSTATS LAST +WAITS')".to_owned(),
            "1 wait,",
            last,
        ),
        (
            format!("rowsource_display({ids}, format => 'LAST WAITS')"),
            "1 wait,",
            last,
        ),
        (
            format!("rowsource_display({ids}, format => 'SLOWEST WAITS')"),
            "1 wait,",
            slow,
        ),
        (
            format!("rowsource_display({ids}, format => 'WAITS')"),
            "2 waits,",
            both,
        ),
    ] {
        let shown = lines(&mut client, &call);
        assert!(
            shown.iter().any(|line| line.contains("| W-Time ms |")),
            "{shown:#?}"
        );
        let line = sleep(&shown, "1");
        let ms = line
            .split_once(waits)
            .and_then(|(_, rest)| rest.trim().split(' ').next()?.parse::<f64>().ok());
        let ms = ms.unwrap_or_else(|| panic!("{call}: {line}"));
        assert!(is_near(ms, expected), "{call}: {line}, but {expected} ms");
        let scan = shown
            .iter()
            .find(|line| line.starts_with("|  1 "))
            .expect("the scan's line");
        assert!(scan.contains(&format!("{ms:.3}")), "{scan}");
    }
    let without = lines(&mut client, "rowsource_display()");
    assert!(
        !without
            .iter()
            .any(|line| line.contains("W-Time") || line.starts_with("Waits")),
        "{without:#?}"
    );
    // The node's own time is split into its waits and the rest.
    let folded = lines(&mut client, &format!("rowsource_folded({ids}, which => 'mean')"));
    let us = folded.iter().find_map(|line| {
        let us = line.strip_prefix("Aggregate;Seq Scan t;[wait Timeout:PgSleep] ")?;
        us.parse::<f64>().ok()
    });
    assert!(us.is_some_and(|us| is_near(us / 1e3, both / 2.0)), "{folded:#?}");
    let page = lines(&mut client, &format!("rowsource_html({ids})")).concat();
    assert!(
        page.contains("<td>1: Seq Scan t</td><td>Timeout:PgSleep</td>"),
        "{page}"
    );
    assert!(page.contains("<rect class=\"wait\""), "{page}");
    // Snapshots keep them.
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let stored = lines(
        &mut client,
        &format!("rowsource_display_snapshot({ids}, format => 'WAITS')"),
    );
    assert!(sleep(&stored, "1").contains("2 waits,"), "{stored:#?}");
}
