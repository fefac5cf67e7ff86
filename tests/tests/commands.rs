//! `rowsource()`: each of its commands runs as it stands, for whoever asks.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::{major, must_fail, run_each, texts};
use rowsource_tests::waiting::until_waiting;

const STATEMENT: &str = "SELECT count(*) FROM t a JOIN t b USING (id)";

/// Runs the commands. Returns each question with its command and its rows.
fn answers(client: &mut Client, schema: &str) -> Vec<(String, String, Vec<String>)> {
    let commands = texts(client, &format!("SELECT * FROM {schema}rowsource()"));
    let commands: Vec<[String; 2]> = commands
        .into_iter()
        .map(|row| {
            row.into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .try_into()
                .expect("two columns")
        })
        .collect();
    let run = |[question, command]: [String; 2]| {
        let rows = texts(client, &command);
        let rows = rows
            .into_iter()
            .map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" | "));
        (question, command, rows.collect())
    };
    commands.into_iter().map(run).collect()
}

/// Returns the rows of the answer whose command has this text.
fn answer<'a>(answers: &'a [(String, String, Vec<String>)], part: &str) -> &'a [String] {
    let found = answers.iter().find(|(_, command, _)| command.contains(part));
    &found
        .unwrap_or_else(|| panic!("no command has {part}: {answers:#?}"))
        .2
}

#[test]
fn each_command_answers_its_question() {
    let server = Server::preloaded("commands", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE SCHEMA \"row Source\"; CREATE EXTENSION pg_rowsource SCHEMA \"row Source\"; CREATE ROLE other LOGIN;
         GRANT USAGE ON SCHEMA \"row Source\" TO PUBLIC;
         CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 100000) i; ANALYZE t",
    );
    for _ in 0..3 {
        run_each(&mut client, STATEMENT);
    }
    let busy = Busy::run(
        server.connect(),
        "SELECT count(*) FROM t WHERE id = 5 AND pg_sleep(60) IS NOT NULL",
    );
    until_waiting(&mut client, busy.pid, "PgSleep");

    let all = answers(&mut client, "\"row Source\".");
    assert_eq!(all.len(), 10, "{all:#?}");
    assert!(
        all.iter()
            .all(|(_, command, _)| command.contains(" \"row Source\".")),
        "{all:#?}"
    );
    assert!(answer(&all, "top_statements")[0].contains(STATEMENT), "{all:#?}");
    let plan = answer(&all, "'ALLSTATS')").join("\n");
    assert!(plan.contains(STATEMENT) && plan.contains("Hash Join"), "{plan}");
    let slowest = answer(&all, "SLOWEST").join("\n");
    assert!(slowest.contains(STATEMENT), "{slowest}");
    assert!(
        answer(&all, "progress")[0].starts_with(&busy.pid.to_string()),
        "{all:#?}"
    );
    let running = answer(&all, &format!("pid => {}", busy.pid)).join("\n");
    assert!(running.contains("pg_sleep"), "{running}");

    // Without the schema, if the session looks in it; and only what a user may see.
    let mut other = server.try_connect("other").expect("a session");
    run_each(&mut other, "SET search_path = \"row Source\", public");
    let all = answers(&mut other, "");
    assert!(
        all.iter().all(|(_, command, _)| !command.contains("row Source")),
        "{all:#?}"
    );
    assert!(
        all.iter().all(|(_, command, _)| !command.contains("pid =>")),
        "{all:#?}"
    );
    busy.cancel(&mut client);
    drop(client);
}

/// Commands that this session's server cannot answer are not named.
#[test]
fn a_session_on_its_own_gets_what_it_can_answer() {
    let server = Server::start("commands-own", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT 1 AS id",
    );
    run_each(&mut client, STATEMENT);
    let all = answers(&mut client, "");
    assert!(
        answer(&all, "top_statements").join("\n").contains(STATEMENT),
        "{all:#?}"
    );
    assert!(
        answer(&all, "'ALLSTATS')").join("\n").contains("A-Rows"),
        "{all:#?}"
    );
    if major(&mut client) < 17 {
        assert!(
            all.iter().all(|(_, command, _)| !command.contains("progress")),
            "{all:#?}"
        );
        must_fail(&mut client, "SELECT * FROM rowsource_progress");
    }
}
