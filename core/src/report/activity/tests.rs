use super::*;

fn shown(at: i64) -> String {
    format!("{:02}:{:02}", at / MINUTE_US / 60, at / MINUTE_US % 60)
}

#[test]
fn the_report_shows_what_was_active() {
    let mut activity = Activity::new(0, 3 * MINUTE_US);
    // One session in the first minute, on the processor in a quarter of it; two in the third, of which one
    // waits for the other.
    for i in 0..60 {
        let at = i * 1_000_000;
        activity.add(&Seen {
            at,
            pid: 7,
            session: "client backend alice psql",
            statement: Some((11, Some(12))),
            text: Some("SELECT\n1"),
            node: Some((2, "Seq Scan on t")),
            wait: (i % 4 != 0).then_some(("IO", "DataFileRead")),
            ..Seen::default()
        });
    }
    for i in 120..180 {
        for (pid, wait, blocker) in [(7, None, None), (8, Some(("Lock", "transactionid")), Some(7))] {
            activity.add(&Seen {
                at: i * 1_000_000,
                pid,
                session: "client backend",
                statement: Some((11, None)),
                wait,
                blocker,
                ..Seen::default()
            });
        }
    }
    activity.add(&Seen {
        at: 5,
        pid: 9,
        is_hidden: true,
        ..Seen::default()
    });
    activity.name_blocker(7, "client backend alice psql", "LOCK TABLE\nt");
    activity.name_blocker(10, "client backend", "nobody waits for it");
    let between = |from: i64, to: i64| (to - from).max(0) as f64 / 1e6;
    activity.add_ticks(0, 3 * MINUTE_US, between);
    let expected = "\
Active session history, in the time zone UTC
from  00:00
to    00:03
181 samples of active sessions at 180 moments: 1.01 active sessions on average
Of sessions of which you may not see more: 1 sample

Top statements
------------------------------------------------------------------
| queryid | planid | Statement | Samples |    % | CPU % | Active |
------------------------------------------------------------------";
    let lines = activity.report("UTC", &shown);
    let text = lines.join("\n");
    assert_eq!(lines[..10], expected.lines().collect::<Vec<_>>()[..], "{text}");
    for line in [
        "|      11 |        |           |     120 | 66.3 |  33.1 |   0.67 |",
        "|      11 |     12 | SELECT 1  |      60 | 33.1 |   8.3 |   0.33 |",
        "|      11 |     12 |  2 | Seq Scan on t |      60 | 33.1 |   8.3 |   0.33 |",
        "| CPU  | on CPU, or waiting for it |      75 | 41.4 |  41.4 |   0.42 |",
        "| Lock | transactionid             |      60 | 33.1 |   0.0 |   0.33 |",
        "|   7 | client backend            |      60 | 33.1 |  33.1 |   0.33 |",
        "|   7 | client backend alice psql | LOCK TABLE t   |       1 |      60 | 33.1 |   0.0 |   0.33 |",
        "00:00  1.02  ######IIIIIIIIIIIIIIIIIII",
        // Nothing was active.
        "00:01  0.00",
        "00:02  2.00  #########################LLLLLLLLLLLLLLLLLLLLLLLLL",
    ] {
        assert!(lines.iter().any(|shown| shown == line), "no {line} in\n{text}");
    }
    assert!(lines.iter().all(|line| line.len() < 160));
}

#[test]
fn the_report_says_which_part_of_the_interval_has_samples() {
    let report = |ticks: &[(i64, i64)]| {
        let mut activity = Activity::new(10 * MINUTE_US, 20 * MINUTE_US);
        for (first, last) in ticks {
            activity.add_ticks(*first * MINUTE_US, *last * MINUTE_US, |from, to| {
                (to - from).max(0) as f64
            });
        }
        activity.report("UTC", &shown).split_off(3)
    };
    let none = [
        "no samples are kept of this interval; rowsource_snapshot() keeps older ones in rowsource_snapshot_ash",
    ];
    assert_eq!(report(&[]), none);
    assert_eq!(report(&[(5, 9), (21, 22)]), none);
    let late = "samples from 00:12 to 00:20; rowsource_snapshot() keeps older ones in rowsource_snapshot_ash";
    assert_eq!(report(&[(12, 13), (13, 25)])[0], late);
    assert_eq!(report(&[(1, 11), (11, 15)])[0], "samples from 00:10 to 00:15");
    assert!(report(&[(1, 20)])[0].starts_with("0 samples of active sessions at "));
}

#[test]
fn a_report_of_anything_is_small() {
    let mut activity = Activity::new(i64::MIN, i64::MAX);
    assert_eq!(activity.report("UTC", &|at| at.to_string()).len(), 4);
    let long = "x".repeat(10_000);
    for i in 0..5_000 {
        activity.add(&Seen {
            at: i * 100 * MINUTE_US,
            pid: i as i32,
            session: &long,
            statement: Some((i, Some(i))),
            text: Some(&long),
            node: Some((i as u16, &long)),
            wait: Some((["IO", "Lock", "Timeout"][i as usize % 3], "x")),
            blocker: Some(i as i32),
            is_hidden: false,
        });
    }
    activity.add_ticks(0, 5_000 * 100 * MINUTE_US, |from, to| {
        (to.saturating_sub(from) / 1_000_000) as f64
    });
    let lines = activity.report("UTC", &|at| at.to_string());
    assert!(lines.len() < 200, "{}", lines.len());
    assert!(lines.iter().all(|line| line.chars().count() < 180), "{lines:#?}");
}

#[test]
fn what_has_no_queryid_is_told_apart_by_its_text() {
    let mut activity = Activity::new(0, MINUTE_US);
    let texts = ["LOCK TABLE on a", "ALTER TABLE", "LOCK TABLE on a"];
    for (at, text) in (0..).zip(texts) {
        activity.add(&Seen {
            at,
            text: Some(text),
            ..Seen::default()
        });
    }
    // Of one command, some samples have its relation, too.
    for (at, text) in (3..).zip(["COPY", "COPY on t", "COPY"]) {
        activity.add(&Seen {
            at,
            statement: Some((7, None)),
            text: Some(text),
            ..Seen::default()
        });
    }
    let lines = activity.report("UTC", &shown).join("\n");
    for line in [
        "|       7 |        | COPY on t       |       3 |",
        "|         |        | LOCK TABLE on a |       2 |",
        "|         |        | ALTER TABLE     |       1 |",
    ] {
        assert!(lines.contains(line), "no {line} in\n{lines}");
    }
}
