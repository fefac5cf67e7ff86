//! The report of the SQL trace from the store: its numbers are those of the views, and it shows nobody more
//! than they do.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::trace_file::{columns, section, tkprof_store};

fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec![
        "pg_rowsource.statistics_level = 'all'",
        "pg_rowsource.sampfreq = 1",
        "pg_rowsource.track = 'all'",
        "jit = off",
    ];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 1000) i;
         CREATE INDEX t_id ON t (id); VACUUM ANALYZE t; SELECT rowsource_reset()",
    );
    server
}

#[test]
fn the_numbers_are_those_of_the_views() {
    let server = server("tkprof-store", &[]);
    let mut client = server.connect();
    for i in 0..20 {
        client
            .simple_query(&format!("SELECT sum(v) FROM t WHERE id < {}", 100 + i))
            .expect("it runs");
    }
    run_each(
        &mut client,
        "SELECT count(*), pg_sleep(0.002) FROM t WHERE id = 3;
         DO 'DECLARE n int; BEGIN FOR i IN 1..30 LOOP SELECT v INTO n FROM t WHERE id = i; END LOOP; END'",
    );
    let all = tkprof_store(&mut client, "");
    assert!(all[0].starts_with("Statistics of all sessions: "), "{}", all[0]);
    let part = section(&all, "SELECT sum(v)");
    let text = part.join("\n");
    let expected: Vec<Option<String>> = texts(
        &mut client,
        "SELECT queryid::text, planid::text, calls::text, (total_time / 1e3)::numeric(20, 6)::text, rows::text,
                shared_blks_read::text, (shared_blks_hit + shared_blks_read)::text, shared_blks_dirtied::text,
                plans::text, (total_plan_time / 1e3)::numeric(20, 6)::text, userid::text, datid::text
           FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT sum(v)%'",
    )
    .remove(0);
    let view = |at: usize| expected[at].as_deref().expect("a number");
    assert_eq!(view(2), "20");
    assert!(text.contains(&format!("QUERY ID: {}\n", view(0))), "{text}");
    assert!(
        text.contains(&format!("Plan id: {}, executions: 20\n", view(1))),
        "{text}"
    );
    assert!(
        text.contains(&format!(
            "Parsing user id: {}, database id: {}\n",
            view(10),
            view(11)
        )),
        "{text}"
    );
    // What the store does not know is no zero.
    assert_eq!(columns(&part, "Parse ")[1..], ["-"; 8]);
    assert_eq!(columns(&part, "Close ")[1..], ["-"; 8]);
    assert_eq!(
        columns(&part, "Execute ")[1..],
        ["20", "-", "-", "-", "-", "-", "-", "-"]
    );
    let fetch = columns(&part, "Fetch ");
    assert_eq!(
        fetch[1..],
        ["-", "-", view(3), view(5), view(6), view(7), view(4), "-"],
        "{text}"
    );
    let plan = columns(&part, "Plan ");
    assert_eq!(
        [plan[1], plan[2], plan[3], plan[7], plan[8]],
        [view(8), "-", view(9), "0", "-"]
    );
    // The nodes' numbers are means of all executions.
    let nodes = texts(
        &mut client,
        "SELECT n.last_rows::text, (n.rows / 20)::text,
                format('%s (cr=%s pr=%s pw=0 time=%s us starts=%s cost=', concat_ws(' on ', operation, object_name),
                    (n.shared_blks_hit + n.shared_blks_read) / 20, n.shared_blks_read / 20, round(n.total_time * 1e3)::bigint / 20, n.starts / 20)
           FROM pg_stat_rowsource n JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
          WHERE p.query LIKE 'SELECT sum(v)%' ORDER BY n.node_id",
    );
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        let [last, mean, operation] = [0, 1, 2].map(|at| node[at].clone().unwrap_or_default());
        let beginning = format!("{last:>10} {mean:>10} {:>10}  ", "-");
        let line = part.iter().find(|line| line.contains(&operation));
        assert!(
            line.is_some_and(|line| line.starts_with(&beginning)),
            "{beginning}{operation}\n{text}"
        );
    }
    // Waits, nested statements, totals.
    let slept = section(&all, "SELECT count(*), pg_sleep");
    let waited = texts(
        &mut client,
        "SELECT sum(waits)::text, max(max_time)::float8::text, sum(wait_time)::float8::text FROM pg_stat_rowsource_waits
          WHERE wait_event = 'PgSleep'",
    )
    .remove(0);
    let wait = columns(&slept, "  Timeout PgSleep");
    assert_eq!(Some(wait[2]), waited[0].as_deref());
    for (shown, ms) in [(wait[3], &waited[1]), (wait[4], &waited[2])] {
        let seconds: f64 = shown.parse().expect("seconds");
        let ms: f64 = ms.as_deref().and_then(|ms| ms.parse().ok()).expect("a time");
        assert!((seconds * 1e3 - ms).abs() < 2e-3, "{shown} s, {ms} ms");
    }
    // A utility statement has no other call.
    let block = section(&all, "DO ");
    assert_eq!(columns(&block, "Fetch ")[1..], ["-"; 8]);
    let execute = columns(&block, "Execute ");
    assert_eq!(execute[1], "1");
    assert!(
        execute[3].parse::<f64>().is_ok_and(|seconds| seconds > 0.0),
        "{block:#?}"
    );
    let nested = section(&all, "SELECT v  ");
    assert!(
        nested.iter().any(|line| line.ends_with("  (recursive)")),
        "{nested:#?}"
    );
    assert!(
        nested.contains(&"Executions by elapsed time:".to_owned()),
        "{nested:#?}"
    );
    let totals = section(&all, "OVERALL TOTALS FOR ALL NON-RECURSIVE STATEMENTS");
    let recursive = totals
        .iter()
        .position(|line| line.starts_with("OVERALL TOTALS FOR ALL RECURSIVE"))
        .expect("the totals");
    for (from, toplevel) in [(0, true), (recursive, false)] {
        let sums = texts(
            &mut client,
            &format!(
                "SELECT sum(calls)::text, sum(rows)::text FROM pg_stat_rowsource_plans
                  WHERE toplevel = {toplevel} AND query NOT LIKE '%rowsource%'"
            ),
        )
        .remove(0);
        // At the top level, this also has the report itself and the queries of the views.
        let shown = [
            columns(&totals[from..], "Execute ")[1],
            columns(&totals[from..], "Fetch ")[7],
        ];
        if toplevel {
            let number = |text: &str| text.parse::<i64>().expect("a number");
            for (shown, sum) in shown.iter().zip(&sums) {
                let sum = sum.as_deref().map(number).expect("a sum");
                assert!(sum > 20 && number(shown) >= sum, "{shown}, {sum}");
            }
        } else {
            assert_eq!(shown.map(str::to_owned).map(Some).to_vec(), sums);
        }
    }
    server.assert_no_crash();
}

#[test]
fn the_longest_come_first() {
    let server = server("tkprof-store-sort", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "SELECT 1 AS many_rows FROM t; SELECT 2 AS slow, pg_sleep(0.2); SELECT 3 AS fast",
    );
    let first = |client: &mut Client, arguments: &str| {
        let lines = tkprof_store(client, arguments);
        let count = lines.iter().filter(|line| line.starts_with("QUERY ID:")).count();
        assert_eq!(count, 1, "{lines:#?}");
        lines.into_iter().find(|line| line.starts_with("SELECT"))
    };
    for (arguments, text) in [
        ("statements => 1", "SELECT 2 AS slow"),
        ("'fchela', 1", "SELECT 2 AS slow"),
        ("'fchrow', 1", "SELECT 1 AS many_rows"),
    ] {
        let found = first(&mut client, arguments);
        assert!(
            found.as_deref().is_some_and(|found| found.starts_with(text)),
            "{found:?}"
        );
    }
    let none = tkprof_store(&mut client, "statements => 0");
    assert!(!none.iter().any(|line| line.starts_with("QUERY ID:")));
    assert!(none.iter().any(|line| line.starts_with("OVERALL TOTALS")));
    let (code, message) = must_fail(&mut client, "SELECT rowsource_tkprof_store('slow')");
    assert!(
        code.code() == "22023" && message.contains("unknown word \"slow\""),
        "{message}"
    );
    // What no execution measured is a dash, and means are those of the executions that measured.
    run_each(
        &mut client,
        "SELECT rowsource_reset(); SELECT 5 AS mixed FROM t; SELECT 5 AS mixed FROM t; SET pg_rowsource.sampfreq = 3;
         SELECT 5 AS mixed FROM t; SELECT 5 AS mixed FROM t; SELECT 5 AS mixed FROM t; SET pg_rowsource.sampfreq = 1",
    );
    let part = section(&tkprof_store(&mut client, ""), "SELECT 5 AS mixed");
    let text = part.join("\n");
    let gets = columns(&part, "Fetch ")[5].parse::<u64>().expect("blocks") / 2;
    assert!(gets > 0);
    for expected in [
        "executions: 5\n".to_owned(),
        "Blocks, starts and times of row sources are those of 2 of 5 executions.".to_owned(),
        format!("      1000       1000          -  Seq Scan on t (cr={gets} pr="),
        " starts=1 ".to_owned(),
        "\nNot known: how often it was parsed, processor times, how long the executor took to start and to end, in which \
         call it waited.\n"
            .to_owned(),
        "\nNo waits were counted.".to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected}\n{text}");
    }
    // Statistics without times have no times, and those without blocks have no blocks.
    run_each(
        &mut client,
        "SELECT rowsource_reset(); SET pg_rowsource.sampfreq = 3; SELECT 4 AS rows_only FROM t",
    );
    let part = section(&tkprof_store(&mut client, ""), "SELECT 4 AS rows_only");
    assert_eq!(
        columns(&part, "Fetch ")[4..8],
        ["-", "-", "-", "1000"],
        "{part:#?}"
    );
    assert!(
        part.iter()
            .any(|line| line.contains("Seq Scan on t (cr=- pr=- pw=- time=- us starts=- cost=")),
        "{part:#?}"
    );
    let text = part.join("\n");
    assert!(
        text.contains(", blocks of the executions, in which call it waited.\n")
            && !text.contains("Blocks, starts"),
        "{text}"
    );
    assert_ne!(columns(&part, "Plan ")[5], "-", "the planner's blocks are known");
    // A cursor that nothing is fetched from starts no node.
    run_each(
        &mut client,
        "SELECT rowsource_reset(); SET pg_rowsource.sampfreq = 1; BEGIN; DECLARE c CURSOR FOR SELECT 6 AS unread FROM t; CLOSE c; COMMIT;
         BEGIN; DECLARE c CURSOR FOR SELECT 6 AS unread FROM t; FETCH ALL FROM c; CLOSE c; COMMIT",
    );
    let part = section(&tkprof_store(&mut client, ""), "DECLARE c");
    let line = "Blocks, starts and times of row sources are those of 1 of 2 executions. The others counted rows only, or were never fetched from.";
    assert!(part.contains(&line.to_owned()), "{part:#?}");
    // Executions at sampfreq 0 count blocks without times. The store does not know how many these are: the
    // head says so.
    run_each(
        &mut client,
        "SELECT rowsource_reset(); SELECT 7 AS untimed, pg_sleep(0.2); SET pg_rowsource.sampfreq = 0;
         SELECT 7 AS untimed, pg_sleep(0.2); SELECT 7 AS untimed, pg_sleep(0.2); SET pg_rowsource.sampfreq = 1",
    );
    let report = tkprof_store(&mut client, "");
    let head = "time       = mean over the executions that counted blocks. Those at sampfreq 0 have no times, and lower it.";
    assert!(report.contains(&head.to_owned()), "{report:#?}");
    let part = section(&report, "SELECT 7 AS untimed");
    let node = part.iter().find(|line| line.contains("Result (cr="));
    let time = node.and_then(|node| {
        node.split_once("time=")?
            .1
            .split_once(" us")?
            .0
            .parse::<u64>()
            .ok()
    });
    assert!(
        time.is_some_and(|time| (66_000..180_000).contains(&time)),
        "{part:#?}"
    );
}

/// The store never knows the value of some words. It says so instead of sorting by zeros.
#[test]
fn words_that_are_never_known_are_refused() {
    let server = server("tkprof-store-words", &[]);
    let mut client = server.connect();
    for (sort, word) in [
        ("prscnt", "prscnt"),
        ("fchela,TOTCPU", "TOTCPU"),
        ("clsela", "clsela"),
    ] {
        let (code, message) = must_fail(&mut client, &format!("SELECT rowsource_tkprof_store('{sort}')"));
        assert!(
            code.code() == "22023"
                && message.contains(&format!("does not know what \"{word}\""))
                && message.contains("rowsource_tkprof()"),
            "{message}"
        );
    }
    for report in [
        "rowsource_tkprof_store('prsmis')",
        "rowsource_tkprof(sort => 'prsmis')",
    ] {
        let (_, message) = must_fail(&mut client, &format!("SELECT {report}"));
        assert!(
            message.contains("unknown word \"prsmis\"") && message.contains("no library cache"),
            "{message}"
        );
    }
}

/// Statements whose plans made room for others are a sum.
#[test]
fn what_is_not_stored_is_a_sum() {
    let server = server("tkprof-store-others", &["pg_rowsource.max_plans = 100"]);
    let mut client = server.connect();
    for i in 0..150 {
        let columns = vec!["id"; i + 1].join(", ");
        client
            .simple_query(&format!("SELECT {columns} FROM t WHERE id = 1"))
            .expect("it runs");
    }
    let others = "SELECT sum(calls)::text FROM pg_stat_rowsource_plans WHERE queryid IS NULL AND toplevel";
    let part = section(&tkprof_store(&mut client, ""), "(others: ");
    let evicted: String = value(&mut client, others);
    let shown: i64 = columns(&part, "Execute ")[1].parse().expect("a number");
    let evicted: i64 = evicted.parse().expect("a number");
    // The query of the view and the report itself may have evicted one each.
    assert!(
        shown > 0 && (0..=2).contains(&(evicted - shown)),
        "{shown}, {evicted}"
    );
    let text = part.join("\n");
    for expected in [
        "\nParsing user id: -, database id: ",
        ", texts, plans and row sources.\nFetch includes utility statements",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn texts_and_ids_of_others_are_hidden() {
    let server = server("tkprof-store-rights", &[]);
    let mut owner = server.connect();
    run_each(
        &mut owner,
        "CREATE ROLE regress_a LOGIN; CREATE ROLE regress_b LOGIN; GRANT pg_read_all_stats TO regress_b;
         GRANT SELECT ON t TO regress_a; SELECT id AS sesame FROM t WHERE v = 1",
    );
    let ids: Vec<Option<String>> = texts(
        &mut owner,
        "SELECT queryid::text, planid::text FROM pg_stat_rowsource_plans WHERE query LIKE '%sesame%' AND query NOT LIKE '%LIKE%'",
    )
    .remove(0);
    let mut user = server.try_connect("regress_a").expect("a session");
    run_each(&mut user, "SELECT count(*) AS own FROM t");
    let shown = tkprof_store(&mut user, "");
    let text = shown.join("\n");
    for hidden in ids.iter().flatten().chain([&"sesame".to_owned()]) {
        assert!(!text.contains(hidden.as_str()), "{hidden}\n{text}");
    }
    assert!(
        text.contains("QUERY ID: -\n\n<insufficient privilege>\n"),
        "{text}"
    );
    assert!(text.contains("-  <insufficient privilege> (cr="), "{text}");
    assert!(text.contains("Plan id: -, executions: "), "{text}");
    let own = section(&shown, "SELECT count(*) AS own");
    assert!(
        own.iter().any(|line| line.contains("Seq Scan on t (cr=")),
        "{own:#?}"
    );
    let mut reader = server.try_connect("regress_b").expect("a session");
    let text = tkprof_store(&mut reader, "").join("\n");
    for shown in ids.iter().flatten().chain([&"sesame".to_owned()]) {
        assert!(text.contains(shown.as_str()), "{shown}\n{text}");
    }
}
