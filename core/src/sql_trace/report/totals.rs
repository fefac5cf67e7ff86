//! Adds up the lines of trace files.

use super::super::event::{Call, Cursor, Event, Header, Phase, Stat, Wait};
use super::super::open::{Open, depth};
use super::statement::{Calls, Statement};
use super::waits::{self, Waits};
use std::collections::{BTreeMap, HashMap};

/// The most statements that are listed. The lines of others are added up.
const MAX_STATEMENTS: usize = 10_000;
/// The most cursors of a file that are known. A session that uses many statements gives new numbers to those
/// that it has forgotten.
const MAX_CURSORS: usize = 1_000_000;
const UNKNOWN: &str = "(the statement's text is not in the file)";
const OTHERS: &str = "(others: the sum of all statements after the first 10000)";
/// The most waits between two calls of the client's statements that are kept until it is known whose they
/// are.
const MAX_PENDING: usize = 1_000;
/// Waits for the client end here: what comes next belongs to the next message.
const CLIENT: &str = "Client ";
/// What is known of the calls of one nesting level.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// When the last call ended.
    last_end: Option<u64>,
    /// How long the session has waited since.
    waited_us: u64,
}

/// What is known of a cursor.
#[derive(Debug)]
struct Known {
    queryid: i64,
    uid: u64,
    /// The text, until the statement is listed.
    sql: Option<String>,
}

/// The file that is read now.
#[derive(Debug, Default)]
struct File {
    cursors: HashMap<u64, Known>,
    levels: Vec<Level>,
    /// The executions in progress.
    open: Open,
    /// The waits since the last call of the client's statements. The call after them says whose they are:
    /// they are those of the statement before if its transaction ends with them, and else those of the next
    /// one.
    pending: Vec<Wait>,
    /// There are lines inside a call that has not ended.
    is_in_call: bool,
    first_tim: Option<u64>,
    /// The OID of the session's database. A file that was emptied does not tell it.
    database: Option<u64>,
    /// The bytes of the cursors.
    kept: usize,
    last_tim: u64,
}

/// The sum of the files.
#[derive(Debug, Default)]
pub struct Report {
    file: File,
    pub(super) files: Vec<String>,
    pub(super) statements: Vec<Statement>,
    /// The places of statements by their queryids and users, apart for those that clients sent and those that
    /// others called.
    index: HashMap<(i64, u64, bool), usize>,
    /// The places of the sums of statements that are not listed.
    others: [Option<usize>; 2],
    /// The calls of the statements that clients sent, and of those that others called.
    pub(super) totals: [Calls; 2],
    pub(super) waits: [Waits; 2],
    /// The elapsed time of all files, what of it is in calls, and what the sessions waited between calls.
    pub(super) elapsed_us: u64,
    pub(super) in_calls_us: u64,
    pub(super) between_us: u64,
    /// The elapsed time of statements that had not ended when the files ended.
    pub(super) unended_us: u64,
    /// How often statements failed before their first call, and how long that took, by their text and
    /// SQLSTATE.
    pub(super) parse_errors: BTreeMap<(String, String), (u64, u64)>,
    pub(super) commits: u64,
    pub(super) rollbacks: u64,
    pub(super) errors: u64,
    pub(super) lost: Vec<(u64, String)>,
    pub(super) notes: Vec<String>,
    /// The process and the part of the last file.
    last_part: Option<(u64, u64)>,
    /// The bytes of the statements.
    kept: usize,
}

impl Report {
    /// Begins a file.
    pub fn begin_file(&mut self, name: String) {
        self.files.push(name);
        self.file = File::default();
    }

    /// Ends a file. The notes say what is missing.
    pub fn end_file(&mut self, notes: impl IntoIterator<Item = String>) {
        self.keep_pending();
        if self.file.is_in_call {
            let last_tim = self.file.last_tim;
            let here = level(&mut self.file.levels, 0);
            let since = last_tim.saturating_sub(here.last_end.unwrap_or(last_tim));
            self.unended_us = self
                .unended_us
                .saturating_add(since.saturating_sub(here.waited_us));
        }
        let file = std::mem::take(&mut self.file);
        let elapsed = file
            .last_tim
            .saturating_sub(file.first_tim.unwrap_or(file.last_tim));
        self.elapsed_us = self.elapsed_us.saturating_add(elapsed);
        self.notes.extend(notes);
    }

    /// Returns about how many bytes are kept.
    pub fn size(&self) -> usize {
        self.kept.saturating_add(self.file.kept)
    }

    /// Adds a line.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Header(header) => self.add_header(&header),
            Event::Cursor(cursor) => self.add_cursor(cursor),
            Event::Call(phase, call) => self.add_call(phase, &call),
            Event::Stat(stat) => self.add_stat(&stat),
            Event::Wait(wait) => self.add_wait(wait),
            Event::Transaction { rollback, call, .. } => {
                self.commits += u64::from(!rollback);
                self.rollbacks += u64::from(rollback);
                if call.dep == 0 && call.elapsed_us.is_some() {
                    self.add_call(Phase::Commit, &call);
                } else if call.dep == 0 {
                    self.keep_pending();
                }
                self.at(call.tim);
            }
            Event::ParseError { code, call, sql, .. } => self.add_parse_error((sql, code), &call),
            Event::Error { tim, .. } => {
                self.at(tim);
                self.errors += 1;
            }
            Event::Lost { lines, reason } if self.lost.len() < MAX_STATEMENTS => {
                self.kept += reason.len();
                self.lost.push((lines, reason));
            }
            Event::End { tim } => self.at(tim),
            Event::Lost { .. } | Event::Node { .. } | Event::Value { .. } => {}
        }
    }

    /// Notes that there is a line of this time.
    fn at(&mut self, tim: u64) {
        self.file.first_tim.get_or_insert(tim);
        self.file.last_tim = self.file.last_tim.max(tim);
    }

    fn add_cursor(&mut self, cursor: Cursor) {
        let file = &mut self.file;
        if file.cursors.len() >= MAX_CURSORS && !file.cursors.contains_key(&cursor.number) {
            return;
        }
        let (queryid, uid) = (cursor.queryid, cursor.uid);
        let is_listed = [false, true]
            .iter()
            .any(|is_recursive| self.index.contains_key(&(queryid, uid, *is_recursive)));
        let may_be_listed = !is_listed && self.statements.len() < MAX_STATEMENTS;
        let sql = may_be_listed.then_some(cursor.sql);
        let bytes = size_of::<(u64, Known)>() + sql.as_ref().map_or(0, String::len);
        file.kept = file.kept.saturating_add(bytes);
        file.cursors.insert(cursor.number, Known { queryid, uid, sql });
    }

    fn add_header(&mut self, header: &Header) {
        self.at(header.tim);
        self.file.database = Some(header.datid);
        let level = level(&mut self.file.levels, 0);
        level.last_end.get_or_insert(header.tim);
        let continues = self.last_part == Some((header.pid, header.part.saturating_sub(1)));
        if header.part > 1 && !continues {
            self.notes.push(format!(
                "{}: this is part {} of the trace of its session, and the part before it is not among these files. A session keeps its \
                 last two files.",
                self.files.last().map_or("", String::as_str),
                header.part
            ));
        }
        self.last_part = Some((header.pid, header.part));
    }

    fn add_stat(&mut self, stat: &Stat) {
        let level = self.file.open.level(stat.cursor, stat.dep);
        let place = self.place(stat.cursor, level);
        // Plans of different statements have nothing in common.
        if !self.others.contains(&Some(place)) {
            self.kept += self.statements[place].add_stat(stat);
        }
    }

    fn add_call(&mut self, phase: Phase, call: &Call) {
        self.at(call.tim);
        let began = call.tim.saturating_sub(call.elapsed_us.unwrap_or(0));
        if call.dep == 0 {
            self.take_pending(began, call.cursor);
        }
        let before_us = self.end_call(began, call);
        // A cursor may be read and closed by others than the statement that opened it.
        let began_at = self.file.open.level_of(phase, call);
        self.totals[usize::from(began_at > 0)][phase as usize].add_call(call, before_us);
        let execution = self.file.open.add(phase, call);
        // The transaction of a statement that is not in the file is nobody's.
        if phase == Phase::Commit && !self.file.cursors.contains_key(&call.cursor) {
            return;
        }
        let place = self.place(call.cursor, began_at);
        let statement = &mut self.statements[place];
        statement.add_call(phase, call, before_us);
        if let Some(elapsed) = execution {
            statement.executions.add(elapsed);
        }
    }

    /// Notes that a call has ended. Returns how long the session was neither in a call nor waited before.
    fn end_call(&mut self, began: u64, call: &Call) -> u64 {
        self.file.is_in_call = call.dep > 0;
        let here = level(&mut self.file.levels, call.dep);
        let since = here.last_end.map_or(0, |end| began.saturating_sub(end));
        // What the session did before it is not known if nothing was written of that.
        let is_known = call.elapsed_us.is_some() && !call.follows_others;
        let before_us = if is_known {
            since.saturating_sub(here.waited_us)
        } else {
            0
        };
        *here = Level {
            last_end: Some(call.tim),
            waited_us: 0,
        };
        // What was nested in this call has ended.
        self.file.levels.truncate(depth(call.dep) + 1);
        if call.dep == 0 {
            self.in_calls_us = self.in_calls_us.saturating_add(call.elapsed_us.unwrap_or(0));
        }
        before_us
    }

    /// Adds a statement that failed before its first call.
    fn add_parse_error(&mut self, key: (String, String), call: &Call) {
        self.at(call.tim);
        self.errors += 1;
        let elapsed_us = call.elapsed_us.unwrap_or(0);
        let began = call.tim.saturating_sub(elapsed_us);
        self.take_pending(began, 0);
        self.end_call(began, call);
        if self.parse_errors.contains_key(&key) || self.parse_errors.len() < MAX_STATEMENTS {
            self.kept += key.0.len() + size_of::<(String, String)>();
            let (times, sum) = self.parse_errors.entry(key).or_default();
            *times += 1;
            *sum = sum.saturating_add(elapsed_us);
        }
    }

    fn add_wait(&mut self, wait: Wait) {
        self.at(wait.tim);
        if wait.dep > 0 {
            self.file.is_in_call = true;
            let here = level(&mut self.file.levels, wait.dep);
            here.waited_us = here.waited_us.saturating_add(wait.elapsed_us);
            // A wait at level 1 is in a call of a statement that a client sent.
            let level = self.file.open.level(wait.cursor, wait.dep - 1);
            return self.charge(&wait, wait.cursor, level);
        }
        let is_client = wait.name.starts_with(CLIENT);
        if is_client || self.file.pending.len() >= MAX_PENDING {
            self.keep_pending();
        }
        if is_client {
            self.charge_between(&wait, wait.cursor);
        } else {
            self.file.pending.push(wait);
        }
    }

    /// Gives the pending waits to the statement that the lines name, which is the one before them.
    fn keep_pending(&mut self) {
        for wait in std::mem::take(&mut self.file.pending) {
            self.charge_between(&wait, wait.cursor);
        }
    }

    /// Gives the pending waits to the statement of a call that began at this time. Those that began later are
    /// inside the call.
    fn take_pending(&mut self, began: u64, cursor: u64) {
        for wait in std::mem::take(&mut self.file.pending) {
            if wait.tim.saturating_sub(wait.elapsed_us) >= began {
                self.charge(&wait, cursor, 0);
            } else {
                self.charge_between(&wait, cursor);
            }
        }
    }

    /// Adds a wait between two calls of the client's statements.
    fn charge_between(&mut self, wait: &Wait, cursor: u64) {
        let here = level(&mut self.file.levels, 0);
        here.waited_us = here.waited_us.saturating_add(wait.elapsed_us);
        self.between_us = self.between_us.saturating_add(wait.elapsed_us);
        self.charge(wait, cursor, 0);
    }

    /// Adds a wait to a statement that ran in `dep` calls, and to the totals.
    fn charge(&mut self, wait: &Wait, cursor: u64, dep: u64) {
        // Its statement may be in the file before.
        if self.file.cursors.contains_key(&cursor) {
            let place = self.place(cursor, dep);
            let statement = &mut self.statements[place];
            self.kept += statement.add_wait(wait) + statement.objects.add(wait, self.file.database);
        }
        self.kept += waits::add(&mut self.waits[usize::from(dep > 0)], wait);
    }

    /// Returns the place of the statement of a cursor, or that of all others if there are too many.
    fn place(&mut self, cursor: u64, dep: u64) -> usize {
        let is_recursive = dep > 0;
        let is_full = self.file.cursors.len() >= MAX_CURSORS;
        let known = self.file.cursors.get_mut(&cursor);
        let is_lost = known.is_none() && cursor > 0 && is_full;
        let (queryid, uid, sql) = known.map_or((0, 0, None), |known| {
            (known.queryid, known.uid, Some(&mut known.sql))
        });
        let key = (queryid, uid, is_recursive);
        if let Some(place) = self.index.get(&key).filter(|_| !is_lost) {
            return *place;
        }
        let is_other = is_lost || sql.is_some() && self.statements.len() >= MAX_STATEMENTS;
        let others = &mut self.others[usize::from(is_recursive)];
        if let Some(place) = others.filter(|_| is_other) {
            return place;
        }
        let place = self.statements.len();
        let (key, sql) = if is_other {
            *others = Some(place);
            (None, OTHERS.to_owned())
        } else {
            let twin = self.index.get(&(queryid, uid, !is_recursive));
            let twin = twin.map(|twin| self.statements[*twin].sql.clone());
            let sql = sql.and_then(Option::take).or(twin);
            (Some(key), sql.unwrap_or_else(|| UNKNOWN.to_owned()))
        };
        self.kept += sql.len() + size_of::<Statement>();
        self.statements.push(Statement {
            queryid: Some(if is_other { 0 } else { queryid }),
            uid: Some(if is_other { 0 } else { uid }),
            is_recursive,
            dep: Some(dep),
            sql,
            ..Statement::default()
        });
        if let Some(key) = key {
            self.index.insert(key, place);
        }
        place
    }

    /// Returns the statements in the order in which they were first seen.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }
}

/// Returns a nesting level.
fn level(levels: &mut Vec<Level>, dep: u64) -> &mut Level {
    let at = depth(dep);
    if levels.len() <= at {
        levels.resize(at + 1, Level::default());
    }
    &mut levels[at]
}

#[cfg(test)]
mod tests;
