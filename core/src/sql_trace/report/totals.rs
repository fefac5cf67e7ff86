//! Adds up the lines of trace files.

use super::super::event::{Call, Cursor, Event, Phase, Stat, Wait};
use super::statement::{Calls, Statement};
use super::waits::Waits;
use std::collections::HashMap;

/// The most statements that are listed. The lines of others are added up.
const MAX_STATEMENTS: usize = 10_000;
/// The most cursors of a file that are known. A session that uses many statements gives new numbers to those that it has forgotten.
const MAX_CURSORS: usize = 1_000_000;
const UNKNOWN: &str = "(the statement's text is not in the file)";
const OTHERS: &str = "(others: the sum of all statements after the first 10000)";
/// Calls that are nested more deeply are taken as nested as deeply as this.
const MAX_DEPTH: usize = 200;

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
    /// The elapsed times of the executions in progress, by their cursor and nesting level.
    executions: HashMap<(u64, u64), u64>,
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
    /// The places of statements by their queryids and users, apart for those that clients sent and those that others called.
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
    pub(super) commits: u64,
    pub(super) rollbacks: u64,
    pub(super) errors: u64,
    pub(super) lost: Vec<(u64, String)>,
    pub(super) notes: Vec<String>,
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
            Event::Header(header) => {
                self.at(header.tim);
                self.file.database = Some(header.dbid);
                let level = level(&mut self.file.levels, 0);
                level.last_end.get_or_insert(header.tim);
            }
            Event::Cursor(cursor) => self.add_cursor(cursor),
            Event::Call(phase, call) => self.add_call(phase, &call),
            Event::Stat(stat) => self.add_stat(&stat),
            Event::Wait(wait) => self.add_wait(&wait),
            Event::Transaction { rollback, tim, .. } => {
                self.at(tim);
                self.commits += u64::from(!rollback);
                self.rollbacks += u64::from(rollback);
            }
            Event::Error { tim, .. } => {
                self.at(tim);
                self.errors += 1;
            }
            Event::Lost { lines, reason } if self.lost.len() < MAX_STATEMENTS => {
                self.kept += reason.len();
                self.lost.push((lines, reason));
            }
            Event::End { tim } => self.at(tim),
            Event::Lost { .. } | Event::Node { .. } | Event::Bind { .. } => {}
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

    fn add_stat(&mut self, stat: &Stat) {
        let place = self.place(stat.cursor, stat.dep);
        // Plans of different statements have nothing in common.
        if !self.others.contains(&Some(place)) {
            self.kept += self.statements[place].add_stat(stat);
        }
    }

    fn add_call(&mut self, phase: Phase, call: &Call) {
        self.at(call.tim);
        let began = call.tim.saturating_sub(call.elapsed_us.unwrap_or(0));
        let here = level(&mut self.file.levels, call.dep);
        let since = here.last_end.map_or(0, |end| began.saturating_sub(end));
        let before_us = since.saturating_sub(here.waited_us);
        *here = Level {
            last_end: Some(call.tim),
            waited_us: 0,
        };
        // What was nested in this call has ended.
        self.file.levels.truncate(depth(call.dep) + 1);
        let is_recursive = call.dep > 0;
        if !is_recursive {
            self.in_calls_us = self.in_calls_us.saturating_add(call.elapsed_us.unwrap_or(0));
        }
        self.totals[usize::from(is_recursive)][phase as usize].add_call(call, before_us);
        let execution = self.execution(phase, call);
        let place = self.place(call.cursor, call.dep);
        let statement = &mut self.statements[place];
        statement.add_call(phase, call, before_us);
        if let Some(elapsed) = execution {
            statement.executions.add(elapsed);
        }
    }

    /// Adds a call to its execution. Returns the elapsed time of the execution that ends with it.
    fn execution(&mut self, phase: Phase, call: &Call) -> Option<u64> {
        let running = &mut self.file.executions;
        let key = (call.cursor, call.dep);
        let elapsed = call.elapsed_us.unwrap_or(0);
        match phase {
            Phase::Parse | Phase::Plan => None,
            Phase::Exec if call.is_utility => Some(elapsed),
            // Two cursors of one statement may be open at once. Then the first one counts as it is.
            Phase::Exec if running.len() < MAX_STATEMENTS => running.insert(key, elapsed),
            Phase::Exec => None,
            Phase::Fetch | Phase::Finish => {
                let sum = running.get_mut(&key)?;
                *sum = sum.saturating_add(elapsed);
                // A failed execution is never closed.
                if call.has_failed {
                    running.remove(&key)
                } else {
                    None
                }
            }
            Phase::Close => running.remove(&key).map(|sum| sum.saturating_add(elapsed)),
        }
    }

    fn add_wait(&mut self, wait: &Wait) {
        self.at(wait.tim);
        let here = level(&mut self.file.levels, wait.dep);
        here.waited_us = here.waited_us.saturating_add(wait.elapsed_us);
        if wait.dep == 0 {
            self.between_us = self.between_us.saturating_add(wait.elapsed_us);
        }
        // A wait at level 1 is in a call of a statement that a client sent.
        let statement_dep = wait.dep.saturating_sub(1);
        let mut sums = Statement::default();
        sums.add_wait(wait);
        // Its statement may be in the file before.
        if self.file.cursors.contains_key(&wait.cursor) {
            let place = self.place(wait.cursor, statement_dep);
            let statement = &mut self.statements[place];
            self.kept += statement.add_wait(wait) + statement.objects.add(wait, self.file.database);
        }
        let waits = &mut self.waits[usize::from(statement_dep > 0)];
        for (name, waited) in sums.waits {
            waits.entry(name).or_default().add(&waited);
        }
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

fn depth(dep: u64) -> usize {
    usize::try_from(dep).unwrap_or(MAX_DEPTH).min(MAX_DEPTH)
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
