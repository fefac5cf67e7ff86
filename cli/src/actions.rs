//! What the keys do that ask the server for something about a row: EXPLAIN, a comparison, a page, a signal.

use std::collections::BTreeSet;

use crossterm::event::{KeyCode, KeyEvent};

use crate::app::{App, Effect, MAX_TYPED, Mode, NO_ROW};
use crate::keys::{self, Action};
use crate::model::Plan;
use crate::queries::{PlanKey, Want};
use crate::screens::{Screen, View};
use crate::screens_plan::key_of;
use crate::signals::{Addressee, Signal};
use crate::table::Target;

/// What is said to who asks for another text meanwhile.
const STILL_CALLING: &str = "the server still works on what was asked for before";

/// What a text says that a recording does not have.
const NOT_RECORDED: &str =
    "the recording does not have this text until here: it has those that were open while it was made";

/// Returns whether what a finding names is a call of `rowsource_compare` with whole numbers and quoted texts,
/// and nothing else: it is sent to the server as a part of a statement.
pub fn is_comparison(call: &str) -> bool {
    let Some(arguments) = call
        .strip_prefix("rowsource_compare(")
        .and_then(|rest| rest.strip_suffix(')'))
    else {
        return false;
    };
    arguments.split(',').map(str::trim).all(|argument| {
        let is_number = |text: &str| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        let quoted = argument
            .strip_prefix('\'')
            .and_then(|rest| rest.strip_suffix('\''));
        // The texts that the server makes are planids and times, which need no quotes within.
        is_number(argument) || quoted.is_some_and(|text| !text.contains(['\'', '\\']))
    })
}

/// Says why Enter leads nowhere from a row.
fn nothing_below(screen: &Screen, target: &Target) -> String {
    let why = match screen {
        _ if target.pid == Some(0) => "a prepared transaction runs nothing: ROLLBACK PREPARED ends it",
        Screen::Blocker(_) => "it runs no statement now, and waits for nobody: its transaction is open",
        Screen::List(View::Waits) => {
            return format!(
                "waits are counted by event: {} shows who waits",
                View::Sessions.key()
            );
        }
        Screen::Node(..) => "these are all figures of the node",
        Screen::Text { .. } => "nothing is below a text",
        Screen::LivePlan(_) => "a running plan has no more of its nodes: e shows it as a table",
        Screen::List(View::Statements) => {
            "these are the sum of plans that are not stored: there is none to show"
        }
        Screen::List(View::Findings) => "the executions before and after are not known any more",
        Screen::List(View::Activity) => "no statement is known of it",
        _ => "this row has nothing below it",
    };
    why.to_owned()
}

impl App {
    /// Returns whether the server lacks what a key needs, and says what.
    fn lacks_extension(&mut self) -> bool {
        let lacks = !self.data.server.has_extension();
        if lacks && self.data.at > 0.0 {
            self.status = crate::server::missing_extension(&self.data.server);
        } else if lacks {
            self.status = "the first answer of the server is awaited".to_owned();
        }
        lacks
    }

    /// Returns the plan that is shown, or that of the selected row.
    fn plan(&self) -> Option<PlanKey> {
        match self.screen() {
            Screen::Plan(key) | Screen::Flame(key) | Screen::Node(key, _) => Some(key.clone()),
            _ => self.target()?.plan,
        }
    }

    /// Says whose figures the server shows, if several users or databases have a plan: functions are called
    /// with its queryid and planid, and prefer the plans of the connection's database, then those of its
    /// user, then the one that took the most time.
    fn whose(&self, queryid: i64, planid: Option<i64>) -> Option<String> {
        let server = &self.data.server;
        let rank = |plan: &Plan| {
            let is_here = |name: &Option<String>, own: &str| name.as_deref() == Some(own);
            (
                !is_here(&plan.datname, &server.database),
                !is_here(&plan.usename, &server.user),
            )
        };
        let plans = self.data.plans.last();
        let plans: Vec<&Plan> = plans
            .filter(|plan| plan.queryid == Some(queryid) && planid.is_none_or(|id| plan.planid == Some(id)))
            .collect();
        let others: BTreeSet<_> = { plans.iter() }
            .map(|plan| (plan.userid, plan.datid, plan.toplevel))
            .collect();
        let order = |a: &&&Plan, b: &&&Plan| rank(a).cmp(&rank(b)).then(b.time.total_cmp(&a.time));
        let shown = plans.iter().min_by(order).filter(|_| others.len() > 1)?;
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "another".to_owned());
        let level = if shown.toplevel { "" } else { ", run by functions" };
        Some(format!(
            "it ran in {} ways (user, database, within functions): these are the figures of user {} in database {}{level}",
            others.len(),
            name(&shown.usename),
            name(&shown.datname),
        ))
    }

    /// Shows what a function writes of a plan, or of all plans of a statement.
    fn call_of(&mut self, queryid: i64, planid: Option<i64>, title: String, call: String) -> Vec<Effect> {
        let whose = self.whose(queryid, planid);
        let effects = self.call(title, call);
        if let Some(Screen::Text { note, .. }) = self.screen_mut().filter(|_| !effects.is_empty()) {
            *note = whose;
        }
        effects
    }

    /// Shows what a function writes.
    fn call(&mut self, title: String, call: String) -> Vec<Effect> {
        if self.is_calling {
            self.status = STILL_CALLING.to_owned();
            return Vec::new();
        }
        self.push(Screen::Text {
            title,
            note: None,
            call: call.clone(),
            lines: None,
        });
        vec![Effect::Call(call, None)]
    }

    /// Shows the plan as EXPLAIN prints it: all executions on average, or as far as a process is.
    pub fn explain(&mut self) -> Vec<Effect> {
        if self.lacks_extension() {
            return Vec::new();
        }
        if let Some(PlanKey { queryid, planid, .. }) = self.plan() {
            return self.explain_plan(queryid, planid);
        }
        let target = self.target().unwrap_or_default();
        if let (Screen::LivePlan(_), Some(queryid), Some(planid)) =
            (self.screen(), target.queryid, target.planid)
        {
            // It has ended, and has its stored plan.
            return self.explain_plan(queryid, planid);
        }
        match (self.process(), target.queryid) {
            (Some(0), _) => {
                self.status = "a prepared transaction runs nothing".to_owned();
                Vec::new()
            }
            (Some(pid), _) => self.call(
                format!("The plan that process {pid} runs"),
                format!("rowsource_display(pid => {pid}, format => 'ALLSTATS')"),
            ),
            (None, Some(queryid)) => self.call_of(
                queryid,
                None,
                format!("The plan of {queryid}, the mean of its executions"),
                format!("rowsource_explain({queryid}, NULL, 'mean')"),
            ),
            _ => {
                self.status = "this row has no plan".to_owned();
                Vec::new()
            }
        }
    }

    fn explain_plan(&mut self, queryid: i64, planid: i64) -> Vec<Effect> {
        self.call_of(
            queryid,
            Some(planid),
            format!("Plan {planid} of {queryid}, the mean of its executions"),
            format!("rowsource_explain({queryid}, {planid}, 'mean')"),
        )
    }

    /// Marks a plan, or compares the marked one with this one; if it is the same plan, its slowest execution
    /// with the mean.
    pub fn compare(&mut self) -> Vec<Effect> {
        if self.lacks_extension() {
            return Vec::new();
        }
        if matches!(self.screen(), Screen::List(View::Findings)) {
            return self.down();
        }
        let Some(key) = self.plan() else {
            self.status = "this row has no plan: c compares plans of a statement".to_owned();
            return Vec::new();
        };
        let PlanKey { queryid, planid, .. } = key;
        match self.marked.take() {
            Some(marked) if marked.queryid == queryid && marked.planid == planid => self.call_of(
                queryid,
                Some(planid),
                format!("Plan {planid} of {queryid}: its mean and its slowest execution"),
                format!("rowsource_compare({queryid}, '{planid} mean', '{planid} slowest')"),
            ),
            Some(marked) if marked.queryid == queryid => self.call_of(
                queryid,
                Some(planid),
                format!("Statement {queryid}: plan {} and plan {planid}", marked.planid),
                format!("rowsource_compare({queryid}, '{}', '{planid}')", marked.planid),
            ),
            _ => {
                self.status =
                    "marked: c on another of its plans, or again here for its slowest execution".to_owned();
                self.marked = Some(key);
                Vec::new()
            }
        }
    }

    /// Shows who blocks the session of the selected row, with its statement.
    pub fn blocker(&mut self) -> Vec<Effect> {
        if self.lacks_extension() {
            return Vec::new();
        }
        let why = match self.process() {
            _ if matches!(self.screen(), Screen::Blocker(_)) => "these are all who block it",
            Some(0) => "a prepared transaction waits for nobody",
            Some(pid) => {
                self.push(Screen::Blocker(pid));
                return vec![Effect::Refresh];
            }
            None => "this row is no process: b works in live, temp, locks and sessions",
        };
        self.status = why.to_owned();
        Vec::new()
    }

    /// Shows where the time of the plan goes.
    pub fn flame(&mut self) -> Vec<Effect> {
        if self.lacks_extension() {
            return Vec::new();
        }
        let why = match self.plan() {
            Some(_) if matches!(self.screen(), Screen::Flame(_)) => "this is where its time goes",
            Some(key) => {
                self.push(Screen::Flame(key));
                return vec![Effect::Refresh];
            }
            None if matches!(self.screen(), Screen::LivePlan(_)) => {
                "f shows the executions that have ended: self has where the time of this one goes"
            }
            None => "this row has no plan",
        };
        self.status = why.to_owned();
        Vec::new()
    }

    /// Writes the page of a plan to a file, or that of the last hour.
    pub fn write_page(&mut self) -> Vec<Effect> {
        if self.lacks_extension() {
            return Vec::new();
        }
        if self.is_calling {
            self.status = STILL_CALLING.to_owned();
            return Vec::new();
        }
        self.status = "the server makes the page".to_owned();
        let plan = self.plan();
        let whose = plan
            .as_ref()
            .and_then(|plan| self.whose(plan.queryid, Some(plan.planid)));
        self.page_note = whose.map_or_else(String::new, |whose| format!("; {whose}"));
        vec![match plan {
            Some(PlanKey { queryid, planid, .. }) => Effect::Call(
                format!("rowsource_html({queryid}, {planid}, 'mean')"),
                Some(format!("rowsource-plan-{planid}")),
            ),
            None => Effect::Call(
                "rowsource_report(NULL::text, NULL::text, 'html')".to_owned(),
                Some("rowsource-report".to_owned()),
            ),
        }]
    }

    /// Returns the key of a plan of which only the statement and the plan are known: that of the user and
    /// database where it took the most time.
    fn stored_plan(&self, queryid: i64, planid: Option<i64>) -> Option<PlanKey> {
        let plans = self.data.plans.last();
        let plans = plans.filter(|plan| (plan.queryid, plan.planid) == (Some(queryid), planid));
        key_of(plans.max_by(|a, b| a.time.total_cmp(&b.time))?)
    }

    /// Shows all plans of a statement as a table.
    fn all_plans(&mut self, queryid: i64) -> Vec<Effect> {
        self.call_of(
            queryid,
            None,
            format!("Plans of statement {queryid}"),
            format!("rowsource_display({queryid}, format => 'ALLSTATS')"),
        )
    }

    /// Goes down from the selected row.
    pub fn down(&mut self) -> Vec<Effect> {
        if self.lacks_extension() {
            return Vec::new();
        }
        let Some(target) = self.target() else {
            self.status = NO_ROW.to_owned();
            return Vec::new();
        };
        let next = match (self.screen(), target) {
            (Screen::List(View::Statements), Target { plan: Some(key), .. })
                if self.data.plans_of(&key).count() > 1 =>
            {
                Screen::Plans(key)
            }
            (
                Screen::List(View::Statements | View::Nodes) | Screen::Plans(_),
                Target { plan: Some(key), .. },
            ) => Screen::Plan(key),
            (
                Screen::Plan(key) | Screen::Flame(key),
                Target {
                    node_id: Some(node_id),
                    ..
                },
            ) => Screen::Node(key.clone(), node_id),
            (Screen::List(View::Locks), Target { pid: Some(pid), .. })
                if self.data.blocker_of(pid).is_some() =>
            {
                Screen::Blocker(pid)
            }
            (
                Screen::List(View::Live | View::Locks | View::Sessions | View::Temp),
                Target { pid: Some(pid), .. },
            ) if pid > 0 => Screen::LivePlan(pid),
            (
                Screen::Blocker(_),
                Target {
                    pid: Some(pid),
                    is_idle: false,
                    ..
                },
            ) if pid > 0 => Screen::LivePlan(pid),
            (
                Screen::List(View::Findings),
                Target {
                    call: Some(call),
                    queryid: Some(queryid),
                    ..
                },
            ) if is_comparison(&call) => {
                return self.call(format!("Statement {queryid}, before and after"), call);
            }
            (
                Screen::List(View::Activity) | Screen::LivePlan(_),
                Target {
                    queryid: Some(queryid),
                    planid,
                    ..
                },
            ) => match self.stored_plan(queryid, planid) {
                Some(key) => Screen::Plan(key),
                None => return self.all_plans(queryid),
            },
            (screen, target) => {
                self.status = nothing_below(screen, &target);
                return Vec::new();
            }
        };
        self.push(next);
        vec![Effect::Refresh]
    }

    /// Returns what the recording of a refresh needs beside what the screen needs: what all lists need.
    pub fn all_wants(&mut self) -> Vec<Want> {
        let mut wants: Vec<Want> = self.wants().into_iter().map(Want::with_list).collect();
        for view in View::ALL {
            for want in Screen::List(view).wants(&mut self.data) {
                // What the screen needs of a list is more than what the list itself does.
                let kind = std::mem::discriminant(&want);
                let is_asked =
                    |known: &Want| !matches!(known, Want::Texts(_)) && std::mem::discriminant(known) == kind;
                if !wants.iter().any(is_asked) {
                    wants.push(want);
                }
            }
        }
        wants
    }
}

impl App {
    /// Shows on the screens that wait for lines those that the recording has until here.
    pub fn take_recorded_lines(&mut self) {
        for screen in &mut self.screens {
            if let Screen::Text { call, lines, .. } = screen {
                *lines = Some(match self.data.recorded.lines.get(call) {
                    Some(recorded) => recorded.clone(),
                    None => vec![NOT_RECORDED.to_owned()],
                });
            }
        }
    }

    /// Copies the text of a screen, or the statement of the selected row, and says which.
    pub fn copy(&mut self) -> Vec<Effect> {
        if let Screen::Text {
            lines: Some(lines), ..
        } = self.screen()
        {
            let text = crate::format::for_clipboard(&lines.join("\n"));
            self.status = format!("copied {} lines, if the terminal allows it", lines.len());
            return vec![Effect::Copy(text)];
        }
        let (table, selected, _) = self.table();
        let Some(row) = table.rows.get(selected) else {
            self.status = NO_ROW.to_owned();
            return Vec::new();
        };
        let whole = match self.screen() {
            Screen::Blocker(pid) => self.data.blockers_of(*pid).into_iter().find_map(|lock| {
                let is_it = Some(lock.pid) == row.target.pid;
                lock.query.clone().filter(|_| is_it)
            }),
            Screen::LivePlan(pid) => self.data.text_of_run(*pid).map(str::to_owned),
            _ => None,
        };
        let text = whole.or_else(|| self.data.text(row.target.queryid).map(str::to_owned));
        let (what, text) = match text {
            Some(text) => ("the statement", text),
            None => {
                let shown = row.cells.last().map(crate::table::Cell::show).unwrap_or_default();
                let title = table.columns.last().map_or("", |column| column.title);
                (title, shown)
            }
        };
        let copied = crate::format::for_clipboard(&text);
        let changed = if copied == text {
            ""
        } else {
            ", controls as spaces"
        };
        let count = copied.chars().count();
        self.status = format!("copied {what}: {count} characters{changed}, if the terminal allows it");
        vec![Effect::Copy(copied)]
    }

    /// Takes over a text that the terminal says was pasted. It is no keys: none of its letters is a command.
    pub fn paste(&mut self, text: &str) {
        let text = crate::format::one_line(text);
        let is_typed = matches!(self.mode, Mode::Filter | Mode::Command(_));
        if !is_typed {
            self.status = "a text was pasted: after / it filters the rows".to_owned();
        }
        for letter in text.chars().filter(|_| is_typed).take(MAX_TYPED) {
            drop(self.key(KeyEvent::from(KeyCode::Char(letter))));
        }
    }

    /// Does what a key means while the help is shown: it moves a help that has no room, and closes another.
    pub fn help_key(&self, key: &KeyEvent, first: usize) -> Mode {
        let page = self.page.max(2);
        let next = match keys::action(key) {
            _ if self.help_rest == 0 => return Mode::Normal,
            Some(Action::Select(rows)) => first.saturating_add_signed(rows),
            Some(Action::Page(pages)) => first.saturating_add_signed(pages * page as isize),
            Some(Action::Pause) => first + page,
            Some(Action::First) => 0,
            Some(Action::Last) => self.help_rest,
            _ => return Mode::Normal,
        };
        Mode::Help(next.min(self.help_rest))
    }
}

impl App {
    /// Begins to ask whether a signal is to be sent: who it is for is looked up first.
    pub fn ask_signal(&mut self, signal: Signal) -> Vec<Effect> {
        let pid = match self.process() {
            _ if self.data.is_replay => Err("a recording has no server: no signals are sent"),
            _ if self.read_only => Err("--read-only: no signals are sent"),
            _ if self.selected_is_gone() && !self.shows_live_plan() => {
                self.select_what_stands_there();
                Err("the selected row has gone: this is another one")
            }
            Some(0) => Err("a prepared transaction: ROLLBACK PREPARED ends it"),
            Some(pid) => Ok(pid),
            None => Err("this row is no process: signals are sent from live, temp, locks and sessions"),
        };
        match pid {
            Ok(pid) => {
                self.mode = Mode::Asking(signal, pid);
                vec![Effect::LookUp(signal, pid)]
            }
            Err(text) => {
                self.status = text.to_owned();
                Vec::new()
            }
        }
    }

    /// Returns whether the screen is about a single process, whichever row is selected.
    fn shows_live_plan(&self) -> bool {
        matches!(self.screen(), Screen::LivePlan(_)) && self.data.server.has_extension()
    }

    /// Asks the question when the session is known, unless a key has come in between.
    pub fn ask_about(&mut self, signal: Signal, pid: i64, found: Result<Option<Addressee>, String>) {
        if self.mode != Mode::Asking(signal, pid) {
            return;
        }
        self.mode = Mode::Normal;
        match found {
            Ok(Some(session)) if session.is_own => {
                self.status =
                    format!("nothing was sent: process {pid} works for rowsource now, behind a pooler");
            }
            Ok(Some(session))
                if signal == Signal::Cancel && session.state.as_deref().is_some_and(|it| it != "active") =>
            {
                self.status = format!("process {pid} runs no statement now: T ends its session");
            }
            Ok(Some(session)) if session.backend_start.is_none() => {
                self.status = format!("nothing was sent: only pg_read_all_stats sees whose session {pid} is");
            }
            Ok(Some(session)) => self.mode = Mode::Confirm(signal, Box::new(session)),
            Ok(None) => self.status = format!("process {pid} is gone"),
            Err(text) => self.status = format!("nothing was sent: {text}"),
        }
    }

    /// Ends a question without a signal.
    pub fn drop_question(&mut self, why: &str) {
        self.mode = Mode::Normal;
        self.status = format!("nothing was sent{why}");
    }
}
