//! The SQL trace of a driver that sends statements before it has the results of those before.

use postgres::types::ToSql;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::trace_file;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::Poll;
use tokio_postgres::{Error, NoTls, Portal, Row, SimpleQueryMessage, Statement};

type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Sends all, and then waits for all results.
async fn in_flight<T>(futures: Vec<Waiting<'_, T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    poll_fn(|context| {
        for (future, result) in waiting.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *result = Some(ready);
            }
        }
        match waiting.iter().all(|(_, result)| result.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, result)| result).collect()
}

/// Returns the number of rows that each of two portals returned for each call, and the name of the trace's
/// file.
async fn run(server: &Server) -> (Vec<usize>, String) {
    let mut config = tokio_postgres::Config::new();
    config
        .host_path(server.folder())
        .user("postgres")
        .dbname("postgres");
    let (mut client, connection) = config.connect(NoTls).await.expect("a session");
    tokio::spawn(connection);
    client
        .simple_query("SELECT rowsource_trace_start(with_binds => true)")
        .await
        .expect("the trace begins");
    // Named statements, parsed in one pipeline.
    let texts = [
        "SELECT id, 'one' FROM t WHERE id = $1",
        "SELECT id, 'two' FROM t WHERE v = $1",
        "SELECT 100 / (id - 7), 'three' FROM t WHERE id = $1",
    ];
    let prepared: Vec<Result<Statement, Error>> = in_flight(
        texts
            .map(|text| Box::pin(client.prepare(text)) as Waiting<_>)
            .into(),
    )
    .await;
    let named: Vec<_> = prepared
        .into_iter()
        .map(|statement| statement.expect("it is parsed"))
        .collect();
    // Their executions, all in flight. Each is a transaction of its own.
    let numbers: Vec<i32> = (1..=60).collect();
    let parameters: Vec<[&(dyn ToSql + Sync); 1]> = numbers
        .iter()
        .map(|number| [number as &(dyn ToSql + Sync)])
        .collect();
    let sent = parameters
        .iter()
        .enumerate()
        .map(|(at, parameter)| Box::pin(client.query(&named[at % 3], parameter)) as Waiting<_>);
    let results: Vec<Result<Vec<Row>, Error>> = in_flight(sent.collect()).await;
    assert!(results.iter().all(Result::is_ok));
    // An error ends none of the statements that follow it.
    let failing: [i32; 3] = [6, 7, 8];
    let parameters: Vec<[&(dyn ToSql + Sync); 1]> =
        failing.iter().map(|id| [id as &(dyn ToSql + Sync)]).collect();
    let sent = parameters
        .iter()
        .map(|parameter| Box::pin(client.query(&named[2], parameter)) as Waiting<_>);
    let results: Vec<Result<Vec<Row>, Error>> = in_flight(sent.collect()).await;
    let ok: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true]);
    // Two portals, whose rows are asked for in turn.
    let transaction = client.transaction().await.expect("a transaction");
    let bind = |text: &'static str| Box::pin(transaction.bind(text, &[])) as Waiting<_>;
    let portals: Vec<Result<Portal, Error>> = in_flight(vec![
        bind("SELECT id, 'portal a' FROM t ORDER BY id"),
        bind("SELECT id, 'portal b' FROM t WHERE id <= 500"),
    ])
    .await;
    let portals: Vec<_> = portals
        .into_iter()
        .map(|portal| portal.expect("a portal"))
        .collect();
    let fetches = (0..9).map(|at| {
        let fetch = transaction.query_portal(&portals[at % 2], if at % 2 == 0 { 10 } else { 7 });
        Box::pin(fetch) as Waiting<_>
    });
    let fetched: Vec<Result<Vec<Row>, Error>> = in_flight(fetches.collect()).await;
    let fetched = fetched
        .into_iter()
        .map(|rows| rows.expect("rows").len())
        .collect();
    drop(portals);
    transaction.commit().await.expect("it commits");
    let stopped = client
        .simple_query("SELECT rowsource_trace_stop()")
        .await
        .expect("the trace ends");
    let file = stopped.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    (fetched, file.expect("the file's name"))
}

#[test]
fn statements_in_a_pipeline_have_their_own_lines() {
    let server = Server::preloaded(
        "trace-pipeline",
        &["pg_rowsource.statistics_level = 'basic'", "jit = off"],
    );
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 1000) i;
         CREATE INDEX t_id ON t (id); VACUUM ANALYZE t",
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (fetched, file) = runtime.block_on(run(&server));
    assert_eq!(fetched, [10, 7, 10, 7, 10, 7, 10, 7, 10]);
    let trace = trace_file::lines(&server, &file);
    let of_cursor = |word: &str, text: &str| trace_file::of_cursor(&trace, word, text);
    let rows = |lines: &[&str]| -> i64 {
        lines
            .iter()
            .filter_map(|line| line.split(',').find_map(|field| field.strip_prefix("r=")))
            .map(|rows| rows.parse::<i64>().expect("a number"))
            .sum()
    };
    for (text, bound, fetched, closed) in [
        ("'one'", 20, 20, 20),
        ("'two'", 20, 20, 20),
        // An execution that failed is not closed.
        ("'three'", 23, 23, 22),
        ("'portal a'", 1, 5, 1),
        ("'portal b'", 1, 4, 1),
    ] {
        let (parsed, executed) = (1, bound);
        let count = |word| of_cursor(word, text).len();
        assert_eq!(
            ["PARSE", "BIND", "EXEC", "FETCH", "CLOSE"].map(count),
            [parsed, bound, executed, fetched, closed],
            "{text} in {trace:#?}"
        );
        let sums = texts(
            &mut client,
            &format!(
                "SELECT sum(calls)::text, sum(rows)::text, sum(failed_calls)::text FROM pg_stat_rowsource_plans
                  WHERE query LIKE '%' || $${text}$$ || '%' AND query NOT LIKE '%rowsource%'"
            ),
        );
        let failed = executed - closed;
        let expected = [
            executed.to_string(),
            rows(&of_cursor("FETCH", text)).to_string(),
            failed.to_string(),
        ];
        assert_eq!(sums, [expected.map(Some)], "{text}");
    }
    assert_eq!(of_cursor("VALUE", "'one'").len(), 20);
    assert_eq!(trace_file::of(&trace, "ERROR").len(), 1);
    // They were in flight: the session did not wait for the client before each.
    let waits = trace
        .iter()
        .filter(|line| line.starts_with("WAIT #") && line.ends_with("nam=Client ClientRead"))
        .count();
    assert!(waits < 40, "{waits} waits for 84 messages");
    server.assert_no_crash();
}

/// A message of PostgreSQL's protocol. `kind` is 0 for the first one.
fn message(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let body = fields.concat();
    let length = (body.len() as u32 + 4).to_be_bytes();
    let kind = if kind == 0 { &[][..] } else { &[kind] };
    [kind, &length, &body].concat()
}

/// Reads messages until the server is ready.
fn until_ready(stream: &mut UnixStream) {
    loop {
        let (mut kind, mut length) = ([0], [0; 4]);
        stream.read_exact(&mut kind).expect("a message");
        stream.read_exact(&mut length).expect("its length");
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut body).expect("its body");
        match kind[0] {
            b'Z' => return,
            b'E' => panic!("{}", String::from_utf8_lossy(&body)),
            _ => {}
        }
    }
}

/// The portal of an execution is closed only when the next one is bound.
#[test]
fn executions_before_one_sync_have_their_own_lines() {
    let server = Server::preloaded("trace-one-sync", &["pg_rowsource.statistics_level = 'basic'"]);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE EXTENSION pg_rowsource");
    let mut stream = UnixStream::connect(server.folder().join(".s.PGSQL.5432")).expect("a connection");
    let startup = [&[0, 3, 0, 0][..], b"user\0postgres\0database\0postgres\0\0"];
    stream.write_all(&message(0, &startup)).expect("it is sent");
    until_ready(&mut stream);
    let query = |text: &str| message(b'Q', &[text.as_bytes(), &[0]]);
    stream
        .write_all(&query("SELECT rowsource_trace_start()"))
        .expect("it is sent");
    until_ready(&mut stream);
    // One parameter, as text, for the unnamed portal of the statement s.
    let bind = message(b'B', &[b"\0s\0", &[0, 0, 0, 1, 0, 0, 0, 1], b"7", &[0, 0]]);
    let execute = message(b'E', &[&[0, 0, 0, 0, 0]]);
    let mut sent = message(b'P', &[b"s\0SELECT 'piped', $1::int\0", &[0, 0]]);
    for _ in 0..5 {
        sent.extend_from_slice(&bind);
        sent.extend_from_slice(&execute);
    }
    sent.extend(message(b'S', &[]));
    stream.write_all(&sent).expect("they are sent");
    until_ready(&mut stream);
    // A simple query has no Bind, also not for a later statement of its message.
    stream
        .write_all(&query("SELECT 'simple one'; SELECT 'simple two', 2"))
        .expect("they are sent");
    until_ready(&mut stream);
    stream
        .write_all(&query("SELECT rowsource_trace_stop()"))
        .expect("it is sent");
    until_ready(&mut stream);
    let file: String = value(&mut observer, "SELECT file FROM rowsource_trace_files");
    let trace = trace_file::lines(&server, &file);
    for (text, bound, executed) in [("'piped'", 5, 5), ("'simple one'", 0, 1), ("'simple two'", 0, 1)] {
        let count = |word| trace_file::of_cursor(&trace, word, text).len();
        assert_eq!(
            ["PARSE", "BIND", "EXEC", "FETCH", "CLOSE"].map(count),
            [1, bound, executed, executed, executed],
            "{text} in {trace:#?}"
        );
    }
    server.assert_no_crash();
}
