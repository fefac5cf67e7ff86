//! Users see the cost of other users' statements, but not their texts and plans.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{basic_server, measure_all, only_kept};

const SECRET: &str = "sesame";
const MASKED: &str = "<insufficient privilege>";

/// Starts a server on which the superuser ran statements with a secret, and `regress_a` ran one statement.
fn server_with_secrets(name: &str) -> Server {
    let server = basic_server(name, &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE ROLE regress_a LOGIN; CREATE ROLE regress_b LOGIN; CREATE ROLE regress_reader LOGIN;
         GRANT pg_read_all_stats TO regress_reader; CREATE TABLE sesame (id int, word text);
         INSERT INTO sesame SELECT i, 'sesame' FROM generate_series(1, 100) i; ANALYZE sesame;
         CREATE TABLE open (id int); GRANT SELECT ON open TO PUBLIC; CREATE INDEX sesame_id ON sesame (id)",
    );
    measure_all(&mut client);
    let statement = "SELECT count(*) FROM sesame WHERE word = 'sesame' AND id < 50";
    run_each(&mut client, statement);
    run_each(
        &mut client,
        "SET enable_seqscan = off; SET enable_bitmapscan = off",
    );
    run_each(&mut client, statement);
    let _ = client.batch_execute("SELECT sum(1 / (id - 7)) FROM sesame WHERE word = 'sesame'");
    let mut user = server.try_connect("regress_a").expect("regress_a");
    measure_all(&mut user);
    run_each(&mut user, "SELECT count(*) FROM open");
    server
}

const VIEWS: [&str; 9] = [
    "pg_stat_rowsource",
    "pg_stat_rowsource_plans",
    "pg_stat_rowsource_histogram",
    "rowsource_misestimates",
    "rowsource_plan_flips",
    "rowsource_plan_flips()",
    "pg_stat_rowsource()",
    "pg_stat_rowsource_plans()",
    "pg_stat_rowsource_histogram()",
];

fn visible_rows(client: &mut Client) -> String {
    VIEWS
        .map(|view| format!("{:?}", texts(client, &format!("SELECT v::text FROM {view} v"))))
        .join("\n")
}

#[test]
fn other_users_rows_are_masked() {
    let server = server_with_secrets("masked");
    let secret = only_kept(&mut server.connect(), "SELECT sum(1 /%");
    for user in ["regress_a", "regress_b"] {
        let mut client = server.try_connect(user).expect("a session");
        let all = visible_rows(&mut client);
        assert!(!all.contains(SECRET), "{user}: {all}");
        let (queryid, planid) = (secret.queryid.to_string(), secret.planid.to_string());
        assert!(!all.contains(&queryid) && !all.contains(&planid), "{user}: {all}");
        // The rows are visible with their values, as in pg_stat_statements.
        let masked = texts(
            &mut client,
            "SELECT DISTINCT query, queryid, planid, calls, calls > 0 AND total_time > 0 AND userid = 10
             FROM pg_stat_rowsource_plans WHERE userid <> current_user::regrole",
        );
        let some = |text: &str| Some(text.to_string());
        assert!(!masked.is_empty(), "{user}");
        if user == "regress_a" {
            let calls = some("1");
            assert_eq!(masked, [[some(MASKED), None, None, calls, some("t")]]);
        }
        let nodes = texts(
            &mut client,
            "SELECT DISTINCT operation, object_name, queryid, planid, executions > 0 AND rows >= 0
             FROM pg_stat_rowsource WHERE userid <> current_user::regrole",
        );
        assert_eq!(nodes, [[some(MASKED), None, None, None, some("t")]], "{user}");
        let own: i64 = value(
            &mut client,
            "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(*) FROM open'",
        );
        assert_eq!(own, i64::from(user == "regress_a"));
    }
    // A member of pg_read_all_stats sees all.
    let mut reader = server.try_connect("regress_reader").expect("a session");
    assert!(visible_rows(&mut reader).contains(SECRET));
    let masked: i64 = value(
        &mut reader,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE queryid IS NULL OR query LIKE '<%'",
    );
    assert_eq!(masked, 0);
    run_each(
        &mut reader,
        &format!("SELECT rowsource_display({}, {})", secret.queryid, secret.planid),
    );
}

#[test]
fn other_users_plans_are_not_displayed() {
    let server = server_with_secrets("not-displayed");
    let secret = only_kept(&mut server.connect(), "SELECT sum(1 /%");
    let mut client = server.try_connect("regress_b").expect("a session");
    // The error does not tell whether another role's plan exists.
    for (exists, unknown) in [
        (
            format!("{}, {}", secret.queryid, secret.planid),
            format!("{}, {}", secret.queryid + 1, secret.planid + 1),
        ),
        (format!("{}", secret.queryid), format!("{}", secret.queryid + 1)),
        (
            format!("planid => {}", secret.planid),
            format!("planid => {}", secret.planid + 1),
        ),
    ] {
        let mut error = |ids: &str| must_fail(&mut client, &format!("SELECT rowsource_display({ids})"));
        let (code, message) = error(&exists);
        let (unknown_code, unknown_message) = error(&unknown);
        assert_eq!(code, unknown_code);
        let ids = |message: &str| message.replace(|c: char| c.is_ascii_digit() || c == '-', "");
        assert_eq!(ids(&message), ids(&unknown_message));
        assert!(!message.contains(SECRET));
    }
    // If two users ran the same statement, each sees its own row.
    let open = only_kept(&mut server.connect(), "SELECT count(*) FROM open");
    measure_all(&mut client);
    run_each(&mut client, "SELECT count(*) FROM open");
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'basic'");
    let mut other = server.try_connect("regress_a").expect("a session");
    for client in [&mut client, &mut other] {
        let shown = texts(
            client,
            &format!("SELECT rowsource_display({}, {})", open.queryid, open.planid),
        );
        assert!(
            shown[0][0]
                .as_deref()
                .is_some_and(|line| line.contains("executions 1")),
            "{shown:?}"
        );
    }
}

#[test]
fn set_role_and_security_definer() {
    let server = server_with_secrets("roles");
    let mut client = server.connect();
    measure_all(&mut client);
    run_each(
        &mut client,
        "SELECT count(*) FROM sesame WHERE word = 'sesame'; SET pg_rowsource.statistics_level = 'basic'; SET ROLE regress_b",
    );
    // The session's last statement ran as another user.
    let (code, message) = must_fail(&mut client, "SELECT rowsource_display()");
    assert_eq!(code.code(), "42501", "{message}");
    assert!(!visible_rows(&mut client).contains(SECRET));
    let last = texts(&mut client, "SELECT queryid, planid FROM rowsource_last()");
    println!("rowsource_last() after SET ROLE: {last:?}");
    measure_all(&mut client);
    run_each(
        &mut client,
        "SELECT count(*), 'as b' FROM open; SELECT rowsource_display()",
    );
    run_each(
        &mut client,
        "RESET ROLE; SET pg_rowsource.statistics_level = 'basic'",
    );
    let owner: String = value(
        &mut client,
        "SELECT userid::regrole::text FROM pg_stat_rowsource_plans WHERE query LIKE '%as b%'",
    );
    assert_eq!(owner, "regress_b");

    // A statement inside a SECURITY DEFINER function belongs to the function's owner; the caller sees nothing
    // of it.
    run_each(
        &mut client,
        "CREATE FUNCTION definer() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS
         'BEGIN RETURN (SELECT count(*) FROM sesame WHERE word <> ''sesame inside''); END'",
    );
    let mut user = server.try_connect("regress_b").expect("a session");
    measure_all(&mut user);
    run_each(
        &mut user,
        "SET pg_rowsource.track = 'all'; SELECT definer(); SELECT rowsource_display()",
    );
    let all = visible_rows(&mut user);
    assert!(!all.contains(SECRET), "{all}");
    let shown = texts(&mut user, "SELECT rowsource_display()");
    assert!(!format!("{shown:?}").contains(SECRET), "{shown:?}");
    let inside =
        "SELECT userid::regrole::text || toplevel FROM pg_stat_rowsource_plans WHERE query LIKE '%inside%'
                  AND NOT toplevel";
    assert_eq!(value::<String>(&mut client, inside), "postgresfalse");
    server.assert_no_crash();
}

/// Objects that another user created before the extension, and that match calls better than the server's own.
const TRAPS: &str = "
    CREATE TABLE trapped (what text);
    CREATE FUNCTION trap(text) RETURNS int LANGUAGE plpgsql AS
        'BEGIN INSERT INTO public.trapped VALUES ($1 || '' as '' || current_user); RETURN 1; END';
    CREATE FUNCTION log(int, numeric) RETURNS numeric LANGUAGE sql AS 'SELECT trap(''log'')::numeric';
    CREATE FUNCTION divide(float8, bigint) RETURNS float8 LANGUAGE sql AS 'SELECT trap(''float8 / bigint'')::float8';
    CREATE OPERATOR / (LEFTARG = float8, RIGHTARG = bigint, FUNCTION = divide);
    CREATE FUNCTION divide(int, float8) RETURNS float8 LANGUAGE sql AS 'SELECT trap(''int / float8'')::float8';
    CREATE OPERATOR / (LEFTARG = int, RIGHTARG = float8, FUNCTION = divide);
    CREATE FUNCTION above(float8, int) RETURNS bool LANGUAGE sql AS 'SELECT trap(''float8 > int'') > 0';
    CREATE OPERATOR > (LEFTARG = float8, RIGHTARG = int, FUNCTION = above);
    CREATE FUNCTION equal(float8, int) RETURNS bool LANGUAGE sql AS 'SELECT trap(''float8 = int'') > 5';
    CREATE OPERATOR = (LEFTARG = float8, RIGHTARG = int, FUNCTION = equal);
    CREATE FUNCTION lagged(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT trap(''lag'')::bigint';
    CREATE AGGREGATE lag(bigint) (SFUNC = lagged, STYPE = bigint)";

#[test]
fn objects_of_others_are_not_called() {
    let server = Server::preloaded("traps", &["pg_rowsource.statistics_level = 'basic'"]);
    let mut client = server.connect();
    // Only function bodies contain semicolons.
    client.batch_execute(TRAPS).expect("the traps");
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i;
         CREATE INDEX t_id ON t (id); ANALYZE t",
    );
    measure_all(&mut client);
    run_each(
        &mut client,
        "SELECT count(*) FROM t WHERE id + 0 = id + 0 AND id < 9; SET enable_indexscan = off; SET enable_bitmapscan = off;
         SET enable_indexonlyscan = off; SELECT count(*) FROM t WHERE id + 0 = id + 0 AND id < 9",
    );
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'basic'");
    const HISTORY: [&str; 8] = [
        "rowsource_snapshot()",
        "rowsource_snapshot()",
        "pg_stat_rowsource_tempfile_io",
        "pg_stat_rowsource_tempfile_io_histogram",
        "rowsource_interval_tempfile_io",
        "rowsource_interval_plans",
        "rowsource_tempfile_usage()",
        "rowsource_tempfile_report()",
    ];
    for view in VIEWS.iter().chain(&HISTORY) {
        run_each(&mut client, &format!("SELECT v::text FROM {view} v"));
    }
    let trapped = texts(&mut client, "SELECT DISTINCT what FROM trapped");
    assert!(trapped.is_empty(), "the views call what others made: {trapped:?}");
}
