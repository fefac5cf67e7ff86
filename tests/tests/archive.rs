//! Plans in the history: rowsource_display_snapshot() shows them after they were reset or evicted, and after
//! a restart.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{self, basic_server, measuring, run_cheaply};

/// Returns the lines of a function that returns texts.
fn lines(client: &mut Client, sql: &str) -> Vec<String> {
    let rows = texts(client, sql).into_iter();
    rows.map(|mut row| row.remove(0).expect("a line")).collect()
}

/// Runs and measures a statement, and returns its queryid and planid.
fn measured(client: &mut Client, sql: &str) -> (i64, i64) {
    store::measured(client, sql);
    let last = client
        .query_one("SELECT queryid, planid FROM rowsource_last()", &[])
        .expect("ids");
    (last.get(0), last.get(1))
}

/// Returns what follows the line that names the snapshot.
fn plan_of(lines: &[String]) -> &[String] {
    assert!(lines[0].starts_with("snapshot "), "{lines:?}");
    &lines[1..]
}

fn snapshot(client: &mut Client) -> i64 {
    value(client, "SELECT rowsource_snapshot()")
}

const TABLE: &str = "CREATE TABLE a AS SELECT i, i % 10 AS k FROM generate_series(1, 2000) i; ANALYZE a";
const STATEMENT: &str = "SELECT k, count(*) FROM a WHERE i > 7 GROUP BY k ORDER BY k";

#[test]
fn a_plan_of_a_snapshot_is_shown_after_reset_eviction_and_restart() {
    let mut server = basic_server("archive", &["pg_rowsource.max_plans = 100"]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    let (queryid, planid) = measured(&mut client, STATEMENT);
    measured(&mut client, STATEMENT);
    let display = |function: &str, format: &str| format!("SELECT {function}, format => '{format}')");
    let now = format!("rowsource_display({queryid}, {planid}");
    let formats = ["ALLSTATS", "ALLSTATS LAST", "ALLSTATS LAST +COST +BYTES +WAL"];
    let expected: Vec<_> = formats
        .iter()
        .map(|format| lines(&mut client, &display(&now, format)))
        .collect();
    let first = snapshot(&mut client);
    let then = format!("rowsource_display_snapshot({queryid}, snap_id => {first}");
    let assert_shown = |client: &mut Client, when: &str| {
        for (format, expected) in formats.iter().zip(&expected) {
            let shown = lines(client, &display(&then, format));
            assert_eq!(plan_of(&shown), expected, "{when}, {format}");
        }
        let with_planid = lines(
            client,
            &format!("SELECT rowsource_display_snapshot({queryid}, {planid}, {first})"),
        );
        assert_eq!(
            plan_of(&with_planid),
            expected[0],
            "{when}: ALLSTATS is the default"
        );
    };
    assert_shown(&mut client, "at once");
    run_each(&mut client, "SELECT rowsource_reset()");
    must_fail(&mut client, &display(&now, "ALLSTATS"));
    assert_shown(&mut client, "after the reset");
    // The plan runs once more, and is then evicted by others.
    run_cheaply(&mut client, &mut measuring(&server), STATEMENT);
    let second = snapshot(&mut client);
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.track = 'all';
         DO 'BEGIN FOR n IN 1 .. 300 LOOP EXECUTE ''SELECT '' || repeat(''n, '', n) || ''n FROM (SELECT 1 AS n) s''; END LOOP; END';
         SET pg_rowsource.statistics_level = basic",
    );
    must_fail(&mut client, &display(&now, "ALLSTATS"));
    assert_shown(&mut client, "after the eviction");
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    assert_shown(&mut client, "after the restart");
    let later = lines(
        &mut client,
        &format!("SELECT rowsource_display_snapshot({queryid}, snap_id => {second})"),
    );
    assert!(
        later.iter().any(|line| line.contains("executions 1")),
        "{later:#?}"
    );
    // Descriptions are stored once per plan.
    let descriptions: i64 = value(
        &mut client,
        &format!("SELECT count(*) FROM rowsource_snapshot_descriptions WHERE queryid = {queryid}"),
    );
    assert_eq!(descriptions, 1);
}

#[test]
fn only_plans_that_ran_are_stored_and_retention_deletes_them() {
    let server = basic_server("archive-retention", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    let count =
        |client: &mut Client, what: &str| -> i64 { value(client, &format!("SELECT count(*) FROM {what}")) };
    measured(&mut client, STATEMENT);
    snapshot(&mut client);
    measured(&mut client, "SELECT count(*) FROM a");
    snapshot(&mut client);
    let of_second = "rowsource_snapshot_plans WHERE snap_id = 2 AND statistics IS NOT NULL";
    assert_eq!(count(&mut client, of_second), 1, "only the plan that ran since");
    assert_eq!(count(&mut client, "rowsource_snapshot_descriptions"), 2);
    // The first snapshot is too old, so the next one deletes it. The one after that deletes its descriptions.
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET taken_at = taken_at - interval '1 year' WHERE snap_id = 1",
    );
    snapshot(&mut client);
    assert_eq!(count(&mut client, "rowsource_snapshot_plans"), 1);
    // A plan that comes back in the same snapshot keeps its description.
    let (queryid, _) = measured(&mut client, STATEMENT);
    let fourth = snapshot(&mut client);
    assert_eq!(count(&mut client, "rowsource_snapshot_descriptions"), 2);
    assert!(
        lines(
            &mut client,
            &format!("SELECT rowsource_display_snapshot({queryid}, snap_id => {fourth})")
        )
        .len()
            > 5
    );
    run_each(
        &mut client,
        "SELECT rowsource_snapshot(); DELETE FROM rowsource_snapshots WHERE snap_id = 4; SELECT rowsource_snapshot()",
    );
    // The plan was first described in snapshot 1, before all that are left.
    assert_eq!(count(&mut client, "rowsource_snapshot_descriptions"), 1);
}

#[test]
fn errors_say_what_is_missing() {
    let server = basic_server("archive-errors", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    let (queryid, planid) = measured(&mut client, STATEMENT);
    let (code, message) = must_fail(
        &mut client,
        &format!("SELECT rowsource_display_snapshot({queryid})"),
    );
    assert_eq!(code, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(
        message.starts_with("there is no snapshot HINT: Take one"),
        "{message}"
    );
    snapshot(&mut client);
    let mut error = |arguments: &str| {
        let (code, message) = must_fail(
            &mut client,
            &format!("SELECT rowsource_display_snapshot({arguments})"),
        );
        (code, message)
    };
    for (arguments, expected) in [
        ("1, snap_id => 7", "there is no snapshot 7"),
        ("1", "snapshot 1 has no plan for queryid 1 HINT"),
        (
            "4711, snap_id => 1",
            "snapshot 1 has no plan for queryid 4711 HINT",
        ),
        (
            "NULL, 815, 1",
            "snapshot 1 has no plan for queryid NULL, planid 815",
        ),
    ] {
        let (code, message) = error(arguments);
        assert_eq!(code, SqlState::UNDEFINED_OBJECT, "{arguments}");
        assert!(
            message.starts_with(expected) && message.contains("HINT"),
            "{message}"
        );
    }
    let (_, message) = error(&format!("{queryid}, {planid}, 1, 'NONSENSE'"));
    assert!(message.starts_with("unknown word \"NONSENSE\""), "{message}");
}

#[test]
fn damaged_plans_give_an_error() {
    let server = basic_server("archive-damaged", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    let (queryid, _) = measured(&mut client, STATEMENT);
    snapshot(&mut client);
    let show = format!("SELECT rowsource_display_snapshot({queryid}, snap_id => 1)");
    let damages = [
        ("statistics = NULL", SqlState::UNDEFINED_OBJECT),
        ("statistics = ''", SqlState::FEATURE_NOT_SUPPORTED),
        (
            "statistics = 'ROWSRC00' || substr(statistics, 9)",
            SqlState::FEATURE_NOT_SUPPORTED,
        ),
        ("statistics = substr(statistics, 1, 40)", SqlState::DATA_CORRUPTED),
        (
            "statistics = substr(statistics, 1, 8) || decode(repeat('ff', 1000000), 'hex')",
            SqlState::DATA_CORRUPTED,
        ),
        (
            "statistics = decode(repeat('ff', 5000000), 'hex')",
            SqlState::INVALID_PARAMETER_VALUE,
        ),
    ];
    for (damage, expected) in damages {
        run_each(&mut client, "BEGIN");
        run_each(
            &mut client,
            &format!("UPDATE rowsource_snapshot_plans SET {damage}"),
        );
        let (code, message) = must_fail(&mut client, &show);
        assert_eq!(code, expected, "{damage}: {message}");
        run_each(&mut client, "ROLLBACK");
    }
    // Each byte in turn.
    run_each(
        &mut client,
        &format!(
            "CREATE FUNCTION damage() RETURNS void LANGUAGE plpgsql AS '
             DECLARE n int; v int; BEGIN
                 FOR n IN 8 .. (SELECT least(length(description), length(statistics)) - 1 FROM rowsource_snapshot_plans
                     JOIN rowsource_snapshot_descriptions USING (queryid)) LOOP
                     FOREACH v IN ARRAY ARRAY[0, 127, 128, 255] LOOP
                     BEGIN
                         UPDATE rowsource_snapshot_plans SET statistics = set_byte(statistics, n, v);
                         UPDATE rowsource_snapshot_descriptions SET description = set_byte(description, n, v);
                         PERFORM rowsource_display_snapshot({queryid}, snap_id => 1); RAISE EXCEPTION ''undo'';
                     EXCEPTION WHEN OTHERS THEN NULL;
                     END;
                     END LOOP;
                 END LOOP;
             END'"
        ),
    );
    run_each(&mut client, "SELECT damage()");
    assert!(texts(&mut client, &show).len() > 5);
    server.assert_no_crash();
}

#[test]
fn only_readers_of_all_statistics_see_the_history() {
    let server = basic_server("archive-privileges", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    run_each(
        &mut client,
        "CREATE ROLE reader LOGIN; GRANT pg_read_all_stats TO reader",
    );
    let (queryid, _) = measured(&mut client, STATEMENT);
    snapshot(&mut client);
    let show = format!("SELECT rowsource_display_snapshot({queryid}, snap_id => 1)");
    let mut reader = server.try_connect("reader").expect("a session");
    assert_eq!(lines(&mut reader, &show), lines(&mut client, &show));
}
