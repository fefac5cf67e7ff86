//! Figures are shown whole: with their units, however narrow the terminal is.

use super::*;
use crate::table::Table;

/// Returns the title that a screen shows, which is on the third line.
fn title(app: &mut App, width: u16) -> String {
    lines_of(&screen(app, width, 24, false))[2].clone()
}

#[test]
fn titles_keep_the_units_of_their_figures() {
    let mut app = app(View::Nodes);
    app.data.nodes.seconds = Some(3_600.5);
    for (width, begins) in [(120, "Nodes of the statements"), (80, "Nodes: "), (50, "Nodes: ")] {
        let shown = title(&mut app, width);
        assert!(
            shown.starts_with(begins) && shown.ends_with(" 3600.5 s"),
            "{shown}"
        );
    }
    let mut app = super::app(View::Live);
    open_running(&mut app);
    let pid = app.process();
    let running = app.data.live.iter_mut().find(|row| Some(row.pid) == pid);
    let running = running.expect("the statement");
    running.pid = 4_194_304;
    running.state = Some("running".to_owned());
    (running.elapsed, running.left) = (Some(3.7e9), Some(3.6e6));
    (running.percent, running.low, running.high) = (Some(100.0), Some(99.0), Some(100.0));
    let long = "Process 4194304: running for 1027h46m";
    let expected = [
        (
            120,
            format!("{long}  ########## 100%  (99 to 100 % done, about 1h00m left)"),
        ),
        (90, format!("{long}  100%  (99 to 100 % done, about 1h00m left)")),
        (
            80,
            "Process 4194304, 1027h46m, 100% (99 to 100 % done), 1h00m left".to_owned(),
        ),
        (50, "Process 4194304, 1027h46m, 100%, 1h00m left".to_owned()),
        (30, "Process 4194304, 1027h46m".to_owned()),
    ];
    press(&mut app, KeyCode::Esc);
    app.push(Screen::LivePlan(4_194_304));
    for (width, expected) in expected {
        assert_eq!(title(&mut app, width), expected);
    }
}

/// Returns the columns of figures that are narrower than a figure in them.
fn cut_figures(table: &Table, width: u16) -> Vec<&'static str> {
    let shown = table.layout(width).into_iter();
    let cut = shown.filter(|(index, wide)| {
        let mut cells = table.rows.iter().map(|row| row.cells[*index].show().len());
        table.is_number(*index) && cells.any(|long| long > usize::from(*wide))
    });
    cut.map(|(index, _)| table.columns[index].title).collect()
}

/// Names and texts become narrower before that.
#[test]
fn columns_of_figures_are_as_wide_as_their_figures() {
    for (name, view, keys) in SCREENS {
        let mut app = app(*view);
        let long = Some("a_name_that_is_as_long_as_names_of_users_and_of_tables_may_be".to_owned());
        for node in app.data.plan.iter_mut().chain(&mut app.data.nodes.added.rows) {
            node.object.clone_from(&long);
            (node.own_time, node.time, node.wait) = (4.4e9, 3.7e9, 3.7e9);
            (node.rows, node.plan_rows) = (7.7e10, Some(1.0));
        }
        for node in &mut app.data.live_plan {
            node.object.clone_from(&long);
            (node.own_time, node.time) = (Some(3.7e9), Some(3.7e9));
        }
        for finding in &mut app.data.findings {
            (finding.factor, finding.before) = (Some(1_234_567.0), Some(3.7e9));
        }
        keys(&mut app);
        let (table, ..) = app.table();
        for width in [80, 100, 110, 130, 150, 200] {
            assert_eq!(cut_figures(&table, width), [""; 0], "{name}, {width} columns");
        }
    }
}
