//! The keys that the last line offers do something for the selected row.

use super::*;
use crate::model::Lock;

fn offered(app: &mut App) -> String {
    app.status.clear();
    text(app).lines().last().unwrap_or_default().to_owned()
}

/// The nodes below a Gather ran in several processes at once: none of them is more than the whole.
#[test]
fn no_node_takes_more_than_the_whole() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    assert!(text(&mut app).contains("sums of all processes"));
    press(&mut app, KeyCode::Char('f'));
    let (table, ..) = app.table();
    assert!(app.data.plan.iter().any(|node| node.time > app.data.plan[0].time));
    let shares = table.rows.iter().map(|row| match row.cells[2] {
        crate::table::Cell::Percent(share) => share,
        _ => f64::NAN,
    });
    let shares: Vec<f64> = shares.collect();
    assert!((shares[0] - 100.0).abs() < 1e-6, "{shares:?}");
    assert!(shares.iter().all(|share| *share <= 100.0 + 1e-6), "{shares:?}");
    assert!(text(&mut app).contains("sums of all processes"));
}

/// The cause of a finding, and the first line of a comparison, are longer than a small terminal is wide.
#[test]
fn what_is_cut_is_shown_whole_below() {
    let shown = |app: &mut App| lines_of(&screen(app, 80, 24, false)).join(" ");
    let mut app = app(View::Findings);
    let cause = "the index orders_customer_and_day_of_delivery_idx of table orders is gone";
    app.data.findings[0].cause = Some(cause.to_owned());
    app.data.findings[0].basis = Some("tested against the plan before".to_owned());
    let found = shown(&mut app);
    let since = app.data.findings[0].at.clone().expect("a time");
    let wanted = format!("slower since {since} because: {cause}");
    assert!(found.contains(&wanted), "{found}");
    let call = calls(&mut app, KeyCode::Enter);
    let line = format!("0.240 ms -> 8.4 ms: Seq Scan on orders +8.2 ms, because {cause}");
    app.answer(&call, vec![line, "-".repeat(200)]);
    let found = shown(&mut app);
    assert!(found.contains("is gone"), "{found}");
    press(&mut app, KeyCode::Down);
    assert!(!shown(&mut app).contains("is gone"));
}

/// Whoever types a colon sees which views there are, and Tab completes their names.
#[test]
fn the_views_are_listed_after_a_colon() {
    let mut app = app(View::Waits);
    press(&mut app, KeyCode::Char(':'));
    for view in View::ALL {
        assert!(lines_of(&screen(&mut app, 80, 24, false))[23].contains(view.name()));
    }
    type_text(&mut app, "s");
    assert_eq!(offered(&mut app), ":s_  statements sessions");
    type_text(&mut app, "e");
    press(&mut app, KeyCode::Tab);
    assert_eq!(offered(&mut app), ":sessions_  sessions");
    press(&mut app, KeyCode::Enter);
    assert_eq!(*app.screen(), Screen::List(View::Sessions));
    type_text(&mut app, ":x");
    press(&mut app, KeyCode::Tab);
    assert_eq!(offered(&mut app), ":x_  no view has this name");
}

/// A session that blocks another one and is idle has no statement to cancel, and nothing blocks it.
#[test]
fn keys_are_offered_that_do_something() {
    let mut app = app(View::Locks);
    let lock = |pid: i64, depth: i64, state: &str| Lock {
        pid,
        depth,
        state: Some(state.to_owned()),
        ..Lock::default()
    };
    app.data.locks = vec![
        lock(7, 0, "idle in transaction"),
        lock(8, 1, "active"),
        lock(0, 0, ""),
        lock(9, 1, "active"),
    ];
    let first = offered(&mut app);
    assert!(
        first.starts_with("Enter its last statement  T terminate  ") && first.ends_with("? help  q leave"),
        "{first}"
    );
    press(&mut app, KeyCode::Down);
    let second = offered(&mut app);
    assert!(
        second.starts_with("Enter what blocks it  b who blocks it  C cancel  T terminate"),
        "{second}"
    );
    press(&mut app, KeyCode::Enter);
    // Who blocks it runs nothing.
    let blocker = offered(&mut app);
    assert!(blocker.starts_with("T terminate  y copy  Esc back"), "{blocker}");
    assert_eq!(press(&mut app, KeyCode::Enter), []);
    assert!(app.status.contains("runs no statement now"), "{}", app.status);
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Down);
    let prepared = offered(&mut app);
    assert!(prepared.starts_with("/ filter"), "{prepared}");
    assert_eq!(press(&mut app, KeyCode::Enter), []);
    assert!(app.status.contains("ROLLBACK PREPARED"), "{}", app.status);
}

/// A server without the extension shows its sessions, whatever the screen is: the selected one is meant.
#[test]
fn a_server_without_the_extension_has_only_sessions() {
    let first = app(View::Sessions).process().expect("a process");
    for screen in [
        Screen::List(View::Statements),
        Screen::List(View::Waits),
        Screen::LivePlan(first + 1_000_000),
    ] {
        let mut app = App::new(screen, String::new(), Duration::from_secs(1), false);
        let mut refresh = recorded().pop().expect("a refresh");
        refresh.server.schema = None;
        app.apply(refresh);
        let offers = offered(&mut app);
        assert!(
            offers.contains("T terminate") && offers.contains("/ filter"),
            "{offers}"
        );
        for absent in ["w report", "e as", "Enter", "b who"] {
            assert!(!offers.contains(absent), "{offers}");
        }
        let selected = app.target().and_then(|target| target.pid);
        assert!(selected.is_some());
        let asked = question(&mut app, 'T');
        assert_eq!(Some(asked), selected);
    }
}

/// Who blocks and works leads on to what it runs.
#[test]
fn a_blocker_that_works_has_a_plan() {
    let mut app = app(View::Locks);
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    let offers = offered(&mut app);
    assert!(
        offers.starts_with("Enter its plan  C cancel  T terminate"),
        "{offers}"
    );
    let pid = app.process().expect("a process");
    press(&mut app, KeyCode::Enter);
    assert_eq!(*app.screen(), Screen::LivePlan(pid));
}

/// Where Enter leads nowhere, it is not offered, and says why not.
#[test]
fn enter_says_why_it_leads_nowhere() {
    for (name, view, keys) in SCREENS {
        let mut app = app(*view);
        keys(&mut app);
        if app.mode != Mode::Normal || app.trouble.is_some() || matches!(app.screen(), Screen::Text { .. }) {
            continue;
        }
        let offers = offered(&mut app);
        let before = app.screen().clone();
        press(&mut app, KeyCode::Enter);
        let leads = *app.screen() != before;
        assert_eq!(offers.contains("Enter"), leads, "{name}: {offers}");
        assert!(
            leads || !app.status.is_empty() || app.table().0.rows.is_empty(),
            "{name}"
        );
    }
}

#[test]
fn hints_fit_the_smallest_terminal() {
    for (name, view, keys) in SCREENS {
        let mut app = app(*view);
        keys(&mut app);
        for width in [20, 80, 120] {
            let hint = crate::hints::hint(&app, width);
            assert!(hint.len() <= width && hint.contains("? help"), "{name}: {hint}");
            let is_list = matches!(app.screen(), Screen::List(_));
            assert!(
                hint.contains(if is_list { "q leave" } else { "Esc back" }),
                "{name}: {hint}"
            );
        }
    }
}
