//! What the lines of a trace add up to: the figures of the views, the totals of the report, and the elapsed
//! time.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::trace_file::{
    columns, cursor, field, lines, number, of, of_cursor, section, start, stopped, tkprof, tkprof_store,
};
use rowsource_tests::waiting::{hold, pid};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The columns of a call in the report: count, cpu, elapsed, disk, query, current, rows, not in any.
type Figures = [f64; 8];

/// Starts a server whose buffers have no block of the tables.
fn cold_server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec![
        "jit = off",
        "autovacuum = off",
        "max_parallel_workers_per_gather = 0",
        "pg_rowsource.sampfreq = 1",
        "pg_rowsource.statistics_level = 'all'",
        "pg_rowsource.track = 'all'",
    ];
    all.extend(settings);
    let mut server = Server::preloaded(name, &all);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 1000) i;
         ALTER TABLE t ADD PRIMARY KEY (id);
         CREATE TABLE big AS SELECT i AS id, repeat('x', 500) AS pad FROM generate_series(1, 5000) i;
         VACUUM ANALYZE; CHECKPOINT",
    );
    let reads_elsewhere = major(&mut client) >= 18;
    drop(client);
    server.stop();
    if reads_elsewhere {
        // Else other processes read the blocks, and the session does not wait for each.
        server.configure("io_method = 'sync'");
    }
    server.launch();
    server
}

/// Returns the figures of a line of the report. What is not known is 0.
fn figures(part: &[String], word: &str) -> Figures {
    let columns = columns(part, word);
    let mut figures = Figures::default();
    for (figure, column) in figures.iter_mut().zip(&columns[1..]) {
        *figure = if *column == "-" {
            0.0
        } else {
            column.parse().unwrap_or_else(|_| panic!("{columns:?}"))
        };
    }
    figures
}

/// Blocks, rows and elapsed times of a statement are those of its plan in the views, also if it is nested and
/// its blocks are read from disk.
#[test]
fn blocks_and_times_are_those_of_the_views() {
    let server = cold_server("trace-sums-views", &[]);
    let mut client = server.connect();
    let took = Instant::now();
    start(&mut client, "");
    run_each(
        &mut client,
        "SELECT count(pad), pg_sleep(0.2) FROM big; SELECT count(pad), pg_sleep(0.2) FROM big;
         DO 'DECLARE n int; BEGIN FOR i IN 1..50 LOOP SELECT v INTO n FROM t WHERE id = i * 20 AND pg_sleep(0.01) IS NOT NULL;
                                                END LOOP; END';
         UPDATE t SET v = v + 1 WHERE id <= 400 AND (id <> 7 OR pg_sleep(0.4) IS NOT NULL)",
    );
    let lines = stopped(&server, &mut client);
    let report = tkprof(&mut client, "");
    for (text, calls, least_ms, has_dirtied) in [
        ("SELECT count(pad)", 2, 400.0, false),
        ("SELECT v  ", 50, 500.0, false),
        ("UPDATE t", 1, 400.0, true),
    ] {
        let view = texts(
            &mut client,
            &format!(
                "SELECT calls, rows, shared_blks_read, shared_blks_hit + shared_blks_read, shared_blks_dirtied, total_time
                   FROM pg_stat_rowsource_plans WHERE query LIKE '{text}%'"
            ),
        )
        .remove(0);
        let view: Vec<f64> = view
            .iter()
            .map(|number| {
                number
                    .as_deref()
                    .and_then(|number| number.parse().ok())
                    .expect("a number")
            })
            .collect();
        let fetches = of_cursor(&lines, "FETCH", text);
        let sum = |key: &str| fetches.iter().map(|line| number(line, key)).sum::<i64>();
        let traced = ["r", "p", "cr", "cu"].map(|key| sum(key) as f64);
        println!("{text}: view {view:?}, fetches {traced:?}, {} us", sum("e"));
        assert_eq!((fetches.len(), view[0]), (calls, calls as f64), "{text}");
        assert_eq!(traced, view[1..5], "{text}");
        assert_eq!((view[2] > 0.0, view[4] > 0.0), (true, has_dirtied), "{text}");
        // Each reads a clock of its own at the beginning and at the end of a run. Both have all that the
        // statements slept, and the calls that the trace lists have no more than the session.
        let (us, ms) = (sum("e") as f64, view[5]);
        let most_ms = took.elapsed().as_secs_f64() * 1e3;
        for found in [us / 1e3, ms] {
            assert!((least_ms..most_ms).contains(&found), "{text}: {us} us, {ms} ms");
        }
        // The report has the sums.
        let part = section(&report, text);
        let fetch = figures(&part, "Fetch ");
        assert_eq!(
            [fetch[0], fetch[6], fetch[3], fetch[4], fetch[5]],
            [calls as f64, view[1], view[2], view[3], view[4]]
        );
        assert!(
            (fetch[2] * 1e6 - us).abs() < 1e-3,
            "{text}: {} s, {us} us",
            fetch[2]
        );
        // The nodes have the same blocks as the runs.
        let root: Vec<&str> = of_cursor(&lines, "STAT", text)
            .into_iter()
            .filter(|line| number(line, "id") == 0)
            .collect();
        let of_root = |key: &str| root.iter().map(|line| number(line, key)).sum::<i64>() as f64;
        assert_eq!([of_root("pr"), of_root("cr")], view[2..4], "{text}");
    }
    server.assert_no_crash();
}

/// Each call has its own stamps at each level: calls of a level follow each other, and nested calls are
/// inside the call of their caller.
#[test]
fn nested_calls_have_their_own_stamps() {
    let server = cold_server("trace-sums-stamps", &[]);
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE FUNCTION inner_one(n int) RETURNS int LANGUAGE plpgsql AS
             'BEGIN RETURN (SELECT v + n FROM t WHERE id = n); END';
             CREATE FUNCTION fired() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM inner_one(9); RETURN NULL; END';
             CREATE TRIGGER fires AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fired()",
        )
        .expect("the functions");
    start(&mut client, "");
    run_each(
        &mut client,
        "SELECT sum(inner_one(id)) FROM t WHERE id < 200; UPDATE t SET v = 1 WHERE id < 20;
         DO 'DECLARE n int; BEGIN FOR i IN 1..200 LOOP SELECT v + inner_one(i) INTO n FROM t WHERE id = i; END LOOP; END'",
    );
    let lines = stopped(&server, &mut client);
    // By level: when the last call ended, and the span of the calls that were nested in the next call of the
    // level above.
    let mut ended: Vec<i64> = Vec::new();
    let mut nested: Vec<Option<(i64, i64)>> = Vec::new();
    let mut compared = [0; 3];
    for line in &lines {
        let word = line.split(' ').next().unwrap_or_default();
        if !["PARSE", "PLAN", "EXEC", "FETCH", "FINISH", "CLOSE"].contains(&word) {
            continue;
        }
        let (dep, tim) = (number(line, "dep") as usize, number(line, "tim"));
        // The Parse of a nested statement has no elapsed time.
        let elapsed = field(line, "e").map_or(0, |_| number(line, "e"));
        let began = tim - elapsed;
        ended.resize(ended.len().max(dep + 1), 0);
        nested.resize(nested.len().max(dep + 2), None);
        assert!(
            began >= ended[dep],
            "{line} begins before {}\n{lines:#?}",
            ended[dep]
        );
        if let Some((first, last)) = nested[dep + 1].take() {
            assert!(
                first >= began && last <= tim,
                "{first} to {last} is not in {line}"
            );
            compared[dep.min(2)] += 1;
        }
        ended[dep] = tim;
        let (first, _) = nested[dep].unwrap_or((began, tim));
        nested[dep] = Some((first, tim));
    }
    // The SELECT, the UPDATE and the DO; the lookups of the DO, and the triggers' statements.
    assert!(compared[0] == 3 && compared[1] >= 200 + 19, "{compared:?}");
    server.assert_no_crash();
}

/// Returns the waits of a session by their names, with their milliseconds.
fn waits_of(observer: &mut Client, pid: i32) -> BTreeMap<String, (i64, f64)> {
    let rows = observer.query(
        "SELECT wait_event_type || ' ' || wait_event, waits, wait_time::float8 FROM pg_stat_rowsource_session_waits WHERE pid = $1",
        &[&pid],
    );
    let rows = rows.expect("pg_stat_rowsource_session_waits");
    rows.iter()
        .map(|row| (row.get(0), (row.get(1), row.get(2))))
        .collect()
}

/// Every wait has its line: in number and time, the lines are what the views count, for each event.
#[test]
fn every_wait_has_a_line() {
    let server = cold_server("trace-sums-waits", &["fsync = on"]);
    let (mut observer, mut client) = (server.connect(), server.connect());
    let id = pid(&mut client);
    let file = start(&mut client, "");
    // Both are taken while the session waits for its client.
    let written = lines(&server, &file).len();
    let before = waits_of(&mut observer, id);
    run_each(
        &mut client,
        "SELECT count(pad) FROM big; SELECT sum(v) FROM t; SELECT pg_sleep(0.01);
         CREATE TABLE more AS SELECT * FROM big; UPDATE t SET v = 3 WHERE id = 7",
    );
    let mut holder = server.connect();
    let (mut client, lasted) = hold(
        &mut holder,
        client,
        ["BEGIN; LOCK TABLE t", "SELECT count(*) FROM t", "relation"],
        Duration::from_millis(30),
    );
    // The lines of the end of a transaction, which may wait to give the lock back, are written with the next
    // statement.
    run_each(&mut client, "SELECT 1");
    let after = waits_of(&mut observer, id);
    let lines = lines(&server, &file);
    let mut traced: BTreeMap<String, (i64, f64, i64)> = BTreeMap::new();
    for line in of(&lines[written..], "WAIT") {
        let name = line.split_once(",nam=").map_or("", |(_, name)| name);
        let sum = traced.entry(name.to_owned()).or_default();
        // A wait that a signal interrupted is two lines.
        sum.0 += i64::from(field(line, "rest").is_none());
        sum.1 += number(line, "ela") as f64 / 1e3;
        sum.2 += 1;
    }
    let mut counted = BTreeMap::new();
    for (event, (waits, ms)) in after {
        let (old_waits, old_ms) = before.get(&event).copied().unwrap_or_default();
        if waits > old_waits {
            counted.insert(event, (waits - old_waits, ms - old_ms));
        }
    }
    println!("{counted:?}\n{traced:?}");
    assert_eq!(
        counted.keys().collect::<Vec<_>>(),
        traced.keys().collect::<Vec<_>>(),
        "the events"
    );
    for (event, (waits, ms)) in &counted {
        let (lines, line_ms, whole) = traced[event];
        assert_eq!(lines, *waits, "{event}");
        // A line has whole microseconds.
        assert!(
            (line_ms - ms).abs() <= whole as f64 / 1e3,
            "{event}: {line_ms} ms, {ms} ms"
        );
    }
    for event in [
        "Client ClientRead",
        "IO DataFileRead",
        "Lock relation",
        "Timeout PgSleep",
    ] {
        assert!(counted.contains_key(event), "{event} in {counted:?}");
    }
    let locked = counted["Lock relation"].1;
    assert!(lasted.contains(locked), "{locked} ms, {lasted:?}");
    drop(client);
    server.assert_no_crash();
}

/// Computing between two statements of a function is in no call. It is `not in any` before the next
/// statement.
#[test]
fn time_between_statements_is_not_in_any() {
    let server = cold_server("trace-sums-hidden", &[]);
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE FUNCTION hidden() RETURNS float8 LANGUAGE plpgsql AS
             'DECLARE n int; began timestamptz; hidden interval := ''0''; BEGIN
                FOR i IN 1..20 LOOP
                  SELECT v INTO n FROM t WHERE id = i;
                  IF i < 20 THEN
                    began := clock_timestamp();
                    n := length(md5(repeat(''x'', 500000 + i)));
                    hidden := hidden + (clock_timestamp() - began);
                  END IF;
                END LOOP;
                RETURN extract(epoch FROM hidden); END'",
        )
        .expect("the function");
    // The session caches what the function needs.
    run_each(&mut client, "SELECT hidden()");
    start(&mut client, "");
    let hidden: f64 = value(&mut client, "SELECT hidden()");
    run_each(&mut client, "SELECT rowsource_trace_stop()");
    let part = section(&tkprof(&mut client, ""), "SELECT v  ");
    let phases = ["Parse ", "Plan ", "Execute ", "Fetch ", "Close "].map(|word| figures(&part, word));
    let not_in_any = phases.map(|phase| phase[7]);
    let calls: f64 = phases.iter().map(|phase| phase[2]).sum();
    println!("{hidden} s hidden, not in any: {not_in_any:?}, in calls: {calls}");
    assert_eq!(phases[2][0], 20.0, "{part:#?}");
    // Before Plan too, because the first executions are planned.
    let before = not_in_any[0] + not_in_any[1] + not_in_any[2];
    assert!(
        hidden > 0.005 && before >= hidden - 20e-6,
        "{before} s of {hidden} s"
    );
    server.assert_no_crash();
}

/// Returns how long the session was in no call before it closed lookups, and in the calls that closed them,
/// in seconds.
fn closed(name: &str, libraries: &str) -> [f64; 2] {
    let preload = format!("shared_preload_libraries = '{libraries}'");
    let server = Server::start(name, &[preload.as_str(), "jit = off"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        &format!(
            "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, {LOOKUPS}) i;
             ALTER TABLE t ADD PRIMARY KEY (id); VACUUM ANALYZE t; SELECT rowsource_trace_start();
             DO 'DECLARE n int; BEGIN FOR i IN 1..{LOOKUPS} LOOP SELECT v INTO n FROM t WHERE id = i; END LOOP; END';
             SELECT rowsource_trace_stop()"
        ),
    );
    let part = section(&tkprof(&mut client, ""), "SELECT v  ");
    let close = figures(&part, "Close ");
    assert_eq!(close[0], f64::from(LOOKUPS), "{part:#?}");
    server.assert_no_crash();
    [close[7], close[2]]
}

const LOOKUPS: u32 = 100;
/// How long the hook of tests/sleepy sleeps in all of them, in seconds.
const SLEPT: f64 = 0.2;

/// The hook of another library does its work before it calls the hooks of libraries that were loaded before
/// it. So that time is in no call, unless pg_rowsource was loaded last. It shows in both orders.
#[test]
fn the_work_of_other_hooks_shows() {
    let sleepy = object("sleepy/sleepy.c");
    // The name is quoted: it may have spaces.
    let sleepy = format!("\"{}\"", sleepy.display());
    let outside = closed("trace-hooks-outside", &format!("pg_rowsource, {sleepy}"));
    let inside = closed("trace-hooks-inside", &format!("{sleepy}, pg_rowsource"));
    println!("before Close and in it: {outside:?} if it was loaded last, {inside:?} if it was loaded first");
    assert!(outside[0] >= SLEPT && outside[1] < SLEPT, "not in any");
    assert!(inside[1] >= SLEPT && inside[0] < SLEPT, "in Close");
}

const PHASES: [&str; 5] = ["Parse ", "Plan ", "Execute ", "Fetch ", "Close "];

/// The totals of the statements of clients, and those of the statements that they called, are the sums of
/// their sections.
#[test]
fn totals_are_the_sums_of_the_statements() {
    let server = cold_server("trace-sums-totals", &[]);
    let mut client = server.connect();
    start(&mut client, "");
    run_each(
        &mut client,
        "SELECT count(pad) FROM big; UPDATE t SET v = 5 WHERE id < 10; SELECT v, 'sent' FROM t WHERE id = 3;
         DO 'DECLARE n int; BEGIN FOR i IN 1..40 LOOP SELECT v INTO n FROM t WHERE id = i; PERFORM count(*) FROM t; END LOOP; END'",
    );
    stopped(&server, &mut client);
    let report = tkprof(&mut client, "");
    let mut sums = [[Figures::default(); 5]; 2];
    for part in report.split(|line| line.starts_with("****")) {
        if !part.iter().any(|line| line.starts_with("QUERY ID:")) {
            continue;
        }
        let is_recursive = part.iter().any(|line| line.contains("(recursive depth: "));
        for (sum, word) in sums[usize::from(is_recursive)].iter_mut().zip(PHASES) {
            for (sum, figure) in sum.iter_mut().zip(figures(part, word)) {
                *sum += figure;
            }
        }
    }
    let totals = section(&report, "OVERALL TOTALS FOR ALL NON-RECURSIVE");
    let recursive = totals
        .iter()
        .position(|line| line.starts_with("OVERALL TOTALS FOR ALL RECURSIVE"));
    let (sent, called) = totals.split_at(recursive.expect("the totals"));
    for (sums, part) in sums.iter().zip([sent, called]) {
        for (sum, word) in sums.iter().zip(PHASES) {
            for (at, (sum, total)) in sum.iter().zip(figures(part, word)).enumerate() {
                assert!(
                    (sum - total).abs() < 1e-7,
                    "{word} column {at}: {sum}, {total}\n{report:#?}"
                );
            }
        }
    }
    let executed = sums.map(|sums| sums[2][0]);
    assert_eq!(executed[1], 80.0);
    assert!(executed[0] >= 4.0 && sums[0][3][3] > 300.0, "{sums:?}");
    // Only their number is known.
    assert_eq!(columns(called, "Parse ")[2..8], ["-"; 6]);
    server.assert_no_crash();
}

/// The statements come in the order of TKPROF's words, in the report of files and in that of the store.
#[test]
fn statements_are_sorted_by_each_word() {
    let server = cold_server("trace-sums-sorted", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE ROLE regress_last; GRANT SELECT ON t TO regress_last",
    );
    start(&mut client, "");
    run_each(
        &mut client,
        "SELECT count(pad) AS most_reads FROM big; SELECT a.id AS most_rows FROM t a, t b WHERE b.id <= 9;
         SELECT 1 AS most_parses; SELECT 1 AS most_parses; SELECT 1 AS most_parses; SELECT pg_sleep(0.5) AS longest;
         SET ROLE regress_last; SELECT count(*) AS last_role FROM t; RESET ROLE; SELECT rowsource_trace_stop()",
    );
    let first = |report: Vec<String>| {
        let found = report.iter().position(|line| line.starts_with("QUERY ID:"));
        report[found.expect("a statement") + 2].clone()
    };
    for (sort, expected, is_stored) in [
        ("fchdsk", "SELECT count(pad) AS most_reads", true),
        ("FCHROW", "SELECT a.id AS most_rows", true),
        ("fchela", "SELECT pg_sleep(0.5) AS longest", true),
        ("prscnt", "SELECT 1 AS most_parses", false),
        ("userid", "SELECT count(*) AS last_role", true),
    ] {
        let text = first(tkprof(&mut client, &format!("sort => '{sort}', statements => 1")));
        assert!(text.starts_with(expected), "{sort}: {text}");
        if is_stored {
            let text = first(tkprof_store(&mut client, &format!("'{sort}', 1")));
            assert!(text.starts_with(expected), "stored, {sort}: {text}");
        }
    }
    server.assert_no_crash();
}

/// "Where do the other 14 seconds go": the calls of a lookup, and what is in none of them, add up to the time
/// of the loop.
#[test]
fn the_parts_of_a_lookup_are_its_elapsed_time() {
    const LOOKUPS: u32 = 10_000;
    let server = cold_server("trace-sums-lookup", &["pg_rowsource.sampfreq = 128"]);
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE PROCEDURE lookups(count int) LANGUAGE plpgsql AS
             'DECLARE found int; BEGIN FOR i IN 1..count LOOP SELECT v INTO STRICT found FROM t WHERE id = 1 + i % 1000; END LOOP; END'",
        )
        .expect("the procedure");
    start(&mut client, "");
    run_each(&mut client, &format!("CALL lookups({LOOKUPS})"));
    let lines = stopped(&server, &mut client);
    let report = tkprof(&mut client, "");
    let part = section(&report, "SELECT v  ");
    let call = figures(&section(&report, "CALL lookups"), "Execute ");
    let total = figures(&part, "total ");
    for word in ["Execute ", "Fetch ", "Close "] {
        assert_eq!(figures(&part, word)[0], f64::from(LOOKUPS), "{part:#?}");
    }
    let sums: Vec<Figures> = PHASES.iter().map(|word| figures(&part, word)).collect();
    for at in [2, 7] {
        let sum: f64 = sums.iter().map(|sum| sum[at]).sum();
        assert!((sum - total[at]).abs() < 1e-7, "{part:#?}");
    }
    // From the beginning of the first nested call to the end of the last one, no time is missing.
    let own = format!("#{}:", cursor(&lines, "SELECT v  "));
    let calls: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains(&own) && field(line, "tim").is_some() && !line.starts_with("PARSING"))
        .filter(|line| !line.starts_with("WAIT"))
        .collect();
    let [first, last] = [calls.first(), calls.last()].map(|line| *line.expect("a call"));
    let began = number(first, "tim") - field(first, "e").map_or(0, |_| number(first, "e"));
    let span = (number(last, "tim") - began) as f64 / 1e6;
    let parts = total[2] + total[7];
    println!(
        "CALL {} s, from the first to the last call {span} s, in calls {} s, in none {} s",
        call[2], total[2], total[7]
    );
    // What is in none may be before the first lookup, too. The rest of the CALL is there, and after the last
    // one.
    assert!(
        span > 0.0 && span - 1e-3 < parts && parts < call[2] + 1e-3,
        "{parts} s of {span} s, {} s in all",
        call[2]
    );
    // So is the whole trace: calls of clients, waits between them, and the rest.
    let seconds = |what: &str| -> f64 {
        let line = report.iter().find(|line| {
            line.trim_start()
                .split_once("  ")
                .is_some_and(|(_, text)| text == what)
        });
        let line = line.unwrap_or_else(|| panic!("no {what}: {report:#?}"));
        line.split_whitespace()
            .next()
            .and_then(|number| number.parse().ok())
            .expect("seconds")
    };
    let all = seconds("in all");
    let sum = seconds("in calls of statements that clients sent")
        + seconds("in waits between these calls, for example for the client")
        + seconds("between these calls, that no line accounts for");
    assert!((all - sum).abs() < 1e-7 && all >= call[2], "{all}, {sum}");
    server.assert_no_crash();
}
