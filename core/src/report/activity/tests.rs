use super::*;

fn shown(at: i64) -> String {
    format!("{:02}:{:02}", at / MINUTE_US / 60, at / MINUTE_US % 60)
}

fn moment(at: i64) -> Moment {
    Moment {
        at,
        moments: 1,
        first: at,
        last: at,
        ..Moment::default()
    }
}

#[test]
fn the_report_shows_what_was_active() {
    let mut activity = Activity::new(0, 3 * MINUTE_US, i64::MIN, "no snapshot has older ones");
    // One session in the first minute, on the processor in a quarter of it; two in the third, of which one
    // waits for the other.
    for i in 0..60 {
        activity.add_moment(&moment(i * 1_000_000), Some(1));
        if i == 0 {
            activity.add(&Seen {
                pid: 9,
                is_hidden: true,
                ..Seen::default()
            });
        }
        activity.add(&Seen {
            pid: 7,
            session: "client backend alice psql",
            statement: Some((11, Some(12))),
            text: Some("SELECT\n1"),
            node: Some((2, "Seq Scan on t")),
            wait: (i % 4 != 0).then_some(("IO", "DataFileRead")),
            ..Seen::default()
        });
    }
    (60..120).for_each(|i| activity.add_moment(&moment(i * 1_000_000), Some(1)));
    for i in 120..180 {
        activity.add_moment(&moment(i * 1_000_000), Some(1));
        for (pid, wait, blocker) in [(7, None, None), (8, Some(("Lock", "transactionid")), Some(7))] {
            activity.add(&Seen {
                pid,
                session: "client backend",
                statement: Some((11, None)),
                wait,
                blocker,
                ..Seen::default()
            });
        }
    }
    activity.name_blocker(7, "client backend alice psql", "LOCK TABLE\nt");
    activity.name_blocker(10, "client backend", "nobody waits for it");
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
        "|      11 |     12 |  2 | Seq Scan on t                    |      60 | 33.1 |   8.3 |   0.33 |",
        "|      11 |        |    | outside the nodes                |      60 | 33.1 |  33.1 |   0.33 |",
        "|      11 |        |    | outside the nodes: transactionid |      60 | 33.1 |   0.0 |   0.33 |",
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
    let report = |slots: &[(i64, i64)]| {
        let mut activity = Activity::new(
            10 * MINUTE_US,
            20 * MINUTE_US,
            i64::MIN,
            "no snapshot has older ones",
        );
        for (first, last) in slots {
            let (first, last) = (*first * MINUTE_US, *last * MINUTE_US);
            let at = last.min(19 * MINUTE_US);
            activity.add_moment(
                &Moment {
                    first,
                    last,
                    ..moment(at)
                },
                Some(1),
            );
        }
        activity.report("UTC", &shown).split_off(3)
    };
    let mut begun = Activity::new(
        10 * MINUTE_US,
        20 * MINUTE_US,
        15 * MINUTE_US,
        "no snapshot has older ones",
    );
    let expected = "no samples are kept of this interval; the server crashed, or began to sample, at 00:15; no snapshot has older ones";
    assert_eq!(begun.report("UTC", &shown)[3], expected);
    let none = ["no samples are kept of this interval; no snapshot has older ones"];
    assert_eq!(report(&[]), none);
    let late = "samples from 00:12 to 00:20; no snapshot has older ones";
    assert_eq!(report(&[(12, 13), (13, 25)])[0], late);
    assert_eq!(report(&[(1, 11), (11, 15)])[0], "samples from 00:10 to 00:15");
    assert!(report(&[(1, 20)])[0].starts_with("0 samples of active sessions at "));
}

#[test]
fn a_report_of_anything_is_small() {
    let mut activity = Activity::new(i64::MIN, i64::MAX, i64::MIN, "no snapshot has older ones");
    assert_eq!(activity.report("UTC", &|at| at.to_string()).len(), 4);
    let long = "x".repeat(10_000);
    for i in 0..5_000 {
        activity.add_moment(&moment(i * 100 * MINUTE_US), Some(1));
        activity.add(&Seen {
            pid: i as i32,
            application: "",
            session: &long,
            statement: Some((i, Some(i))),
            text: Some(&long),
            node: Some((i as u16, &long)),
            wait: Some((["IO", "Lock", "Timeout"][i as usize % 3], "x")),
            blocker: Some(i as i32),
            is_hidden: false,
        });
    }
    let lines = activity.report("UTC", &|at| at.to_string());
    assert!(lines.len() < 200, "{}", lines.len());
    assert!(lines.iter().all(|line| line.chars().count() < 180), "{lines:#?}");
}

#[test]
fn what_has_no_queryid_is_told_apart_by_its_text() {
    let mut activity = Activity::new(0, MINUTE_US, i64::MIN, "no snapshot has older ones");
    let texts = ["LOCK TABLE on a", "ALTER TABLE", "LOCK TABLE on a"];
    for (at, text) in (0..).zip(texts) {
        activity.add_moment(&moment(at), Some(1));
        activity.add(&Seen {
            text: Some(text),
            ..Seen::default()
        });
    }
    // Of one command, some samples have its relation, too.
    for (at, text) in (3..).zip(["COPY", "COPY on t", "COPY"]) {
        activity.add_moment(&moment(at), Some(1));
        activity.add(&Seen {
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

/// Samples count as what they stand for, and the report says which are kept, and what that means.
#[test]
fn a_sample_counts_as_the_moments_that_it_stands_for() {
    let mut activity = Activity::new(0, 10 * MINUTE_US, i64::MIN, "no snapshot has older ones");
    let mut add = |at: i64, moments: u64, slot_us: i64, sessions: usize| {
        let (first, last) = (at - at % slot_us, at - at % slot_us + slot_us - 1);
        let moment = Moment {
            at,
            moments,
            first,
            last,
            ..Moment::default()
        };
        activity.add_moment(&moment, Some(slot_us));
        (0..sessions).for_each(|_| activity.add(&Seen::default()));
    };
    // Two sessions at each other moment of five minutes, and always one in the last five.
    (0..30).for_each(|i| add(i * 10_000_000 + 7, 1000, 10_000_000, i as usize % 2 * 2));
    (0..300).for_each(|i| add(5 * MINUTE_US + i * 1_000_000 + 7, 100, 1_000_000, 1));
    let lines = activity.report("UTC", &shown);
    assert_eq!(
        lines[3..5],
        [
            "60000 samples of active sessions at 60000 moments: 1.00 active sessions on average",
            // Each of 30 is 1.4 off, and stands for a sixtieth.
            "330 of them are kept: one in 10 s until 00:04, one in 1 s until 00:09; twice the standard error of the average is 0.25",
        ]
    );
}

/// A pid of another run of the server is another session.
#[test]
fn sessions_of_another_run_are_others() {
    let mut activity = Activity::new(0, MINUTE_US, 0, "no snapshot has older ones");
    for (at, run) in [(1, 1), (2, 1), (3, 2)] {
        activity.add_moment(&Moment { run, ..moment(at) }, Some(1));
        activity.add(&Seen {
            pid: 7,
            session: "psql",
            ..Seen::default()
        });
    }
    let lines = activity.report("UTC", &shown).join("\n");
    for line in [
        "|   7 | psql, before a restart |       2 |",
        "|   7 | psql                   |       1 |",
    ] {
        assert!(lines.contains(line), "no {line} in\n{lines}");
    }
}

/// Of snapshots, moments at which nothing was active are known by their number alone.
#[test]
fn snapshots_and_memory_are_one_interval() {
    let mut activity = Activity::new(0, 4 * MINUTE_US, i64::MIN, "older");
    activity.add_stored(0, MINUTE_US, 600);
    activity.add_stored(2 * MINUTE_US, 3 * MINUTE_US - 1, 600);
    let seen = Seen {
        pid: 7,
        ..Seen::default()
    };
    // One session was active half of the first minute.
    for i in 0..30 {
        let span = 1_000_000;
        let moment = Moment {
            moments: 10,
            span,
            ..moment(i * span)
        };
        activity.add_moment(&moment, None);
        activity.add(&seen);
    }
    for i in 0..600 {
        activity.add_moment(&moment(3 * MINUTE_US + i * 100_000), Some(1));
        activity.add(&seen);
    }
    let lines = activity.report("UTC", &shown);
    for line in [
        "no samples from 00:01 to 00:02",
        "samples until 00:02 are from snapshots, later ones from memory",
        "900 samples of active sessions at 1800 moments: 0.50 active sessions on average",
        "00:00  0.50  ooooooooooooooooooooooooo",
        "00:03  1.00  oooooooooooooooooooooooooooooooooooooooooooooooooo",
    ] {
        let is_there = lines.iter().any(|shown| shown.replace('#', "o") == line);
        assert!(is_there, "no {line} in\n{}", lines.join("\n"));
    }
    let kept = "630 of them are kept: of snapshots one in 0.1 s until 00:02, or in 10 s after a day; ";
    assert!(lines.iter().any(|line| line.starts_with(kept)), "{lines:#?}");
}
