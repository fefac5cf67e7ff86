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
    let run = |client: &mut Client, seconds: f64| {
        run_each(
            client,
            &format!(
                "SELECT count(*) FROM t WHERE CASE WHEN id = 5 THEN pg_sleep({seconds}) IS NOT NULL ELSE true END"
            ),
        );
    };
    run(&mut client, 0.2);
    run(&mut client, 0.1);
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
        "SELECT node_id, operation, object_name, wait_event, waits, total_time BETWEEN 285 AND 480, percent > 90
           FROM rowsource_top_waits LIMIT 1",
    );
    let expected = ["1", "Seq Scan", "t", "Timeout:PgSleep", "2", "t", "t"];
    assert_eq!(top, [expected.map(|text| Some(text.to_owned()))]);
    for (call, waits, from, to) in [
        (
            "rowsource_display(format => 'ALLSTATS LAST +WAITS')".to_owned(),
            "1 wait,",
            95.0,
            180.0,
        ),
        (
            format!("rowsource_display({ids}, format => 'LAST WAITS')"),
            "1 wait,",
            95.0,
            180.0,
        ),
        (
            format!("rowsource_display({ids}, format => 'SLOWEST WAITS')"),
            "1 wait,",
            190.0,
            300.0,
        ),
        (
            format!("rowsource_display({ids}, format => 'WAITS')"),
            "2 waits,",
            285.0,
            480.0,
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
        assert!((from..to).contains(&ms), "{call}: {line}");
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
    assert!(us.is_some_and(|us| (142e3..240e3).contains(&us)), "{folded:#?}");
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
        &format!(
            "rowsource_display_snapshot((SELECT max(snap_id) FROM rowsource_snapshots), {ids}, format => 'WAITS')"
        ),
    );
    assert!(sleep(&stored, "1").contains("2 waits,"), "{stored:#?}");
}
