//! The lines of waits say what was waited for: the relation of a lock, the block of a file.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::trace_file::{field, number, section, start, stopped, tkprof, waits};
use rowsource_tests::waiting::{hold, pid, until_waiting};
use std::collections::BTreeSet;
use std::time::Duration;

fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec!["jit = off", "autovacuum = off"];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 1000) i;
         CREATE INDEX t_id ON t (id); VACUUM ANALYZE t; CHECKPOINT",
    );
    server
}

/// Returns what a query says of a relation, as a number.
fn oid(client: &mut Client, sql: &str) -> i64 {
    let text: String = value(client, &format!("SELECT ({sql})::text"));
    text.parse().unwrap_or_else(|_| panic!("{sql}: {text}"))
}

fn database(client: &mut Client) -> i64 {
    oid(
        client,
        "SELECT oid FROM pg_database WHERE datname = current_database()",
    )
}

/// Holds a lock that a traced session needs. Returns the lines of the trace, and the report.
fn waited(server: &Server, [lock, needs, event]: [&str; 3]) -> (Vec<String>, Vec<String>) {
    let (mut holder, mut client) = (server.connect(), server.connect());
    start(&mut client, "");
    let (mut client, _) = hold(
        &mut holder,
        client,
        [lock, needs, event],
        Duration::from_millis(20),
    );
    let lines = stopped(server, &mut client);
    let report = tkprof(&mut client, "");
    (lines, report)
}

/// Another session has changed the row. The wait is for its transaction; the table is that of the node that
/// waits.
#[test]
fn a_row_lock_names_the_transaction_and_the_table() {
    let server = server("trace-object-row", &[]);
    let mut client = server.connect();
    let table = oid(&mut client, "SELECT 't'::regclass::oid");
    for (needs, operation) in [
        ("UPDATE t SET v = 1 WHERE id = 5", "Update on t"),
        ("SELECT v FROM t WHERE id = 5 FOR UPDATE", "LockRows"),
    ] {
        let mut holder = server.connect();
        let mut waiter = server.connect();
        run_each(&mut holder, "BEGIN; UPDATE t SET v = 2 WHERE id = 5");
        let xid = oid(&mut holder, "SELECT txid_current()");
        start(&mut waiter, "");
        let id = pid(&mut waiter);
        let statement = needs.to_owned();
        let session = std::thread::spawn(move || {
            run_each(&mut waiter, &statement);
            waiter
        });
        until_waiting(&mut client, id, "transactionid");
        run_each(&mut holder, "COMMIT");
        let mut waiter = session.join().expect("the session");
        let lines = stopped(&server, &mut waiter);
        let found = waits(&lines, "Lock transactionid");
        assert!(!found.is_empty(), "{lines:#?}");
        for line in found {
            // PostgreSQL's ShareLock.
            assert_eq!((number(line, "xid"), number(line, "mode")), (xid, 5), "{line}");
            assert_eq!(number(line, "obj"), table, "{line}");
            let node = format!(",id={},", number(line, "node"));
            assert!(
                lines.iter().any(|line| line.starts_with("NODE #")
                    && line.contains(&node)
                    && line.contains(operation)),
                "{line}\n{lines:#?}"
            );
        }
        let part = section(&tkprof(&mut waiter, ""), needs);
        assert!(
            part.iter()
                .any(|line| line.trim_start().starts_with("Lock transactionid  ")
                    && line.contains("  public.t  ")),
            "{part:#?}"
        );
    }
    server.assert_no_crash();
}

/// A lock on a table, on a row's place in the queue, and of an application.
#[test]
fn a_lock_names_what_it_is_on() {
    let server = server("trace-object-lock", &[]);
    let mut client = server.connect();
    let table = oid(&mut client, "SELECT 't'::regclass::oid");
    let database = database(&mut client);
    let (lines, report) = waited(
        &server,
        ["BEGIN; LOCK TABLE t", "SELECT count(*) FROM t", "relation"],
    );
    let found = waits(&lines, "Lock relation");
    assert!(!found.is_empty(), "{lines:#?}");
    for line in found {
        assert_eq!(
            ["db", "rel", "mode"].map(|key| number(line, key)),
            // PostgreSQL's AccessShareLock.
            [database, table, 1],
            "{line}"
        );
        assert!(number(line, "ela") > 10_000, "{line}");
    }
    assert!(
        report
            .iter()
            .any(|line| line.trim_start().starts_with("Lock relation  ") && line.contains("  public.t  ")),
        "{report:#?}"
    );
    let (lines, _) = waited(
        &server,
        [
            "BEGIN; SELECT pg_advisory_xact_lock(4711, 12)",
            "SELECT pg_advisory_xact_lock_shared(4711, 12)",
            "advisory",
        ],
    );
    assert!(!waits(&lines, "Lock advisory").is_empty(), "{lines:#?}");
    for line in waits(&lines, "Lock advisory") {
        assert_eq!(
            ["db", "classid", "objid", "objsubid", "mode"].map(|key| number(line, key)),
            [database, 4711, 12, 2, 5],
            "{line}"
        );
    }
    // The second one in the queue waits for the row itself.
    let (mut holder, mut first) = (server.connect(), server.connect());
    run_each(&mut holder, "BEGIN; UPDATE t SET v = 2 WHERE id = 7");
    let place: String = value(&mut client, "SELECT ctid::text FROM t WHERE id = 7");
    let id = pid(&mut first);
    let session = std::thread::spawn(move || run_each(&mut first, "UPDATE t SET v = 3 WHERE id = 7"));
    until_waiting(&mut client, id, "transactionid");
    let mut second = server.connect();
    start(&mut second, "");
    let id = pid(&mut second);
    let traced = std::thread::spawn(move || {
        run_each(&mut second, "UPDATE t SET v = 4 WHERE id = 7");
        second
    });
    until_waiting(&mut client, id, "tuple");
    run_each(&mut holder, "COMMIT");
    session.join().expect("the first session");
    let mut second = traced.join().expect("the second session");
    let lines = stopped(&server, &mut second);
    let found = waits(&lines, "Lock tuple");
    assert!(!found.is_empty(), "{lines:#?}");
    for line in found {
        let shown = format!("({},{})", number(line, "block"), number(line, "tuple"));
        assert_eq!(
            (number(line, "db"), number(line, "rel"), shown),
            (database, table, place.clone())
        );
    }
    server.assert_no_crash();
}

/// Restarts the server, so that no block is in its buffers.
fn cool(server: &mut Server) {
    let is_aio = major(&mut server.connect()) >= 18;
    server.stop();
    if is_aio {
        // Else other processes read the blocks.
        server.configure("io_method = 'sync'");
    }
    server.launch();
}

/// Each block of a table is read once, and each is named.
#[test]
fn a_cold_read_names_the_blocks() {
    let mut server = server("trace-object-read", &["max_parallel_workers_per_gather = 0"]);
    cool(&mut server);
    let mut client = server.connect();
    let database = database(&mut client);
    let of = |client: &mut Client, what: &str| oid(client, &format!("SELECT {what}"));
    let [table, index, blocks] = [
        "'t'::regclass::oid",
        "'t_id'::regclass::oid",
        "relpages FROM pg_class WHERE relname = 't'",
    ]
    .map(|what| of(&mut client, what));
    let [table_file, index_file] = [table, index].map(|oid| {
        of(
            &mut client,
            &format!("pg_relation_filenode({oid}::oid::regclass)"),
        )
    });
    start(&mut client, "");
    run_each(&mut client, "SELECT count(v) FROM t");
    let lines = stopped(&server, &mut client);
    let reads = waits(&lines, "IO DataFileRead");
    let of_table: Vec<_> = reads
        .iter()
        .filter(|line| field(line, "file") == Some(&table_file.to_string()) && number(line, "fork") == 0)
        .collect();
    let mut read: Vec<i64> = Vec::new();
    for line in &of_table {
        // The tablespace is pg_default.
        assert_eq!(
            ["tbs", "db", "obj"].map(|key| number(line, key)),
            [1663, database, table],
            "{line}"
        );
        read.extend((number(line, "block")..).take(number(line, "blocks") as usize));
    }
    assert_eq!(read, (0..blocks).collect::<Vec<_>>(), "{lines:#?}");
    // All reads are of relations: what the planner reads belongs to the catalog.
    assert!(
        reads.iter().all(|line| field(line, "file").is_some()),
        "{reads:#?}"
    );
    let part = section(&tkprof(&mut client, ""), "SELECT count(v) FROM t");
    let line = part
        .iter()
        .find(|line| line.contains("IO DataFileRead") && line.contains("  public.t  "));
    let times = line
        .and_then(|line| line.split_whitespace().nth(3))
        .map(str::to_owned);
    assert_eq!(times, Some(of_table.len().to_string()), "{part:#?}");
    // The node works on the table, and reads its index too.
    cool(&mut server);
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET enable_seqscan = off; SET enable_bitmapscan = off",
    );
    start(&mut client, "");
    run_each(&mut client, "SELECT v FROM t WHERE id = 5");
    let lines = stopped(&server, &mut client);
    let of_index: Vec<_> = waits(&lines, "IO DataFileRead")
        .into_iter()
        .filter(|line| field(line, "node").is_some() && field(line, "file") == Some(&index_file.to_string()))
        .collect();
    assert!(!of_index.is_empty(), "{lines:#?}");
    assert!(
        of_index.iter().all(|line| number(line, "obj") == table),
        "{of_index:#?}"
    );
    let part = section(&tkprof(&mut client, ""), "SELECT v FROM t");
    assert!(
        part.iter().any(|line| line.contains("  public.t_id  ")),
        "{part:#?}"
    );
    server.assert_no_crash();
}

/// A descriptor is used again for another file. A dropped table has no name any more.
#[test]
fn closed_files_are_forgotten() {
    let server = server("trace-object-closed", &["max_files_per_process = 64"]);
    let mut client = server.connect();
    start(&mut client, "");
    for i in 0..200 {
        // Two of them are different statements, also where the query has a queryid of its own: the report
        // lists 20 objects of each.
        let more = match i {
            7 => ", i AS b",
            8 => ", i AS b, i AS c",
            _ => "",
        };
        run_each(
            &mut client,
            &format!("CREATE TABLE many_{i} AS SELECT i{more} FROM generate_series(1, 500) i"),
        );
    }
    let files = texts(
        &mut client,
        "SELECT pg_relation_filenode(oid)::text FROM pg_class WHERE relname LIKE 'many%'",
    );
    let database = database(&mut client);
    let dropped = oid(&mut client, "SELECT pg_relation_filenode('many_7')");
    run_each(&mut client, "DROP TABLE many_7");
    let lines = stopped(&server, &mut client);
    let events = [
        "IO DataFileExtend",
        "IO DataFileWrite",
        "IO DataFileImmediateSync",
    ];
    let written: BTreeSet<&str> = events
        .iter()
        .flat_map(|event| waits(&lines, event))
        .filter_map(|line| field(line, "file"))
        .collect();
    for file in files.iter().flatten().flatten() {
        assert!(written.contains(file.as_str()), "{file} is not in {written:?}");
    }
    let report = tkprof(&mut client, "").join("\n");
    assert!(report.contains("  public.many_8  "), "{report}");
    assert!(
        report.contains(&format!("  file 1663/{database}/{dropped}  ")),
        "{report}"
    );
    assert!(!report.contains("  public.many_7  "), "{report}");
    server.assert_no_crash();
}
