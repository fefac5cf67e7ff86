//! Changes of plans: rowsource_plan_flips.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, keeping, make_plans, measure_all, measured, measuring};
use rowsource_tests::waiting::{pid, until_waiting};
use std::time::Duration;

/// `n` has an index. With `OTHER_PLAN` another plan is used.
const TABLE: &str =
    "CREATE TABLE t AS SELECT i AS n, repeat('x', 200) AS pad FROM generate_series(1, 20000) i;
    CREATE INDEX t_n ON t (n); VACUUM (FREEZE, ANALYZE) t";
const STATEMENT: &str = "SELECT pad FROM t WHERE n = 4711";
const OTHER_PLAN: &str = "SET enable_indexscan = off; SET enable_bitmapscan = off";
const FIRST_PLAN: &str = "RESET enable_indexscan; RESET enable_bitmapscan";

fn server(name: &str) -> (Server, Client) {
    let server = basic_server(name, &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    (server, client)
}

/// Runs the statement several times with these settings.
fn run(client: &mut Client, settings: &str, times: usize) {
    run_each(client, settings);
    measured(client, &vec![STATEMENT; times].join(";"));
}

#[derive(Debug, PartialEq)]
struct Flip {
    from: i64,
    to: i64,
    calls: (i64, i64),
    means: (f64, f64),
    errors: (Option<f64>, Option<f64>),
    typical: (f64, f64),
    extra: Option<f64>,
    verdict: String,
}

/// Returns the changes, the earliest first.
fn flips(client: &mut Client) -> Vec<Flip> {
    let rows = client
        .query(
            "SELECT from_planid, to_planid, calls_before, calls_after, mean_time_before, mean_time_after, stderr_before,
                    stderr_after, typical_time_before, typical_time_after, extra_time, verdict
             FROM rowsource_plan_flips() WHERE queryid IS NOT NULL ORDER BY changed_at",
            &[],
        )
        .expect("rowsource_plan_flips");
    let flip = |row: &postgres::Row| Flip {
        from: row.get(0),
        to: row.get(1),
        calls: (row.get(2), row.get(3)),
        means: (row.get(4), row.get(5)),
        errors: (row.get(6), row.get(7)),
        typical: (row.get(8), row.get(9)),
        extra: row.get(10),
        verdict: row.get(11),
    };
    rows.iter().map(flip).collect()
}

fn calls(flips: &[Flip]) -> Vec<(i64, i64)> {
    flips.iter().map(|flip| flip.calls).collect()
}

#[test]
fn a_change_and_the_way_back_are_events() {
    let (server, mut client) = server("there-and-back");
    run(&mut client, FIRST_PLAN, 20);
    assert_eq!(flips(&mut client), []);
    run(&mut client, OTHER_PLAN, 10);
    let found = flips(&mut client);
    assert_eq!(calls(&found), [(20, 10)], "{found:#?}");
    run(&mut client, OTHER_PLAN, 5);
    run(&mut client, FIRST_PLAN, 20);
    let found = flips(&mut client);
    assert_eq!(calls(&found), [(20, 15), (15, 20)], "{found:#?}");
    let [there, back] = &found[..] else { panic!() };
    assert_eq!((there.from, there.to), (back.to, back.from));
    let [(_, after), (before, _)] = [there.means, back.means];
    // The times before are not those of all times.
    assert_eq!(after, before);
    assert_eq!(there.typical.1, back.typical.0);
    // It is the difference of the means, or of the typical times.
    let extra = |(before, after): (f64, f64)| (after - before) * 15.0;
    let difference = |times| (there.extra.expect("a cost") - extra(times)).abs();
    assert!(
        difference(there.means) < 1e-6 || difference(there.typical) < 1e-6,
        "{found:#?}"
    );
    // A geometric mean is not longer than the mean.
    assert!(
        found
            .iter()
            .all(|flip| flip.typical.0 <= flip.means.0 * 1.01 && flip.typical.1 <= flip.means.1 * 1.01),
        "{found:#?}"
    );
    assert!(
        found
            .iter()
            .all(|flip| flip.errors.0 > Some(0.0) && flip.errors.1 > Some(0.0))
    );
    let view = texts(
        &mut client,
        "SELECT query, datname, calls_after FROM rowsource_plan_flips ORDER BY changed_at LIMIT 1",
    );
    let some = |text: &str| Some(text.to_string());
    assert!(
        view[0][0]
            .as_deref()
            .is_some_and(|text| text.starts_with("SELECT pad FROM t"))
    );
    assert_eq!(view[0][1..], [some("postgres"), some("15")]);
    server.assert_no_crash();
}

/// Nobody reads in between, and all is done in less than a second, or in a few.
#[test]
fn a_change_that_is_undone_at_once_is_two_events() {
    for (name, pause) in [("undone", 0.0), ("undone-later", 1.1)] {
        let (server, mut client) = server(name);
        for (settings, times) in [(FIRST_PLAN, 20), (OTHER_PLAN, 10), (FIRST_PLAN, 15)] {
            run(&mut client, settings, times);
            std::thread::sleep(Duration::from_secs_f64(pause));
        }
        let found = flips(&mut client);
        assert_eq!(calls(&found), [(20, 10), (10, 15)], "{name}: {found:#?}");
        assert_eq!((found[0].from, found[0].to), (found[1].to, found[1].from));
        assert_eq!(found[0].means.1, found[1].means.0);
        server.assert_no_crash();
    }
}

/// Plans in turn make few events, and no statement waits for a second.
#[test]
fn plans_in_turn_make_few_events() {
    let (server, mut client) = server("in-turn");
    for _ in 0..60 {
        run(&mut client, FIRST_PLAN, 4);
        run(&mut client, OTHER_PLAN, 4);
        flips(&mut client);
    }
    let found = flips(&mut client);
    assert!((2..=4).contains(&found.len()), "{found:#?}");
    server.assert_no_crash();
}

/// The table and a statement whose other plan sleeps for a known time: it evaluates the filter for each row,
/// before the other condition. What an index scan finds has another number, so that does not sleep.
fn server_that_sleeps(name: &str) -> (Server, Client) {
    let (server, mut client) = server(name);
    client
        .batch_execute(
            "CREATE FUNCTION nap(n int) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS
             'BEGIN IF n = 1 THEN PERFORM pg_sleep(0.02); END IF; RETURN true; END'",
        )
        .expect("the function");
    (server, client)
}
const SLEEPING: &str = "SELECT pad FROM t WHERE n = 4711 AND nap(n)";
const SLEPT_MS: f64 = 20.0;

/// One execution waits for a row that another session has locked.
#[test]
fn one_long_wait_does_not_hide_a_slower_plan() {
    let (server, mut client) = server_that_sleeps("wait");
    let locked = format!("{SLEEPING} FOR UPDATE");
    let mut other = server.connect();
    run_each(&mut other, &format!("BEGIN; {locked}"));
    let id = pid(&mut client);
    let waiter = std::thread::spawn(move || {
        run_each(&mut client, FIRST_PLAN);
        measured(&mut client, &vec![locked.as_str(); 30].join(";"));
        run_each(&mut client, OTHER_PLAN);
        measured(&mut client, &vec![locked.as_str(); 30].join(";"));
        client
    });
    let mut observer = server.connect();
    until_waiting(&mut observer, id, "transactionid");
    std::thread::sleep(Duration::from_secs(2));
    run_each(&mut other, "COMMIT");
    let mut client = waiter.join().expect("the session that waited");
    let found = flips(&mut client);
    let [flip] = &found[..] else { panic!("{found:#?}") };
    // The mean is that of the wait, and hides the difference.
    assert!(
        flip.means.0 > 60.0 && flip.means.0 > flip.means.1 && flip.means.1 >= SLEPT_MS,
        "{found:#?}"
    );
    assert!(
        flip.verdict == "slower" && flip.extra > Some(0.0) && flip.typical.0 * 2.0 < flip.typical.1,
        "{found:#?}"
    );
    server.assert_no_crash();
}

/// A sequential scan that sleeps takes a hundred times as long as an index scan.
#[test]
fn the_slower_plan_is_called_slower() {
    let (server, mut client) = server_that_sleeps("slower");
    let mut found = Vec::new();
    for settings in [FIRST_PLAN, OTHER_PLAN, FIRST_PLAN] {
        run_each(&mut client, settings);
        measured(&mut client, &vec![SLEEPING; 30].join(";"));
        // Reading tells the turns apart. Sessions add the executions of a second together.
        found = flips(&mut client);
    }
    let verdicts: Vec<&str> = found.iter().map(|flip| &*flip.verdict).collect();
    assert_eq!(verdicts, ["slower", "faster"], "{found:#?}");
    // The way back ends the cost. It saves nothing, however often the statement runs.
    assert!(
        found[0].extra > Some(0.0) && found[1].extra.is_none(),
        "{found:#?}"
    );
    // What cost most comes first.
    let view = texts(&mut client, "SELECT verdict FROM rowsource_plan_flips");
    assert_eq!(view[0][0].as_deref(), Some("slower"));
    server.assert_no_crash();
}

/// A plan that takes less time than all before saves it.
#[test]
fn a_new_plan_that_is_faster_saves_time() {
    let (server, mut client) = server_that_sleeps("faster");
    for settings in [OTHER_PLAN, FIRST_PLAN] {
        run_each(&mut client, settings);
        measured(&mut client, &[SLEEPING; 10].join(";"));
        flips(&mut client);
    }
    let found = flips(&mut client);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].verdict == "faster" && found[0].extra < Some(0.0),
        "{found:#?}"
    );
    server.assert_no_crash();
}

/// Both plans burn as much time as the test says, and so do all others. Beside other work that takes longer,
/// by other times for each plan: so this test runs alone.
#[test]
fn what_all_plans_change_is_not_a_change_of_the_plan_timing() {
    let (server, mut client) = server("control");
    client
        .batch_execute(
            "CREATE TABLE pause AS SELECT 0.006::float8 AS s;
             CREATE FUNCTION nap(n int) RETURNS boolean LANGUAGE plpgsql AS
             'DECLARE until timestamptz := clock_timestamp() + (SELECT s FROM pause) * interval ''1 s'';
              BEGIN WHILE clock_timestamp() < until LOOP END LOOP; RETURN true; END'",
        )
        .expect("the function");
    let plans: Vec<String> = (1..=20)
        .map(|i| format!("SELECT {}nap(1)", "1, ".repeat(i)))
        .collect();
    // The first executions of a plan in a second say how fast the server is.
    let others = |client: &mut Client, seconds: usize, times: usize| {
        for _ in 0..seconds {
            plans
                .iter()
                .for_each(|sql| measured(client, &vec![&**sql; times].join(";")));
            until_next_second(client);
        }
    };
    others(&mut client, 6, 8);
    for (settings, seconds) in [(FIRST_PLAN, 0.006), (OTHER_PLAN, 0.024)] {
        run_each(&mut client, settings);
        run_each(&mut client, &format!("UPDATE pause SET s = {seconds}"));
        // What sessions keep for a second is not known at once.
        others(&mut client, 5, 1);
        for _ in 0..3 {
            measured(
                &mut client,
                &["SELECT pad FROM t WHERE n = 4711 AND nap(1)"; 5].join(";"),
            );
            others(&mut client, 1, 1);
        }
    }
    let found = flips(&mut client);
    let [flip] = &found[..] else { panic!("{found:#?}") };
    assert!(flip.typical.1 > 1.6 * flip.typical.0, "{found:#?}");
    assert_eq!(flip.verdict, "no difference that can be told", "{found:#?}");
    server.assert_no_crash();
}

fn until_next_second(client: &mut Client) {
    run_each(
        client,
        "SELECT pg_sleep(1.001 - extract(epoch FROM clock_timestamp() - date_trunc('second', clock_timestamp())))",
    );
}

#[test]
fn plans_that_are_used_side_by_side_are_no_event() {
    let (server, mut first) = server("side-by-side");
    let mut second = server.connect();
    run_each(&mut second, OTHER_PLAN);
    measure_all(&mut first);
    measure_all(&mut second);
    let mut reader = server.connect();
    for round in 0..30 {
        for _ in 0..5 {
            run_each(&mut first, STATEMENT);
            run_each(&mut second, STATEMENT);
        }
        if round % 10 == 9 {
            assert_eq!(flips(&mut reader), [], "round {round}");
        }
    }
    let plans: i64 = value(
        &mut reader,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT pad FROM t%'",
    );
    assert_eq!(plans, 2);
    // One session alone is a change.
    for _ in 0..200 {
        run_each(&mut second, STATEMENT);
    }
    assert_eq!(flips(&mut reader).len(), 1);
    server.assert_no_crash();
}

#[test]
fn one_other_execution_is_no_event() {
    let (server, mut client) = server("one-other");
    for _ in 0..5 {
        run(&mut client, FIRST_PLAN, 10);
        run(&mut client, OTHER_PLAN, 1);
        assert_eq!(flips(&mut client), []);
    }
    server.assert_no_crash();
}

#[test]
fn changes_survive_a_restart_and_end_with_a_reset() {
    let (mut server, mut client) = server("restart");
    run(&mut client, FIRST_PLAN, 20);
    run(&mut client, OTHER_PLAN, 10);
    let before = flips(&mut client);
    assert_eq!(calls(&before), [(20, 10)]);
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    assert_eq!(flips(&mut client), before);
    // The new plan goes on, and the way back is seen.
    run(&mut client, OTHER_PLAN, 3);
    run(&mut client, FIRST_PLAN, 5);
    assert_eq!(calls(&flips(&mut client)), [(20, 13), (13, 5)]);
    let queryid: i64 = value(&mut client, "SELECT queryid FROM rowsource_plan_flips LIMIT 1");
    run_each(
        &mut client,
        &format!("SELECT rowsource_reset(queryid => {})", queryid ^ 1),
    );
    assert_eq!(flips(&mut client).len(), 2);
    run_each(
        &mut client,
        &format!("SELECT rowsource_reset(queryid => {queryid})"),
    );
    assert_eq!(flips(&mut client), []);
    run(&mut client, FIRST_PLAN, 5);
    run(&mut client, OTHER_PLAN, 5);
    run_each(&mut client, "SELECT rowsource_reset()");
    assert_eq!(flips(&mut client), []);
    server.assert_no_crash();
}

#[test]
fn changes_of_other_users_are_masked() {
    let (server, mut client) = server("masked-flips");
    run_each(&mut client, "CREATE ROLE regress_flips LOGIN");
    run(&mut client, FIRST_PLAN, 5);
    run(&mut client, OTHER_PLAN, 5);
    let mut other = server.try_connect("regress_flips").expect("a session");
    let rows = texts(
        &mut other,
        "SELECT query, queryid, from_planid, to_planid, calls_after FROM rowsource_plan_flips",
    );
    let some = |text: &str| Some(text.to_string());
    assert_eq!(
        rows,
        [[some("<insufficient privilege>"), None, None, None, some("5")]]
    );
    server.assert_no_crash();
}

/// Runs statements of these numbers, each a few times with these plans.
fn change_many(client: &mut Client, numbers: &str, plans: &str) {
    let statement = format!(
        "DO $$ DECLARE index_scan text; BEGIN FOR i IN {numbers} LOOP
             FOREACH index_scan IN ARRAY '{{{plans}}}'::text[] LOOP
                 PERFORM set_config('enable_indexscan', index_scan, true), set_config('enable_bitmapscan', index_scan, true);
                 FOR round IN 1..4 LOOP EXECUTE format('SELECT %s n FROM u WHERE n = 4711', repeat('n, ', i)); END LOOP;
             END LOOP;
         END LOOP; END $$"
    );
    client.batch_execute(&statement).expect("the changes");
}

/// What one role does removes nothing that is known of others, and of its own the small changes first.
#[test]
fn a_role_removes_only_its_own_changes() {
    let settings = [
        "pg_rowsource.statistics_level = typical",
        "pg_rowsource.track = all",
    ];
    let server = basic_server("roles-flips", &settings);
    let mut client = server.connect();
    client.batch_execute(
        "CREATE TABLE u AS SELECT i AS n FROM generate_series(1, 500) i; CREATE INDEX u_n ON u (n); ANALYZE u;
         CREATE FUNCTION nap(n int) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS
         'BEGIN IF n = 1 THEN PERFORM pg_sleep(0.1); END IF; RETURN true; END';
         CREATE ROLE one LOGIN; CREATE ROLE other LOGIN; GRANT SELECT ON u TO one, other",
    ).expect("the table");
    let mut one = server.try_connect("one").expect("a session");
    change_many(&mut one, "1..20", "on,off");
    // Of these, only the first plan is known.
    change_many(&mut one, "21..40", "on");
    let mut changes = |role: &str, condition: &str| -> i64 {
        let found = format!(
            "SELECT count(*) FROM rowsource_plan_flips() WHERE userid = '{role}'::regrole AND {condition}"
        );
        value(&mut client, &found)
    };
    assert_eq!(changes("one", "true"), 20);
    let mut other = server.try_connect("other").expect("a session");
    // The second plan takes a tenth of a second longer.
    for settings in [FIRST_PLAN, OTHER_PLAN] {
        run_each(&mut other, settings);
        run_each(
            &mut other,
            &["SELECT n FROM u WHERE n = 4711 AND nap(n)"; 4].join(";"),
        );
    }
    const COSTLY: &str = "extra_time > 100";
    assert_eq!(changes("other", COSTLY), 1);
    change_many(&mut other, "1..700", "on,off");
    assert_eq!((changes("one", "true"), changes("other", COSTLY)), (20, 1));
    let kept = changes("other", "true");
    assert!((100..=256 - 20).contains(&kept), "{kept}");
    change_many(&mut one, "21..40", "off");
    assert_eq!(changes("one", "true"), 40);
    server.assert_no_crash();
}

/// Each query has two plans. More of them than are kept neither fail nor take memory.
#[test]
fn many_changes_are_bounded() {
    let (server, mut client) = server("many-flips");
    measure_all(&mut client);
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    client
        .batch_execute(
            "DO $$ BEGIN FOR i IN 1..300 LOOP
                 FOR round IN 1..8 LOOP
                     PERFORM set_config('enable_indexscan', CASE WHEN round > 4 THEN 'off' ELSE 'on' END, true);
                     PERFORM set_config('enable_bitmapscan', CASE WHEN round > 4 THEN 'off' ELSE 'on' END, true);
                     EXECUTE format('SELECT %s pad FROM t WHERE n = 1', repeat('n, ', i));
                 END LOOP;
             END LOOP; END $$",
        )
        .expect("300 queries with two plans");
    let events: i64 = value(&mut client, "SELECT count(*) FROM rowsource_plan_flips()");
    // The session's slots are few, so most plans were added to the store one after the other.
    println!("{events} of 300 changes are kept");
    assert!((200..=256).contains(&events), "{events} events");
    server.assert_no_crash();
}

/// A change of the plan, and a snapshot with the new plan, say which index is gone.
#[test]
fn a_change_names_the_index_that_is_gone() {
    let (_server, mut client) = server("gone-index");
    run(&mut client, FIRST_PLAN, 20);
    run_each(&mut client, "DROP INDEX t_n");
    run(&mut client, FIRST_PLAN, 20);
    run_each(&mut client, "SELECT rowsource_snapshot()");
    for rows in [
        "rowsource_plan_flips WHERE queryid IS NOT NULL",
        "rowsource_snapshot_plans WHERE gone_indexes IS NOT NULL",
    ] {
        let gone = texts(&mut client, &format!("SELECT gone_indexes::text FROM {rows}"));
        assert_eq!(gone, [[Some("{public.t_n}".to_owned())]], "{rows}");
    }
}

/// The query went back to its first plan, and is not observed any more, because many others changed theirs
/// since. The plan before the third one is that which ran last, not that which came last.
#[test]
fn the_plan_before_is_that_which_ran_last() {
    let server = keeping("ran-last", &["pg_rowsource.max_plans = 4000"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE u AS SELECT i AS n, i AS m, repeat('x', 100) AS pad FROM generate_series(1, 5000) i;
         CREATE INDEX u_n ON u (n); ANALYZE u",
    );
    let mut run = |settings: &str| {
        run_each(&mut client, settings);
        measured(
            &mut client,
            &["SELECT pad FROM u WHERE n = 7 AND m = 7"; 10].join(";"),
        );
        flips(&mut client).len()
    };
    assert_eq!([FIRST_PLAN, OTHER_PLAN, FIRST_PLAN].map(&mut run), [0, 1, 2]);
    let mut other = server.connect();
    run_each(&mut other, "SET pg_rowsource.statistics_level = 'typical'");
    change_many(&mut other, "1..700", "on,off");
    run("DROP INDEX u_n; CREATE INDEX u_m ON u (m)");
    let gone = texts(
        &mut server.connect(),
        "SELECT gone_indexes::text FROM pg_stat_rowsource_plans WHERE gone_indexes IS NOT NULL",
    );
    assert_eq!(gone, [[Some("{public.u_n}".to_owned())]]);
    server.assert_no_crash();
}

/// Thousands of statements came since. The plan of the oldest is still known.
#[test]
fn the_plan_of_the_oldest_of_thousands_of_statements_is_known() {
    const OTHERS: usize = 3_000;
    let server = keeping("thousands", &["pg_rowsource.max_plans = 4000"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        TABLE.replace(" t ", " u ").replace("t_n", "u_n").as_str(),
    );
    let statement = STATEMENT.replace(" t ", " u ");
    let mut run = |settings: &str| {
        run_each(&mut client, settings);
        measured(&mut client, &[statement.as_str(); 10].join(";"));
    };
    run(FIRST_PLAN);
    let mut other = measuring(&server);
    make_plans(&mut other, OTHERS, 1);
    let stored: i64 = value(&mut other, "SELECT plans FROM rowsource_info()");
    assert!(stored > OTHERS as i64, "{stored}");
    run(OTHER_PLAN);
    let found = flips(&mut other);
    assert_eq!(calls(&found), [(10, 10)], "{found:#?}");
    server.assert_no_crash();
}
