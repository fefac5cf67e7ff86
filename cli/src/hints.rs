//! The keys that the last line offers: those that do something for the selected row.

use unicode_width::UnicodeWidthStr;

use crate::app::App;
use crate::screens::{Screen, View};
use crate::table::{Target, is_idle};

/// What every line has, and has last.
const ESCAPE: &str = "Esc back";
const HELP: &str = "? help";
const LEAVE: &str = "q leave";
/// What the server would have to make.
const WRITE: [&str; 2] = ["w report", "w HTML"];
/// What can be sent to a session.
const CANCEL: &str = "C cancel";
const TERMINATE: &str = "T terminate";
/// Where a statement that has ended has its plan.
const STORED: &str = "Enter its stored plan";

/// Returns the keys that lead on from a screen, as many as have room. Those that send signals are absent if
/// none are sent.
pub fn hint(app: &App, width: usize) -> String {
    let target = app.target().unwrap_or_default();
    // A server without the extension has only the sessions, and of them no plans.
    let has_extension = app.data.server.has_extension();
    let sessions = Screen::List(View::Sessions);
    let screen = match app.screen() {
        _ if !has_extension && app.data.at > 0.0 => &sessions,
        screen => screen,
    };
    let mut keys = of_row(screen, &target);
    if let Screen::LivePlan(pid) = screen {
        let sessions = app.data.sessions.iter().filter(|_| app.data.knows_sessions());
        let mut idle = sessions.filter(|session| session.pid == *pid && is_idle(session.state.as_deref()));
        if idle.next().is_some() {
            keys.retain(|key| [TERMINATE, STORED, "e EXPLAIN"].contains(key));
        }
    }
    if !has_extension {
        keys.retain(|key| [CANCEL, TERMINATE].contains(key));
    }
    keys.extend(of_screen(screen));
    if app.read_only || app.data.is_replay {
        keys.retain(|key| ![CANCEL, TERMINATE].contains(key));
    }
    if app.data.is_replay {
        keys.retain(|key| !WRITE.contains(key));
    }
    let (last, more): (&[&str], _) = if app.has_above() {
        (&[ESCAPE, HELP], Some(LEAVE))
    } else {
        (&[HELP, LEAVE], None)
    };
    let needed: usize = last.iter().map(|key| key.width() + 2).sum();
    let mut left = (width + 2).saturating_sub(needed);
    let mut has_room = |key: &&str| {
        let has_room = key.width() + 2 <= left;
        left = left.saturating_sub(key.width() + 2);
        has_room
    };
    keys.retain(&mut has_room);
    let more = more.filter(has_room);
    keys.extend(last);
    keys.extend(more);
    keys.join("  ")
}

/// Returns those that concern the selected row.
fn of_row(screen: &Screen, target: &Target) -> Vec<&'static str> {
    let has_plan = target.plan.is_some();
    let mut keys = Vec::new();
    let mut offer = |key, is_offered: bool| keys.extend(is_offered.then_some(key));
    match screen {
        Screen::List(View::Statements | View::Nodes) | Screen::Plans(_) => {
            offer("Enter its plan", has_plan);
            offer("e EXPLAIN", has_plan);
            offer("c compare", has_plan);
        }
        Screen::List(View::Live | View::Sessions | View::Temp | View::Locks) | Screen::Blocker(_) => {
            let is_process = target.pid.is_some_and(|pid| pid > 0);
            let is_of_locks = matches!(screen, Screen::List(View::Locks));
            let is_list = !matches!(screen, Screen::Blocker(_));
            offer("Enter what blocks it", is_of_locks && target.waits);
            let leads_to_plan = is_process && !(is_of_locks && target.waits);
            offer("Enter its plan", leads_to_plan && !target.is_idle);
            offer(
                "Enter its last statement",
                leads_to_plan && target.is_idle && is_list,
            );
            offer("b who blocks it", is_list && is_process && target.waits);
            offer(CANCEL, is_process && !target.is_idle);
            offer(TERMINATE, is_process);
        }
        Screen::List(View::Findings) => offer("Enter before and after", target.call.is_some()),
        Screen::List(View::Activity) => offer("Enter its plan", target.queryid.is_some()),
        Screen::Plan(_) => {
            for key in [
                "Enter node",
                "e EXPLAIN",
                "f where time goes",
                "c compare",
                "w HTML",
            ] {
                offer(key, has_plan);
            }
        }
        Screen::Flame(_) | Screen::Node(..) => {
            offer("Enter node", has_plan);
            for key in ["e EXPLAIN", "c compare", "w HTML"] {
                offer(key, true);
            }
        }
        Screen::LivePlan(_) => {
            offer(STORED, target.queryid.is_some());
            offer("e EXPLAIN", target.queryid.is_some());
            offer(
                "e as a table",
                target.node_id.is_some() && target.queryid.is_none(),
            );
            for key in ["b who blocks it", CANCEL, TERMINATE] {
                offer(key, true);
            }
        }
        Screen::List(View::Waits) | Screen::Text { .. } => {}
    }
    keys
}

/// Returns those that concern all rows.
fn of_screen(screen: &Screen) -> &'static [&'static str] {
    match screen {
        Screen::List(View::Statements | View::Nodes | View::Activity | View::Waits | View::Temp) => &[
            "/ filter",
            "< > sort",
            "Space pause",
            "w report",
            ": view by name",
        ],
        Screen::List(_) => &["/ filter", "< > sort", "Space pause"],
        Screen::Plans(_) => &["/ filter", "< > sort"],
        Screen::Plan(_) | Screen::Flame(_) | Screen::Node(..) | Screen::LivePlan(_) => &[],
        Screen::Blocker(_) => &["y copy"],
        Screen::Text { lines: None, .. } => &[],
        Screen::Text { .. } => &["arrows PgUp PgDn", "/ filter", "y copy"],
    }
}
