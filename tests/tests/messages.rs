//! What users are told: the same mistake is the same error everywhere, what a call did not do is a notice,
//! and both name what helps.

use postgres::error::SqlState;
use postgres::{Client, NoTls};
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{basic_server, measured};
use rowsource_tests::surface::declared;
use rowsource_tests::waiting::until;
use std::sync::{Arc, Mutex};

type Notices = Arc<Mutex<Vec<String>>>;

/// Opens a session that hears notices.
fn hearing(server: &Server, database: &str) -> (Client, Notices) {
    let notices = Notices::default();
    let heard = notices.clone();
    let client = postgres::Config::new()
        .host_path(server.folder())
        .user("postgres")
        .dbname(database)
        .notice_callback(move |notice| {
            let hint = notice.hint().unwrap_or_default();
            let said = format!("{} HINT: {hint}", notice.message());
            heard.lock().expect("the notices").push(said)
        })
        .connect(NoTls)
        .expect("a session");
    (client, notices)
}

#[test]
fn a_mistake_is_the_same_error_everywhere() {
    let server = basic_server("messages", &[]);
    let mut client = server.connect();
    let me: i32 = value(&mut client, "SELECT pg_backend_pid()");
    let showing = [
        "rowsource_display",
        "rowsource_explain",
        "rowsource_html",
        "rowsource_folded",
        "rowsource_speedscope",
        "rowsource_histogram_plot",
    ];
    let mut cases: Vec<(String, SqlState, Vec<&str>)> = Vec::new();
    for function in showing {
        for (ids, said) in [
            ("1", "no plan is kept for queryid 1 HINT"),
            ("1, 2", "no plan is kept for queryid 1, planid 2 HINT"),
        ] {
            let call = format!("{function}({ids})");
            cases.push((
                call,
                SqlState::UNDEFINED_OBJECT,
                vec![said, "pg_stat_rowsource_plans"],
            ));
        }
        let call = format!("{function}(planid => 2)");
        cases.push((
            call,
            SqlState::INVALID_PARAMETER_VALUE,
            vec!["a planid needs the queryid"],
        ));
    }
    for function in [
        "rowsource_ash",
        "rowsource_top_activity",
        "rowsource_ash_report",
        "rowsource_blockers",
        "rowsource_wait_report",
        "rowsource_tempfile_report",
    ] {
        for (moments, said) in [
            ("'1 min', '5 min'", "the interval ends before it begins"),
            ("'2100-01-01'", "the interval begins in the future"),
            ("now() + interval '1 day'", "the interval begins in the future"),
        ] {
            let call = format!("{function}({moments})");
            cases.push((call, SqlState::INVALID_PARAMETER_VALUE, vec![said]));
        }
        for (moment, said) in [
            ("'noon'", "\"noon\""),
            ("'{1}'::int[]", "integer[]"),
            ("true", "\"t\""),
        ] {
            let call = format!("{function}({moment})");
            cases.push((
                call,
                SqlState::INVALID_DATETIME_FORMAT,
                vec![said, "is no moment", "'14:05'", "'5 min'", "time zone"],
            ));
        }
    }
    cases.extend([
        (
            "rowsource_display(pattern => 'nobody ran this')".to_owned(),
            SqlState::UNDEFINED_OBJECT,
            vec![
                "no plan is kept of a statement that contains \"nobody ran this\"",
                "%",
                "$1",
            ],
        ),
        (
            "rowsource_display(1, pattern => 'x')".to_owned(),
            SqlState::INVALID_PARAMETER_VALUE,
            vec!["exclude each other"],
        ),
        (
            format!("rowsource_display(pid => {me})"),
            SqlState::UNDEFINED_OBJECT,
            vec!["runs no measured statement", "It is this session"],
        ),
        (
            "rowsource_display(pid => 99999999)".to_owned(),
            SqlState::UNDEFINED_OBJECT,
            vec![
                "process 99999999 runs no measured statement",
                "pg_stat_rowsource_live",
            ],
        ),
        (
            "rowsource_tkprof(pid => 99999999)".to_owned(),
            SqlState::UNDEFINED_FILE,
            vec![
                "there is no trace file of process 99999999",
                "rowsource_trace_start()",
            ],
        ),
        (
            "rowsource_tkprof()".to_owned(),
            SqlState::UNDEFINED_FILE,
            vec!["there is no trace file of this session"],
        ),
        (
            "rowsource_trace_stop(7)".to_owned(),
            SqlState::UNDEFINED_OBJECT,
            vec!["there is no target 7"],
        ),
    ]);
    for (call, code, parts) in cases {
        let (failed, said) = must_fail(&mut client, &format!("SELECT count(*) FROM {call}"));
        assert_eq!(failed, code, "{call}: {said}");
        for part in parts {
            assert!(said.contains(part), "{call}: no {part:?} in {said}");
        }
    }
}

#[test]
fn what_a_call_did_not_do_is_a_notice() {
    let server = basic_server("messages-notices", &[]);
    let (mut client, notices) = hearing(&server, "postgres");
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SELECT count(*) FROM pg_class; RESET pg_rowsource.statistics_level",
    );
    for (call, said, hint) in [
        (
            "rowsource_trace_stop()",
            "this session is not traced",
            "rowsource_trace_targets",
        ),
        (
            "rowsource_trace_stop(all_targets => true)",
            "there are no targets",
            "rowsource_trace_start()",
        ),
        (
            "rowsource_reset(queryid => 5)",
            "no plan is kept for queryid 5",
            "pg_stat_rowsource_plans",
        ),
        (
            "rowsource_reset(1, 2)",
            "no plan is kept for userid 1, datid 2",
            "pg_stat_rowsource_plans",
        ),
        (
            "rowsource_tempfile_reset(1234567)",
            "no database has the OID 1234567",
            "pg_database",
        ),
        (
            "rowsource_ash_start()",
            "the sessions are sampled already, by process ",
            "starts the worker by itself",
        ),
    ] {
        notices.lock().expect("the notices").clear();
        texts(&mut client, &format!("SELECT * FROM {call}"));
        let heard = notices.lock().expect("the notices").concat();
        assert!(heard.starts_with(said) && heard.contains(hint), "{call}: {heard}");
    }
    // What is done is not told.
    notices.lock().expect("the notices").clear();
    run_each(
        &mut client,
        "SELECT rowsource_reset(queryid => queryid) FROM pg_stat_rowsource_plans WHERE query LIKE '%pg_class%';
         SELECT rowsource_tempfile_reset(oid) FROM pg_database; SELECT rowsource_reset();
         SELECT rowsource_trace_start(); SELECT rowsource_trace_stop()",
    );
    assert!(notices.lock().expect("the notices").is_empty(), "{notices:?}");
}

#[test]
fn a_plan_is_found_by_a_part_of_its_statement() {
    let server = basic_server("messages-pattern", &["pg_rowsource.keep_constants = off"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; CREATE TABLE orders (id int);
         SELECT count(*) FROM orders WHERE id = 7; SELECT id FROM orders; RESET pg_rowsource.statistics_level",
    );
    let shown = |client: &mut Client, pattern: &str| {
        let rows = texts(
            client,
            &format!("SELECT rowsource_display(pattern => '{pattern}')"),
        );
        rows.into_iter()
            .flatten()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n")
    };
    for pattern in ["FROM ORDERS where", "count%orders%$1", "%count(*)%orders%"] {
        let plan = shown(&mut client, pattern);
        assert!(
            plan.contains("SELECT count(*) FROM orders WHERE id = $1"),
            "{plan}"
        );
        assert!(!plan.contains("plan 1 of"), "{plan}");
    }
    let plan = shown(&mut client, "from orders");
    assert!(
        plan.contains("plan 1 of 2, by total time. The next one is rowsource_display("),
        "{plan}"
    );
    // What others ran is not found.
    run_each(&mut client, "CREATE ROLE joe; SET ROLE joe");
    let (code, _) = must_fail(&mut client, "SELECT rowsource_display(pattern => 'orders')");
    assert_eq!(code, SqlState::UNDEFINED_OBJECT);
}

#[test]
fn moments_may_be_values_of_other_types() {
    let server = basic_server("messages-moments", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET timezone = 'Asia/Kathmandu'; SET datestyle = 'German'",
    );
    for moments in [
        "interval '5 min'",
        "interval '-5 min'",
        "now() - interval '5 min'",
        "now() - interval '5 min', now()",
        "localtimestamp - interval '5 min'",
        "current_date",
        "time '00:00'",
        "interval '5 min', interval '1 min'",
        "'5 min'::varchar",
        "NULL::timestamptz",
    ] {
        for function in [
            "rowsource_ash",
            "rowsource_top_activity",
            "rowsource_blockers",
            "rowsource_wait_report",
            "rowsource_tempfile_report",
        ] {
            texts(
                &mut client,
                &format!("SELECT count(*) FROM {function}({moments})"),
            );
        }
        let report = texts(&mut client, &format!("SELECT rowsource_ash_report({moments})"));
        let report: Vec<String> = report.into_iter().flatten().flatten().collect();
        assert_eq!(
            report[0], "Active session history, in the time zone Asia/Kathmandu",
            "{moments}"
        );
        let is_meant =
            "SELECT $1::text::timestamptz BETWEEN date_trunc('day', now()) - interval '2 h' AND now()";
        let from = report[1].trim_start_matches("from").trim().to_owned();
        let row = client.query_one(is_meant, &[&from]).expect("a moment");
        assert!(row.get::<_, bool>(0), "{moments}: {from}");
    }
}

#[test]
fn settings_say_how_they_are_set() {
    let server = basic_server("messages-settings", &[]);
    let mut client = server.connect();
    let silent = texts(
        &mut client,
        "SELECT name FROM pg_settings WHERE name LIKE 'pg\\_rowsource.%' AND context = 'sighup' AND short_desc NOT LIKE '%ALTER SYSTEM%'",
    );
    assert!(silent.is_empty(), "{silent:?}");
    // ALL is a keyword: without quotes it is a syntax error.
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.track = nested; SET pg_rowsource.keep_constants = off;
         CREATE FUNCTION inner_one() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM pg_class); END';
         SELECT inner_one()",
    );
    let nested =
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE NOT toplevel AND query LIKE '%pg_class%'";
    assert_eq!(value::<i64>(&mut client, nested), 1);
}

/// PostgreSQL itself refuses what is not granted, and gives no hint. So the comment of each object names the
/// grant, and it helps.
#[test]
fn comments_name_the_grants_that_help() {
    let server = basic_server("messages-grants", &[]);
    let mut client = server.connect();
    let objects = declared(&mut client);
    let is_public = |name: &str| name == "PUBLIC";
    let mut granted = 0;
    for object in objects.iter().filter(|object| !is_public(&object.grantee)) {
        let said: String = value(
            &mut client,
            &format!(
                "SELECT obj_description('{}'::{}, '{}')",
                object.signature,
                if object.is_function() {
                    "regprocedure"
                } else {
                    "regclass"
                },
                if object.is_function() {
                    "pg_proc"
                } else {
                    "pg_class"
                },
            ),
        );
        if said.starts_with("Internal") {
            continue;
        }
        let (_, grant) = said
            .split_once(" others after ")
            .unwrap_or_else(|| panic!("{said}"));
        let grant = grant.replace("them", "joe");
        run_each(&mut client, "DROP ROLE IF EXISTS joe; CREATE ROLE joe");
        let privilege = format!(
            "SELECT has_{}_privilege('joe', '{}', '{}')",
            if object.is_function() { "function" } else { "table" },
            object.signature,
            if object.is_function() { "EXECUTE" } else { "SELECT" },
        );
        assert!(!value::<bool>(&mut client, &privilege), "{}", object.signature);
        run_each(&mut client, &grant);
        assert!(value::<bool>(&mut client, &privilege), "{grant}");
        run_each(&mut client, "DROP OWNED BY joe");
        granted += 1;
    }
    assert!(granted > 8, "{granted}");
}

/// Functions of the history that return rows say what they lack, if the user has said when the interval
/// begins, and where to connect.
#[test]
fn histories_say_what_they_lack() {
    let server = Server::preloaded("messages-history", &[]);
    let (mut client, notices) = hearing(&server, "postgres");
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE DATABASE elsewhere",
    );
    until(&mut client, "SELECT count(*) > 0 FROM rowsource_ash");
    let (mut elsewhere, heard_there) = hearing(&server, "elsewhere");
    run_each(&mut elsewhere, "CREATE EXTENSION pg_rowsource");
    let said = |client: &mut Client, notices: &Notices, call: &str| {
        notices.lock().expect("the notices").clear();
        run_each(client, &format!("SELECT count(*) FROM {call}"));
        notices.lock().expect("the notices").join("; ")
    };
    for function in ["rowsource_ash", "rowsource_top_activity", "rowsource_blockers"] {
        assert_eq!(said(&mut client, &notices, &format!("{function}()")), "");
        let notice = said(&mut client, &notices, &format!("{function}('1 day')"));
        let hint = " HINT: No snapshot has older ones.";
        assert!(
            notice.starts_with("the samples begin at ") && notice.ends_with(hint),
            "{function}: {notice}"
        );
    }
    for function in ["waits", "tempfile_io"] {
        let function = format!("rowsource_interval_{function}");
        assert_eq!(said(&mut client, &notices, &format!("{function}()")), "");
        let notice = said(&mut client, &notices, &format!("{function}('1 day')"));
        let hint = " HINT: Take one with SELECT rowsource_snapshot(), or wait";
        assert!(
            notice.starts_with("the counters begin at ") && notice.contains(hint),
            "{function}: {notice}"
        );
        let notice = said(&mut elsewhere, &heard_there, &format!("{function}()"));
        assert_eq!(
            notice,
            "no snapshot is in this database HINT: The server takes its snapshots in the database \"postgres\": connect to it."
        );
    }
}

/// Whether rows are wanted or not, a wrong moment is an error.
#[test]
fn a_wrong_moment_is_an_error_also_with_a_limit() {
    let server = basic_server("messages-moment", &["pg_rowsource.snapshot_interval = 0"]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE TABLE t AS SELECT 1 AS id");
    for _ in 0..2 {
        measured(&mut client, "SELECT count(*) FROM t");
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    for function in [
        "rowsource_export",
        "rowsource_interval_waits",
        "rowsource_interval_tempfile_io",
        "rowsource_interval_plans",
    ] {
        let rows = format!("SELECT * FROM {function}('1 min') LIMIT 1");
        assert_eq!(texts(&mut client, &rows).len(), 1, "{function}");
        let (code, message) = must_fail(&mut client, &format!("SELECT * FROM {function}('noon') LIMIT 1"));
        assert_eq!(code.code(), "22007", "{function}: {message}");
    }
}

/// Snapshots that are missing in the middle of an interval, and at its end, are said.
#[test]
fn histories_say_where_snapshots_are_missing() {
    let server = basic_server("messages-gaps", &["pg_rowsource.snapshot_interval = 0"]);
    let (mut client, notices) = hearing(&server, "postgres");
    run_each(&mut client, &"SELECT rowsource_snapshot();".repeat(6));
    let said = |client: &mut Client, call: &str| {
        notices.lock().expect("the notices").clear();
        run_each(client, &format!("SELECT count(*) FROM {call}"));
        notices.lock().expect("the notices").join("; ")
    };
    let age = |client: &mut Client, ages: [&str; 6]| {
        for (snapshot, age) in (1..).zip(ages) {
            run_each(
                client,
                &format!(
                    "UPDATE rowsource_snapshots SET taken_at = now() - interval '{age}' WHERE snap_id = {snapshot}"
                ),
            );
        }
        let time = |snapshot: i64| {
            format!("(SELECT taken_at::text FROM rowsource_snapshots WHERE snap_id = {snapshot})")
        };
        value::<String>(client, &format!("SELECT {} || ' to ' || {}", time(3), time(4)))
    };
    let gap = age(
        &mut client,
        ["6 h", "5 h 30 min", "5 h 15 min", "1 h 15 min", "1 h", "30 min"],
    );
    let missing = format!("no snapshot was taken from {gap}");
    for call in [
        "waits('5 h 40 min')",
        "tempfile_io('5 h 40 min')",
        "plans('5 h', '2 h')",
    ] {
        let notice = said(&mut client, &format!("rowsource_interval_{call}"));
        let hint = " HINT: The figures are of all that time.";
        assert!(
            notice.starts_with(&format!("{missing}{hint}")),
            "{call}: {notice}"
        );
        assert_eq!(notice.matches("HINT").count(), 1, "{call}: {notice}");
    }
    for call in ["waits('1 h')", "waits()", "waits('5 h 50 min', '5 h 20 min')"] {
        assert_eq!(
            said(&mut client, &format!("rowsource_interval_{call}")),
            "",
            "{call}"
        );
    }
    for report in ["rowsource_wait_report('5 h')", "rowsource_tempfile_report('5 h')"] {
        let lines = texts(&mut client, &format!("SELECT {report}"));
        let is_said = lines.iter().flatten().flatten().any(|line| *line == missing);
        assert!(is_said, "{report}: {lines:?}");
    }
    // What is older has a snapshot an hour, and then one a day.
    age(
        &mut client,
        ["9 days", "8 days", "3 days 2 h", "3 days 1 h", "3 days", "30 min"],
    );
    for call in [
        "waits('9 days', '8 days 1 h')",
        "waits('3 days 2 h', '3 days 1 min')",
    ] {
        assert_eq!(
            said(&mut client, &format!("rowsource_interval_{call}")),
            "",
            "{call}"
        );
    }

    imported_histories_have_an_end(&mut client, &said);
}

/// Imports the history that the server has, and asks for more than it has.
fn imported_histories_have_an_end(client: &mut Client, said: &dyn Fn(&mut Client, &str) -> String) {
    let lines = texts(client, "SELECT rowsource_export('30 days')");
    for line in lines.into_iter().flatten().flatten() {
        client
            .execute("SELECT rowsource_import($1)", &[&line])
            .expect("a line");
    }
    run_each(
        client,
        "SELECT set_config('pg_rowsource.history_origin', system_identifier::text, false) FROM pg_control_system()",
    );
    let notice = said(client, "rowsource_interval_waits('3 days 30 min')");
    assert!(notice.contains("the counters end at "), "{notice}");
    assert!(
        notice.ends_with("HINT: No later snapshots were imported."),
        "{notice}"
    );
    let notice = said(client, "rowsource_interval_waits('10 min')");
    assert_eq!(
        notice,
        "no snapshot has counters of this interval HINT: The view rowsource_intervals lists those that have some."
    );
}
