//! Moments as text: `from_time` and `to_time` of all functions are timestamps, times of today, or intervals
//! ago.

use postgres::Client;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each, value};
use rowsource_tests::store::basic_server;

/// Returns the beginning of the report's interval.
fn beginning(client: &mut Client, from: &str) -> String {
    let lines = first_column(
        client,
        &format!("SELECT rowsource_ash_report({from}, 'infinity')"),
    );
    let line = lines.iter().find_map(|line| line.strip_prefix("from  "));
    line.unwrap_or_else(|| panic!("{lines:#?}")).to_owned()
}

#[test]
fn moments_are_timestamps_times_of_today_and_intervals_ago() {
    let server = basic_server("moments", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE FUNCTION means(said text, meant timestamptz) RETURNS bool LANGUAGE SQL
             AS 'SELECT said::timestamptz BETWEEN meant - interval ''1 min'' AND meant + interval ''1 min'''",
    );
    for zone in ["UTC", "America/St_Johns", "Asia/Kathmandu"] {
        run_each(&mut client, &format!("SET timezone = '{zone}'"));
        for (text, moment) in [
            ("2020-11-28 14:05", "timestamptz '2020-11-28 14:05'"),
            ("2020-11-28T14:05:30+02", "timestamptz '2020-11-28 12:05:30+00'"),
            ("yesterday", "timestamptz 'yesterday'"),
            ("00:00", "timestamptz 'today'"),
            (" 0:00:00.0", "timestamptz 'today'"),
            ("5 min", "now() - interval '5 min'"),
            ("5 min ago", "now() - interval '5 min'"),
            ("1 day 2:30", "now() - interval '26 h 30 min'"),
            ("PT2H", "now() - interval '2 h'"),
        ] {
            let said = beginning(&mut client, &format!("'{text}'"));
            let is_meant = format!("SELECT means('{said}', ({moment})::timestamptz)");
            assert!(value::<bool>(&mut client, &is_meant), "{zone} {text}: {said}");
        }
    }
}

#[test]
fn what_is_no_moment_fails_with_what_can_be_written() {
    let server = basic_server("moments-wrong", &[]);
    let mut client = server.connect();
    run_each(&mut client, "SET timezone = 'Asia/Kathmandu'");
    let functions: Vec<String> = first_column(
        &mut client,
        "SELECT p.oid::regproc::text FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_extension e ON e.oid = d.refobjid
         WHERE d.classid = 'pg_proc'::regclass AND extname = 'pg_rowsource' AND proname NOT LIKE '\\_%'
               AND proargnames @> '{from_time,to_time}'
               AND has_function_privilege('pg_read_all_stats', p.oid, 'EXECUTE')",
    );
    assert!(functions.len() >= 3, "{functions:?}");
    let long = "9".repeat(2_000);
    for function in functions {
        for text in [
            "noon",
            "25:00",
            "14:05 5 min",
            "2026-13-01",
            "",
            "5 mins later",
            "12:3x",
        ] {
            for argument in ["from_time", "to_time"] {
                let (code, said) = must_fail(
                    &mut client,
                    &format!("SELECT count(*) FROM {function}({argument} => '{text}')"),
                );
                assert_eq!(code.code(), "22007", "{function} {text}: {said}");
                for part in [
                    &format!("\"{text}\" is no moment"),
                    "'14:05'",
                    "'5 min'",
                    "Asia/Kathmandu",
                ] {
                    assert!(said.contains(part), "{function} {text}: {said}");
                }
            }
        }
        let (_, said) = must_fail(
            &mut client,
            &format!("SELECT count(*) FROM {function}(to_time => '{long}')"),
        );
        assert!(said.len() < 1_000, "{said}");
    }
    // The session goes on, in the same transaction too.
    run_each(
        &mut client,
        "BEGIN; SAVEPOINT s; SELECT rowsource_ash_report('1 min'); COMMIT",
    );
    server.assert_no_crash();
}
