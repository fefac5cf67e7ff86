//! What newer servers give, and older ones do without.

use rowsource_tests::compiled;
use rowsource_tests::session::{major, must_fail, run_each, texts, value};
use rowsource_tests::store::{measured, quiet_server};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, grp int); INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 1000) i;
    CREATE TABLE p (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); VACUUM ANALYZE";

#[test]
fn another_extensions_plan_id_is_kept() {
    let library = compiled::object("planid/planid.c");
    let server = quiet_server(
        "planid",
        &[
            "plan_cache_mode = 'force_generic_plan'",
            &format!("shared_preload_libraries = 'pg_rowsource, {}'", library.display()),
        ],
    );
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    measured(&mut client, "SELECT count(*) FROM t WHERE grp = 1");
    let planid: i64 = value(
        &mut client,
        "SELECT planid FROM pg_stat_rowsource_plans WHERE query LIKE '%count(*) FROM t%'",
    );
    if major(&mut client) < 18 {
        assert_ne!(planid, 42, "there is no such number before 18");
        return;
    }
    assert_eq!(planid, 42);
    // One number, but nodes on other partitions: they are not added up.
    run_each(
        &mut client,
        "PREPARE pruned (int) AS SELECT count(*) FROM p WHERE id = $1",
    );
    for id in [1, 1, 11] {
        measured(&mut client, &format!("EXECUTE pruned({id})"));
    }
    let scans = texts(
        &mut client,
        "SELECT s.planid, s.object_name, s.executions FROM pg_stat_rowsource s
         JOIN pg_stat_rowsource_plans p USING (queryid) WHERE p.query LIKE 'PREPARE pruned%' AND s.operation = 'Seq Scan'
         GROUP BY 1, 2, 3 ORDER BY 2",
    );
    let scans: Vec<String> = scans
        .into_iter()
        .map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(scans, ["42 p1 2", "42 p2 1"]);
}

#[test]
fn auto_respects_the_servers_clock() {
    let server = quiet_server("clock-source", &[]);
    let mut client = server.connect();
    const AUTO: &str = "SELECT clock_source FROM rowsource_clocks(1000) WHERE auto";
    let ours: String = value(&mut client, AUTO);
    if major(&mut client) < 19 {
        let (_, message) = must_fail(&mut client, "SET timing_clock_source = 'system'");
        assert!(
            message.contains("unrecognized configuration parameter"),
            "{message}"
        );
        return;
    }
    run_each(&mut client, "SET timing_clock_source = 'system'");
    assert_eq!(value::<String>(&mut client, AUTO), "system");
    measured(&mut client, "SELECT 4711");
    assert_eq!(
        value::<String>(
            &mut client,
            "SELECT p.clock_source FROM rowsource_last() JOIN pg_stat_rowsource_plans p USING (queryid, planid)"
        ),
        "system"
    );
    run_each(&mut client, "SET timing_clock_source = 'auto'");
    assert_eq!(value::<String>(&mut client, AUTO), ours);
    // What the user chose himself stands.
    run_each(
        &mut client,
        "SET timing_clock_source = 'system'; SET pg_rowsource.clock_source = 'coarse'",
    );
    measured(&mut client, "SELECT 4711");
    assert_eq!(
        value::<String>(
            &mut client,
            "SELECT p.clock_source FROM rowsource_last() JOIN pg_stat_rowsource_plans p USING (queryid, planid)"
        ),
        "coarse"
    );
}
