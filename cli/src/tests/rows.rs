//! Which row is selected, and the order of rows.

use super::*;
use crate::model::{Activity, Lock, Temp};
use crate::table::{Cell, Order};

#[test]
fn rows_are_filtered_and_sorted() {
    let mut app = app(View::Waits);
    let (all, ..) = app.table();
    type_text(&mut app, "/clientread");
    press(&mut app, KeyCode::Enter);
    let (some, ..) = app.table();
    assert!(!some.rows.is_empty() && some.rows.len() < all.rows.len());
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.table().0.rows.len(), all.rows.len());
    press(&mut app, KeyCode::Char('>'));
    let (table, _, sort) = app.table();
    assert_eq!(table.columns[sort.expect("a column")].title, "waits");
    let cells = table.rows.iter().map(|row| row.cells[1].clone());
    let waits: Vec<f64> = cells
        .map(|cell| if let Cell::Count(waits) = cell { waits } else { 0.0 })
        .collect();
    assert!(waits.len() > 2 && waits.is_sorted_by(|a, b| a >= b), "{waits:?}");
}

#[test]
fn the_selected_row_stays_selected_when_rows_move() {
    let mut app = app(View::Statements);
    press(&mut app, KeyCode::Down);
    let (table, selected, _) = app.table();
    let key = table.rows[selected].key.clone();
    press(&mut app, KeyCode::Char('>'));
    press(&mut app, KeyCode::Char('>'));
    let (table, selected, _) = app.table();
    assert_eq!(table.rows[selected].key, key);
}

/// Which program a session is of is seen on the smallest terminal.
#[test]
fn sessions_have_their_application_in_80_columns() {
    let mut app = app(View::Sessions);
    app.data.sessions[0].application = Some("nightly".to_owned());
    let shown = lines_of(&screen(&mut app, 80, 24, false)).join("\n");
    assert!(shown.contains("nightly"), "{shown}");
}

/// Each row of each view is reached by Down, also if rows look alike.
#[test]
fn down_reaches_each_row() {
    for view in View::ALL {
        let mut app = app(view);
        let twice = Activity {
            queryid: Some(7),
            node_id: Some(1),
            ..Activity::default()
        };
        app.data.activity.extend([twice.clone(), twice]);
        let files = |filetype: &str| Temp {
            pid: Some(4711),
            filetype: filetype.to_owned(),
            ..Temp::default()
        };
        app.data
            .temp
            .extend([files("sort"), files("hash"), files("hash")]);
        app.data.live.extend_from_within(..);
        app.data.sessions.extend_from_within(..);
        let rows = app.table().0.rows.len();
        for row in 1..rows {
            press(&mut app, KeyCode::Down);
            assert_eq!(app.table().1, row, "{view:?}");
        }
        press(&mut app, KeyCode::Up);
        assert_eq!(app.table().1, rows.saturating_sub(2), "{view:?}");
    }
    let mut app = app(View::Locks);
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    assert!(matches!(app.screen(), Screen::Blocker(_)));
    for row in 1..app.table().0.rows.len() {
        press(&mut app, KeyCode::Down);
        assert_eq!(app.table().1, row);
    }
}

/// A refresh that turns the order round leaves the selected row selected, also if another row concerns the
/// same statement and process.
#[test]
fn the_selected_row_is_the_same_after_a_refresh() {
    let mut app = app(View::Temp);
    let files = |filetype: &str, bytes: f64| Temp {
        pid: Some(4711),
        queryid: Some(7),
        filetype: filetype.to_owned(),
        bytes,
        ..Temp::default()
    };
    app.data.temp = vec![files("sort", 3.0), files("hash", 2.0), files("other", 1.0)];
    press(&mut app, KeyCode::Down);
    app.data.temp = vec![files("hash", 1.0), files("other", 2.0), files("sort", 3.0)];
    let (table, selected, _) = app.table();
    assert_eq!(table.rows[selected].cells[3].show(), "hash");
    // The plan of a statement that takes the most time is another one now.
    let mut app = super::app(View::Statements);
    press(&mut app, KeyCode::Down);
    let (table, selected, _) = app.table();
    let queryid = table.rows[selected].target.queryid;
    for plan in &mut app.data.plans.added.rows {
        plan.planid = plan.planid.map(|planid| planid ^ 1);
    }
    app.data.plans.added.rows.reverse();
    let (table, selected, _) = app.table();
    assert_eq!(table.rows[selected].target.queryid, queryid);
}

/// `>` leads through the columns that are shown, and back to the order of the view.
#[test]
fn sorting_leads_back_to_the_order_of_the_view() {
    for view in View::ALL {
        for width in [80, 120, 200] {
            let mut app = app(view);
            screen(&mut app, width, 40, false);
            let (before, _, own) = app.table();
            let mut sorted = Vec::new();
            for _ in 0..50 {
                press(&mut app, KeyCode::Char('>'));
                let (table, _, sort) = app.table();
                if sort == own {
                    break;
                }
                sorted.extend(sort);
                let shown = table.layout(width);
                assert!(
                    shown.iter().any(|(column, _)| Some(*column) == sort),
                    "{view:?}: {sort:?}"
                );
            }
            let shown = before.layout(width).len() - usize::from(own.is_some());
            assert_eq!(sorted.len(), shown, "{view:?}");
            let keys = |table: &crate::table::Table| {
                table.rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>()
            };
            assert_eq!(keys(&app.table().0), keys(&before), "{view:?}");
            press(&mut app, KeyCode::Char('<'));
            assert_eq!(app.table().2, sorted.last().copied(), "{view:?}");
        }
    }
}

/// Who waits for a session stands below it, whatever the locks are sorted by.
#[test]
fn a_tree_stays_a_tree() {
    let mut app = app(View::Locks);
    let lock = |depth: i64, pid: i64, waited: f64| Lock {
        depth,
        pid,
        root: 100,
        waited: Some(waited),
        ..Lock::default()
    };
    app.data.locks = vec![
        lock(0, 100, 0.0),
        lock(1, 9, 9.0),
        lock(2, 200, 50.0),
        lock(1, 10, 10.0),
    ];
    let pids = |app: &App| {
        app.table()
            .0
            .rows
            .iter()
            .map(|row| row.target.pid)
            .collect::<Vec<_>>()
    };
    press(&mut app, KeyCode::Char('>'));
    assert_eq!(pids(&app), [100, 9, 200, 10].map(Some));
    (0..3).for_each(|_| drop(press(&mut app, KeyCode::Char('>'))));
    assert!(text(&mut app).contains("sorted by waited"), "{}", app.status);
    assert_eq!(pids(&app), [100, 10, 9, 200].map(Some));
    let json = app.table().0.json();
    assert_eq!((&json[3]["pid"], &json[3]["depth"]), (&200.into(), &2.into()));
}

/// The nodes of a plan and the lines of a text are not sorted.
#[test]
fn plans_and_texts_keep_their_order() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    let nodes = |app: &App| {
        app.table()
            .0
            .rows
            .iter()
            .map(|row| row.key.clone())
            .collect::<Vec<_>>()
    };
    let before = nodes(&app);
    press(&mut app, KeyCode::Char('>'));
    assert_eq!((nodes(&app), app.table().0.order), (before, Order::Fixed));
    assert!(app.status.contains("not sorted"), "{}", app.status);
}

/// A terminal may be as wide as it can say.
#[test]
fn very_wide_terminals_have_their_columns() {
    for view in View::ALL {
        for width in [1_200, 7_000] {
            screen(&mut app(view), width, 12, false);
        }
    }
}

/// A damaged file may have any figures.
#[test]
fn figures_that_cannot_be_take_no_memory() {
    let mut app = app(View::Statements);
    open_plan(&mut app);
    press(&mut app, KeyCode::Char('f'));
    for (time, own_time) in [(1.0, -1e300), (-1.0, 1e300), (1e300, -1.0), (0.0, -5.0)] {
        for node in &mut app.data.plan {
            (node.time, node.own_time) = (time, own_time);
        }
        let shown = text(&mut app);
        assert!(shown.len() < 100_000, "{}", shown.len());
    }
}

/// The shells complete each subcommand and each option that the help has.
#[test]
fn completions_have_each_subcommand_and_option() {
    use clap::CommandFactory;
    use clap_complete::Shell;
    let declared = crate::args::Arguments::command();
    let commands: Vec<_> = declared
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .collect();
    for (shell, prefix) in [(Shell::Bash, "--"), (Shell::Zsh, "--"), (Shell::Fish, "-l ")] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut declared.clone(), "rowsource", &mut text);
        let text = String::from_utf8(text).expect("a text");
        let has = |word: &str| {
            let mut rest = text.match_indices(word);
            let ends = |at: usize| !text[at..].starts_with(|it: char| it.is_alphanumeric() || it == '-');
            rest.any(|(at, _)| ends(at + word.len()))
        };
        for command in &commands {
            assert!(has(command.get_name()), "{shell}: {}", command.get_name());
        }
        let arguments = commands.iter().flat_map(|command| command.get_arguments());
        for option in { arguments.chain(declared.get_arguments()) }.filter_map(|it| it.get_long()) {
            assert!(has(&format!("{prefix}{option}")), "{shell}: {option}");
        }
    }
}
