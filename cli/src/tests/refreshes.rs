//! What is asked of a server, and what becomes of its answers.

use super::*;
use crate::delta::Counted;
use crate::model::{Finding, LiveNode, Lock, Part, Session, Temp, Text};
use crate::queries::Want;

/// After the first refresh, the server is asked only for the plans that ran since.
#[test]
fn plans_that_did_not_run_are_not_read_again() {
    let mut app = app(View::Statements);
    let (plans, at) = (app.data.plans.added.rows.clone(), app.data.at);
    assert!(app.wants().contains(&Want::Plans(Some(at as i64 - 2))));
    let key = plans[0].key();
    let mut all = recorded().pop().expect("a refresh");
    all.parts.retain(|part| matches!(part, Part::Plans(_)));
    let Some(Part::Plans(before)) = all.parts.pop() else {
        panic!("the recording has plans")
    };
    let before = before.into_iter().find(|plan| plan.key() == key);
    let mut ran = before.expect("the plan");
    (ran.calls, ran.time) = (ran.calls + 3.0, ran.time + 7.0);
    let next = |at: f64, rows: &[Plan]| Snapshot {
        at,
        server: all.server.clone(),
        parts: vec![Part::ChangedPlans(rows.to_vec())],
        ..Snapshot::default()
    };
    app.apply(next(at + 1.0, std::slice::from_ref(&ran)));
    let added = &app.data.plans.added.rows;
    assert_eq!((added.len(), added[0].calls), (1, 3.0));
    app.apply(next(at + 2.0, &[]));
    assert!(app.data.plans.added.rows.is_empty());
    app.apply(next(at + 400.0, &[]));
    assert!(app.wants().contains(&Want::Plans(None)));
}

#[test]
fn a_restart_a_reset_and_evictions_are_said() {
    let mut app = app(View::Statements);
    let mut next = recorded().remove(2);
    next.server.started += 100.0;
    app.apply(next.clone());
    let news = |app: &App| app.news.now(app.data.at).unwrap_or_default().to_owned();
    assert!(news(&app).contains("restarted"), "{}", news(&app));
    assert!(app.data.plans.seconds.is_none());
    next.server.reset = Some(next.at);
    app.apply(next.clone());
    assert!(news(&app).contains("reset"), "{}", news(&app));
    next.server.evictions += 7.0;
    app.apply(next);
    assert!(news(&app).contains("7 plans were evicted"), "{}", news(&app));
    let table = app.table().0;
    assert!(table.rows.iter().all(|row| !row.cells[0].show().starts_with('-')));
}

/// The counters, which lie in the server's memory, stay and go on.
#[test]
fn an_extension_that_is_dropped_or_created_is_no_reset() {
    let mut app = app(View::Statements);
    let mut next = recorded().remove(2);
    let (schema, reset) = (next.server.schema.clone(), next.server.reset);
    assert!(reset.is_some());
    let evictions = next.server.evictions + 3.0;
    for is_there in [false, true, false, true] {
        next.at += 1.0;
        next.server.schema = schema.clone().filter(|_| is_there);
        next.server.reset = reset.filter(|_| is_there);
        next.server.evictions = if is_there { evictions } else { 0.0 };
        app.apply(next.clone());
        assert_eq!(app.data.event, None);
    }
}

/// What a screen lacks is said only when the server has answered for it.
#[test]
fn nothing_is_said_before_the_answer() {
    let mut app = app(View::Sessions);
    app.wants();
    app.apply(recorded().remove(2));
    app.data.locks.clear();
    press(&mut app, KeyCode::Char('b'));
    assert!(text(&mut app).contains("is awaited"));
    // This answer was for the list.
    app.apply(recorded().remove(2));
    app.data.locks.clear();
    assert!(text(&mut app).contains("is awaited"));
    app.wants();
    app.apply(recorded().remove(2));
    app.data.locks.clear();
    assert!(text(&mut app).contains("waits for no other session"));
}

/// Returns the texts that a screen wants.
fn wanted_texts(app: &mut App) -> Vec<i64> {
    let texts = app.wants().into_iter().find_map(|want| match want {
        Want::Texts(ids) => Some(ids),
        _ => None,
    });
    texts.unwrap_or_default()
}

/// Also those of temporary files.
#[test]
fn a_text_that_did_not_come_is_asked_for_again() {
    let mut app = app(View::Temp);
    wanted_texts(&mut app);
    app.data.temp.push(Temp {
        queryid: Some(4711),
        ..Temp::default()
    });
    assert_eq!(wanted_texts(&mut app), [4711]);
    // The server had no time, and has none for long: it is not asked each time.
    let begin = app.data.at;
    let mut asked = Vec::new();
    for second in 1..=1_500 {
        app.data.at = begin + f64::from(second);
        if wanted_texts(&mut app).contains(&4711) {
            asked.push(second);
        }
    }
    assert_eq!(asked, [2, 10, 42, 170, 470, 770, 1_070, 1_370]);
    let mut next = recorded().remove(2);
    next.at = app.data.at + 1_000.0;
    next.parts = vec![Part::Texts(vec![Text {
        queryid: 4711,
        query: Some("SELECT 4711".to_owned()),
        ..Text::default()
    }])];
    app.apply(next);
    assert!(!wanted_texts(&mut app).contains(&4711));
    assert_eq!(app.data.text(Some(4711)), Some("SELECT 4711"));
    // A restart forgets neither the text nor that it is known.
    let mut next = recorded().remove(2);
    (next.at, next.server.started) = (app.data.at + 1.0, next.server.started + 1_000.0);
    app.apply(next);
    app.data.temp.push(Temp {
        queryid: Some(4711),
        ..Temp::default()
    });
    assert!(!wanted_texts(&mut app).contains(&4711));
}

/// Many statements do not keep the texts of a short list away, and all of them come after a while.
#[test]
fn the_texts_of_many_statements_come_one_after_another() {
    let mut app = app(View::Activity);
    let plan = app.data.plans.added.rows[0].clone();
    app.data.plans.added.rows = (1..=1_000)
        .map(|id| Plan {
            queryid: Some(id),
            ..plan.clone()
        })
        .collect();
    app.data.activity[0].queryid = Some(5_000);
    let first = wanted_texts(&mut app);
    assert!(first.contains(&5_000) && first.len() == 300, "{first:?}");
    let more: usize = (0..9).map(|_| wanted_texts(&mut app).len()).sum();
    assert!(first.len() + more >= 1_000, "{more}");
}

/// A list says that it has more rows than came.
#[test]
fn a_list_that_is_cut_says_so() {
    for (view, part) in [
        (View::Live, "Live"),
        (View::Activity, "Activity"),
        (View::Findings, "Findings"),
        (View::Temp, "Temp"),
        (View::Locks, "Locks"),
        (View::Sessions, "Sessions"),
    ] {
        let mut app = app(view);
        let mut next = recorded().remove(2);
        next.totals.insert(part.to_owned(), 4_711);
        app.apply(next);
        let rows = app.table().0.rows.len();
        let shown = text(&mut app);
        assert!(shown.contains(&format!("{rows} of 4711 rows")), "{shown}");
        app.apply(recorded().remove(2));
        assert!(!text(&mut app).contains("of 4711 rows"));
    }
}

/// Whether a session waits is said only if it is known.
#[test]
fn a_blocker_that_is_not_listed_is_found() {
    let lock = |pid: i64, query: &str| Lock {
        pid,
        query: Some(query.to_owned()),
        ..Lock::default()
    };
    let mut app = app(View::Sessions);
    let pid = app.process().expect("a process");
    press(&mut app, KeyCode::Char('b'));
    assert!(app.wants().contains(&Want::Blockers(pid)));
    let answer = |parts: Vec<Part>, missing: &[&str]| Snapshot {
        parts,
        missing: missing.iter().map(|&it| it.to_owned()).collect(),
        ..recorded().remove(2)
    };
    app.apply(answer(
        vec![],
        &["Blockers: canceling statement due to statement timeout"],
    ));
    let shown = text(&mut app);
    assert!(
        shown.contains("statement timeout") && !shown.contains("no other session"),
        "{shown}"
    );
    app.apply(answer(
        vec![Part::Blockers(vec![lock(pid, "it"), lock(7, "the blocker")])],
        &[],
    ));
    assert!(text(&mut app).contains("the blocker"));
    // What the list had may be over.
    app.data.locks = vec![
        lock(7, "old"),
        Lock {
            depth: 1,
            ..lock(pid, "it")
        },
    ];
    app.apply(answer(vec![Part::Blockers(vec![])], &[]));
    assert!(text(&mut app).contains("waits for no other session"));
    // A recording has only the list.
    app.data.is_replay = true;
    app.data.blockers = None;
    app.data.locks.clear();
    app.data.totals.insert("Locks".to_owned(), 4_711);
    let shown = text(&mut app);
    assert!(
        shown.contains("0 of 4711 rows") && !shown.contains("no other"),
        "{shown}"
    );
}

/// A recording has the lists, with the process that is looked at, however many others there are.
#[test]
fn a_running_plan_asks_for_its_process() {
    let mut app = App::new(
        Screen::LivePlan(4711),
        String::new(),
        Duration::from_secs(1),
        false,
    );
    app.data.server = recorded().remove(2).server;
    let wants = app.all_wants();
    for (want, order) in [
        (Want::Live(Some(4711)), "elapsed"),
        (Want::Sessions(Some(4711)), "query_start"),
    ] {
        assert!(wants.contains(&want), "{wants:?}");
        let (sql, _) = want.query(&app.data.server);
        assert!(
            sql.contains(&format!("ORDER BY pid = 4711 DESC, {order}")),
            "{sql}"
        );
    }
    assert!(!wants.contains(&Want::Live(None)) && wants.contains(&Want::Locks));
    // Without a recording: only its rows, and its session only if it runs nothing.
    let mut wants = vec![Want::LivePlan(4711), Want::LiveOf(4711), Want::SessionOf(4711)];
    assert_eq!(app.wants(), wants);
    app.data.live_plan = vec![LiveNode {
        pid: 4711,
        ..LiveNode::default()
    }];
    wants.pop();
    assert_eq!(app.wants(), wants);
}

/// A process that does not exist does not run nothing.
#[test]
fn a_process_that_is_not_there_is_said() {
    let mut app = App::new(
        Screen::LivePlan(4711),
        String::new(),
        Duration::from_secs(1),
        false,
    );
    let refresh = |sessions: Option<Vec<Session>>| Snapshot {
        parts: sessions
            .map(Part::Sessions)
            .into_iter()
            .chain([Part::LivePlan(vec![])])
            .collect(),
        ..recorded().remove(2)
    };
    let session = Session {
        pid: 4711,
        state: Some("idle".to_owned()),
        query: Some("SELECT 4711".to_owned()),
        ..Session::default()
    };
    let own = Session {
        is_own: true,
        ..session.clone()
    };
    for (sessions, says, seconds) in [
        (Some(vec![]), "the server has no process 4711 now", 1.0),
        (Some(vec![session]), "SELECT 4711", 2.0),
        (None, "runs no measured statement now", 3.0),
        (
            Some(vec![own]),
            "process 4711 works for rowsource now, behind a pooler",
            4.0,
        ),
    ] {
        app.wants();
        let mut next = refresh(sessions);
        next.at += seconds;
        app.apply(next);
        let shown = text(&mut app);
        assert!(
            shown.contains(says) && !shown.contains("nothing to show"),
            "{shown}"
        );
        assert_eq!(
            shown.contains("no process"),
            says.contains("no process"),
            "{shown}"
        );
    }
}

/// What is missing and what came in between is in JSON, with words for a program.
#[test]
fn json_says_what_is_missing_and_what_happened() {
    let mut app = app(View::Waits);
    let json = crate::json::of(&app);
    assert_eq!(
        (&json["missing"], &json["events"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    assert_eq!(json["view"], "waits");
    assert!(json["interval"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert_eq!(
        json["rows"].as_array().map(Vec::len),
        Some(app.table().0.rows.len())
    );
    let mut next = recorded().remove(2);
    next.server.evictions += 7.0;
    (next.server.sees_all, next.server.user) = (false, "guest".to_owned());
    next.missing = vec!["Waits: canceling statement due to statement timeout".to_owned()];
    app.apply(next.clone());
    next.server.started += 100.0;
    next.missing = vec!["Waits: permission denied for view pg_stat_rowsource_system_waits".to_owned()];
    app.apply(next.clone());
    let json = crate::json::of(&app);
    let words = |list: &str, key: &str| {
        let list = json[list].as_array().expect("a list").iter();
        list.map(|it| it[key].as_str().expect("a word").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(words("events", "kind"), ["eviction", "restart"]);
    assert_eq!(words("missing", "what"), ["privilege", "answer"]);
    assert!(words("missing", "why")[0].contains("GRANT pg_read_all_stats TO guest"));
    assert_eq!(json["missing"][1]["part"], "Waits");
    assert!(words("missing", "why")[1].starts_with("permission denied"));
    next.server.schema = None;
    app.apply(next);
    let json = crate::json::of(&app);
    assert_eq!(
        (&json["missing"][0]["what"], &json["view"]),
        (&"extension".into(), &"sessions".into())
    );
}

/// The findings come less often than the rest, and beside it: neither takes anything from the other.
#[test]
fn slow_findings_hold_nothing_up() {
    let mut app = app(View::Findings);
    app.data.findings.clear();
    assert!(app.wants().contains(&Want::Findings));
    let refresh = |seconds: f64, missing: &[&str]| {
        let mut next = recorded().remove(2);
        next.at += seconds;
        next.parts.retain(|part| !matches!(part, Part::Findings(_)));
        next.missing = missing.iter().map(|&it| it.to_owned()).collect();
        next
    };
    app.apply(refresh(1.0, &[]));
    assert!(text(&mut app).contains("is awaited"));
    app.apply_slow(Err("too many clients already".to_owned()));
    app.apply(refresh(2.0, &["Waits: a timeout"]));
    let shown = text(&mut app);
    assert!(
        shown.contains("not refreshed: findings: too many clients") && shown.contains("waits: a timeout"),
        "{shown}"
    );
    let found = Finding {
        id: 1,
        cause: Some("an index is gone".to_owned()),
        ..Finding::default()
    };
    let slow = Snapshot {
        parts: vec![Part::Findings(vec![found])],
        ..refresh(2.5, &[])
    };
    let at = app.data.at;
    app.apply_slow(Ok(slow));
    assert_eq!(app.data.at, at);
    let shown = text(&mut app);
    assert!(
        shown.contains("an index is gone") && shown.contains("waits: a timeout"),
        "{shown}"
    );
    assert!(!shown.contains("too many clients"), "{shown}");
    app.apply(refresh(12.5, &[]));
    let shown = text(&mut app);
    assert!(
        shown.contains("an index is gone") && shown.contains("as of 10 s ago"),
        "{shown}"
    );
    assert_eq!(press(&mut app, KeyCode::Char('r')), [Effect::Reload]);
    // Elsewhere, it does not matter that they are missing.
    app.apply_slow(Err("too many clients already".to_owned()));
    press(&mut app, KeyCode::Char('6'));
    assert!(!text(&mut app).contains("too many clients"));
}

/// The texts, which are asked for after a refresh, do not hide what was missing in it.
#[test]
fn texts_do_not_hide_what_is_missing() {
    let mut app = app(View::Waits);
    let mut next = recorded().remove(2);
    next.missing = vec!["Waits: a timeout".to_owned()];
    app.apply(next.clone());
    next.missing.clear();
    next.parts = vec![Part::Texts(Vec::new())];
    app.apply(next);
    assert!(text(&mut app).contains("waits: a timeout"));
}

/// Names of the program's parts are nothing that a user knows.
#[test]
fn what_is_missing_has_the_name_that_the_screen_has() {
    let mut app = app(View::Statements);
    let mut next = recorded().remove(2);
    let refused = "canceling statement due to statement timeout";
    next.missing = vec![format!("ChangedPlans: {refused}"), format!("Working: {refused}")];
    app.apply(next);
    let shown = text(&mut app);
    for says in ["statements", "what processes do now"] {
        let says = format!("not refreshed: {says}: {refused}");
        assert!(shown.contains(&says), "{shown}");
    }
}

/// A server may evict plans at each refresh. That is said for some seconds, and hides neither what a key
/// does nor a state nor, for long, the keys.
#[test]
fn events_leave_room_for_the_rest_of_the_last_line() {
    let mut app = app(View::Statements);
    let mut next = recorded().remove(2);
    let last = |app: &mut App| text(app).lines().last().unwrap_or_default().to_owned();
    let mut refresh = |app: &mut App| {
        next.at += 1.0;
        next.server.evictions += 7.0;
        app.apply(next.clone());
        last(app)
    };
    let lines: Vec<String> = (0..60).map(|_| refresh(&mut app)).collect();
    let says = lines
        .iter()
        .filter(|line| line.contains("7 plans were evicted"))
        .count();
    let hints = lines.iter().filter(|line| line.contains("q leave")).count();
    assert_eq!((says, hints), (10, 50), "{lines:?}");
    // It is said again, beside a filter and beside a pause.
    type_text(&mut app, "/count\n");
    press(&mut app, KeyCode::Enter);
    let lines: Vec<String> = (0..30).map(|_| refresh(&mut app)).collect();
    assert!(
        lines.iter().all(|line| line.starts_with("filter: count")),
        "{lines:?}"
    );
    let says = lines
        .iter()
        .filter(|line| line.contains("7 plans were evicted"))
        .count();
    assert_eq!(says, 5, "{lines:?}");
    refresh(&mut app);
    press(&mut app, KeyCode::Char(' '));
    let shown = last(&mut app);
    assert!(shown.starts_with("PAUSED: Space goes on"), "{shown}");
}

/// A row whose columns are all NULL, as it comes from the server: without them.
#[test]
fn each_part_has_rows_without_values() {
    for name in [
        "Plans",
        "ChangedPlans",
        "Texts",
        "Nodes",
        "ChangedNodes",
        "Plan",
        "Live",
        "LivePlan",
        "Activity",
        "Findings",
        "Waits",
        "Temp",
        "Locks",
        "Blockers",
        "Sessions",
    ] {
        let row = serde_json::json!({ name: [{}] });
        let came: Part = serde_json::from_value(row).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(came.name(), name);
    }
}

/// The sum of what is not stored, which has no user, is a row of the statements.
#[test]
fn what_is_not_stored_is_a_row() {
    let mut app = app(View::Statements);
    let others = |calls: f64| Snapshot {
        at: app.data.at + calls,
        server: app.data.server.clone(),
        parts: vec![
            serde_json::from_value(serde_json::json!({
                "ChangedPlans": [{ "toplevel": true, "calls": calls, "time": calls }]
            }))
            .expect("a part"),
        ],
        ..Snapshot::default()
    };
    let [first, second] = [others(1.0), others(3.0)];
    app.apply(first);
    app.apply(second);
    let (table, ..) = app.table();
    let shown: Vec<_> = table.rows[0].cells.iter().map(|cell| cell.show()).collect();
    assert!(
        shown.iter().any(|cell| cell.starts_with("others: ")) && shown[2].trim() == "2",
        "{shown:?}"
    );
}

/// A view that is opened again does not show what was there when it was left.
#[test]
fn lists_of_before_are_not_those_of_now() {
    let mut app = app(View::Live);
    assert!(!app.table().0.rows.is_empty());
    let mut other = recorded().pop().expect("a refresh");
    other.at = app.data.at + 2.0;
    other.parts.retain(|part| matches!(part, Part::Plans(_)));
    press(&mut app, KeyCode::Char('1'));
    app.apply(other.clone());
    for view in ['3', '4', '7', '8', '9'] {
        press(&mut app, KeyCode::Char(view));
        let is_activity = view == '4';
        assert_eq!(app.table().0.rows.is_empty(), !is_activity, "{view}");
    }
    other.at += 20.0;
    app.apply(other);
    press(&mut app, KeyCode::Char('4'));
    assert!(app.table().0.rows.is_empty());
    // What the server refused stays: the screen says that it is not refreshed.
    let mut app = self::app(View::Live);
    let mut refused = recorded().pop().expect("a refresh");
    refused.parts.retain(|part| matches!(part, Part::Plans(_)));
    refused.missing = vec!["Live: canceling statement due to statement timeout".to_owned()];
    app.apply(refused);
    assert!(!app.table().0.rows.is_empty());
}
