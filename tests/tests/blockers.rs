//! `rowsource_blockers`: who waits for whom, compared with what the sessions are known to do.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::waiting::{pid, until};

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["max_prepared_transactions = 2"]);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i; CREATE ROLE other LOGIN",
    );
    server
}

/// Waits until this number of sessions waits for a lock.
fn until_blocked(observer: &mut Client, sessions: usize) {
    let condition =
        format!("SELECT count(*) = {sessions} FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
    until(observer, &condition);
}

/// Returns these columns of the view, a line for each row.
fn shown(client: &mut Client, columns: &str) -> Vec<String> {
    let rows = texts(client, &format!("SELECT {columns} FROM rowsource_blockers"));
    let cell = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    let line = |row: Vec<Option<String>>| row.into_iter().map(cell).collect::<Vec<_>>().join(" | ");
    rows.into_iter().map(line).collect()
}

/// An ALTER TABLE waits for a session that is idle in its transaction, and all who come then wait for the
/// ALTER TABLE.
#[test]
fn a_pile_up_behind_an_idle_transaction_is_a_tree() {
    let server = server("blockers");
    let (mut observer, mut idle) = (server.connect(), server.connect());
    assert!(shown(&mut observer, "*").is_empty());
    let root = pid(&mut idle);
    run_each(
        &mut idle,
        "SET application_name = 'report'; BEGIN; SELECT count(*) FROM t",
    );
    let alter = Busy::run(server.connect(), "ALTER TABLE t ADD COLUMN extra int");
    until_blocked(&mut observer, 1);
    let readers = [2, 3].map(|sessions| {
        let reader = Busy::run(server.connect(), "SELECT id FROM t");
        until_blocked(&mut observer, sessions);
        reader
    });

    let found = shown(
        &mut observer,
        "root_pid, blocked_sessions, depth, pid, blocking_pid, usename, datname, state, mode, relation, query",
    );
    let line = |depth: i32, id: i32, blocker: &str, state: &str, mode: &str, relation: &str, query: &str| {
        format!(
            "{root} | 3 | {depth} | {id} | {blocker} | postgres | postgres | {state} | {mode} | {relation} | {query}"
        )
    };
    let mut expected = vec![
        line(
            0,
            root,
            "-",
            "idle in transaction",
            "-",
            "-",
            "SELECT count(*) FROM t",
        ),
        line(
            1,
            alter.pid,
            &root.to_string(),
            "active",
            "AccessExclusiveLock",
            "t",
            "ALTER TABLE t ADD COLUMN extra int",
        ),
    ];
    let mut ids = readers.each_ref().map(|reader| reader.pid);
    ids.sort_unstable();
    let blocker = alter.pid.to_string();
    expected.extend(ids.map(|id| {
        line(
            2,
            id,
            &blocker,
            "active",
            "AccessShareLock",
            "t",
            "SELECT id FROM t",
        )
    }));
    assert_eq!(found, expected);

    let root_of = "application_name || ' ' || (xact_start < now()) || ' ' || (queryid IS NOT NULL)";
    assert_eq!(shown(&mut observer, root_of)[0], "report true true");
    let since = shown(
        &mut observer,
        "waitstart BETWEEN now() - interval '1 min' AND clock_timestamp()",
    );
    assert_eq!(since[1], "t", "{since:?}");

    // Who may not see what others do sees who waits for whom.
    let mut other = server.try_connect("other").expect("a session");
    let hidden = shown(&mut other, "depth, pid, usename, state, query");
    assert_eq!(
        hidden[0],
        format!("0 | {root} | postgres | - | <insufficient privilege>")
    );
    assert_eq!(hidden.len(), 4);

    run_each(&mut idle, "COMMIT");
    until_blocked(&mut observer, 0);
    assert!(shown(&mut observer, "*").is_empty());
    drop((alter, readers));
}

/// Who waits for a row's lock waits for a transaction, but the relation is known; and a prepared transaction
/// has no session.
#[test]
fn rows_and_prepared_transactions_are_named() {
    let server = server("blockers-rows");
    let (mut observer, mut holder) = (server.connect(), server.connect());
    let root = pid(&mut holder);
    run_each(&mut holder, "BEGIN; UPDATE t SET id = id WHERE id = 1");
    let first = Busy::run(server.connect(), "UPDATE t SET id = id WHERE id = 1");
    until_blocked(&mut observer, 1);
    let second = Busy::run(server.connect(), "DELETE FROM t WHERE id = 1");
    until_blocked(&mut observer, 2);
    let columns = "depth, pid, locktype, relation, state";
    let waiting = |root: i32, state: &str| {
        vec![
            format!("0 | {root} | - | - | {state}"),
            format!("1 | {} | transactionid | t | active", first.pid),
            format!("2 | {} | tuple | t | active", second.pid),
        ]
    };
    assert_eq!(
        shown(&mut observer, columns),
        waiting(root, "idle in transaction")
    );

    run_each(&mut holder, "PREPARE TRANSACTION 'p'");
    assert_eq!(shown(&mut observer, columns), waiting(0, "prepared transaction"));
    run_each(&mut holder, "COMMIT PREPARED 'p'");
    until_blocked(&mut observer, 0);
}

/// The samples know the same tree afterwards, with how long the sessions waited.
#[test]
fn the_past_is_a_tree_with_times() {
    let server = server("blockers-past");
    let (mut observer, mut idle) = (server.connect(), server.connect());
    assert!(texts(&mut observer, "SELECT * FROM rowsource_blockers('1 min')").is_empty());
    let root = pid(&mut idle);
    run_each(
        &mut idle,
        "SET application_name = 'report'; BEGIN; SELECT count(*) FROM t",
    );
    let began: String = texts(&mut observer, "SELECT clock_timestamp()")
        .remove(0)
        .remove(0)
        .expect("a time");
    let alter = Busy::run(server.connect(), "ALTER TABLE t ADD COLUMN extra int");
    until_blocked(&mut observer, 1);
    let reader = Busy::run(server.connect(), "SELECT id FROM t");
    until_blocked(&mut observer, 2);
    // The lock manager is asked when a wait has lasted for a second.
    let are_known =
        "SELECT count(*) = 2 AND min(wait_time) > 300 FROM rowsource_blockers('1 min') WHERE depth > 0";
    until(&mut observer, are_known);
    run_each(&mut idle, "COMMIT");
    until_blocked(&mut observer, 0);
    let columns = "root_pid, blocked_sessions, depth, pid, coalesce(blocking_pid::text, '-') AS blocker, usename, datname,
                   application_name, coalesce(wait_event, '-') AS event, coalesce(mode, '-') AS mode, coalesce(relation, '-') AS relation, query";
    let found = texts(
        &mut observer,
        &format!("SELECT {columns} FROM rowsource_blockers(interval '1 min') WHERE root_pid = {root}"),
    );
    // A moment in which one wait has ended already, and the other has not, is a tree of its own.
    let found: Vec<String> = found
        .into_iter()
        .map(|row| {
            row.into_iter()
                .map(|cell| cell.unwrap_or_else(|| "NULL".to_owned()))
                .collect::<Vec<_>>()
                .join(" | ")
        })
        .collect();
    let line = |depth: i32, id: i32, blocker: &str, rest: &str| {
        format!("{root} | 2 | {depth} | {id} | {blocker} | postgres | postgres | {rest}")
    };
    let expected = [
        line(0, root, "-", "report | - | - | - | SELECT count(*) FROM t"),
        line(
            1,
            alter.pid,
            &root.to_string(),
            "rowsource-tests | relation | AccessExclusiveLock | t | ALTER TABLE on t",
        ),
        line(
            2,
            reader.pid,
            &alter.pid.to_string(),
            "rowsource-tests | relation | AccessShareLock | t | ",
        ),
    ];
    assert_eq!(found.len(), 3, "{found:#?}");
    for (found, expected) in found.iter().zip(&expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    // The times are those of the waits, and add up.
    let sums = format!(
        "SELECT min(first_seen_at) > '{began}' AND max(last_seen_at) < clock_timestamp() AND bool_and(last_seen_at >= first_seen_at)
                AND max(wait_time) < 1000 * extract(epoch FROM clock_timestamp() - '{began}')
                AND abs(sum(wait_time) - max(blocked_time)) < 0.001 AND min(samples) > 0
           FROM rowsource_blockers('5 min') WHERE depth > 0 AND root_pid = {root}"
    );
    assert_eq!(texts(&mut observer, &sums), [[Some("t".to_owned())]]);
    assert!(
        texts(
            &mut observer,
            "SELECT * FROM rowsource_blockers('2000-01-01', '2000-01-02')"
        )
        .is_empty()
    );

    // Two snapshots keep the samples once, with the names that they have now.
    run_each(
        &mut observer,
        "SELECT rowsource_snapshot(); SELECT rowsource_snapshot(); DROP TABLE t",
    );
    let gone = "SELECT DISTINCT relation FROM rowsource_blockers('5 min') WHERE relation IS NOT NULL";
    let gone = texts(&mut observer, gone)
        .remove(0)
        .remove(0)
        .expect("a relation");
    assert!(gone.starts_with("a relation that is gone (OID "), "{gone}");
    let kept = "SELECT DISTINCT object_name, mode IS NOT NULL, command
                  FROM rowsource_snapshot_ash WHERE blocking_pid IS NOT NULL ORDER BY command";
    let row = |command: Option<&str>| {
        vec![
            Some("t".to_owned()),
            Some("t".to_owned()),
            command.map(str::to_owned),
        ]
    };
    assert_eq!(
        texts(&mut observer, kept),
        [row(Some("ALTER TABLE")), row(Some("SELECT"))]
    );
    let twice: i64 = value(
        &mut observer,
        "SELECT count(*) - count(DISTINCT (sample_time, pid)) FROM rowsource_snapshot_ash",
    );
    assert_eq!(twice, 0);

    // Who may not see the samples of others sees nothing of them.
    let mut other = server.try_connect("other").expect("a session");
    assert!(texts(&mut other, "SELECT * FROM rowsource_blockers()").is_empty());
    drop((alter, reader));
}
