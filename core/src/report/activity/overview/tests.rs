use super::*;
use crate::ash::Moment;
use crate::report::activity::Seen;

const SECOND: i64 = 1_000_000;

fn shown(at: i64) -> String {
    format!("{} s", at / SECOND)
}

fn given() -> Given<'static> {
    Given {
        prefix: "r.",
        findings: Vec::new(),
        blocked: Vec::new(),
        states: BTreeMap::new(),
        missing: Vec::new(),
        kept: BTreeSet::from([(11, 12), (11, 13)]),
        compared: Some(BTreeSet::from([11])),
        figures: BTreeMap::new(),
        calls_per_second: [None; 2],
        new: Vec::new(),
        counters: "no counters".to_owned(),
        temporary_files: "none".to_owned(),
    }
}

/// Samples of a minute, one a second. `active` returns the sessions of a second.
fn minute(from: i64, active: impl Fn(i64) -> Vec<Seen<'static>>) -> Activity {
    let mut activity = Activity::new(from, from + 60 * SECOND, i64::MIN, "no older ones").with_bars(BARS);
    for i in 0..60 {
        let at = from + i * SECOND;
        activity.add_moment(
            &Moment {
                at,
                moments: 1,
                first: at,
                last: at + SECOND - 1,
                ..Moment::default()
            },
            Some(1),
        );
        active(i).iter().for_each(|seen| activity.add(seen));
    }
    activity
}

fn lines(now: &mut Activity, before: &mut Activity, given: &Given<'_>) -> Vec<String> {
    now.overview(before, given, "What happened".to_owned(), Vec::new(), &shown)
        .lines()
}

fn query(queryid: i64, planid: i64, text: &'static str) -> Seen<'static> {
    Seen {
        pid: 7,
        session: "client backend alice psql",
        application: "psql",
        statement: Some((queryid, Some(planid))),
        text: Some(text),
        ..Seen::default()
    }
}

#[test]
fn a_statement_that_took_more_is_a_change_and_has_a_command() {
    let mut before = minute(0, |i| match i {
        0..6 => vec![query(11, 12, "SELECT 1")],
        _ => Vec::new(),
    });
    let mut now = minute(60 * SECOND, |i| match i {
        0..30 => vec![query(11, 12, "SELECT 1")],
        _ => vec![query(11, 13, "SELECT 1"), query(21, 22, "SELECT 2")],
    });
    let mut given = given();
    given.figures.insert(
        11,
        Figures {
            calls: 60,
            mean_ms: 1000.0,
        },
    );
    given.calls_per_second = [Some(1.0), Some(0.5)];
    given.new.push(New {
        queryid: 21,
        first_seen_at: 90 * SECOND,
        figures: Figures {
            calls: 30,
            mean_ms: 1000.0,
        },
        text: "SELECT 2".to_owned(),
    });
    let lines = lines(&mut now, &mut before, &given);
    let text = lines.join("\n");
    for line in [
        "  nothing was found",
        "Load: 1.50 active sessions on average (1.50 CPU)",
        "the same time before, from 0 s: 0.10",
        "statements per second: 1.0; before: 0.5",
        "applications: psql 100 %",
        "New since then",
        "| 90 s  |    30 | 1000.000 |      21 | SELECT 2  |",
        "|   1.00 | 66.7 |  66.7 |   0.10 |    60 | 1000.000 | SELECT 1  |",
        "|   0.50 | 33.3 |  33.3 |   0.00 |       |          | SELECT 2  |",
        "|   0.10 | 1.00 |  +0.90 |      11 | SELECT 1  |",
        "|   0.00 | 0.50 |  +0.50 |      21 | SELECT 2  |",
        "  SELECT * FROM r.rowsource_display(11, 12, format => 'ALLSTATS')",
        "  SELECT * FROM r.rowsource_compare(11,",
        "    '0 s..60 s', '60 s..120 s')",
        "  SELECT * FROM r.rowsource_wait_report('60 s', '120 s')",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line}\n{text}");
    }
    // It did not run before, and its plan is not kept.
    assert!(
        !text.contains("rowsource_compare(21") && !text.contains("rowsource_display(21"),
        "{text}"
    );
}

#[test]
fn who_blocks_others_is_a_finding() {
    let waits = |i: i64| match i {
        0..20 => vec![Seen {
            wait: Some(("Lock", "transactionid")),
            blocker: Some(9),
            ..query(11, 12, "UPDATE t")
        }],
        _ => vec![query(21, 22, "SELECT 2")],
    };
    let mut now = minute(60 * SECOND, waits);
    now.name_blocker(9, "client backend bob app", "LOCK TABLE t");
    let mut before = Activity::new(0, 60 * SECOND, i64::MIN, "no older ones");
    let mut given = given();
    given
        .states
        .insert(9, "idle in transaction since 60 s".to_owned());
    let lines = lines(&mut now, &mut before, &given);
    let at = lines
        .iter()
        .position(|line| line == "What is wrong")
        .expect("a heading");
    assert_eq!(
        lines[at + 1..at + 4],
        [
            "  process 9 (client backend bob app) kept 1 session waiting, for 20.0 s in all, idle in transaction since 60 s, its last",
            "  statement: LOCK TABLE t",
            "    SELECT * FROM r.rowsource_blockers('60 s', '120 s')",
        ]
    );
    assert!(lines.contains(&"  the time before is not known".to_owned()));
}

#[test]
fn who_blocked_whom_is_a_tree() {
    let session = |depth, who: &str, seconds| Blocked {
        depth,
        who: who.to_owned(),
        waited_for: if depth > 0 { "relation on t" } else { "" }.to_owned(),
        seconds,
        statement: "LOCK TABLE t".to_owned(),
    };
    let mut given = given();
    given.blocked = vec![
        session(0, "9 bob app", None),
        session(1, "10 eve", Some(20.0)),
        session(2, "11 joe", Some(1.5)),
    ];
    let (mut now, mut before) = (minute(60 * SECOND, |_| Vec::new()), minute(0, |_| Vec::new()));
    let lines = lines(&mut now, &mut before, &given);
    for line in [
        "Who blocked whom",
        "| 9 bob app |               |         | LOCK TABLE t |",
        "| \u{2514}\u{2500} 10 eve | relation on t |    20.0 | LOCK TABLE t |",
        "| \u{2514}\u{2500}\u{2500} 11 joe | relation on t |     1.5 | LOCK TABLE t |",
    ] {
        let bare = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            lines.iter().any(|it| bare(it) == bare(line)),
            "{line}\n{lines:#?}"
        );
    }
    // What is wide is narrowed.
    given.blocked = vec![session(9, &"x".repeat(100), Some(1.0)); 20];
    let lines = self::lines(&mut now, &mut before, &given);
    assert!(lines.iter().all(|line| line.chars().count() <= 120), "{lines:#?}");
    assert!(lines.contains(&"and 5 more".to_owned()));
}

#[test]
fn no_line_is_wider_than_the_report() {
    let long: &'static str = Box::leak("SELECT ".repeat(100).into_boxed_str());
    let mut now = minute(60 * SECOND, |_| vec![query(i64::MIN, i64::MIN, long)]);
    let mut before = minute(0, |i| {
        if i == 0 {
            vec![query(i64::MIN, 1, long)]
        } else {
            Vec::new()
        }
    });
    let mut given = given();
    given.findings.push(Finding {
        text: "wrong ".repeat(100),
        command: String::new(),
    });
    for line in lines(&mut now, &mut before, &given) {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

#[test]
fn small_changes_are_none() {
    let steady = |i: i64| match i % 2 {
        0 => vec![query(11, 12, "SELECT 1")],
        _ => Vec::new(),
    };
    let (mut before, mut now) = (minute(0, steady), minute(60 * SECOND, steady));
    let lines = lines(&mut now, &mut before, &given());
    assert!(lines.contains(&"  no statement took much more or less".to_owned()));
}
