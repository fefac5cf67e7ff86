//! The state of `rowsource top`: what keys do. Nothing here touches a terminal or a server.

use std::collections::BTreeMap;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::data::{Data, FINDINGS};
use crate::keys::{self, Action};
use crate::last_run::LastRun;
use crate::model::Snapshot;
use crate::news::News;
use crate::queries::{PlanKey, Want};
use crate::screens::{Screen, View};
use crate::signals::{Addressee, Signal};
use crate::table::{Order, Table, Target};

/// What a key asks of the world outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Leave.
    Quit,
    /// Ask the server now.
    Refresh,
    /// The same, also for what is asked for seldom.
    Reload,
    /// Put a text on the clipboard of the terminal.
    Copy(String),
    /// Look up the process that a signal is for.
    LookUp(Signal, i64),
    /// Send a signal to a session.
    Signal(Signal, Box<Addressee>),
    /// Call a function that writes text, and show it, or write it to a new file whose name begins like this.
    Call(String, Option<String>),
}

/// What the keyboard is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Keys are commands.
    Normal,
    /// A text by which rows are filtered is typed.
    Filter,
    /// The name of a view is typed.
    Command(String),
    /// The help is shown, from this line on.
    Help(usize),
    /// The process that a signal is for is looked up.
    Asking(Signal, i64),
    /// A signal waits for `y`.
    Confirm(Signal, Box<Addressee>),
}

/// How the user looks at a screen.
#[derive(Clone, Debug, Default)]
struct Look {
    /// The column that the user has selected to sort by.
    sort: Option<usize>,
    filter: String,
    selected: Option<usize>,
    /// The key of the selected row.
    anchor: Option<String>,
    /// How many columns of a wide text are left of the screen.
    shift: usize,
    /// How wide columns have been on a terminal of this width: they do not become narrower again, so that
    /// nothing jumps.
    widths: (u16, BTreeMap<&'static str, u16>),
}

/// The state.
#[cfg_attr(test, derive(Clone))]
pub struct App {
    pub data: Data,
    pub mode: Mode,
    pub paused: bool,
    pub read_only: bool,
    pub interval: Duration,
    /// How long lay between the last refreshes, if that was longer than it was to be.
    pub real_pace: Option<Duration>,
    /// The connection, as the first line names it.
    pub place: String,
    /// What came of the last key, in a sentence.
    pub status: String,
    pub news: News,
    /// Whose figures the page has that was asked for last.
    pub page_note: String,
    /// Why there is no connection now.
    pub trouble: Option<String>,
    /// The plan that another one is to be compared with.
    pub marked: Option<PlanKey>,
    pub screens: Vec<Screen>,
    /// The screens that the last question was for, and the last answer.
    asked: Option<String>,
    answered: Option<String>,
    looks: BTreeMap<String, Look>,
    /// The rows and columns that the terminal has room for.
    pub page: usize,
    pub width: usize,
    /// How many lines of the help have no room.
    pub help_rest: usize,
    /// Whether a replay has ended.
    pub ended: bool,
    /// Whether the server works on a text or a page.
    pub is_calling: bool,
}

/// The intervals between refreshes that `+` and `-` select, in milliseconds.
const INTERVALS: [u64; 7] = [500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/// What keys say that do nothing where there is no row, or no server.
pub const NO_ROW: &str = "there is no row here";
const OWN_PACE: &str = "a replay has the pace of its recording";
/// How long a text may be that is typed.
pub const MAX_TYPED: usize = 200;
/// How many columns a wide text moves.
const SHIFT: usize = 20;

impl App {
    /// Starts with a screen.
    pub fn new(screen: Screen, place: String, interval: Duration, read_only: bool) -> Self {
        Self {
            data: Data::default(),
            mode: Mode::Normal,
            paused: false,
            read_only,
            interval,
            real_pace: None,
            place,
            status: String::new(),
            news: News::default(),
            page_note: String::new(),
            trouble: None,
            marked: None,
            screens: vec![screen],
            asked: None,
            answered: None,
            looks: BTreeMap::new(),
            page: 10,
            width: 80,
            help_rest: 0,
            ended: false,
            is_calling: false,
        }
    }

    /// Returns the screen.
    pub fn screen(&self) -> &Screen {
        self.screens.last().unwrap_or(&Screen::List(View::Statements))
    }

    /// The same, to be changed.
    pub fn screen_mut(&mut self) -> Option<&mut Screen> {
        self.screens.last_mut()
    }

    /// Returns the screen's list, or that from which the user went down.
    pub fn view(&self) -> Option<View> {
        match self.screens.first() {
            Some(Screen::List(view)) => Some(*view),
            _ => None,
        }
    }

    /// Returns how long to wait for the next refresh.
    pub fn pace(&self) -> Duration {
        if self.screen().is_fast() {
            self.interval.min(Duration::from_millis(500))
        } else {
            self.interval
        }
    }

    /// Returns what the screen needs.
    pub fn wants(&mut self) -> Vec<Want> {
        self.asked = Some(self.look_key());
        let screen = self.screen().clone();
        screen.wants(&mut self.data)
    }

    /// Takes over a refresh.
    pub fn apply(&mut self, snapshot: Snapshot) {
        if self.trouble.take().is_some() {
            self.status = "connected again".to_owned();
        }
        self.answered.clone_from(&self.asked);
        self.data.apply(snapshot);
        if self.data.is_replay {
            self.take_recorded_lines();
        }
        if let Some(event) = &self.data.event {
            self.news.hear(event);
        }
    }

    /// Takes over a list that comes beside the refreshes, or why there is none.
    pub fn apply_slow(&mut self, answer: Result<Snapshot, String>) {
        match answer {
            Ok(snapshot) => self.data.apply(snapshot),
            Err(text) => self.data.lack_findings(text),
        }
    }

    /// Takes over the lines of a function, or why there are none, on the screen that waits for them.
    pub fn answer(&mut self, call: &str, answer: Vec<String>) {
        for screen in &mut self.screens {
            if let Screen::Text {
                call: asked, lines, ..
            } = screen
                && asked == call
            {
                *lines = Some(answer.clone());
            }
        }
    }

    /// Returns whether nothing has come yet for the screen. A replay asks for nothing.
    pub fn is_awaiting(&self) -> bool {
        let is_text = matches!(self.screen(), Screen::Text { .. });
        let is_slow = *self.screen() == Screen::List(View::Findings);
        let is_here = self.answered.as_ref() == Some(&self.look_key());
        let has_come = self.data.findings_at.is_some() || self.data.lacks(FINDINGS);
        !is_text && self.asked.is_some() && !(is_here && (has_come || !is_slow))
    }

    fn look(&self) -> Look {
        self.looks.get(&self.look_key()).cloned().unwrap_or_default()
    }

    fn look_key(&self) -> String {
        match self.screen() {
            Screen::Text { call, .. } => call.clone(),
            screen => format!("{screen:?}"),
        }
    }

    fn change_look(&mut self, change: impl FnOnce(&mut Look)) {
        let key = self.look_key();
        // A user who opens many plans leaves a little memory for each.
        if self.looks.len() > 500 {
            self.looks.clear();
        }
        change(self.looks.entry(key).or_default());
    }

    /// Returns the table, sorted and filtered, the selected row, and the column by which it is sorted.
    pub fn table(&self) -> (Table, usize, Option<usize>) {
        let look = self.look();
        let mut table = self.screen().table(&self.data);
        let sort = table.sorted_by(look.sort);
        if let Some(sort) = sort {
            table.sort_by(sort);
        }
        if !look.filter.is_empty() {
            table.filter(&look.filter);
        }
        if look.shift > 0 {
            table.shift(look.shift);
        }
        let anchored = look
            .anchor
            .and_then(|anchor| table.rows.iter().position(|row| row.key == anchor));
        // A plan begins with the node that takes the most time.
        let begins = || match (look.selected, self.screen()) {
            (None, Screen::Plan(_)) => table.rows.iter().position(|row| row.is_marked),
            (selected, _) => selected,
        };
        let selected = anchored
            .or_else(begins)
            .unwrap_or(0)
            .min(table.rows.len().saturating_sub(1));
        (table, selected, sort)
    }

    /// Keeps the columns as wide as they have been on a terminal of this width.
    pub fn keep_widths(&mut self, table: &mut Table, width: u16) {
        // Without rows, nobody has seen columns that could jump.
        if table.rows.is_empty() {
            return;
        }
        let (of, mut widths) = self.look().widths;
        if of != width {
            widths.clear();
        }
        for (index, column) in table.columns.iter().enumerate() {
            let wide = widths.entry(column.title).or_default();
            *wide = table.longest(index).max(*wide);
            table.least.push(*wide);
        }
        self.change_look(|look| look.widths = (width, widths));
    }

    /// Returns the text by which rows are filtered.
    pub fn filter(&self) -> String {
        self.look().filter
    }

    /// Does what a key means.
    pub fn key(&mut self, mut key: KeyEvent) -> Vec<Effect> {
        if key.modifiers == KeyModifiers::CONTROL && key.code == KeyCode::Char('h') {
            // Some terminals have this for Backspace.
            key = KeyEvent::from(KeyCode::Backspace);
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            // These hold whatever is typed.
            return match keys::action(&key) {
                Some(Action::Quit) => vec![Effect::Quit],
                Some(Action::Refresh) => self.reload(),
                _ if self.mode == Mode::Normal => self.normal_key(&key),
                _ => Vec::new(),
            };
        }
        match self.mode.clone() {
            Mode::Normal => self.normal_key(&key),
            Mode::Help(first) => {
                self.mode = self.help_key(&key, first);
                Vec::new()
            }
            Mode::Filter => self.filter_key(key.code),
            Mode::Command(typed) => self.command_key(key.code, typed),
            Mode::Confirm(signal, session) if key == KeyEvent::from(KeyCode::Char('y')) => {
                self.mode = Mode::Normal;
                vec![Effect::Signal(signal, session)]
            }
            // A key that comes before the question has not seen it.
            Mode::Asking(..) | Mode::Confirm(..) => {
                self.drop_question("");
                Vec::new()
            }
        }
    }

    fn normal_key(&mut self, key: &KeyEvent) -> Vec<Effect> {
        let has_news = self.news.now(self.data.at).is_some();
        self.news.clear();
        let has_said = !std::mem::take(&mut self.status).is_empty() || has_news;
        let page = self.page.max(2) as isize - 1;
        let Some(action) = keys::action(key) else {
            self.status = format!(
                "{} does nothing: ? shows the keys",
                keys::name(key.modifiers, key.code)
            );
            return Vec::new();
        };
        match action {
            Action::Quit => return vec![Effect::Quit],
            Action::Help => self.mode = Mode::Help(0),
            Action::Filter => {
                self.mode = Mode::Filter;
                self.change_look(|look| look.filter.clear());
            }
            Action::Command => self.mode = Mode::Command(String::new()),
            Action::View(number) => return self.open_view(View::ALL[number]),
            Action::Select(rows) => self.select(rows),
            Action::Page(pages) => self.select(pages * page),
            Action::First => self.select(isize::MIN / 2),
            Action::Last => self.select(isize::MAX / 2),
            Action::Sort(columns) => self.sort_beside(columns),
            Action::Pause if self.ended => self.status = "nothing is left to pause".to_owned(),
            Action::Pause => self.paused = !self.paused,
            Action::Interval(step) => self.change_interval(step),
            Action::Refresh => return self.reload(),
            Action::Copy => return self.copy(),
            Action::Explain => return self.explain(),
            Action::Compare => return self.compare(),
            Action::Flame => return self.flame(),
            Action::Blocker => return self.blocker(),
            Action::Write => return self.write_page(),
            Action::Cancel => return self.ask_signal(Signal::Cancel),
            Action::Terminate => return self.ask_signal(Signal::Terminate),
            Action::Down => return self.down(),
            Action::Up => return self.up(has_said),
            Action::Left | Action::Right if self.shift(action == Action::Right) => {}
            Action::Right => return self.down(),
            Action::Left => return self.up(has_said),
        }
        Vec::new()
    }

    fn filter_key(&mut self, code: KeyCode) -> Vec<Effect> {
        match code {
            KeyCode::Enter => {
                self.mode = Mode::Normal;
                if self.selected_is_gone() {
                    self.select_what_stands_there();
                }
            }
            KeyCode::Esc => {
                self.mode = Mode::Normal;
                self.change_look(|look| look.filter.clear());
            }
            KeyCode::Backspace => self.change_look(|look| {
                look.filter.pop();
            }),
            KeyCode::Char(letter) => self.change_look(|look| {
                if look.filter.len() < MAX_TYPED {
                    look.filter.push(letter);
                }
            }),
            _ => {}
        }
        Vec::new()
    }

    fn command_key(&mut self, code: KeyCode, mut typed: String) -> Vec<Effect> {
        match code {
            KeyCode::Enter => {
                self.mode = Mode::Normal;
                let found = View::named(&typed).next().filter(|_| !typed.is_empty());
                return match (found, typed.as_str()) {
                    (_, "q" | "quit") => vec![Effect::Quit],
                    (Some(view), _) => self.open_view(view),
                    (None, "") => Vec::new(),
                    (None, _) => {
                        self.status = format!("there is no view {typed}");
                        Vec::new()
                    }
                };
            }
            KeyCode::Tab => {
                let found = View::named(&typed).next().map(View::name);
                self.mode = Mode::Command(found.map_or(typed, str::to_owned));
            }
            KeyCode::Esc => self.mode = Mode::Normal,
            KeyCode::Backspace if typed.is_empty() => self.mode = Mode::Normal,
            KeyCode::Backspace => {
                typed.pop();
                self.mode = Mode::Command(typed);
            }
            KeyCode::Char(letter) if typed.len() < MAX_TYPED => {
                typed.push(letter);
                self.mode = Mode::Command(typed);
            }
            _ => {}
        }
        Vec::new()
    }

    fn open_view(&mut self, view: View) -> Vec<Effect> {
        self.marked = None;
        self.screens = vec![Screen::List(view)];
        vec![Effect::Refresh]
    }

    /// Asks for a refresh now.
    fn reload(&mut self) -> Vec<Effect> {
        if self.data.is_replay {
            self.status = OWN_PACE.to_owned();
            return Vec::new();
        }
        vec![Effect::Reload]
    }

    /// Selects a row that is so far below.
    fn select(&mut self, rows: isize) {
        if self.target().is_none() {
            self.status = NO_ROW.to_owned();
        }
        self.move_by(rows);
    }

    fn move_by(&mut self, rows: isize) {
        let (table, selected, _) = self.table();
        let last = table.rows.len().saturating_sub(1);
        let selected = selected.saturating_add_signed(rows).min(last);
        let anchor = table.rows.get(selected).map(|row| row.key.clone());
        self.change_look(|look| (look.selected, look.anchor) = (Some(selected), anchor));
    }

    /// Sorts by the next column that is shown. Before the first and after the last one comes the order that
    /// the view has of itself.
    fn sort_beside(&mut self, step: isize) {
        let (table, _, sort) = self.table();
        if table.order == Order::Fixed {
            self.status = "these rows have an order: they are not sorted".to_owned();
            return;
        }
        let shown = table.layout(self.width.min(usize::from(u16::MAX)) as u16);
        let mut orders: Vec<Option<usize>> = shown.into_iter().map(|(column, _)| Some(column)).collect();
        if !matches!(table.order, Order::By(_)) {
            orders.insert(0, None);
        }
        let at = orders.iter().position(|order| *order == sort).unwrap_or(0);
        let next = (at as isize + step).rem_euclid(orders.len().max(1) as isize);
        let next = orders.get(next as usize).copied().flatten();
        self.status = match next {
            Some(column) => format!("sorted by {}", table.columns[column].title),
            None => "in the order of the view".to_owned(),
        };
        self.change_look(|look| look.sort = next);
    }

    /// Moves a text that is wider than the screen. Returns whether it did.
    fn shift(&mut self, is_right: bool) -> bool {
        let Screen::Text {
            lines: Some(lines), ..
        } = self.screen()
        else {
            return false;
        };
        let shift = self.look().shift;
        let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        if is_right && shift + self.width < longest {
            self.change_look(|look| look.shift += SHIFT);
        } else if !is_right && shift > 0 {
            self.change_look(|look| look.shift = shift.saturating_sub(SHIFT));
        } else {
            if is_right {
                self.status = "nothing more is on the right".to_owned();
            }
            return is_right;
        }
        true
    }

    fn change_interval(&mut self, step: isize) {
        if self.data.is_replay {
            self.status = OWN_PACE.to_owned();
            return;
        }
        // The next one from what it is now, which may be none of these.
        let now = self.interval.as_millis() as u64;
        let next = if step > 0 {
            INTERVALS.into_iter().find(|interval| *interval > now)
        } else {
            INTERVALS.into_iter().rfind(|interval| *interval < now)
        };
        self.interval = next.map_or(self.interval, Duration::from_millis);
        let seconds = self.interval.as_secs_f64();
        self.status = if self.pace() < self.interval {
            format!(
                "a refresh every {:.1} s here, and every {seconds:.1} s on other screens",
                self.pace().as_secs_f64()
            )
        } else {
            format!("a refresh every {seconds:.1} s")
        };
    }

    /// Goes down to a screen.
    pub fn push(&mut self, screen: Screen) {
        if matches!(screen, Screen::LivePlan(_)) {
            self.data.last_run = LastRun::default();
        }
        self.screens.push(screen);
    }

    /// Returns what the keys of the selected row concern.
    pub fn target(&self) -> Option<Target> {
        let (table, selected, _) = self.table();
        table.rows.get(selected).map(|row| row.target.clone())
    }

    /// Returns whether the row that the user has selected is not in the list any more, so that another one
    /// stands in its place.
    pub fn selected_is_gone(&self) -> bool {
        let (table, selected, _) = self.table();
        let key = table.rows.get(selected).map(|row| &row.key);
        self.look().anchor.is_some_and(|anchor| key != Some(&anchor))
    }

    /// Selects the row that stands in the place of the selected one.
    pub fn select_what_stands_there(&mut self) {
        self.move_by(0);
    }

    /// Returns the process that the keys concern: that of the selected row, or of the screen.
    pub fn process(&self) -> Option<i64> {
        match self.screen() {
            // A server without the extension shows its sessions here.
            Screen::LivePlan(pid) if self.data.server.has_extension() => Some(*pid),
            _ => self.target()?.pid,
        }
    }

    /// Returns whether there is a screen above this one.
    pub fn has_above(&self) -> bool {
        self.screens.len() > 1
    }

    /// Goes up. On the first screen it takes back the filter, and what was said.
    fn up(&mut self, has_said: bool) -> Vec<Effect> {
        if self.has_above() {
            self.screens.pop();
            return vec![Effect::Refresh];
        }
        if self.filter().is_empty() && !has_said {
            self.status = "nothing is above this screen: q leaves".to_owned();
        }
        self.change_look(|look| look.filter.clear());
        Vec::new()
    }
}
