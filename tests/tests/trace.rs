//! The SQL trace of a session: its lines, what adds up, and who may read it.

use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::trace_file::{
    self, columns, field, folder, number, of, of_cursor, section, start, stopped, tkprof,
};
use rowsource_tests::waiting::pid;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec!["pg_rowsource.statistics_level = 'basic'", "jit = off"];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 1000) i;
         CREATE INDEX t_id ON t (id); VACUUM ANALYZE t",
    );
    server
}

/// Replaces what differs between runs, machines and majors. Removes what is missing in some of them, because
/// it is 0.
fn normalised(line: &str) -> String {
    const VARIES: [&str; 7] = ["e", "tim", "plh", "time", "cost", "queryid", "uid"];
    const MAY_BE_ZERO: [&str; 6] = ["c", "p", "cr", "cu", "pr", "pw"];
    let (word, fields) = line.split_once(':').expect("a line has fields");
    let (fields, text) = ["sql=", "op=", "value="]
        .iter()
        .find_map(|key| {
            fields
                .split_once(key)
                .map(|(fields, text)| (fields, format!("{key}{text}")))
        })
        .unwrap_or((fields, String::new()));
    let fields = fields.split(',').filter_map(|field| match field.split_once('=') {
        Some((key, _)) if MAY_BE_ZERO.contains(&key) => None,
        Some((key, _)) if VARIES.contains(&key) => Some(format!("{key}=?")),
        _ => Some(field.to_owned()),
    });
    format!("{word}:{}{text}", fields.collect::<Vec<_>>().join(","))
}

const GOLDEN: &str = "\
PARSING IN CURSOR #2:dep=0,uid=?,queryid=?,tim=?,sql=SELECT count(*)\\nFROM t WHERE id < 11
PARSE #2:e=?,tim=?
PLAN #2:e=?,tim=?
EXEC #2:e=?,tim=?
FETCH #2:e=?,r=1,tim=?
NODE #2:plh=?,id=0,cost=?,card=1,op=Aggregate
STAT #2:id=0,rows=1,time=?,starts=1
NODE #2:plh=?,id=1,pid=0,cost=?,card=10,op=Index Only Scan on t_id
STAT #2:id=1,rows=10,time=?,starts=1
CLOSE #2:e=?,tim=?
XCTEND #2:rlbk=0,rd_only=1,e=?,tim=?
PARSING IN CURSOR #3:dep=0,uid=?,queryid=?,tim=?,sql=UPDATE t SET v = 8 WHERE id = 5
PARSE #3:e=?,tim=?
PLAN #3:e=?,tim=?
EXEC #3:e=?,tim=?
FETCH #3:e=?,r=1,tim=?
FINISH #3:e=?,tim=?
NODE #3:plh=?,id=0,cost=?,card=0,op=Update on t
STAT #3:id=0,time=?,starts=1
NODE #3:plh=?,id=1,pid=0,cost=?,card=1,op=Index Scan on t_id
STAT #3:id=1,rows=1,time=?,starts=1
CLOSE #3:e=?,tim=?
XCTEND #3:rlbk=0,rd_only=0,e=?,tim=?
PARSING IN CURSOR #4:dep=0,uid=?,queryid=?,tim=?,sql=SELECT 1 / (id - 1) FROM t WHERE id = 1
PARSE #4:e=?,tim=?
PLAN #4:e=?,tim=?
EXEC #4:e=?,tim=?
FETCH #4:e=?,fail=1,tim=?
NODE #4:plh=?,id=0,cost=?,card=1,op=Index Only Scan on t_id
STAT #4:id=0,time=?,starts=1
ERROR #4:err=22012,tim=?
XCTEND #4:rlbk=1,rd_only=1,e=?,tim=?
PARSE ERROR #0:uid=?,err=42601,e=?,tim=?,sql=SELEC 1
XCTEND #0:rlbk=1,rd_only=1,e=?,tim=?
PARSING IN CURSOR #5:dep=0,uid=?,queryid=?,tim=?,sql=SET work_mem = '1MB'
PARSE #5:e=?,tim=?
EXEC #5:e=?,util=1,tim=?
XCTEND #5:rlbk=0,rd_only=1,e=?,tim=?";

#[test]
fn the_format_is_documented() {
    let server = server("trace-golden", &["pg_rowsource.sampfreq = 1"]);
    let mut client = server.connect();
    let file = start(&mut client, "with_waits => false");
    for statement in [
        "SELECT count(*)\nFROM t WHERE id < 11",
        "UPDATE t SET v = 8 WHERE id = 5",
        "SELECT 1 / (id - 1) FROM t WHERE id = 1",
        "SELEC 1",
        "SET work_mem = '1MB'",
    ] {
        let _ = client.simple_query(statement);
    }
    let lines = stopped(&server, &mut client);
    assert!(lines[0].starts_with("TRACE #0:version=2,pid="), "{}", lines[0]);
    assert!(
        lines[0].ends_with("session=postgres@postgres rowsource-tests"),
        "{}",
        lines[0]
    );
    let first = lines
        .iter()
        .position(|line| line.starts_with("PARSING IN CURSOR #2:"));
    let found: Vec<String> = lines[first.expect("a statement")..]
        .iter()
        .take_while(|line| !line.starts_with("PARSING IN CURSOR #6:"))
        .map(|line| normalised(line))
        .collect();
    assert_eq!(found.join("\n"), GOLDEN);
    assert!(lines.last().is_some_and(|line| line.starts_with("END #0:tim=")));
    assert!(of(&lines, "WAIT").is_empty());
    // Each call has its own stamps: it begins after the one before has ended.
    let mut ended = 0;
    for line in &lines[first.unwrap_or(0)..] {
        if let (Some(elapsed), Some(tim)) = (field(line, "e"), field(line, "tim")) {
            let (elapsed, tim): (i64, i64) = (elapsed.parse().expect("e"), tim.parse().expect("tim"));
            assert!(tim - elapsed >= ended, "{line}\n{lines:#?}");
            ended = tim;
        }
    }
    // Nothing more is written, and a session that was never traced has no file.
    run_each(&mut client, "SELECT 2");
    assert_eq!(lines.len(), trace_file::lines(&server, &file).len());
    let folder = folder(&server);
    assert_eq!(fs::read_dir(&folder).expect("the folder").count(), 1);
    let mode = |path| fs::metadata(path).expect("the file").permissions().mode() & 0o777;
    assert_eq!((mode(folder.clone()), mode(folder.join(&file))), (0o700, 0o600));
}

/// A node is described once, and again if the planner expects something else or its index has another name.
#[test]
fn nodes_are_described_again_when_they_change() {
    let server = server("trace-nodes", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "ANALYZE t; SET plan_cache_mode = force_generic_plan; PREPARE q AS SELECT v FROM t WHERE id < $1",
    );
    start(&mut client, "with_waits => false");
    run_each(
        &mut client,
        "EXECUTE q(5); EXECUTE q(6); EXECUTE q(7);
         SET plan_cache_mode = force_custom_plan; EXECUTE q(3); EXECUTE q(3);
         ALTER INDEX t_id RENAME TO renamed; EXECUTE q(3)",
    );
    let lines = stopped(&server, &mut client);
    let words: Vec<&str> = of_cursor(&lines, "NODE", "PREPARE q")
        .into_iter()
        .map(|line| line.split_once(",op=").map_or("", |(_, operation)| operation))
        .collect();
    let stats = of_cursor(&lines, "STAT", "PREPARE q");
    assert_eq!((stats.len(), words.len()), (6, 3), "{lines:#?}");
    assert_eq!(
        words,
        ["Seq Scan on t", "Index Scan on t_id", "Index Scan on renamed"]
    );
}

/// What the lines say is what was run, and what the views say.
#[test]
fn the_sums_are_those_of_the_views() {
    let server = server("trace-sums", &["pg_rowsource.sampfreq = 1"]);
    let mut client = server.connect();
    let id = pid(&mut client);
    start(&mut client, "");
    let waited = "SELECT coalesce(sum(waits), 0)::bigint, coalesce(sum(wait_time), 0)::float8 FROM pg_stat_rowsource_session_waits
        WHERE pid = $1 AND wait_event = 'PgSleep'";
    for i in 0..20 {
        client
            .simple_query(&format!("SELECT sum(v) FROM t WHERE id < {}", 100 + i))
            .expect("it runs");
    }
    run_each(
        &mut client,
        "SELECT pg_sleep(0.002) FROM generate_series(1, 5);
         DO 'DECLARE n int; BEGIN FOR i IN 1..30 LOOP SELECT v INTO n FROM t WHERE id = i; END LOOP; PERFORM pg_sleep(0.2); END'",
    );
    let lines = stopped(&server, &mut client);
    let sum = |word: &str, text: &str, key: &str| -> i64 {
        of_cursor(&lines, word, text)
            .iter()
            .map(|line| number(line, key))
            .sum()
    };
    for (text, calls, rows) in [("SELECT sum(v)", 20, 20), ("SELECT v  ", 30, 30)] {
        assert_eq!(of_cursor(&lines, "EXEC", text).len(), calls, "{text}");
        assert_eq!(of_cursor(&lines, "CLOSE", text).len(), calls, "{text}");
        assert_eq!(sum("FETCH", text, "r"), rows, "{text}");
        // The nodes of all executions.
        let view = format!(
            "SELECT n.node_id::text, n.executions::text, n.rows::text, (n.shared_blks_hit + n.shared_blks_read)::text
               FROM pg_stat_rowsource n JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
              WHERE p.query LIKE '{text}%' ORDER BY n.node_id"
        );
        let stats = of_cursor(&lines, "STAT", text);
        let mut nodes: BTreeMap<i64, [i64; 3]> = BTreeMap::new();
        for line in &stats {
            let node = nodes.entry(number(line, "id")).or_default();
            for (sum, add) in node.iter_mut().zip([1, number(line, "rows"), number(line, "cr")]) {
                *sum += add;
            }
        }
        let found: Vec<Vec<Option<String>>> = nodes
            .iter()
            .map(|(id, sums)| {
                [*id]
                    .iter()
                    .chain(sums)
                    .map(|number| Some(number.to_string()))
                    .collect()
            })
            .collect();
        assert_eq!(found, texts(&mut client, &view), "{text}");
    }
    assert!(
        of_cursor(&lines, "EXEC", "SELECT v  ")
            .iter()
            .all(|line| number(line, "dep") == 1)
    );
    // Waits are exact.
    let row = client.query_one(waited, &[&id]).expect("the session's waits");
    let sleeps: Vec<&str> = of(&lines, "WAIT")
        .into_iter()
        .filter(|line| line.ends_with("nam=Timeout PgSleep"))
        .collect();
    // A wait that a signal interrupted is two lines.
    let whole = sleeps.iter().filter(|line| field(line, "rest").is_none()).count();
    assert_eq!(whole as i64, row.get::<_, i64>(0), "{lines:#?}");
    let (us, ms): (i64, f64) = (sleeps.iter().map(|line| number(line, "ela")).sum(), row.get(1));
    assert!(
        (us as f64 - ms * 1e3).abs() <= sleeps.len() as f64,
        "{us} us, {ms} ms"
    );
    assert!(
        sleeps
            .iter()
            .all(|line| field(line, "node").is_some() && [1, 2].contains(&number(line, "dep")))
    );
    // The report has the same counts.
    let report = tkprof(&mut client, "");
    let part = section(&report, "SELECT sum(v)");
    for (call, count, rows) in [
        ("Parse", "20", "0"),
        ("Plan", "20", "0"),
        ("Execute", "20", "0"),
        ("Fetch", "20", "20"),
    ] {
        let line = part.iter().find(|line| line.starts_with(call)).expect(call);
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((columns[1], columns[7]), (count, rows), "{line}");
    }
    assert!(
        part.iter()
            .any(|line| line.contains("Index Scan on t_id") && line.contains("starts=1")),
        "{part:#?}"
    );
    let nested = section(&report, "SELECT v  ");
    assert!(
        nested.iter().any(|line| line.ends_with("(recursive depth: 1)")),
        "{nested:#?}"
    );
    let sleep = section(&report, "SELECT pg_sleep");
    assert!(
        sleep
            .iter()
            .any(|line| line.trim_start().starts_with("Timeout PgSleep  ")),
        "{sleep:#?}"
    );
    // Sorted and limited, the DO comes first, because it contains what it calls.
    let sorted = tkprof(&mut client, "sort => 'exeela', statements => 1");
    let first = sorted.iter().filter(|line| line.starts_with("QUERY ID:")).count();
    assert!(
        first == 1 && sorted.iter().any(|line| line.starts_with("DO '")),
        "{sorted:#?}"
    );
    let (_, message) = must_fail(&mut client, "SELECT rowsource_tkprof(sort => 'exeela,fast')");
    assert!(message.contains("unknown word \"fast\""), "{message}");
    server.assert_no_crash();
}

#[test]
fn a_driver_with_portals_and_named_statements_is_traced() {
    let server = server("trace-driver", &[]);
    let mut client = server.connect();
    start(&mut client, "with_binds => true");
    let named = client
        .prepare("SELECT id, 'named' FROM t WHERE id = $1 AND v < $2")
        .expect("it is parsed");
    for i in 1..=8 {
        client.query(&named, &[&i, &100]).expect("it runs");
    }
    let mut transaction = client.transaction().expect("a transaction");
    let portal = transaction
        .bind("SELECT id, 'portal' FROM t WHERE id <= $1 ORDER BY id", &[&25])
        .expect("a portal");
    let mut counts = Vec::new();
    while counts.last() != Some(&0) {
        counts.push(transaction.query_portal(&portal, 10).expect("rows").len());
    }
    drop(portal);
    transaction.commit().expect("it commits");
    assert_eq!(counts, [10, 10, 5, 0]);
    let lines = stopped(&server, &mut client);
    // It is parsed once. After five executions, the plan is generic: it is planned no more.
    let count = |word: &str, text: &str| of_cursor(&lines, word, text).len();
    assert_eq!(
        ["PARSE", "EXEC", "FETCH", "CLOSE"].map(|word| count(word, "'named'")),
        [1, 8, 8, 8]
    );
    assert_eq!(count("PLAN", "'named'"), 6);
    let binds: Vec<&str> = of_cursor(&lines, "VALUE", "'named'")
        .into_iter()
        .map(|line| line.split_once(':').expect("fields").1)
        .collect();
    assert_eq!(binds.len(), 16);
    assert_eq!(&binds[2..4], ["n=1,type=23,value=2", "n=2,type=23,value=100"]);
    // Each call for rows is a line.
    let fetched: Vec<i64> = of_cursor(&lines, "FETCH", "'portal'")
        .iter()
        .map(|line| number(line, "r"))
        .collect();
    assert_eq!(fetched.iter().sum::<i64>(), 25, "{fetched:?}");
    assert!(fetched.starts_with(&[10, 10, 5]), "{fetched:?}");
    assert_eq!(count("CLOSE", "'portal'"), 1);
    // Without the request there are no values.
    start(&mut client, "");
    client.query(&named, &[&4, &100]).expect("it runs");
    let lines = stopped(&server, &mut client);
    assert!(of(&lines, "VALUE").is_empty());
    assert_eq!(of_cursor(&lines, "FETCH", "'named'").len(), 1);
    server.assert_no_crash();
}

/// The files of several sessions are one report, and one document with a track for each session.
#[test]
fn files_of_several_sessions_add_up() {
    let server = server("trace-several", &[]);
    let mut clients = [server.connect(), server.connect()];
    let mut files = Vec::new();
    for (client, times) in clients.iter_mut().zip([3, 4]) {
        files.push(start(client, ""));
        for _ in 0..times {
            run_each(client, "SELECT id, 'several' FROM t WHERE id <= 5");
        }
        run_each(client, "SELECT rowsource_trace_stop()");
    }
    let mut client = server.connect();
    let both = files.join(", ");
    let report = tkprof(&mut client, &format!("'{both}', sort => 'fchrow'"));
    assert!(report[0].contains(&both), "{}", report[0]);
    let part = section(&report, "SELECT id, 'several'");
    assert_eq!(columns(&part, "Execute ")[1], "7");
    assert_eq!(columns(&part, "Fetch ")[7], "35");
    assert!(part.join("\n").contains(", executions: 7\n"), "{part:#?}");
    let document: String = value(&mut client, &format!("SELECT rowsource_trace_events('{both}')"));
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    let tracks: HashSet<i64> = events.iter().filter_map(|event| event["pid"].as_i64()).collect();
    assert_eq!(tracks.len(), 2, "{tracks:?}");
    server.assert_no_crash();
}

/// Errors that are caught, rollbacks and functions in functions leave the levels right.
#[test]
fn nested_statements_have_their_level() {
    let server = server("trace-nested", &[]);
    let mut client = server.connect();
    // Only function bodies contain semicolons.
    client
        .batch_execute(
            "CREATE FUNCTION inner_one(n int) RETURNS int LANGUAGE plpgsql AS
             'BEGIN RETURN (SELECT 100 / (v - v + n) FROM t WHERE id = 1); END';
             CREATE FUNCTION outer_one() RETURNS int LANGUAGE plpgsql AS
             'BEGIN RETURN (SELECT inner_one(0) + v FROM t WHERE id = 2);
              EXCEPTION WHEN division_by_zero THEN RETURN (SELECT inner_one(1) + v FROM t WHERE id = 3); END';
             CREATE FUNCTION fired() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM 1 FROM t WHERE id = 9; RETURN NULL; END';
             CREATE TRIGGER fires AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION fired()",
        )
        .expect("the functions");
    start(&mut client, "");
    run_each(
        &mut client,
        "SELECT outer_one(); INSERT INTO t VALUES (2000, 1); EXPLAIN (ANALYZE) SELECT 'explained' FROM t",
    );
    let lines = stopped(&server, &mut client);
    let levels = |word: &str, text: &str| -> Vec<(i64, bool)> {
        let found = of_cursor(&lines, word, text);
        found
            .iter()
            .map(|line| (number(line, "dep"), line.contains(",fail=1,")))
            .collect()
    };
    assert_eq!(levels("FETCH", "SELECT outer_one()"), [(0, false)]);
    // Both have the same queryid.
    assert_eq!(levels("FETCH", "inner_one(0) + v"), [(1, true), (1, false)]);
    assert_eq!(levels("FETCH", "100 / (v - v + n)"), [(2, true), (2, false)]);
    // The trigger's statement runs while the INSERT finishes.
    assert_eq!(levels("FINISH", "INSERT INTO t"), [(0, false)]);
    assert_eq!(levels("FETCH", "1 FROM t WHERE id = 9"), [(1, false)]);
    assert_eq!(levels("EXEC", "EXPLAIN (ANALYZE)"), [(0, false)]);
    server.assert_no_crash();
}

/// A document for Perfetto and others: slices of a track are nested, never crossed.
#[test]
fn events_are_nested() {
    const CLOCKS_DIFFER_US: i64 = 20;
    let server = server("trace-events", &["pg_rowsource.sampfreq = 1"]);
    let mut client = server.connect();
    start(&mut client, "");
    run_each(
        &mut client,
        "SELECT count(*), pg_sleep(0.01) FROM t a JOIN t b USING (id);
         DO 'DECLARE n int; BEGIN FOR i IN 1..5 LOOP SELECT v INTO n FROM t WHERE id = i; END LOOP; END';
         BEGIN; DECLARE c CURSOR FOR SELECT id FROM t; FETCH 3 FROM c; SELECT 'between'; FETCH 3 FROM c; CLOSE c; COMMIT",
    );
    let _ = client.simple_query("SELECT missing FROM t");
    run_each(&mut client, "SELECT rowsource_trace_stop()");
    let document: String = value(&mut client, "SELECT rowsource_trace_events()");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let mut slices: Vec<(i64, i64, String)> = Vec::new();
    for event in document["traceEvents"].as_array().expect("events") {
        assert_eq!(event["pid"], i64::from(pid(&mut client)));
        if event["ph"] == "X" {
            let (from, took) = (
                event["ts"].as_i64().expect("ts"),
                event["dur"].as_i64().expect("dur"),
            );
            slices.push((
                from,
                from + took,
                event["name"].as_str().expect("a name").to_owned(),
            ));
        }
    }
    slices.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let count = |name: &str| slices.iter().filter(|slice| slice.2.starts_with(name)).count();
    assert_eq!((count("DO '"), count("SELECT v "), count("Hash Join")), (1, 5, 1));
    // The cursor's execution would cross the statements that read it. Its calls say whose they are.
    assert_eq!((count("DECLARE c"), count("ERROR 42703")), (1, 1), "{slices:?}");
    let of_cursor = |event: &&Value| event["args"]["statement"] == "DECLARE c CURSOR FOR SELECT id FROM t";
    let events = document["traceEvents"].as_array().expect("events");
    let calls = events.iter().filter(of_cursor);
    let fetches = calls.filter(|event| event["name"] == "FETCH").count();
    assert_eq!(fetches, 2);
    assert!(count("Timeout PgSleep") >= 1, "{slices:?}");
    let mut open: Vec<&(i64, i64, String)> = Vec::new();
    for slice in &slices {
        // Waits have a clock of their own, so one may seem to end some microseconds after the next call has
        // begun.
        open.retain(|outer| outer.1 > slice.0 + CLOCKS_DIFFER_US);
        // Nodes and waits are placed with a precision of a microsecond, and a node's place in its call is a
        // guess.
        let is_node = |slice: &(i64, i64, String)| {
            slice.2.contains("Scan")
                || slice.2.contains("Join")
                || slice.2.contains("Hash")
                || slice.2.starts_with("Aggregate")
        };
        if let Some(outer) = open.iter().rev().find(|outer| !is_node(outer)) {
            assert!(slice.1 <= outer.1 + CLOCKS_DIFFER_US, "{slice:?} in {outer:?}");
        }
        open.push(slice);
    }
}

#[test]
fn only_some_may_trace_and_read() {
    let server = server("trace-rights", &[]);
    let mut owner = server.connect();
    run_each(
        &mut owner,
        "CREATE ROLE regress_a LOGIN; CREATE ROLE regress_b LOGIN; CREATE ROLE regress_reader LOGIN;
         GRANT EXECUTE ON FUNCTION rowsource_trace_read_all() TO regress_reader; GRANT pg_read_server_files TO regress_b;
         GRANT SELECT ON t TO regress_a",
    );
    owner
        .batch_execute(
            "CREATE FUNCTION definer() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS
             'DECLARE word text := ''open'' || ''door''; BEGIN RETURN (SELECT count(*) FROM t WHERE v::text NOT IN (''sesame'', word)); END'",
        )
        .expect("the function");
    let mut user = server.try_connect("regress_a").expect("a session");
    for forbidden in [
        "SELECT rowsource_trace_start()",
        "SELECT rowsource_trace_stop()",
        "SET pg_rowsource.trace = 'on'",
    ] {
        let (code, message) = must_fail(&mut user, forbidden);
        assert_eq!(code.code(), "42501", "{message}");
    }
    run_each(
        &mut owner,
        "GRANT EXECUTE ON FUNCTION rowsource_trace_start, rowsource_trace_stop TO regress_a; SELECT count(*) FROM t",
    );
    let file = start(&mut user, "with_binds => true");
    run_each(&mut user, "SELECT count(*) + 1 FROM t; SELECT definer()");
    // The file has the value of the owner's statement. Nobody else sees it.
    let binds = trace_file::lines(&server, &file);
    assert!(
        of(&binds, "VALUE")
            .iter()
            .any(|line| line.ends_with("value=opendoor")),
        "{binds:#?}"
    );
    let own = tkprof(&mut user, "").join("\n");
    assert!(own.contains("SELECT count(*) + 1 FROM t"), "{own}");
    assert!(
        own.contains("<insufficient privilege>") && !own.contains("sesame") && !own.contains("opendoor"),
        "{own}"
    );
    let document: String = value(&mut user, "SELECT rowsource_trace_events()");
    assert!(!document.contains("sesame") && !document.contains("opendoor"));
    let files = "SELECT file, is_own::text, lost_lines::text FROM rowsource_trace_files";
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(texts(&mut user, files), [[some(&file), some("true"), some("0")]]);
    // Others cannot read it, nor learn whether it exists.
    let id = pid(&mut user);
    let mut other = server.try_connect("regress_b").expect("a session");
    assert!(texts(&mut other, files).is_empty());
    for call in [
        format!("rowsource_tkprof('{file}')"),
        format!("rowsource_tkprof(pid => {id})"),
        format!("rowsource_trace_events('{file}')"),
        "rowsource_tkprof('1_1_1.trc')".to_owned(),
        "rowsource_tkprof(pid => 1)".to_owned(),
    ] {
        let (code, message) = must_fail(&mut other, &format!("SELECT {call}"));
        assert_eq!(
            (code.code(), message.contains("permission denied")),
            ("42501", true),
            "{message}"
        );
    }
    let mut reader = server.try_connect("regress_reader").expect("a session");
    for arguments in [format!("'{file}'"), format!("pid => {id}")] {
        assert!(tkprof(&mut reader, &arguments).join("\n").contains("sesame"));
    }
    for path in [
        "../postgresql.conf",
        "/etc/passwd",
        "",
        "1_1_1",
        "x_1_1.trc",
        "01_1_1.trc",
    ] {
        let (code, message) = must_fail(&mut reader, &format!("SELECT rowsource_tkprof('{path}')"));
        assert_eq!(code.code(), "22023", "{message}");
    }
    // A superuser may grant the setting, and set it for a role.
    run_each(
        &mut owner,
        "ALTER ROLE regress_b SET pg_rowsource.trace = 'statements'",
    );
    let mut other = server.try_connect("regress_b").expect("a session");
    run_each(&mut other, "SELECT 5 AS by_setting");
    assert!(tkprof(&mut other, "").join("\n").contains("by_setting"));
    assert_eq!(
        must_fail(&mut other, "SET pg_rowsource.trace = off").0.code(),
        "42501"
    );
}

/// As with SET, a rollback ends a trace that its transaction began.
#[test]
fn a_rollback_undoes_the_start() {
    let server = server("trace-rollback", &[]);
    let mut client = server.connect();
    run_each(&mut client, "BEGIN");
    let file = start(&mut client, "");
    run_each(
        &mut client,
        "SELECT 1 AS inside; ROLLBACK; SELECT pg_sleep(0.001) AS outside",
    );
    let lines = trace_file::lines(&server, &file);
    assert!(
        lines.iter().any(|line| line.contains("inside"))
            && !lines.iter().any(|line| line.contains("outside")),
        "{lines:#?}"
    );
    assert!(
        lines.last().is_some_and(|line| line.starts_with("END #0:")),
        "{lines:#?}"
    );
    assert!(texts(&mut client, "SELECT rowsource_trace_stop()").is_empty());
}
